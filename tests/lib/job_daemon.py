"""crun-agent jobs, the daemon that runs commands of users, on this machine or in namespaces.

    with Cluster(tmp) as cluster:                 # one daemon on loopback
    with Cluster(tmp, net.hosts) as cluster:      # one on each host
        cluster.crun("--on", cluster.names, ...)  # calls from the first host
"""
import os
import secrets

from crun_test import BUILD, CRUN, clean_env, kill, read_text, run, skip, start, wait_for

AGENT = BUILD / "bin/crun-agent"


class Daemon:
    def __init__(self, cluster, host, number):
        self.cluster, self.host, self.number = cluster, host, number
        self.addr = host.addr if host else "127.0.0.1"
        self.enter = host.run if host else []
        self.socket = cluster.tmp / f"s{number}"
        self.port = 29401 if host else 0
        self.start()

    def start(self):
        out = self.cluster.tmp / f"daemon{self.number}.out"
        log = open(self.cluster.tmp / f"daemon{self.number}.log", "a")
        self.p = start([*self.enter, self.cluster.agent, "jobs", f"--listen=0.0.0.0:{self.port}",
                        "--rdzv-token-file", self.cluster.token, "--socket", self.socket],
                       env=clean_env(LOGLEVEL="info"), stdout=open(out, "w"), stderr=log)
        wait_for(lambda: self.p.poll() is not None or read_text(out).endswith("\n"), "the daemon")
        if "without libsodium" in self.log():
            skip("this build has no libsodium")
        assert self.p.poll() is None, self.log()
        self.port = int(read_text(out).rsplit(":", 1)[1])

    def log(self):
        return read_text(self.cluster.tmp / f"daemon{self.number}.log")

    def env(self, **more):
        own = {"CRUN_AGENT_SOCKET": self.socket, "CRUN_AGENT_PORT": self.port,
               "HOME": self.cluster.tmp}
        return clean_env(**{**own, **more})


class Cluster:
    def __init__(self, tmp, hosts=None, agent=AGENT):
        self.tmp, self.agent = tmp, agent
        os.chmod(tmp, 0o755)
        self.secret = secrets.token_hex(32)
        self.token = tmp / "cluster-token"
        self.token.touch(mode=0o600)
        self.token.write_text(self.secret + "\n")
        self.daemons = []
        for i, host in enumerate(hosts or [None]):
            self.daemons.append(Daemon(self, host, i))
        self.first = self.daemons[0]
        self.names = ",".join(d.addr for d in self.daemons)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for daemon in self.daemons:
            kill(daemon.p)

    def crun(self, *args, user=None, env=None, **how):
        """Calls crun on the first host, as root or as another user."""
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        return run([*self.first.enter, *become, CRUN, *args],
                   env=self.first.env(**(env or {})), **how)

    def call(self, command, **how):
        return self.crun("--call", self.daemons[-1].addr, command, **how)
