"""The two networks of a set of hosts: addresses, cables, and the firewall's rules."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Network:
    """One network: the interface that every host has on it, and its prefixes."""

    iface: str
    ipv4: str  # the first three bytes of a /24
    ipv6: str  # the prefix of a /64


NETWORKS = (Network("eth0", "10.77.0", "fd77::"), Network("ib0", "10.78.0", "fd78::"))


def address(network: Network, number: int, *, ipv6: bool = False) -> str:
    """Return the address of host `number` (from 1) on a network."""
    return f"{network.ipv6}{number:x}" if ipv6 else f"{network.ipv4}.{number}"


def port_name(network: Network, number: int) -> str:
    """Return the name of the switch's end of a host's cable."""
    return f"{network.iface}p{number}"


def switch_lines(pids: list[int]) -> str:
    """Return the `ip -batch` lines that make the bridges and plug every host in; run on the switch."""
    lines = []
    for network in NETWORKS:
        bridge = f"br-{network.iface}"
        # Without a querier a snooping bridge forgets the groups' members after some minutes.
        lines.append(f"link add {bridge} type bridge mcast_snooping 0 forward_delay 0")
        lines.append(f"link set {bridge} up")
        for number, pid in enumerate(pids, 1):
            port = port_name(network, number)
            lines.append(f"link add {port} type veth peer name {network.iface} netns {pid}")
            lines.append(f"link set {port} master {bridge} up")
    return "\n".join(lines) + "\n"


def host_lines(number: int, *, ipv4: bool, ipv6: bool) -> str:
    """Return the `ip -batch` lines that bring up host `number`'s interfaces; run on that host."""
    lines = ["link set lo up"]
    if not ipv4:
        lines.append("addr del 127.0.0.1/8 dev lo")
    for network in NETWORKS:
        if ipv4:
            lines.append(f"addr add {address(network, number)}/24 brd + dev {network.iface}")
        if ipv6:
            lines.append(f"addr add {address(network, number, ipv6=True)}/64 dev {network.iface} nodad")
        lines.append(f"link set {network.iface} up")
    return "\n".join(lines) + "\n"


def loss(fraction: float) -> str:
    """Return the match of a random fraction of packets, in steps of 0.001."""
    return f"numgen random mod 1000 < {round(fraction * 1000)} drop"


# A firewall without multicast: datagrams to groups only, for IPv6 itself finds its neighbours by multicast.
NO_MULTICAST = ("ip daddr 224.0.0.0/4 meta l4proto udp drop", "ip6 daddr ff00::/8 meta l4proto udp drop")


def host_rules(rules: list[str]) -> str:
    """Return the nft file that makes these the only rules for what comes in at a host."""
    chain = "type filter hook input priority 0; policy accept;\niif lo accept"
    return _table("inet cluster", "input", chain, rules)


def switch_rules(rules: dict[str, list[str]]) -> str:
    """Return the nft file that makes these the only rules for what comes in at each port of the switch.

    A drop at the sending host itself would be told to the sender (EPERM); one at the switch is silent.
    """
    chains = "\n".join(
        f'chain {port} {{\ntype filter hook ingress device "{port}" priority 0; policy accept;\n'
        + "\n".join(f"meta protocol {{ ip, ip6 }} {rule}" for rule in its)
        + "\n}"
        for port, its in rules.items()
    )
    return f"table netdev cluster\ndelete table netdev cluster\ntable netdev cluster {{\n{chains}\n}}\n"


def _table(name: str, chain: str, head: str, rules: list[str]) -> str:
    body = "\n".join(rules)
    return f"table {name}\ndelete table {name}\ntable {name} {{\nchain {chain} {{\n{head}\n{body}\n}}\n}}\n"
