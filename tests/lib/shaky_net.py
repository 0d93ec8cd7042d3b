"""A network of namespaces whose switch is this process. It delays, reorders, repeats and loses
frames, as `tc netem` does, without a module of the kernel.

    with ShakyNet(3, delay_s=0.05, jitter_s=0.04, loss=0.02, repeat=0.01, seed=7) as net:
        start([*net.hosts[1].run, "program"])     # runs on 10.77.0.2

Each host's eth0 is a TAP device whose other end is a descriptor of this process. A frame is delayed
by delay_s plus or minus up to jitter_s, each frame by itself; so frames overtake each other.

This needs root, network namespaces and /dev/net/tun; without them, ShakyNet() skips the test file.
"""
import fcntl
import heapq
import itertools
import os
import random
import selectors
import struct
import subprocess
import threading
import time

from crun_test import skip
from netns import Host, ip

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
FRAME_MAX = 65536
BROADCAST = b"\xff" * 6
_numbers = itertools.count(1)


def open_tap(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return fd


class ShakyNet:
    def __init__(self, count, delay_s=0.0, jitter_s=0.0, loss=0.0, repeat=0.0, seed=0):
        self.delay_s, self.jitter_s, self.loss, self.repeat = delay_s, jitter_s, loss, repeat
        self.random = random.Random(seed)
        self.names, self.taps, self.hosts, self.ports = [], [], [], {}
        self.seen = {"frames": 0, "lost": 0, "repeated": 0, "overtaken": 0}
        self.ends = ()
        self.base = f"crun{os.getpid() % 100000}-s{next(_numbers)}"
        try:
            for i in range(1, count + 1):
                self.add_host(i)
        except (OSError, subprocess.CalledProcessError) as e:
            self.remove()
            skip(f"namespaces cannot be joined by TAP devices here: {getattr(e, 'stderr', e)}")
        self.ends = self.stops, self.ended = os.pipe2(os.O_CLOEXEC)
        self.thread = threading.Thread(target=self.switch, daemon=True)
        self.thread.start()

    def add_host(self, i):
        name, tap = f"{self.base}-h{i}", f"ct{os.getpid() % 100000}-{i}"
        ip("netns", "add", name)
        self.names.append(name)
        self.taps.append(open_tap(tap))
        ip("link", "set", tap, "netns", name, "name", "eth0")
        ip("-n", name, "addr", "add", f"10.77.0.{i}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "link", "set", "lo", "up")
        self.hosts.append(Host(name, f"10.77.0.{i}", None))

    def switch(self):
        """Reads frames, and writes each at its time. A heap has the frames that are on their
        way."""
        chooser, way, order = selectors.DefaultSelector(), [], itertools.count()
        last = dict.fromkeys(self.taps, 0.0)
        for fd in [*self.taps, self.stops]:
            chooser.register(fd, selectors.EVENT_READ)
        while True:
            left = max(0, way[0][0] - time.monotonic()) if way else None
            ready = [key.fd for key, _ in chooser.select(left)]
            if self.stops in ready:
                return
            for fd in ready:
                self.receive(fd, way, order, last)
            while way and way[0][0] <= time.monotonic():
                _, _, to, frame = heapq.heappop(way)
                try:
                    os.write(to, frame)
                except OSError:  # the other end is not up, or its queue is full: the frame is lost
                    self.seen["lost"] += 1

    def receive(self, source, way, order, last):
        try:
            frame = os.read(source, FRAME_MAX)
        except OSError:
            return
        self.ports[frame[6:12]] = source
        to = self.ports.get(frame[:6])
        others = [fd for fd in self.taps if fd != source]
        for fd in [to] if to in others else others:
            self.seen["frames"] += 1
            if self.random.random() < self.loss:
                self.seen["lost"] += 1
                continue
            copies = 1 + (self.random.random() < self.repeat)
            self.seen["repeated"] += copies - 1
            for _ in range(copies):
                jitter = self.random.uniform(-self.jitter_s, self.jitter_s)
                at = time.monotonic() + max(0.0, self.delay_s + jitter)
                self.seen["overtaken"] += at < last[fd]
                last[fd] = max(last[fd], at)
                heapq.heappush(way, (at, next(order), fd, frame))

    def remove(self):
        for fd in [*self.taps, *self.ends]:
            os.close(fd)
        for name in self.names:
            ip("netns", "del", name, check=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.write(self.ended, b"x")
        self.thread.join()
        self.remove()
