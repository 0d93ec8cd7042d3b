"""A TCP port for a server that a test is about to start.

Port 0 is of no use where several programs must know the port before one of them listens: the kernel
would choose it from the range of outgoing connections, and a connection of another test could take
the port before the server listens, and hold it for a minute in TIME_WAIT. So the port comes from
below that range. Two tests that run at the same time must get different ports: each port has a lock
file, which the process that has got the port keeps locked until it ends."""
import fcntl
import os
import pathlib
import random
import socket
import tempfile

LOWEST = 15000  # tests of --port-range use ports below it
DEFAULTS = (29400, 29500)  # default ports of a job
LOCKS = pathlib.Path(tempfile.gettempdir(), "crun-test-ports")
held = []  # descriptors of the lock files


def reserve(port):
    """Locks the port for this process. Returns False if another test has it."""
    LOCKS.mkdir(exist_ok=True)
    fd = os.open(LOCKS / str(port), os.O_CREAT | os.O_RDWR, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return False
    held.append(fd)
    return True


def is_free(port):
    with socket.socket() as s:
        try:
            s.bind(("", port))
            return True
        except OSError:
            return False


def free_port():
    limits = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    first_ephemeral = int(limits[0])
    if first_ephemeral <= LOWEST:
        raise SystemExit(f"no ports from {LOWEST} up to the ephemeral ones, which begin at "
                         f"{first_ephemeral}")
    while True:
        port = random.SystemRandom().randrange(LOWEST, first_ephemeral)
        if port not in DEFAULTS and reserve(port) and is_free(port):
            return port
