#!/usr/bin/python3
"""A worker of tests/lib/nodes.py: it writes its pid and environment to a file. On SIGUSR1
it exits with status 7, on SIGUSR2 with status 0."""
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
