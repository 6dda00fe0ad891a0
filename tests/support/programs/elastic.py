"""A stand-in for torchrun, which reads what the real one reads, and meets the others.

Read in torch 2.13: distributed/run.py, elastic/rendezvous/{c10d_rendezvous_backend,static_tcp_rendezvous,utils}.py.
"""

from __future__ import annotations

import argparse
import os
import re

from meeting import is_home, meet, tell

TYPE_CHECKING = False  # typing would take longer than all else here
if TYPE_CHECKING:
    from typing import NoReturn

TORCH = """
nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts monitor-interval start-method role
event-log-handler log-dir redirects tee local-ranks-filter duplicate-stdout-filters duplicate-stderr-filters node-rank
master-addr master-port local-addr logs-specs numa-binding signals-to-handle shutdown-timeout
""".split()  # noqa: SIM905 a line for each otherwise
TORCH_DEFAULTS = {
    "nnodes": "1:1", "nproc_per_node": "1", "rdzv_backend": "static", "rdzv_endpoint": "", "rdzv_id": "none",
    "rdzv_conf": "", "node_rank": "0", "master_addr": "127.0.0.1", "max_restarts": "0",
}  # fmt: skip
NUMBERS = ("node_rank", "master_port", "max_restarts")
SHORT = {"redirects": "-r", "tee": "-t", "module": "-m"}


class Parser(argparse.ArgumentParser):
    """Tells of what it does not understand."""

    def error(self, message: str) -> NoReturn:
        tell("error", why=message)


def torchrun(argv: list[str]) -> NoReturn:
    """PET_<DEST> is the default of each option; --standalone takes nnodes as well; c10d listens where it is at home."""
    parser = Parser(prog="torchrun")
    for option in TORCH:
        dest = option.replace("-", "_")
        default = os.environ.get(f"PET_{dest.upper()}", TORCH_DEFAULTS.get(dest))
        names = [f"--{option}", *{f"--{dest}"} - {f"--{option}"}, *filter(None, [SHORT.get(option)])]
        parser.add_argument(*names, dest=dest, default=default, type=int if dest in NUMBERS else str)
    for flag in ("standalone", "module", "no-python", "run-path", "virtual-local-rank", "use-env"):
        is_set = bool(int(os.environ.get(f"PET_{flag.upper().replace('-', '_')}", "0")))
        names = [*{f"--{flag}", f"--{flag.replace('-', '_')}"}, *filter(None, [SHORT.get(flag)])]
        parser.add_argument(*names, action="store_true", default=is_set)
    parser.add_argument("training_script")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    args = parser.parse_args(argv)
    if not re.fullmatch(r"[1-9]\d*|auto|cpu|gpu|xpu", args.nproc_per_node):
        tell("error", why=f"Unsupported nproc_per_node value: {args.nproc_per_node}")
    if not re.fullmatch(r"\d+(:\d+)?", args.nnodes):
        tell("error", why=f"nnodes={args.nnodes} is no number")
    least, most = map(int, (args.nnodes.split(":") * 2)[:2])
    is_static = args.rdzv_backend == "static"
    if args.standalone or (is_static and not args.rdzv_endpoint and args.master_port is None and most == 1):
        meet("localhost", 0, None, most, least=least, listens=True)
    text = args.rdzv_endpoint or (f"{args.master_addr}:{args.master_port or 29500}" if is_static else "localhost")
    found = re.fullmatch(r"\[([\w.:]+)\](?::(\d+))?|([\w.:-]+):(\d+)|([\w.-]+)", text)
    host, port = (found[1] or found[3] or found[5], found[2] or found[4]) if found else ("", "")
    if not host or (is_static and not port):
        tell("error", why=f"the endpoint {text} is no host and port")
    if is_static:
        meet(host, int(port), args.node_rank, most, run=args.rdzv_id)
    conf = re.search(r"is_host=(\w+)", args.rdzv_conf)
    listens = conf[1].lower() in ("1", "true", "yes", "t", "y") if conf else is_home(host)
    rest = {"least": least, "listens": listens, "run": args.rdzv_id, "may_join": not conf}
    meet(host, int(port or 29400), None, most, **rest)
