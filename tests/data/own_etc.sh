# Gives a host an /etc of its own, but for /etc/slurm.
mkdir /run/etc
mount -t tmpfs -o mode=755 etc /run/etc
cp -a /etc/. /run/etc/
mkdir -p /run/etc/slurm
mount --bind /etc/slurm /run/etc/slurm
mount --move /run/etc /etc
rmdir /run/etc
