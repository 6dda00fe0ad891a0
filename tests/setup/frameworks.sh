#!/bin/sh
# usage: frameworks.sh VENV
# Makes a virtual environment with this project and every framework that `make frameworks` tries, in builds for
# CPUs, and as root on Debian or Ubuntu installs MPI and ssh. What cannot be had is told, and is "not installed" in
# the table.
set -u
venv=$1
python=$venv/bin/python
cd "$(dirname "$0")/../.." || exit

say() { printf '!!! %s\n' "$*" >&2; }

umask 022
[ -x "$python" ] || ${PYTHON:-python3} -m venv "$venv" || exit
"$python" -m pip install --quiet --find-links packaging/wheels . || exit
TORCH="${TORCH:-}" tests/setup/torch.sh "$python" || exit
torch=$("$python" -c 'import importlib.metadata as m; print("torch==" + m.version("torch"))' 2>/dev/null)
[ -n "$torch" ] || say "without torch only what does not need it is tried"

# One at a time: one that cannot be had here does not keep the others away.
limits=$(mktemp) || exit
trap 'rm -f "$limits"' EXIT
echo "$torch" >"$limits"
for wanted in ${torch:+lightning==2.6.6 deepspeed==0.19.8} ray==2.60.0 tensorflow-cpu==2.21.0 xgboost-cpu==3.2.0 'mlx[cpu]==0.32.4'; do
    "$python" -m pip install --quiet --constraint "$limits" "$wanted" || say "NO ${wanted%%=*}: pip could not install it"
done

# At its first start DeepSpeed compiles, on a busy machine for longer than a try may last, and the lock of one that was
# killed meanwhile stops all others.
rm -f "$venv"/torch_extensions/*/lock
if [ -d "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/deepspeed" ]; then
    TORCH_EXTENSIONS_DIR="$PWD/$venv/torch_extensions" PATH="$PWD/$venv/bin:$PATH" \
        "$python" -c 'from deepspeed.comm.torch import build_shm_op; build_shm_op()' >/dev/null 2>&1 ||
        say "DeepSpeed could not compile its part for CPUs: its tries may fail"
fi

"$python" -m pip install --quiet --upgrade --target "$venv/lib/mpi4py" mpi4py==4.1.2 || say "NO mpi4py: pip could not install it"

# horovod 0.28.1, the last release, is compiled as C++14, and torch since 2.1 asks for C++17: it cannot be built.

missing=
for program in mpirun.openmpi mpiexec.hydra /usr/sbin/sshd ssh; do
    command -v "$program" >/dev/null || missing=1
done
if [ -n "$missing" ]; then
    tests/setup/packages.sh openmpi-bin mpich openssh-server openssh-client || say "NO MPI, OR NO SSH"
fi
# The name of MPICH's ABI, which mpi4py's wheel looks for and Debian does not have.
for library in /usr/lib/*/libmpich.so.12; do
    [ -e "$library" ] && mkdir -p "$venv/lib/mpich" && ln -sf "$library" "$venv/lib/mpich/libmpi.so.12"
done
exit 0
