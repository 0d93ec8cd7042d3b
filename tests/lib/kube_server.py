"""A stand-in for the API server of Kubernetes and for JobSet's controller, as far as in-place
restarts need them: HTTPS with a certificate of an authority of its own, one JobSet, its pods, and
watches. It follows the published text: KEP-467 of kubernetes-sigs/jobset (reconciliation, the
annotation, what the service account may do), and Kubernetes' text on watches (resourceVersion,
bookmarks, 410 Gone).

    with KubeServer(tmp, pods=["js-0", "js-1"]) as kube:
        crun(..., env=clean_env(**kube.env("js-0")))   # the variables of a pod
        kube.attempts(), kube.status                   # the annotations, the JobSet's status
        kube.forbid("patch", "pods"); kube.allow_all() # RBAC
        kube.forget()                                  # old versions: watches get 410 Gone
        kube.cut_watches()                             # all watches lose their connections
        kube.stop(); kube.begin()                      # the API server is away; is back
"""
import functools
import http.server
import json
import pathlib
import re
import socket
import ssl
import tempfile
import threading
import urllib.parse

from etcd_cluster import Authority
from free_port import free_port

KEY = "jobset.sigs.k8s.io/in-place-restart-attempt"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ml/jobsets"
PODS = "/api/v1/namespaces/ml/pods"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        # this thread makes the TLS handshake, so that no client delays the others
        self.request.settimeout(60)
        self.request = self.server.kube.context.wrap_socket(self.request, server_side=True)
        super().setup()

    def answer(self, code, body):
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def refuse(self, code, reason, message):
        self.answer(code, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "code": code,
                           "status": "Failure", "reason": reason, "message": message})

    def may(self, verb, resource):
        """Answers and returns False if the client has no right to do this."""
        kube = self.server.kube
        kube.calls.append((verb, resource))
        if self.headers.get("Authorization") != f"Bearer {kube.token}":
            self.refuse(401, "Unauthorized", "Unauthorized")
        elif (verb, resource) in kube.forbidden:
            self.refuse(403, "Forbidden", f"{resource} is forbidden: cannot {verb}")
        else:
            return True
        return False

    def do_GET(self):
        kube = self.server.kube
        url = urllib.parse.urlparse(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if url.path == f"{JOBSETS}/js" and self.may("get", "jobsets"):
            with kube.changed:
                body = kube.jobset()
            self.answer(200, body)
        elif url.path == JOBSETS and query.get("watch") == "1":
            assert query["fieldSelector"] == "metadata.name=js", query
            if self.may("watch", "jobsets"):
                self.watch(int(query["resourceVersion"]), query)
        elif url.path not in (JOBSETS, f"{JOBSETS}/js"):
            self.refuse(404, "NotFound", f"{url.path} not found")

    def do_PATCH(self):
        kube = self.server.kube
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        pod = self.path.removeprefix(PODS + "/")
        if not self.may("patch", "pods"):
            return
        value = body.get("metadata", {}).get("annotations", {}).get(KEY)
        only = {"metadata": {"annotations": {KEY: value}}}
        if self.headers["Content-Type"] != "application/merge-patch+json":
            self.refuse(415, "UnsupportedMediaType", "the body was in an unknown format")
        elif pod not in kube.pods:
            self.refuse(404, "NotFound", f'pods "{pod}" not found')
        elif body != only or not isinstance(value, str) or not re.fullmatch(r"\d+", value):
            self.refuse(422, "Invalid", f"can only update the annotation {KEY}: {body}")
        else:
            kube.annotate(pod, value)
            if kube.loses_answers > 0:  # carried out, but the client does not learn it
                kube.loses_answers -= 1
                self.close_connection = True
                self.connection.close()
                return
            self.answer(200, {"kind": "Pod",
                              "metadata": {"name": pod, "annotations": {KEY: value}}})

    def chunk(self, event):
        text = json.dumps(event).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
        self.wfile.flush()

    def watch(self, version, query):
        kube = self.server.kube
        if version < kube.oldest:
            if kube.gone_by_status:
                return self.refuse(410, "Expired", "too old resource version")
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with kube.changed:
            kube.watches.add(self.connection)
        try:
            self.stream(version, int(query["timeoutSeconds"]))
        except OSError:
            pass
        finally:
            self.close_connection = True
            with kube.changed:
                kube.watches.discard(self.connection)
                kube.changed.notify_all()

    def stream(self, version, seconds):
        kube = self.server.kube
        assert seconds > 0
        while True:
            with kube.changed:
                kube.changed.wait_for(lambda: version < kube.version or version < kube.oldest
                                      or self.connection not in kube.watches or kube.ends_watches)
                is_old, ends = version < kube.oldest, kube.ends_watches
                events = [e for v, e in kube.history if v > version]
                if self.connection not in kube.watches:
                    return
                version = kube.version
            if is_old:
                self.chunk({"type": "ERROR", "object": {
                    "kind": "Status", "code": 410, "reason": "Expired",
                    "message": "too old resource version"}})
            else:
                for event in events:
                    self.chunk(event)
            if is_old or ends:
                self.wfile.write(b"0\r\n\r\n")
                return

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request, client_address):
        pass  # a client that closes its connection, or a TLS handshake that fails


@functools.cache
def certificates():
    """Makes the authority and the server's certificate once, for all servers of this process."""
    folder = tempfile.TemporaryDirectory(prefix="crun-kube-")
    authority = Authority(pathlib.Path(folder.name) / "authority")
    cert, key = authority.sign("server")
    return folder, authority.cert.read_text(), cert, key


class KubeServer:
    def __init__(self, tmp, pods, max_restarts=3, strategy="InPlaceRestart"):
        self.folder = tmp / "account"
        self.folder.mkdir()
        _, authority, cert, key = certificates()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(cert, key)
        self.token = "token-1"
        (self.folder / "token").write_text(self.token)
        (self.folder / "namespace").write_text("ml")
        (self.folder / "ca.crt").write_text(authority)
        self.pods = {name: None for name in pods}
        self.max_restarts, self.strategy, self.notes = max_restarts, strategy, {}
        self.status, self.has_failed = {}, False
        self.version, self.oldest, self.history = 100, 0, []
        self.changed, self.watches = threading.Condition(), set()
        self.ends_watches, self.gone_by_status, self.loses_answers = False, False, 0
        self.forbidden, self.calls, self.lifted = set(), [], []
        self.port, self.http = free_port(), None

    def __enter__(self):
        self.begin()
        return self

    def __exit__(self, *args):
        self.stop()

    def begin(self):
        self.http = Server(("127.0.0.1", self.port), Handler)
        self.http.kube = self
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self):
        if self.http is not None:
            self.http.shutdown()
            self.http.server_close()
            self.http = None
        self.cut_watches()

    def env(self, pod, **more):
        return {"CRUN_JOBSET_IN_PLACE": "1", "JOBSET_NAME": "js", "POD_NAME": pod,
                "CRUN_SERVICE_ACCOUNT": str(self.folder), "KUBERNETES_SERVICE_HOST": "127.0.0.1",
                "KUBERNETES_SERVICE_PORT": str(self.port), **more}

    def jobset(self):
        return {"kind": "JobSet", "apiVersion": "jobset.x-k8s.io/v1alpha2",
                "metadata": {"name": "js", "namespace": "ml", "resourceVersion": str(self.version),
                             "annotations": dict(self.notes)},
                "spec": {"failurePolicy": {"maxRestarts": self.max_restarts,
                                           "restartStrategy": self.strategy}},
                "status": dict(self.status)}

    def attempts(self):
        with self.changed:
            return {name: value for name, value in self.pods.items()}

    # ---- the controller, as KEP-467 describes it ----

    def annotate(self, pod, value):
        with self.changed:
            self.pods[pod] = value
            self.reconcile()

    def reconcile(self):
        values = [int(v) for v in self.pods.values() if v is not None]
        if max(values) > self.max_restarts:
            self.has_failed = True
        elif len(values) == len(self.pods) and len(set(values)) == 1:
            if self.status.get("currentInPlaceRestartAttempt") != values[0]:
                self.lifted.append(values[0])
            self.update("currentInPlaceRestartAttempt", values[0])
        elif max(values) > 0:
            old = self.status.get("previousInPlaceRestartAttempt", -1)
            if max(values) - 1 > old:
                self.update("previousInPlaceRestartAttempt", max(values) - 1)
        self.changed.notify_all()

    def update(self, field, value):
        if self.status.get(field) == value:
            return
        self.status[field] = value
        self.version += 1
        self.history.append((self.version, {"type": "MODIFIED", "object": self.jobset()}))

    # ---- faults ----

    def bookmark(self):
        """Sends the newest version to all watches, as an API server does from time to time."""
        with self.changed:
            self.version += 5
            self.history.append((self.version, {"type": "BOOKMARK", "object": {
                "kind": "JobSet", "metadata": {"resourceVersion": str(self.version)}}}))
            self.changed.notify_all()

    def forget(self):
        """Forgets all versions so far: running and new watches of these get 410 Gone."""
        with self.changed:
            self.version += 1
            self.oldest, self.history = self.version, []
            self.changed.notify_all()

    def forbid(self, verb, resource):
        self.forbidden.add((verb, resource))

    def allow_all(self):
        self.forbidden.clear()

    def cut_watches(self):
        with self.changed:
            for connection in self.watches:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
            self.watches.clear()
            self.changed.notify_all()
