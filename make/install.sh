#!/bin/sh
# Installs files, and notes what it made, so that removing them leaves exactly what was there
# before.
#
#     make/install.sh DESTDIR NOTE < LINES    "MODE SOURCE DESTINATION" or "link TARGET NAME"
#     make/install.sh --remove DESTDIR NOTE
#
# NOTE is a file with lines "file PATH" and "folder PATH", without DESTDIR, in the order in which
# they were made.
set -eu

remove=''
[ "$1" = --remove ] && remove=yes && shift
destdir=${1%/} note=$1$2
bare_note=$2

noted() { [ -e "$note" ] && grep -qxF -- "$1" "$note"; }

if [ -n "$remove" ]; then
    if [ ! -e "$note" ]; then
        echo "nothing to uninstall: '$note' is not there" \
            "(the same DESTDIR, PREFIX and libdir as at install?)" >&2
        exit 0
    fi
    lines=$(tac "$note")
    rm -f "$note"
    echo "$lines" | while read -r kind path; do
        case $kind in
        file) rm -f "$destdir$path" ;;
        folder) rmdir "$destdir$path" 2>/dev/null || true ;; # not if it has other files
        esac
    done
    exit 0
fi

fresh=''
make_folder() { # its parents first
    [ -n "$1" ] && [ "$1" != / ] || return 0
    [ ! -d "$destdir$1" ] || return 0
    make_folder "${1%/*}"
    mkdir "$destdir$1"
    fresh="${fresh}folder $1
"
}
write_note() { printf '%s' "$fresh" >> "$note"; fresh=''; }

[ -z "$destdir" ] || mkdir -p "$destdir"
make_folder "${bare_note%/*}"
write_note
while read -r mode from to; do
    [ -n "$mode" ] || continue
    if [ -e "$destdir$to" ] && ! noted "file $to"; then
        case $to in
        */crun | */crun.1)
            echo "'$destdir$to' is there and is not ours: the OCI runtime crun?" \
                "Install beside it with PROGRAM_PREFIX=elastic- or another PREFIX;" \
                "'make uninstall' takes back what was done" >&2
            exit 1
            ;;
        esac
    fi
    make_folder "${to%/*}"
    noted "file $to" || fresh="${fresh}file $to
"
    write_note
    if [ "$mode" = link ]; then
        ln -sfn "$from" "$destdir$to"
    else
        rm -f "$destdir$to" # a program that runs from it goes on
        install -m "$mode" "$from" "$destdir$to"
    fi
done
