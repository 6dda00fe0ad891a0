"""Debian's package, made by dpkg-deb."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from build import ROOT, epoch
from tree import (
    BEFORE_REMOVAL,
    COPYRIGHT,
    DESCRIPTION,
    DOC,
    NAME,
    SUMMARY,
    File,
    lay,
    maintainer,
    packed,
    signed,
    source,
    tree,
    version,
)

TOOL = "dpkg-deb"
ZSH = "vendor-completions"
CONTROL = """\
Package: {name}
Version: {version}-1
Section: admin
Priority: optional
Architecture: all
Maintainer: {maintainer}
Installed-Size: {kib}
Depends: {depends}
{homepage}Description: {summary}
{description}
"""
CHANGELOG = """\
{name} ({version}-1) unstable; urgency=medium

  * Made from the sources of {version}: see changelog.gz.

 -- {signed}  {date}
"""
# Debian has the text, and lintian wants no other copy.
APACHE = "The text is in /usr/share/common-licenses/Apache-2.0.\n"
OVERRIDES = """\
# The program is a zip file with Python in it, and no script: click looks for an editor, which mingle never opens.
{name}: missing-depends-on-sensible-utils sensible-editor [usr/bin/mingle]
{name}: chown-with-dot * [usr/bin/mingle:*]
# No package of Debian's own: there is no bug to close.
{name}: initial-upload-closes-no-bugs [{doc}/changelog.Debian.gz:1]
"""


def make(archive: Path, directory: Path, python: str) -> Path:
    """Write the package, with mingle.pyz as its program; return its path."""
    when = epoch()
    date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(when))
    changelog = CHANGELOG.format(name=NAME, version=version(), signed=signed(), date=date)
    files = [
        *map(_with_debians_licence, tree(archive, python, ZSH)),
        File(f"{DOC}/changelog.Debian.gz", packed(changelog.encode())),
        File(f"/usr/share/lintian/overrides/{NAME}", OVERRIDES.format(name=NAME, doc=DOC[1:]).encode()),
    ]
    made = directory / f"{NAME}_{version()}-1_all.deb"
    with TemporaryDirectory() as place:
        lay([*files, *_control(files, python)], Path(place))
        # dpkg-deb gives what is newer than SOURCE_DATE_EPOCH, and so all of it, that time.
        # Level 9 takes three times as long as 6, for a hundredth less.
        command = [TOOL, "--root-owner-group", "-Zgzip", "-z6", "--build", place, made]
        environ = {**os.environ, "SOURCE_DATE_EPOCH": str(when)}
        subprocess.run(command, env=environ, check=True, capture_output=True)
    return made


def _with_debians_licence(file: File) -> File:
    if file.path != COPYRIGHT:
        return file
    return file._replace(data=file.data.replace((ROOT / "LICENSE").read_bytes(), APACHE.encode()))


def _control(files: list[File], python: str) -> list[File]:
    sums = "".join(f"{hashlib.md5(file.data).hexdigest()}  {file.path[1:]}\n" for file in files)  # noqa: S324 - dpkg's
    control = CONTROL.format(
        name=NAME,
        version=version(),
        maintainer=maintainer(),
        kib=sum(-(-len(file.data) // 1024) for file in files),
        depends=depends(python),
        homepage=f"Homepage: {source()}\n" if source() else "",
        summary=SUMMARY,
        description="\n".join(f" {line or '.'}" for line in DESCRIPTION.split("\n")),
    )
    return [
        File("/DEBIAN/control", control.encode()),
        File("/DEBIAN/md5sums", sums.encode()),
        File("/DEBIAN/prerm", f"#!/bin/sh\n{BEFORE_REMOVAL}".encode(), 0o755),
    ]


def depends(python: str) -> str:
    """Return what a Python of that name has to be."""
    return "python3 (>= 3.10)" if python == "python3" else python
