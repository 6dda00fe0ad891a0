"""The licences of what is in a system package: the project's own, and those of what its program contains."""

from __future__ import annotations

import re
import zipfile
from email.parser import HeaderParser
from typing import TYPE_CHECKING

from build import ROOT
from sbom import licence

if TYPE_CHECKING:
    from email.message import Message
    from pathlib import Path

OWN = "mingle-hooks{source}\nCopyright: the mingle-hooks maintainers\nLicence: Apache-2.0\n\n{text}"
HELD = "/usr/bin/mingle contains {name} {version}\nCopyright: {who}\nLicence: {licence}\n{text}"


def notice(archive: Path, source: str) -> str:
    """Return them all, with their texts; `archive` is mingle.pyz."""
    parts = [OWN.format(source=f", {source}" if source else "", text=(ROOT / "LICENSE").read_text())]
    with zipfile.ZipFile(archive) as held:
        names = held.namelist()
        for name in names:
            where, _, file = name.partition("/")
            if file == "METADATA" and not where.startswith("mingle_hooks"):
                texts = [held.read(one).decode() for one in names if re.match(rf"{re.escape(where)}/.*LICEN[CS]E", one)]
                parts.append(_held(HeaderParser().parsestr(held.read(name).decode()), "\n".join(texts)))
    return f"\n{'-' * 70}\n\n".join(parts)


def _held(about: Message, text: str) -> str:
    return HELD.format(
        name=about["Name"],
        version=about["Version"],
        who=about["Author"] or about["Author-email"] or f"its authors, {about['Home-page']}",
        licence=licence(about),
        text=f"\n{text}" if text else "",
    )
