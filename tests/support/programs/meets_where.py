"""Where launchers would meet: arguments are `real` or `stand-in`; stdin has a JSON list of [environment, command line].

Prints a list: [host, port, rank, nodes] of each, with null for what is found out later, or why it does not start.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

Meets = Callable[[list[str]], Any]


class Found(BaseException):
    """Ends a launcher where it would meet the others."""


def real() -> Meets:
    """Return what runs torch's and accelerate's own launchers up to where they meet."""
    import accelerate.commands.launch as accelerate
    import torch.distributed.run as torchrun
    from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

    def stop(config: Any, entrypoint: object) -> None:
        del entrypoint
        its = parse_rendezvous_endpoint(config.rdzv_endpoint, 29400 if config.rdzv_backend == "c10d" else -1)
        if its[1] == -1:  # as static_tcp_rendezvous.create_rdzv_handler
            raise ValueError("Port is absent in endpoint")
        raise Found([*its, config.rdzv_configs.get("rank"), config.max_nodes])

    torchrun.elastic_launch = stop
    return lambda words: (
        torchrun.main(words[1:])
        if words[0] == "torchrun"
        else accelerate.launch_command(accelerate.launch_command_parser().parse_args(words[2:]))
    )


def stand_in() -> Meets:
    """Return what runs the stand-ins up to where they meet."""
    import elastic
    import launchers

    def meet(address: str, port: int, rank: int | None, most: int, **_more: Any) -> None:
        raise Found([address, port, rank, most])

    def tell(outcome: str, **more: Any) -> None:
        raise ValueError(outcome, more)

    for module in (elastic, launchers):
        module.meet, module.tell = meet, tell  # type: ignore[assignment]
    return lambda words: getattr(launchers, words[0])(words[1:])


def where(run: Meets, environ: dict[str, str], words: list[str]) -> list[Any] | str:
    """Return where a command line meets."""
    before = dict(os.environ)
    os.environ.update(environ)
    try:
        run(words)
    except Found as found:
        its: list[Any] = found.args[0]
        return its
    except (Exception, SystemExit):  # noqa: BLE001 whatever the launcher ends with
        return "does not start"
    finally:
        os.environ.clear()
        os.environ.update(before)
    return "meets nobody"


meets = {"real": real, "stand-in": stand_in}[sys.argv[1]]()
print(json.dumps([where(meets, environ, words) for environ, words in json.load(sys.stdin)]))
