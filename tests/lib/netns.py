"""Simulates several hosts by network namespaces that are joined by a switch. Each has an address of
its own and can be cut off from the others without a FIN or RST.

    with Net(3) as net:
        start([*net.hosts[1].run, "program"])     # runs on 10.x.0.2
        net.hosts[1].cut(); net.hosts[1].heal()   # packets are lost, without FIN or RST

This needs root and network namespaces; without them, Net() skips the test file.
"""
import itertools
import os
import subprocess

from crun_test import skip

_numbers = itertools.count(1)


def ip(*args, check=True):
    return subprocess.run(["ip", *map(str, args)], check=check, capture_output=True, text=True)


class Host:
    def __init__(self, name, addr, port):
        self.name, self.addr, self.port = name, addr, port
        self.run = ["ip", "netns", "exec", name]

    def cut(self):
        """From now on the switch forwards no packet to or from this host. The host's own network
        interface stays up."""
        ip("-n", self.port[0], "link", "set", self.port[1], "nomaster")

    def heal(self):
        ip("-n", self.port[0], "link", "set", self.port[1], "master", "br0")

    def lose(self, percent):
        """Drops `percent` of the packets that this host sends. Returns False if the kernel cannot
        do so."""
        rules = (f"table inet t {{\n chain c {{\n type filter hook output priority 0;\n"
                 f" numgen random mod 100 < {percent} drop\n }}\n}}\n")
        try:
            done = subprocess.run([*self.run, "nft", "-f", "-"], input=rules, text=True,
                                  capture_output=True)
        except FileNotFoundError:
            return False
        return done.returncode == 0


class Net:
    def __init__(self, count):
        self.names, self.hosts = [], []
        base = f"crun{os.getpid() % 100000}-{next(_numbers)}"
        if os.geteuid() != 0 or ip("netns", "add", f"{base}-sw", check=False).returncode != 0:
            skip("network namespaces are not allowed here")
        self.names.append(f"{base}-sw")
        try:
            self.build(base, count)
        except (subprocess.CalledProcessError, FileNotFoundError) as e:
            self.remove()
            skip(f"network namespaces cannot be joined here: {getattr(e, 'stderr', e)}")

    def build(self, base, count):
        switch = self.names[0]
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        for i in range(1, count + 1):
            name, port = f"{base}-h{i}", f"p{i}"
            ip("netns", "add", name)
            self.names.append(name)
            ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns",
               name)
            ip("-n", switch, "link", "set", port, "master", "br0", "up")
            ip("-n", name, "addr", "add", f"10.77.0.{i}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            self.hosts.append(Host(name, f"10.77.0.{i}", (switch, port)))

    def remove(self):
        for name in self.names:
            ip("netns", "del", name, check=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()
