"""Hatchling's hook: the repository's address, where it is known, and the README as a package index shows it.

MINGLE_SOURCE_URL is the address, for whoever publishes a package. Without it the package names none, and the README's
links into the repository become plain text.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).parent
_LINK = re.compile(r"\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


def absolute(text: str, base: str) -> str:
    """Return Markdown whose links to files of the repository begin with `base`; without one they are no links."""
    return _LINK.sub(rf"[\1]({base}/\2)" if base else r"\1", text)


class CustomMetadataHook(MetadataHookInterface):
    """Gives the project's metadata its addresses and its readme."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add both. The links lead to the files of the version that is built."""
        package = (ROOT / "mingle_hooks" / "__init__.py").read_text()
        (version,) = re.findall(r'^__version__ = "(.+)"$', package, re.MULTILINE)
        source = os.environ.get("MINGLE_SOURCE_URL", "").rstrip("/")
        base = f"{source}/blob/v{version}" if source else ""
        if source:
            pages = {"Documentation": "README.md", "Changelog": "CHANGELOG.md"}
            metadata["urls"] = {"Source": source, "Issues": f"{source}/issues"}
            metadata["urls"] |= {name: f"{base}/{page}" for name, page in pages.items()}
        text = absolute((ROOT / "README.md").read_text(), base)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
