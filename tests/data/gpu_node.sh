# Gives a host a GPU node's files, in place of the machine's own; /dev is new, as the machine's is everybody's.
set -e
mount -t tmpfs none /sys/module
mkdir /sys/module/nvidia && echo 570.86.15 > /sys/module/nvidia/version
mkdir /run/net && mount --bind /sys/class/net /run/net
mount -t tmpfs none /sys/class
mkdir /sys/class/net && mount --bind /run/net /sys/class/net
mkdir -p /sys/class/infiniband/mlx5_0/ports/1 && echo '4: ACTIVE' > /sys/class/infiniband/mlx5_0/ports/1/state && echo '400 Gb/sec (4X NDR)' > /sys/class/infiniband/mlx5_0/ports/1/rate
echo InfiniBand > /sys/class/infiniband/mlx5_0/ports/1/link_layer && echo 28.39.1002 > /sys/class/infiniband/mlx5_0/fw_ver
mkdir /run/full /run/shm && mount --bind /dev/shm /run/shm
mount -t tmpfs -o mode=755 none /dev
mkdir /dev/shm /dev/infiniband && mount --bind /run/shm /dev/shm && touch /dev/infiniband/uverbs0
mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9
mkdir -m 777 /tmp/work /tmp/work/.git && echo 'print()' > /tmp/work/train.py
echo 57f6c79e1b2c3d4e57f6c79e1b2c3d4e57f6c79e > /tmp/work/.git/HEAD
ip link set eth0 mtu 9000 && ip link set ib0 mtu 9000
