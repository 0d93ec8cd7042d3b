#!/bin/sh
# Proves that a tarball is the whole project: it builds, passes its tests, installs, and uninstalls
# into nothing, in a folder of its own.
#
#     make/distcheck.sh TARBALL FOLDER_IN_IT
set -eu
unset MAKEFLAGS MAKELEVEL MFLAGS
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
tar -xzf "$1" -C "$dir"
cd "$dir/$2"
make -j"$(nproc)" CI=true check-all KINDS='unit golden integration'
make install DESTDIR="$dir/root" PREFIX=/usr
make uninstall DESTDIR="$dir/root" PREFIX=/usr
if [ -e "$dir/root" ] && [ -n "$(find "$dir/root" -mindepth 1)" ]; then
    echo 'make uninstall left:' >&2
    find "$dir/root" -mindepth 1 >&2
    exit 1
fi
echo "$1 is complete: built, tested, installed, uninstalled"
