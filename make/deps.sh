#!/bin/sh
# Installs the packages that building, testing or the interop tests need and this machine lacks, and
# prints which and why. Works on Debian and Ubuntu, as root or with sudo; on other systems it prints
# what to install. It asks no questions, and does nothing if nothing is missing.
#
#     make/deps.sh build|unit|check|interop|languages|bench|aarch64
#     make/deps.sh --tell GOAL     only prints what is missing, in one line; exit status 1
set -u

tell=''
[ "${1:-}" = --tell ] && tell=yes && shift
goal=${1:-build}
missing='' why='' count=0

need() { # need PACKAGE 'what for' TEST-COMMAND…
    package=$1 reason=$2
    shift 2
    "$@" >/dev/null 2>&1 && return
    case " $missing " in *" $package "*) return ;; esac
    missing="$missing $package"
    why="$why  $package: $reason
"
    count=$((count + 1))
}
header() { # whether the C preprocessor finds it
    # shellcheck disable=SC2086 # CPPFLAGS is a list of words
    printf '#include <%s>\n' "$1" | ${CC:-cc} ${CPPFLAGS:-} -E -x c -
}
have() { # looks at the first word, because CC may be "ccache gcc"
    command -v "${1%% *}"
}
have_admin() { PATH=$PATH:/usr/sbin:/sbin command -v "$1"; }
find_library() { PATH=$PATH:/usr/sbin:/sbin ldconfig -p | grep -qF "$1"; }
gloo() { [ -e /usr/include/gloo/context.h ] || [ -e /usr/local/include/gloo/context.h ]; }

case ${CC:-cc} in *clang*) compiler=clang ;; *) compiler=gcc ;; esac
need $compiler 'the C compiler' have "${CC:-cc}"
need libc6-dev 'the C library, to build with' header stdlib.h
need libuv1-dev 'the event loop' header uv.h
need libjansson-dev 'JSON: error files, events' header jansson.h
if [ -z "$tell" ]; then # the build can do without these
    need pkg-config 'finds the libraries' have pkg-config
    need g++ 'C++ for the thin Gloo shim' have "${CXX:-c++}"
    need libgloo-dev 'collectives on CPUs' gloo
    need libcurl4-openssl-dev \
        'the backend etcd, reports to TrainJob, --health-service; loaded for these only' \
        header curl/curl.h
    need libmicrohttpd-dev \
        'the status address; crun loads libmicrohttpd12 only when it is given one' \
        header microhttpd.h
    need libsodium-dev 'authenticates the nodes of a job; without it crun refuses a token file' \
        header sodium.h
    need libmunge-dev \
        'tasks of Slurm authenticate by MUNGE; crun loads libmunge2 only in these' header munge.h
fi

case $goal in
build | languages | bench | aarch64) ;;
*) need check 'unit tests' header check.h ;;
esac
case $goal in
check | interop)
    need python3 'the scripts that test real processes' have python3
    need git 'the tests of the tree itself' have git
    need strace 'shows that an idle crun makes no system call' have strace
    need etcd-server 'elects a coordinator in the tests of backend etcd' have etcd
    need openssl 'certificates for the tests of backend etcd' have openssl
    need spin 'explores the model of the rendezvous' have spin
    need iproute2 'network namespaces as hosts' have ip
    need openssh-server 'a real sshd starts crun --hosts' have_admin sshd
    need openssh-client 'reaches it' have ssh
    need libdw1 'native stacks of crun-agent why' find_library libdw.so.1
    need procps 'looks for processes left behind' have ps
    need python3-venv 'a fresh virtual environment for the wheel' python3 -c 'import ensurepip'
    need debootstrap 'a fresh Debian for the package' have debootstrap
    need mandoc 'checks the manual pages' have mandoc
    need python3-prometheus-client 'reads the metrics as Prometheus does' \
        /usr/bin/python3 -c 'import prometheus_client'
    need munge 'the daemons by which tasks of Slurm authenticate' have_admin munged
    need tmux 'a terminal for crun-agent top' have tmux
    ;;
esac
if [ "$goal" = languages ]; then
    need cargo 'Rust: its build tool' have cargo
    need rustc 'Rust: its compiler' have rustc
    need golang-go 'Go' have go
fi
if [ "$goal" = aarch64 ]; then
    need gcc-aarch64-linux-gnu 'the cross compiler of the wheel for aarch64' \
        have aarch64-linux-gnu-gcc
    need qemu-user-static 'runs its programs' have qemu-aarch64-static
    need libc6-arm64-cross 'the C library of these programs' \
        test -e /usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1
fi
[ "$goal" != bench ] || need python3-matplotlib 'draws the figures of the benchmarks' \
    /usr/bin/python3 -c 'import matplotlib'
if [ "$goal" = interop ]; then
    need python3-torch 'the real peer: torch and torchrun' /usr/bin/python3 -c 'import torch'
    need python3-numpy 'torch wants it' /usr/bin/python3 -c 'import numpy'
    need libmpich-dev 'programs of the MPICH family, which need no mpirun' have mpicc.mpich
    need slurmctld 'a real Slurm starts crun: its controller' have_admin slurmctld
    need slurmd 'the daemon of its nodes' have_admin slurmd
    need slurm-client 'its commands: srun, sbatch' have srun
    need munge 'how its parts and the nodes of a job trust each other' have_admin munged
fi

[ -n "$missing" ] || exit 0

if [ -n "$tell" ]; then
    list=$(printf '%s' "$why" | sed 's/^ *\([^:]*\): \(.*\)/\1 (\2)/' |
        awk 'NR > 1 { printf ", " } { printf "%s", $0 }')
    printf 'missing: %s. Install with: apt-get install%s; or let "make demo" do it.\n' \
        "$list" "$missing" >&2
    exit 1
fi

printf 'Missing on this machine, and what it is for:\n%s' "$why"
if ! command -v apt-get >/dev/null; then
    printf 'Install these with your package manager (the names are those of Debian):%s\n' \
        "$missing" >&2
    exit 1
fi
sudo=''
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        printf 'Run this as root: apt-get install%s\n' "$missing" >&2
        exit 1
    fi
    sudo='sudo'
    [ -t 0 ] || sudo='sudo -n' # without a terminal no password can be given
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt_install() {
    # shellcheck disable=SC2086 # both are lists of words
    $sudo env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
        apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=600 $missing </dev/null
}
printf 'Installing:%s\n' "$missing"
if ! apt_install >"$log" 2>&1; then # the list of packages may be old or missing
    if ! { $sudo apt-get update </dev/null && apt_install; } >"$log" 2>&1; then
        tail -20 "$log" >&2
        printf 'Could not install:%s (what apt-get said is above)\n' "$missing" >&2
        exit 1
    fi
fi
printf 'Installed.\n'
