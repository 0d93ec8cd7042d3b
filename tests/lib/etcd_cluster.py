"""A real etcd cluster on this machine, with or without TLS and users, for tests of the backend
etcd.

    with EtcdCluster(tmp, size=3, tls=True) as etcd:
        etcd.endpoint                    # "host:port" of the first member
        etcd.stall(0); etcd.go_on(0)     # SIGSTOP, SIGCONT
        etcd.kill(1); etcd.restart(1)    # kill -9; the member comes back with its data

With tls=True the members demand client certificates; etcd.conf() has the settings of --rdzv-conf.
"""
import base64
import json
import shutil
import signal
import ssl
import subprocess
import urllib.error
import urllib.request

from crun_test import clean_env, read_text, wait_for
from free_port import free_port

ETCD = shutil.which("etcd")
PREFIX = "crun/rendezvous/"


def openssl(*args):
    done = subprocess.run(["openssl", *map(str, args)], capture_output=True, text=True)
    assert done.returncode == 0, (args, done.stderr)


class Authority:
    """A certificate authority and the certificates that it signs, in a folder."""

    def __init__(self, folder, name="ca"):
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.cert, self.key = folder / f"{name}.pem", folder / f"{name}-key.pem"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-days", 2, "-subj", f"/CN=test authority {name}", "-keyout", self.key, "-out",
                self.cert)

    def sign(self, name, names="IP:127.0.0.1,DNS:localhost"):
        cert, key, request = (self.folder / f"{name}{e}" for e in (".pem", "-key.pem", ".csr"))
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                f"/O={name}", "-keyout", key, "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key,
                "-CAcreateserial", "-days", 2, "-extfile", extensions, "-out", cert)
        return cert, key


class EtcdCluster:
    def __init__(self, tmp, size=3, tls=False, host="127.0.0.1", ports=None, prefix=(),
                 check=True):
        self.tmp, self.size, self.tls, self.prefix = tmp, size, tls, list(prefix)
        self.scheme = "https" if tls else "http"
        numbers = [free_port() for _ in range(2 * size)]
        self.host, self.ports, self.peers = host, ports or numbers[:size], numbers[size:]
        self.members, self.token = [], None
        if tls:
            self.authority = Authority(tmp / "tls")
            self.server = self.authority.sign("server", f"IP:{host},DNS:localhost,IP:127.0.0.1")
            self.client = self.authority.sign("client")
        self.members = [self.start(i, "new") for i in range(size)]
        if check:  # in a network namespace, the test's process cannot reach it
            self.wait(range(size))

    def wait(self, which):
        wait_for(lambda: all(map(self.is_up, which)),
                 f"etcd: {read_text(self.tmp / 'etcd0.log')[-2000:]}")

    def start(self, i, state):
        client = f"{self.scheme}://{self.host}:{self.ports[i]}"
        cluster = ",".join(f"m{k}=http://127.0.0.1:{p}" for k, p in enumerate(self.peers))
        tls = []
        if self.tls:
            tls = ["--cert-file", self.server[0], "--key-file", self.server[1],
                   "--client-cert-auth", "--trusted-ca-file", self.authority.cert]
        peer = f"http://127.0.0.1:{self.peers[i]}"
        argv = [*self.prefix, ETCD, "--name", f"m{i}", "--data-dir", self.tmp / f"etcd{i}",
                "--listen-client-urls", client, "--advertise-client-urls", client,
                "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                "--initial-cluster", cluster, "--initial-cluster-state", state, *tls]
        with open(self.tmp / f"etcd{i}.log", "a") as log:
            return subprocess.Popen([*map(str, argv)], stdout=log, stderr=log,
                                    env=clean_env(ETCD_UNSUPPORTED_ARCH="arm64"))

    @property
    def endpoint(self):
        return f"{self.host}:{self.ports[0]}"

    @property
    def endpoints(self):
        return ",".join(f"{self.host}:{p}" for p in self.ports)

    def conf(self):
        """Settings of --rdzv-conf with which a node gets in."""
        if not self.tls:
            return []
        return ["protocol=https", f"ca_cert={self.authority.cert}", f"ssl_cert={self.client[0]}",
                f"ssl_cert_key={self.client[1]}"]

    def post(self, path, body, i=0, timeout=5):
        context = None
        if self.tls:
            context = ssl.create_default_context(cafile=self.authority.cert)
            context.load_cert_chain(*self.client)
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = self.token
        request = urllib.request.Request(f"{self.scheme}://{self.host}:{self.ports[i]}{path}",
                                         json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=timeout, context=context) as answer:
            return json.loads(answer.read())

    def is_up(self, i):
        """A linearizable read needs the majority."""
        try:
            return "header" in self.post("/v3/kv/range", {"key": "AA=="}, i, timeout=2)
        except (OSError, urllib.error.URLError, ValueError):
            return False

    def keys(self, i=0):
        """The leaders' keys: a list of (key, value, epoch)."""
        return [k for k in self.all_keys(i) if not k[0].endswith("/mark")]

    def all_keys(self, i=0):
        code = lambda text: base64.b64encode(text.encode()).decode()
        end = PREFIX[:-1] + chr(ord(PREFIX[-1]) + 1)
        answer = self.post("/v3/kv/range", {"key": code(PREFIX), "range_end": code(end)}, i)
        text = lambda field: base64.b64decode(field).decode()
        return [(text(k["key"]), text(k["value"]), int(k["create_revision"]))
                for k in answer.get("kvs", [])]

    def leases(self, i=0):
        """How many leases the cluster has."""
        return len(self.post("/v3/lease/leases", {}, i).get("leases", []))

    def demand_users(self, user, password):
        """Makes a user that may use the prefix, and switches authentication on."""
        code = lambda text: base64.b64encode(text.encode()).decode()
        end = PREFIX[:-1] + chr(ord(PREFIX[-1]) + 1)
        permission = {"permType": "READWRITE", "key": code(PREFIX), "range_end": code(end)}
        self.post("/v3/auth/user/add", {"name": "root", "password": "root-password"})
        self.post("/v3/auth/role/add", {"name": "root"})
        self.post("/v3/auth/user/grant", {"user": "root", "role": "root"})
        self.post("/v3/auth/user/add", {"name": user, "password": password})
        self.post("/v3/auth/role/add", {"name": "crun"})
        self.post("/v3/auth/role/grant", {"name": "crun", "perm": permission})
        self.post("/v3/auth/user/grant", {"user": user, "role": "crun"})
        self.post("/v3/auth/enable", {})

    def kill(self, i):
        self.members[i].kill()
        self.members[i].wait()

    def restart(self, i):
        self.members[i] = self.start(i, "existing")

    def stall(self, i):
        self.members[i].send_signal(signal.SIGSTOP)

    def go_on(self, i):
        self.members[i].send_signal(signal.SIGCONT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for i in range(len(self.members)):
            self.go_on(i)
            self.kill(i)
