"""The package of Red Hat's, SUSE's and their relatives, made by rpmbuild."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from build import epoch
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
    signed,
    source,
    tree,
    version,
)

TOOL = "rpmbuild"
ZSH = "site-functions"
SPEC = """\
Name: {name}
Version: {version}
Release: 1
Summary: {summary}
License: Apache-2.0 AND BSD-3-Clause AND MIT AND PSF-2.0
{homepage}{packager}BuildArch: noarch
AutoReqProv: no
Requires: {requires}

%description
{description}

%install
cp -a {place}/. %{{buildroot}}/

%preun -p /bin/sh
{before_removal}
%files
%defattr(-,root,root,0755)
{directories}
{files}

%changelog
* {date} {signed} - {version}-1
- Made from the sources of {version}: see changelog.gz.
"""
# The same on every machine: nothing of the builder's distribution, host, clock or cores.
MACROS = {
    "__os_install_post": "%{nil}",
    "_build_id_links": "none",
    "_buildhost": "localhost",
    "_binary_payload": "w6.gzdio",
    "_rpmfilename": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
    "use_source_date_epoch_as_buildtime": "1",
    "source_date_epoch_from_changelog": "0",
    "clamp_mtime_to_source_date_epoch": "1",
}


def make(archive: Path, directory: Path, python: str) -> Path:
    """Write the package, with mingle.pyz as its program; return its path."""
    when = epoch()
    files = tree(archive, python, ZSH)
    with TemporaryDirectory() as place:
        lay(files, Path(place, "tree"))
        Path(place, "mingle.spec").write_text(_spec(files, python, f"{place}/tree"))
        macros = {**MACROS, "_topdir": place, "_rpmdir": str(directory.resolve()), "_dbpath": f"{place}/db"}
        given = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
        environ = {**os.environ, "SOURCE_DATE_EPOCH": str(when)}
        subprocess.run([TOOL, "-bb", *given, f"{place}/mingle.spec"], env=environ, check=True, capture_output=True)
    return directory / f"{NAME}-{version()}-1.noarch.rpm"


def _spec(files: list[File], python: str, place: str) -> str:
    kinds = {"/usr/bin/mingle": "%attr(0755,root,root) ", COPYRIGHT: "%license "}
    return SPEC.format(
        name=NAME,
        version=version(),
        summary=f"{SUMMARY[0].upper()}{SUMMARY[1:]}",
        packager=f"Packager: {maintainer()}\n" if maintainer().endswith(">") else "",
        date=time.strftime("%a %b %d %Y", time.gmtime(epoch())),
        signed=signed(),
        homepage=f"URL: {source()}\n" if source() else "",
        requires=requires(python),
        description=DESCRIPTION,
        place=place,
        before_removal=BEFORE_REMOVAL,
        directories="\n".join(f"%dir {path}" for path in directories(files)),
        files="\n".join(kinds.get(file.path, "") + file.path for file in files),
    )


def directories(files: list[File]) -> list[str]:
    """Return the package's own: all other directories have their owners, and go with these."""
    inside = {parent for file in files for parent in map(str, Path(file.path).parents)}
    return sorted(path for path in inside if f"{path}/".startswith(f"{DOC}/"))


def requires(python: str) -> str:
    """Return what a Python of that name has to be."""
    return "python3 >= 3.10" if python == "python3" else python
