"""The bill of materials of mingle.pyz, and so of the .deb and the .rpm: CycloneDX 1.6, always the same octets."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
import zipfile
from email.parser import HeaderParser
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from email.message import Message
    from pathlib import Path

NAME = "mingle-hooks"


def write(archive: Path, when: int) -> Path:
    """Write it beside mingle.pyz for each project whose metadata that has; `when` is in seconds since 1970."""
    with zipfile.ZipFile(archive) as held:
        files = [name for name in held.namelist() if name.endswith(".dist-info/METADATA")]
        found = [_component(HeaderParser().parsestr(held.read(name).decode())) for name in sorted(files)]
    (own,) = [component for component in found if component["name"] == NAME]
    others = [component for component in found if component is not own]
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when)),
            "component": {**own, "type": "application", "hashes": [{"alg": "SHA-256", "content": digest}]},
        },
        "components": others,
        "dependencies": [{"ref": own["bom-ref"], "dependsOn": [component["bom-ref"] for component in others]}],
    }
    made = archive.with_name(f"{NAME}-{own['version']}.cdx.json")
    made.write_text(json.dumps(bill, indent=1) + "\n")
    return made


def _component(about: Message) -> dict[str, Any]:
    """Return one project; netifaces, which is our own, has a version that PyPI does not have."""
    name = about["Name"]
    url = f"pkg:{'generic' if name == 'netifaces' else 'pypi'}/{name.lower().replace('_', '-')}@{about['Version']}"
    said = {"licenses": [{"license": {"name": licence(about)}}]}
    return {"type": "library", "bom-ref": url, "name": name, "version": about["Version"], **said, "purl": url}


def licence(about: Message) -> str:
    """Return a project's licence as its metadata has it: an expression, a name, or what its classifiers say."""
    said = [name.rpartition(" :: ")[2] for name in about.get_all("Classifier", []) if name.startswith("License ::")]
    return about["License-Expression"] or about["License"] or ", ".join(said)
