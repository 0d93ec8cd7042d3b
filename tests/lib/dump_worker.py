#!/usr/bin/python3
"""A worker that writes what it was given to $DUMP_DIR/<pid>.json and then does as $DUMP_THEN says:
exit:N (in the first attempt only: exit-once:N), print, sleep, store, stdin."""
import json
import os
import signal
import socket
import struct
import sys
import time


def command_line():
    with open("/proc/self/cmdline", "rb") as f:
        return [a.decode() for a in f.read().split(b"\0")[:-1]]


def count_in_store():
    """Adds 1 to a key by the modern protocol (torch 2.5 or later), to prove that the store
    answers."""
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    with socket.create_connection(address, timeout=60) as s:
        key = b"/dump"
        s.sendall(struct.pack("<BI", 0, 0x3C85F7CE))
        s.sendall(struct.pack("<BQ", 4, len(key)) + key + struct.pack("<q", 1))
        data = b""
        while len(data) < 8:
            part = s.recv(8 - len(data))
            if not part:
                sys.exit("the store hung up")
            data += part
        return struct.unpack("<q", data)[0]


def main():
    then, _, value = os.environ.get("DUMP_THEN", "").partition(":")
    data = {"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(),
            "command_line": command_line(), "stdin": sys.stdin.read() if then == "stdin" else ""}
    if then == "store":
        data["env"]["STORE_COUNT"] = str(count_in_store())
    path = os.path.join(os.environ["DUMP_DIR"], f"{os.getpid()}.json")
    with open(path + ".part", "w") as f:
        json.dump(data, f)
    os.rename(path + ".part", path)
    if then == "print":
        print("to stdout", flush=True)
        print("to stderr", file=sys.stderr, flush=True)
    if then == "exit" or (then == "exit-once" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"):
        sys.exit(int(value))
    if then == "signals":
        expected = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1}
        signal.pthread_sigmask(signal.SIG_BLOCK, expected)  # a signal may come before sigwait()
        open(path + ".ready", "w").close()
        with open(path + ".signal.part", "w") as f:
            f.write(str(int(signal.sigwait(expected))))
        os.rename(path + ".signal.part", path + ".signal")
        os._exit(0)
    if then == "sleep":
        time.sleep(600)


main()
