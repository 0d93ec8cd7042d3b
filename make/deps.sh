#!/bin/sh
# Installs what building, testing or the interop tests need and this machine lacks, saying what and
# why. Debian and Ubuntu, as root or with sudo; elsewhere it says what to install. Asks nothing, and
# does nothing at all where nothing is missing.
#
#     make/deps.sh build|check|interop
set -u

goal=${1:-build}
missing='' why=''

need() { # need PACKAGE 'what for' TEST-COMMAND…
    package=$1 reason=$2
    shift 2
    "$@" >/dev/null 2>&1 && return
    case " $missing " in *" $package "*) return ;; esac
    missing="$missing $package"
    why="$why  $package: $reason
"
}
header() { # does the C preprocessor find it?
    printf '#include <%s>\n' "$1" | ${CC:-cc} -E -x c -
}
have() { command -v "$1"; }
file() { [ -e "$1" ]; }

need gcc 'the C compiler' have "${CC:-cc}"
need libc6-dev 'the C library, to build with' header stdlib.h
need g++ 'C++ for the thin Gloo shim' have "${CXX:-c++}"
need pkg-config 'finds the libraries' have pkg-config
need libuv1-dev 'the event loop' header uv.h
need libjansson-dev 'JSON: error files, --json, events' header jansson.h
need libgloo-dev 'collectives on CPUs' file /usr/include/gloo/context.h

case $goal in
check | interop)
    need check 'unit tests' header check.h
    need python3 'the scripts that test real processes' have python3
    need strace 'shows that an idle crun makes no system call' have strace
    need iproute2 'network namespaces as hosts' have ip
    need procps 'looks for processes left behind' have ps
    need mandoc 'checks the manual pages' have mandoc
    need git 'make dist and its test' have git
    ;;
esac
if [ "$goal" = interop ]; then
    need python3-torch 'the real peer: torch and torchrun' /usr/bin/python3 -c 'import torch'
    need python3-numpy 'torch wants it' /usr/bin/python3 -c 'import numpy'
fi

[ -n "$missing" ] || exit 0
printf 'missing on this machine, needed for:\n%s' "$why"

if ! command -v apt-get >/dev/null; then
    printf 'install these with your package manager (the names are those of Debian):%s\n' "$missing" >&2
    exit 1
fi
sudo=''
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        printf 'run as root: apt-get install%s\n' "$missing" >&2
        exit 1
    fi
    sudo='sudo'
fi
install() {
    # shellcheck disable=SC2086 # both are lists of words
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
printf 'installing:%s\n' "$missing"
if ! install >"$log" 2>&1; then # perhaps the list of packages is old or absent
    if ! { $sudo apt-get update && install; } >"$log" 2>&1; then
        tail -20 "$log" >&2
        printf 'could not install:%s\n' "$missing" >&2
        exit 1
    fi
fi
