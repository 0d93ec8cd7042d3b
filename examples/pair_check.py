#!/usr/bin/env python3
"""A test of the network between two nodes, for --pair-check:

    crun --nnodes=8:10 --pair-check='python3 /shared/pair_check.py --least-mbps=1000' ... train.py

The two nodes of a pair run it at the same time. They meet at CRUN_PAIR_ADDR and CRUN_PAIR_PORT,
measure the round trip and the bandwidth of TCP in both directions, and compare them with limits.
The last line that it writes is the reason of a failure. A test of the fabric that NCCL uses has
the same form: an all-reduce of two ranks with the port as MASTER_PORT.
"""
import argparse
import os
import socket
import sys
import time

CHUNK = 1 << 20
ROUND_TRIPS = 100


def connect(rank, addr, port, seconds):
    """Returns the connection between the two nodes. Rank 1 tries until rank 0 listens."""
    end = time.monotonic() + seconds
    if rank == 0:
        # the port is bound by crun, which does not listen; create_server() sets SO_REUSEADDR
        family = socket.AF_INET6 if ":" in addr else socket.AF_INET
        with socket.create_server(("", port), family=family) as server:
            server.settimeout(seconds)
            return server.accept()[0]
    while True:
        try:
            return socket.create_connection((addr, port), timeout=1)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def receive(peer, size):
    while size > 0:
        data = peer.recv(min(size, CHUNK))
        if not data:
            raise ConnectionError("the partner has closed the connection")
        size -= len(data)


def round_trip_ms(peer, rank):
    """Returns the shortest of several round trips, in ms."""
    best = float("inf")
    for _ in range(ROUND_TRIPS):
        begun = time.monotonic()
        if rank == 0:
            peer.sendall(b"x")
        receive(peer, 1)
        if rank == 1:
            peer.sendall(b"x")
        best = min(best, time.monotonic() - begun)
    return best * 1000


def megabytes_per_s(peer, sends, megabytes):
    """Returns how fast `megabytes` go from the node that sends to the other one."""
    begun = time.monotonic()
    if sends:
        for _ in range(megabytes):
            peer.sendall(bytes(CHUNK))
        receive(peer, 1)
    else:
        receive(peer, megabytes * CHUNK)
        peer.sendall(b"x")
    return megabytes * CHUNK / 1e6 / max(time.monotonic() - begun, 1e-9)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--megabytes", type=int, default=256, help="sent in each direction")
    p.add_argument("--least-mbps", type=float, default=100, help="least bandwidth in MB/s")
    p.add_argument("--most-ms", type=float, default=50, help="longest round trip in ms")
    p.add_argument("--seconds", type=float, default=20, help="limit of the whole test")
    o = p.parse_args()
    rank, partner = int(os.environ["CRUN_PAIR_RANK"]), os.environ["CRUN_PAIR_PEER"]
    place = os.environ["CRUN_PAIR_ADDR"], int(os.environ["CRUN_PAIR_PORT"])
    try:
        with connect(rank, *place, o.seconds) as peer:
            peer.settimeout(o.seconds)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ms = round_trip_ms(peer, rank)
            speeds = [megabytes_per_s(peer, rank == sender, o.megabytes) for sender in (0, 1)]
    except OSError as e:
        print(f"no connection with {partner} ({place[0]} port {place[1]}): {e}")
        return 1
    print(f"{partner}: round trip {ms:.3f} ms, {min(speeds):.0f} MB/s "
          f"(at least {o.least_mbps:g} MB/s and at most {o.most_ms:g} ms are wanted)")
    return 0 if min(speeds) >= o.least_mbps and ms <= o.most_ms else 1


sys.exit(main())
