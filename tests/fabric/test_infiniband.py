from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mingle_hooks.net.devices import active_rdma_ports as active_ports

if TYPE_CHECKING:
    from pathlib import Path


def port(root: Path, device: str, number: int, state: str, layer: str | None) -> None:
    folder = root / device / "ports" / str(number)
    folder.mkdir(parents=True)
    (folder / "state").write_text(state + "\n")
    if layer:
        (folder / "link_layer").write_text(layer + "\n")


def test_active_ports_are_listed_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for device in ("mlx5_10", "mlx5_2", "mlx5_0"):
        port(tmp_path, device, 1, "4: ACTIVE", "InfiniBand")
    assert [name for name, _ in active_ports(str(tmp_path))] == ["mlx5_0:1", "mlx5_2:1", "mlx5_10:1"]


def test_ports_that_are_not_active_are_left_out(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", 1, "1: DOWN", "InfiniBand")
    port(tmp_path, "mlx5_0", 2, "4: ACTIVE", "InfiniBand")
    port(tmp_path, "mlx5_1", 1, "2: INIT", "InfiniBand")
    assert active_ports(str(tmp_path)) == (("mlx5_0:2", "InfiniBand"),)


def test_the_link_layer_tells_roce_from_infiniband(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", 1, "4: ACTIVE", "Ethernet")
    port(tmp_path, "qib0", 1, "4: ACTIVE", None)
    assert active_ports(str(tmp_path)) == (("mlx5_0:1", "Ethernet"), ("qib0:1", "InfiniBand"))


def test_a_device_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", 1, "4: ACTIVE", "InfiniBand")
    (tmp_path / "mlx5_0/ports/2").mkdir()
    os.mkfifo(tmp_path / "mlx5_0/ports/2/state")
    assert active_ports(str(tmp_path)) is None


def test_a_host_without_rdma_devices_has_no_ports(tmp_path: Path) -> None:
    assert active_ports(str(tmp_path / "absent")) == ()
