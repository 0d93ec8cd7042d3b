#!/bin/sh
# crunrt(3) is what `make docs` would write from the header, and names every exported function.
set -eu
page=$(mktemp)
trap 'rm -f "$page"' EXIT
version=$(sed -n 's/^VERSION := //p' Makefile)
make/manual.py worker_runtime/include/crunrt.h "$version" > "$page"
diff -u docs/crunrt.3 "$page" || { echo 'FAIL: docs/crunrt.3 is old; run: make docs'; exit 1; }
while read -r name; do
    grep -q "$name(" docs/crunrt.3 || { echo "FAIL: crunrt(3) does not have $name"; exit 1; }
done < worker_runtime/crunrt.symbols
if command -v mandoc > /dev/null; then
    mandoc -T lint -W error docs/crunrt.3 || { echo 'FAIL: mandoc complains'; exit 1; }
fi
echo "PASS: $(wc -l < worker_runtime/crunrt.symbols) functions"
