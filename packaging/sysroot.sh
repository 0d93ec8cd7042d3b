#!/bin/sh
# Unpacks the libraries that crun is linked with, in Debian's packages for another machine, into a
# folder. Nothing is installed, and the packages of this machine stay as they are.
#
#   packaging/sysroot.sh arm64 build/sysroot-aarch64
set -eu
machine=$1 root=$2
mkdir -p "$root/apt/lists/partial" "$root/apt/cache/archives/partial" "$root/debs"
root=$(cd "$root" && pwd)
[ -e "$root/complete" ] && exit 0
: >"$root/apt/status"
get() { # apt-get with a state of its own
    apt-get -qq -o APT::Architecture="$machine" -o APT::Architectures="$machine" \
        -o APT::Sandbox::User=root -o Dir::State="$root/apt" \
        -o Dir::State::lists="$root/apt/lists" \
        -o Dir::State::status="$root/apt/status" -o Dir::Cache="$root/apt/cache" "$@"
}
cd "$root/debs"
get update
# Of libmunge only the header is needed: crun loads the library at run time.
get download libuv1-dev libuv1 libjansson-dev libjansson4 libsodium-dev libsodium23 libmunge-dev
for package in *.deb; do dpkg-deb -x "$package" "$root"; done
touch "$root/complete"
