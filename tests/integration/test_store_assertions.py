#!/usr/bin/env python3
"""tests/store_assertions.md names tests that exist: each `where: name, name` in its last
columns."""
import glob
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PLACES = {
    "server": "tests/integration/test_store_server.py",
    "faults": "tests/fault/test_store_faults.py",
    "1.13": "tests/interop/test_store_torch.py",
    "1.13-clients": "tests/interop/test_store_torch_clients.py",
    "modern": "tests/interop/test_store_modern.py",
    **{w: f"tests/unit/test_store_{w}.c" for w in ("keyspace", "wire", "client", "model")},
}


def main():
    checked, missing = 0, []
    for line in (ROOT / "tests/store_assertions.md").read_text().splitlines():
        if not line.startswith("|"):
            continue
        for place, names in re.findall(r"([\w.-]+): ((?:\w+_[\w*]+(?:, )?)+)", line.split("|")[-2]):
            path = PLACES.get(place, f"tests/unit/{place}")
            if place not in PLACES and not place.startswith("test_"):
                continue  # a word in front of a colon
            text = (ROOT / path).read_text()
            for name in re.findall(r"\w+_[\w*]+", names):
                checked += 1
                if not re.search(r"\b" + name.replace("*", r"\w*") + r"\b", text):
                    missing.append(f"{path} has no {name}")
        for path in re.findall(r"`(tests/[\w/.*]+)`", line):
            checked += 1
            if not glob.glob(str(ROOT / path)):
                missing.append(f"no file {path}")
    print(f"{checked} names")
    if missing or checked < 60:
        sys.exit("FAIL: "
                 + "; ".join(missing or ["too few names were found: is the table another?"]))


main()
