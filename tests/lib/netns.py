"""Simulates several hosts by network namespaces that are joined by a switch. Each has an address of
its own and can be cut off from the others without a FIN or RST.

    with Net(3) as net:
        start([*net.hosts[1].run, "program"])     # runs on 10.x.0.2
        net.hosts[1].cut(); net.hosts[1].heal()   # packets are lost, without FIN or RST

    with Net(2, names=["head", "n2"], v6=True) as net:    # each host has a name of its own
        net.hosts[1].etc_hosts("10.77.0.1 head", "fd77::1 head")
        net.hosts[1].black_hole("fd77::1")        # packets to that address are lost

This needs root and network namespaces; without them, Net() skips the test file.
"""
import itertools
import os
import pathlib
import shutil
import subprocess

from crun_test import skip

_numbers = itertools.count(1)


def ip(*args, check=True):
    return subprocess.run(["ip", *map(str, args)], check=check, capture_output=True, text=True)


class Host:
    def __init__(self, name, addr, port, hostname=None):
        self.name, self.addr, self.port, self.hostname = name, addr, port, hostname
        self.run = ["ip", "netns", "exec", name]
        if hostname is not None:
            self.run += ["unshare", "-u", "sh", "-c", f'hostname {hostname}; exec "$@"', "sh"]

    @property
    def etc(self):
        return pathlib.Path("/etc/netns", self.name)

    def etc_hosts(self, *lines):
        """Programs that start from now on see this /etc/hosts."""
        self.etc.mkdir(parents=True, exist_ok=True)
        text = "\n".join(["127.0.0.1 localhost", *lines, ""])
        (self.etc / "hosts").write_text(text)

    def black_hole(self, addr):
        """Packets from this host to the address go to nobody, so they are not answered."""
        ip("-n", self.name, "neigh", "replace", addr, "lladdr", "02:00:00:00:00:99", "dev", "eth0",
           "nud", "permanent")

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
    def __init__(self, count, names=None, v4=True, v6=False):
        self.names, self.hosts = [], []
        self.hostnames, self.v4, self.v6 = names, v4, v6
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
            if self.v4:
                ip("-n", name, "addr", "add", f"10.77.0.{i}/24", "dev", "eth0")
            if self.v6:
                ip("-n", name, "addr", "add", f"fd77::{i}/64", "dev", "eth0", "nodad")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            self.hosts.append(Host(name, f"10.77.0.{i}" if self.v4 else f"fd77::{i}",
                                   (switch, port), self.hostnames and self.hostnames[i - 1]))

    def remove(self):
        for name in self.names:
            ip("netns", "del", name, check=False)
            shutil.rmtree(f"/etc/netns/{name}", ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()
