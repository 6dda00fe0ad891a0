# Gives a host of gpu_node.sh eight GPUs, a second RDMA port, and a driver that is tests/support/fake_pynvml.py.
set -e
mount -t tmpfs none /sys/bus && mkdir -p /sys/bus/pci/devices /run/nvml /run/site
for number in 0 1 2 3 4 5 6 7; do
    card=/sys/bus/pci/devices/0000:1$number:00.0
    mkdir $card && touch /dev/nvidia$number
    echo 0x10de >$card/vendor && echo 0x030200 >$card/class && printf '\336\20\60\43' >$card/config
    echo '32.0 GT/s PCIe' >$card/max_link_speed && echo 16 >$card/current_link_width
done
cp -r /sys/class/infiniband/mlx5_0 /sys/class/infiniband/mlx5_1
for card in mlx5_0 mlx5_1; do
    counters=/sys/class/infiniband/$card/ports/1/counters
    mkdir $counters && echo 3 >$counters/symbol_error && echo 1 >$counters/link_downed
done
cp "$FAKE" /run/site/pynvml.py
cat >/run/site/shifted.pth <<'END'
import os, time; ahead = float(open("/run/ahead").read()) if os.path.exists("/run/ahead") and not hasattr(os, "ahead") else 0; os.ahead = True; time.time = lambda now=time.time, ahead=ahead: now() + ahead
END
mount -t overlay -o "lowerdir=/run/site:$SITE" none "$SITE"
ip link set eth0 mtu 1500 && ip link set ib0 mtu 1500
