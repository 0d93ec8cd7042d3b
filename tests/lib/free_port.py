"""A port for a server of a test, which the kernel gives to nobody meanwhile.

Port 0 would give one of the range that outgoing connections take theirs from: between asking and
listening, a connection of a test that runs beside can have it, for a minute with TIME_WAIT."""
import pathlib
import random
import socket

LOWEST = 15000
DEFAULTS = (29400, 29500)  # somebody may start a job there without asking


def free_port():
    first_ephemeral = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if first_ephemeral <= LOWEST:
        raise SystemExit(f"no ports from {LOWEST} up to the ephemeral ones, which begin at {first_ephemeral}")
    while True:
        port = random.SystemRandom().randrange(LOWEST, first_ephemeral)
        if port in DEFAULTS:
            continue
        with socket.socket() as s:
            try:
                s.bind(("", port))
                return port
            except OSError:
                continue  # somebody's
