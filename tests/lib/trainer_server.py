"""A stand-in for the status server of Kubeflow Trainer: HTTPS with a certificate of an authority of
its own, the paths, answers and limits of the published text (Trainer 2.3: pkg/statusserver, type
TrainerStatus). The real server checks the signature of a JSON web token; this one compares it.

    with TrainerServer(tmp) as server:
        crun(..., env=clean_env(**server.env))   # the variables that TrainJob gives to its pods
        server.reports                           # the trainerStatus of each accepted report
        server.statuses                          # the HTTP status of each answer
"""
import datetime
import http.server
import json
import ssl
import threading

from etcd_cluster import Authority

PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ml/trainjobs/digits/status"
BODY_MAX = 1 << 16
INT32_MAX = 2 ** 31 - 1


def is_int32(value, most):
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def mistake(status):
    """Returns what the type TrainerStatus does not allow in `status`, or None."""
    known = {"progressPercentage", "estimatedRemainingSeconds", "metrics", "lastUpdatedTime"}
    if not isinstance(status, dict) or set(status) - known:
        return "unknown field"
    if not is_int32(status.get("progressPercentage", 0), 100):
        return "progressPercentage"
    if not is_int32(status.get("estimatedRemainingSeconds", 0), INT32_MAX):
        return "estimatedRemainingSeconds"
    metrics = status.get("metrics", [])
    if len(metrics) > 256:
        return "too many metrics"
    for metric in metrics:
        texts = [metric.get("name"), metric.get("value")]
        if set(metric) != {"name", "value"} or not all(
                isinstance(t, str) and 1 <= len(t) <= 64 for t in texts):
            return "metric"
    datetime.datetime.strptime(status["lastUpdatedTime"], "%Y-%m-%dT%H:%M:%S.%fZ")
    return None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        stand_in = self.server.stand_in
        body = self.rfile.read(min(int(self.headers["Content-Length"]), BODY_MAX + 1))
        if stand_in.is_silent:
            stand_in.arrived.set()
            stand_in.is_over.wait()
            self.close_connection = True
            return
        status, answer = stand_in.judge(self.path, self.headers, body)
        stand_in.statuses.append(status)
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args):
        pass


class TrainerServer:
    def __init__(self, tmp):
        authority = Authority(tmp / "authority")
        cert, key = authority.sign("server")
        self.token, self.token_file = "token-1", tmp / "token"
        self.token_file.write_text(self.token)
        self.reports, self.statuses = [], []
        self.is_silent, self.arrived, self.is_over = False, threading.Event(), threading.Event()
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.stand_in = self
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.address = f"127.0.0.1:{self.http.server_address[1]}"
        self.env = {"KUBEFLOW_TRAINER_SERVER_URL": f"https://{self.address}{PATH}",
                    "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(authority.cert),
                    "KUBEFLOW_TRAINER_SERVER_TOKEN": str(self.token_file),
                    "CRUN_TRAINJOB_STATUS": "1"}
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *args):
        self.is_over.set()
        self.http.shutdown()
        self.http.server_close()

    def judge(self, path, headers, body):
        """Returns the HTTP status and the JSON of the answer."""
        if path != PATH:
            return self.refuse(404, "NotFound", "Not found")
        if len(body) > BODY_MAX:
            return self.refuse(413, "RequestEntityTooLarge", "Payload too large")
        if headers.get("Authorization") != f"Bearer {self.token}":
            return self.refuse(403, "Forbidden", "Forbidden")
        try:
            request = json.loads(body)
            why = mistake(request["trainerStatus"])
        except (KeyError, TypeError, ValueError):
            return self.refuse(422, "Invalid", "Invalid payload")
        if why is not None or headers.get("Content-Type") != "application/json":
            return self.refuse(422, "Invalid", f"Validation failed: {why}")
        self.reports.append(request["trainerStatus"])
        return 200, request

    @staticmethod
    def refuse(code, reason, message):
        return code, {"metadata": {}, "status": "Failure", "message": message, "reason": reason,
                      "code": code}
