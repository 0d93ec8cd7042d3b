"""Stand-ins for ssh, and a real sshd, for tests of `crun --hosts`.

    rsh = namespace_rsh(tmp, net.hosts)         # a script: the host's address selects the namespace
    crun("--rsh", rsh, "--hosts", "10.77.0.1,10.77.0.2", ...)

    with Sshd(tmp) as sshd:
        crun("--rsh", sshd.rsh, "--hosts", "127.0.0.2,127.0.0.3", ...)
"""
import os
import pathlib
import shutil
import subprocess

from crun_test import run, script, skip, wait_for
from free_port import free_port

# Like ssh, the stand-ins join their words with blanks and give them to a shell on the host. That
# shell is a child with no tie to its parent but the pipes: as with ssh, it outlives the death of
# the process that stands for ssh.
RUN = 'exec 3<&0; {enter} sh -c "$*" <&3 3<&- & exec 3<&-; wait $!'


def local_rsh(tmp, lost=()):
    """A script that runs the commands of all hosts on this machine. The hosts of `lost` cannot be
    reached."""
    words = "|".join(lost) or "none"
    return script(tmp, "rsh", f"""#!/bin/sh
host=$1; shift
case $host in {words})
    echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255 ;;
esac
{RUN.format(enter='')}
""")


def namespace_rsh(tmp, hosts, enter="ip netns exec $name"):
    """A script that runs the commands of each host in its network namespace."""
    cases = "\n".join(f"{h.addr}) name={h.name} ;;" for h in hosts)
    return script(tmp, "rsh", f"""#!/bin/sh
[ "$1" = -x ] && shift # mpiexec.hydra passes it
host=$1; shift
case $host in
{cases}
*) echo "ssh: Could not resolve hostname $host: Name or service not known" >&2; exit 255 ;;
esac
{RUN.format(enter=enter)}
""")


def processes_of(hosts):
    """Returns the pids of all processes in the network namespaces of the hosts."""
    pids = []
    for host in hosts:
        pids += run(["ip", "netns", "pids", host.name]).stdout.split()
    return pids


class Sshd:
    """A real sshd on a free port of all loopback addresses, with keys of its own."""

    def __init__(self, tmp):
        self.tmp = pathlib.Path(tmp)
        self.path = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        if self.path is None or shutil.which("ssh") is None:
            skip("sshd or ssh is not installed (packages openssh-server, openssh-client)")
        if os.geteuid() != 0:
            skip("sshd needs root here")

    def __enter__(self):
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.tmp / name],
                           check=True)
        shutil.copyfile(self.tmp / "user.pub", self.tmp / "authorized")
        port = free_port()
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        (self.tmp / "sshd_config").write_text(
            f"Port {port}\nListenAddress 0.0.0.0\nHostKey {self.tmp}/host\n"
            f"AuthorizedKeysFile {self.tmp}/authorized\nStrictModes no\nUsePAM no\n"
            f"PermitRootLogin prohibit-password\nPidFile {self.tmp}/sshd.pid\nMaxStartups 100\n")
        self.process = subprocess.Popen([self.path, "-D", "-e", "-f", self.tmp / "sshd_config"],
                                        stderr=open(self.tmp / "sshd.log", "w"))
        wait_for(lambda: "listening" in (self.tmp / "sshd.log").read_text(), "sshd")
        self.rsh = (f"ssh -p {port} -i {self.tmp}/user -o BatchMode=yes "
                    f"-o StrictHostKeyChecking=accept-new -o UserKnownHostsFile={self.tmp}/known "
                    "-o LogLevel=ERROR -F /dev/null")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
