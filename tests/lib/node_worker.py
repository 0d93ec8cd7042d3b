#!/usr/bin/python3
"""A worker of tests/lib/nodes.py: it writes its pid and environment to a file. On SIGUSR1
it exits with status 7, on SIGUSR2 with status 0. On SIGHUP it connects to MASTER_ADDR and
MASTER_PORT, and writes "ok" or the error to a file. It takes the signals with sigwait():
signal.pause() would miss a signal that comes just before it, and wait for ever."""
import json
import os
import signal
import socket
import sys


def connect():
    where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        socket.create_connection(where, 20).close()
        text = "ok"
    except OSError as e:
        text = str(e)
    path = os.path.join(os.environ["TEST_DIR"], f"{os.getpid()}.connects")
    with open(path + ".part", "w") as f:
        f.write(text)
    os.rename(path + ".part", path)


SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
path = os.path.join(os.environ["TEST_DIR"], f"{os.environ['TEST_NODE']}.{os.getpid()}")
with open(path + ".part", "w") as f:
    json.dump({"pid": os.getpid(), "env": dict(os.environ)}, f)
os.rename(path + ".part", path + ".worker")
while True:
    number = signal.sigwait(SIGNALS)
    if number == signal.SIGHUP:
        connect()
    else:
        sys.exit(7 if number == signal.SIGUSR1 else 0)
