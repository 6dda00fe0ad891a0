# What makes faults on a host, or on the switch: rules for packets, files over the kernel's, programs in the background.
set -e
drop() { # INTERFACE RULE: what comes in at this host
    nft add table inet fault
    nft "add chain inet fault input { type filter hook input priority 0; }"
    nft add rule inet fault input iifname "$1" $2
}
lose() { # PORT RULE: what comes in at a port of the switch, so what its host sends
    nft add table netdev fault
    nft "add chain netdev fault $1 { type filter hook ingress device $1 priority 0; }"
    nft add rule netdev fault "$1" $2
}
show() { # FILE TEXT: have a file of the kernel's say something else
    mkdir -p /run/shown
    file=/run/shown/$(echo "$1" | tr / _)
    printf '%b\n' "$2" >"$file"
    mount --bind "$file" "$1"
}
behind() { # COMMAND...: until the test ends it
    "$@" >/dev/null 2>&1 </dev/null &
    echo $! >>"$PLACE/behind"
}
full() { # OPTIONS: another /tmp; mingle stays, where it lies below it
    mkdir -p /run/full
    mount -t tmpfs -o "mode=1777,$1" none /run/full
    $KEEPS
    mount --rbind /run/full /tmp
}
