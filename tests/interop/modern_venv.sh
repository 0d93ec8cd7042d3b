#!/bin/sh
# Makes a current torch in build/interop and prints the Python that imports it.
#
#   tests/interop/modern_venv.sh
#       the newest torch of PyPI, in a virtual environment (5.4 GB: it includes the CUDA libraries,
#       although no GPU is needed)
#   TORCH=2.6.0 tests/interop/modern_venv.sh
#       release 2.6.0 of PyPI
#   TORCH=debian tests/interop/modern_venv.sh
#       Debian 13's python3-torch (2.6), in a folder that debootstrap fills (needs root; 2.5 GB)
#
# If PyPI cannot be reached, the script installs Debian's torch instead. An installation that exists
# already is used again. The arguments name more packages of PyPI to install there; if one cannot be
# installed, the script says so and goes on.
set -eu
cd "$(dirname "$0")/../.."
folder=$PWD/build/interop
mkdir -p "$folder"
say() { echo "modern_venv: $*" >&2; }

works() { "$1" -c 'import torch.distributed' 2>/dev/null; }

from_pypi() {
    venv=$folder/venv${TORCH:+-$TORCH}
    if [ ! -x "$venv/bin/python" ]; then
        say "making $venv"
        python3 -m venv "$venv" >&2 || {
            rm -rf "$venv"
            command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || return 1
            say 'installing python3-venv'
            apt-get install -y -qq python3-venv >&2 && python3 -m venv "$venv" >&2
        } || return 1
    fi
    works "$venv/bin/python" || {
        say "installing torch${TORCH:+ $TORCH} and numpy from PyPI"
        "$venv/bin/python" -m pip install --quiet "torch${TORCH:+==$TORCH}" numpy >&2 || return 1
    }
    works "$venv/bin/python" || return 1
    [ $# = 0 ] || "$venv/bin/python" -m pip install --quiet "$@" >&2 || say "could not install $*"
    echo "$venv/bin/python"
}

# Run with the libraries of the other Debian, in place: no chroot, so the tests see their files.
from_debian() {
    root=$folder/trixie python=$folder/trixie-python
    if ! works "$python"; then
        [ "$(id -u)" = 0 ] || { say "debootstrap needs root"; return 1; }
        command -v debootstrap >/dev/null || apt-get install -y -qq debootstrap >&2 || return 1
        say "filling $root with Debian 13 and python3-torch"
        rm -rf "$root"
        debootstrap --variant=minbase --include=python3-torch,python3-numpy trixie "$root" \
            ${DEBIAN_MIRROR:-} >&2 || return 1
        libs=$root/usr/lib/x86_64-linux-gnu
        {
            echo '#!/bin/sh'
            echo "export PYTHONHOME=$root/usr PYTHONPATH=$root/usr/lib/python3/dist-packages"
            echo "exec $libs/ld-linux-x86-64.so.2 \\"
            echo "    --library-path $libs:$libs/blas:$libs/lapack:$root/lib \\"
            echo "    $root/usr/bin/python3 \"\$@\""
        } >"$python"
        chmod +x "$python"
    fi
    works "$python" && echo "$python"
}

if [ "${TORCH:-}" = debian ]; then
    from_debian
else
    from_pypi "$@" || { say "no torch from PyPI, taking Debian 13's"; from_debian; }
fi
