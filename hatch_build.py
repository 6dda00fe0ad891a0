"""Hatchling's hook: the README as a package index shows it, where a link into the repository has to be a whole one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).parent
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s]+)\)")


def absolute(text: str, base: str) -> str:
    """Return Markdown whose links to files of the repository begin with `base`."""
    return _LINK.sub(rf"]({base}/\1)", text)


class CustomMetadataHook(MetadataHookInterface):
    """Gives the project's metadata its readme."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add it. The links lead to the files of the version that is built."""
        package = (ROOT / "mingle_hooks" / "__init__.py").read_text()
        (version,) = re.findall(r'^__version__ = "(.+)"$', package, re.MULTILINE)
        base = f"{metadata['urls']['Source']}/blob/v{version}"
        text = absolute((ROOT / "README.md").read_text(), base)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
