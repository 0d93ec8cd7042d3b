#!/usr/bin/python3
"""A worker of tests/lib/nodes.py: says who it is, waits. SIGUSR1: fails with 7; SIGUSR2: ends
well."""
import json
import os
import signal
import sys

signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))
signal.signal(signal.SIGUSR2, lambda *_: sys.exit(0))
path = os.path.join(os.environ["TEST_DIR"], f"{os.environ['TEST_NODE']}.{os.getpid()}")
with open(path + ".part", "w") as f:
    json.dump({"pid": os.getpid(), "env": dict(os.environ)}, f)
os.rename(path + ".part", path + ".worker")
while True:
    signal.pause()
