# What breaks a host, and mends it: functions for the rows of breakages.toml, run by sh -eu as root.
# shellcheck shell=sh disable=SC2016,SC2174 # what is quoted is for eval; /run is there

new=/var/tmp/run

# A new /run with nothing but Slurm's and munge's own directories, whose failure would not be the hooks'. $1: options of
# its file system, $2: what is done in it before it is in place.
new_run() {
  mkdir "${new}"
  mount -t tmpfs -o "mode=0755,$1" none "${new}"
  for name in slurm munge; do
    mkdir "${new}/${name}"
    mount --bind "/run/${name}" "${new}/${name}"
  done
  eval "$2"
  mount --rbind "${new}" /run
  if (echo x >/run/proof) 2>/dev/null; then
    echo "/run can be written" >&2
    exit 1
  fi
}

old_run() {
  umount -Rl /run
  umount -Rl "${new}"
  rmdir "${new}"
}

small="/tmp /var/tmp /dev/shm"

# A tmpfs of the host's own with no byte left, and with all of them again. Where a process of the host removes a file
# while it is filled, or memory is short for a moment, there is room again: so it is filled until a write fails.
# The kernel refuses a size below what is in use.
fill() {
  mount -o "remount,size=$(($(df -k --output=used "$1" | tail -1) + 64))k" "$1"
  for try in 1 2 3 4 5; do
    seen="$(dd if=/dev/zero bs=4k 2>&1 >>"$1/filler")" || :
    if ! (echo x >"$1/proof") 2>/dev/null; then
      try=full
      break
    fi
  done
  if [ "${try}" != full ]; then
    echo "$1 can be written: ${seen}; $(df -k "$1"; ls -ls "$1")" >&2
    exit 1
  fi
}

full_disk() {
  new_run size=1m 'dd if=/dev/zero "of=${new}/filler" bs=4k 2>/dev/null || :'
  for place in ${small}; do fill "${place}"; done
}

empty_disk() {
  for place in ${small}; do
    rm -f "${place}/filler" "${place}/proof"
    mount -o remount,size=50% "${place}"
  done
  old_run
}

# $1 is ro or rw; "bind" makes it this host's affair: without it, the machine's own root file system would be read-only.
remounted() {
  for place in / /etc /tmp /dev/shm /var/tmp; do mount -o "remount,bind,$1" "${place}"; done
}

# /dev with what programs need, to be changed for this host alone.
new_dev() {
  mkdir /run/dev
  mount -t tmpfs -o mode=0755 none /run/dev
  for name in null zero full random urandom tty ptmx fd stdin stdout stderr; do cp -a "/dev/${name}" /run/dev; done
  mkdir /run/dev/pts /run/dev/shm
  mount --bind /dev/pts /run/dev/pts
  mount --rbind /run/dev /dev
}

old_dev() {
  umount -Rl /dev
  umount -Rl /run/dev
  rmdir /run/dev
}

# A small file system over /run/mingle.
mounted() {
  mkdir -p -m 0755 /run/mingle
  mount -t tmpfs -o "mode=0755,$1" none /run/mingle
}

# The hosts share /etc. This comes over this host's own copy of what the hooks have there.
own_files() {
  mkdir /var/tmp/mingle
  cp -a /etc/mingle/. /var/tmp/mingle
  mount --bind /var/tmp/mingle /etc/mingle
}

shared_files() {
  umount /etc/mingle
  rm -rf /var/tmp/mingle
}

# The Prolog then makes a file more; the jobs' comments ask for it.
opt_in() {
  own_files
  printf '[hooks]\nopt_in = "please"\n' >/etc/mingle/mingle.toml
  mingle hooks install slurm --yes >&2
}
