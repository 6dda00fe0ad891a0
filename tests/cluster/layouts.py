"""The networks that an unchanged script is to train on: those of documented machines, and those with a fault."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cluster.hosts import Hosts
from cluster.machines import RECORDED, plug, recorded, shifted
from mingle_hooks.files import toml

Machine = dict[str, Any]

HOSTS, NCCL = "/etc/hosts", "/etc/nccl.conf"
LOCALHOST = "127.0.0.1 localhost\n"
TABLE = toml((RECORDED.parent.parent / "layouts.toml").read_bytes())


class Layout(NamedTuple):
    """Hosts with the interfaces of these machines, and on each the interface that a world is to be on.

    Interfaces that are `apart` reach nobody. `files` are written on every host, with its name for {host}; `last` is
    a shell's line for the last host.
    """

    name: str
    machines: tuple[Machine, ...]
    wanted: tuple[str, ...]
    apart: tuple[str, ...]
    files: Mapping[str, str]
    last: str

    @property
    def masters(self) -> tuple[str, ...]:
        """The address of each host there, any of which may be MASTER_ADDR."""
        return tuple(
            shifted(its["addresses"][0], number).partition("/")[0]
            for number, (machine, name) in enumerate(zip(self.machines, self.wanted, strict=True), 1)
            for its in machine["interfaces"]
            if its["name"] == name
        )

    def lay(self, hosts: Hosts, place: Path) -> None:
        """Give the hosts these networks; `place` is a directory that they see."""
        plug(hosts, self.machines, place, self.apart)
        for host in hosts:
            for path, text in self.files.items():
                host.write(path, text.format(host=host.name))
        if self.last:
            hosts[-1].run(["sh", "-c", self.last], check=True)


def machine(its: Machine) -> Machine:
    """Return a machine of the table as networks.json has them."""
    usual = {"kind": "ethernet", "speed_mbps": None}
    return {"rdma": [], "default_route": "", **its, "interfaces": [usual | one for one in its["interfaces"]]}


MACHINES = recorded() | {name: machine(its) for name, its in TABLE["machine"].items()}
ON_PREM = MACHINES["on-prem: 1G eno1, one RoCE 100G"]


def layout(row: dict[str, Any]) -> Layout:
    """Return a layout of the table."""
    machines = tuple(MACHINES[name] for name in row["machines"])
    twice = 2 if len(machines) == 1 else 1
    names = [its["name"] for its in machines[0]["interfaces"]]
    apart = tuple(name for name in names if name in machines[0]["rdma"]) if row.get("rails") else ()
    rest = row.get("files", {}), row.get("last", "")
    return Layout(row["name"], machines * twice, tuple(row["wanted"]) * twice, apart, *rest)


LAYOUTS = tuple(map(layout, TABLE["layout"]))
BY_NAME = {its.name: its for its in LAYOUTS}
