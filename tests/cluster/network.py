"""The two networks of a set of hosts: addresses, cables, and the firewall's rules."""

# The interface that every host has on a network -> what its addresses begin with: of a /24, and of a /64.
NETWORKS = {"eth0": ("10.77.0.", "fd77::"), "ib0": ("10.78.0.", "fd78::")}


def address(iface: str, number: int, *, ipv6: bool = False) -> str:
    """Return the address of host `number` (from 1) on a network."""
    return NETWORKS[iface][ipv6] + (f"{number:x}" if ipv6 else str(number))


def port_name(iface: str, number: int) -> str:
    """Return the name of the switch's end of a host's cable."""
    return f"{iface}p{number}"


def switch_lines(pids: list[int]) -> str:
    """Return the `ip -batch` lines that make the bridges and plug every host in; run on the switch."""
    lines = []
    for iface in NETWORKS:
        bridge = f"br-{iface}"
        # Without a querier a snooping bridge forgets the groups' members after some minutes.
        lines.append(f"link add {bridge} type bridge mcast_snooping 0 forward_delay 0")
        lines.append(f"link set {bridge} up")
        for number, pid in enumerate(pids, 1):
            port = port_name(iface, number)
            lines.append(f"link add {port} type veth peer name {iface} netns {pid}")
            lines.append(f"link set {port} master {bridge} up")
    return "\n".join(lines) + "\n"


def host_lines(number: int, *, ipv4: bool, ipv6: bool) -> str:
    """Return the `ip -batch` lines that bring up host `number`'s interfaces; run on that host."""
    lines = ["link set lo up"]
    if not ipv4:
        lines.append("addr del 127.0.0.1/8 dev lo")
    for iface in NETWORKS:
        if ipv4:
            lines.append(f"addr add {address(iface, number)}/24 brd + dev {iface}")
        if ipv6:
            lines.append(f"addr add {address(iface, number, ipv6=True)}/64 dev {iface} nodad")
        lines.append(f"link set {iface} up")
    return "\n".join(lines) + "\n"


def loss(fraction: float) -> str:
    """Return the match of a random fraction of packets, in steps of 0.001."""
    return f"numgen random mod 1000 < {round(fraction * 1000)} drop"


# A firewall without multicast: datagrams to groups only, for IPv6 itself finds its neighbours by multicast.
NO_MULTICAST = ("ip daddr 224.0.0.0/4 meta l4proto udp drop", "ip6 daddr ff00::/8 meta l4proto udp drop")


def host_rules(rules: list[str]) -> str:
    """Return the nft file that makes these the only rules for what comes in at a host."""
    lines = ("type filter hook input priority 0; policy accept;", "iif lo accept", *rules)
    return _table("inet cluster", "\n".join(["chain input {", *lines, "}"]))


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
    return _table("netdev cluster", chains)


def _table(name: str, chains: str) -> str:
    return f"table {name}\ndelete table {name}\ntable {name} {{\n{chains}\n}}\n"
