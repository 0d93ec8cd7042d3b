#!/usr/bin/env python3
# timeout: 120
"""--health-service with a real gRPC server on a Unix socket. CRUN_TEST_GRPC_PYTHON names a Python
with grpcio (make interop-grpc makes one); the server's messages are made by hand, as protoc's
would be."""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import clean_env, crun, run, run_tests, skip, wait_for

PYTHON = os.environ.get("CRUN_TEST_GRPC_PYTHON", sys.executable)
SERVER = r'''
import concurrent.futures, grpc, json, os, sys, time
path, folder = sys.argv[1:]
def text(number, value):
    data, out = value.encode(), bytes([number << 3 | 2])
    length = len(data)
    while length > 127:
        out += bytes([length & 127 | 128])
        length >>= 7
    return out + bytes([length]) + data
def words(data):
    out = []
    while data:
        assert data[0] == 10 and data[1] < 128, data
        out.append(data[2:2 + data[1]].decode())
        data = data[2 + data[1]:]
    return out
def check(request, context):
    with open(folder + "/asked", "a") as f:
        f.write(json.dumps(words(request)) + "\n")
    kind = open(folder + "/kind").read()
    if kind == "abort":
        context.abort(grpc.StatusCode.INTERNAL, "no script is configured")
    if kind == "junk":
        return b"\xff\xff"
    if kind == "huge":
        return b"\x08\x01" + text(3, "x" * 3000000)
    if kind == "slow":
        time.sleep(60)
    if kind == "unwell":
        return b"\x10\x2a" + text(3, json.dumps({"failed_checks": ["gpu-3", "ib0"]}))
    if kind == "count":
        return b"\x08\x01" + text(3, json.dumps({"fail_count": 1, "failed_checks": ["dcgm"]}))
    return b"\x08\x01" + text(3, json.dumps({"fail_count": 0, "log": "y" * 100000}))
server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
handler = grpc.unary_unary_rpc_method_handler(check)
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
    "nvhcd.HealthCheckService", {"RunHealthCheck": handler}),))
server.add_insecure_port("unix:" + path)
server.start()
open(folder + "/ready", "w").close()
server.wait_for_termination()
'''
DEFAULT = ["--no-slurm", "--group", "prolog", "epilog", "logs", "gpu"]


class Service:
    def __init__(self, tmp):
        self.tmp, self.path = tmp, tmp / "nvhcd.sock"

    def __enter__(self):
        self.say("well")
        self.process = subprocess.Popen([PYTHON, "-c", SERVER, self.path, self.tmp])
        wait_for((self.tmp / "ready").exists, "the gRPC server")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def say(self, kind):
        (self.tmp / "kind").write_text(kind)

    def job(self, *options, before="unix://", after=""):
        return crun("--no-python", f"--health-service={before}{self.path}{after}", *options, "true",
                    env=clean_env(http_proxy="http://127.0.0.1:9", ALL_PROXY="http://127.0.0.1:9"))


def test_a_node_that_is_well(tmp):
    with Service(tmp) as service:
        for before, after in (("unix://", ""), ("unix:", ""), ("", " --group prolog")):
            done = service.job(before=before, after=after)
            assert done.returncode == 0 and done.stderr == "", done
        asked = (tmp / "asked").read_text().splitlines()
        assert asked == [str(a).replace("'", '"') for a in
                         (DEFAULT, DEFAULT, ["--group", "prolog"])], asked


def test_a_node_that_is_not_well(tmp):
    with Service(tmp) as service:
        for kind, why in (("unwell", "service: gpu-3, ib0"), ("count", "service: dcgm")):
            service.say(kind)
            done = service.job()
            assert done.returncode == 1, done
            assert f"this node is not fit for the job: {why}" in done.stderr, done


def test_a_service_that_gives_no_answer(tmp):
    """A node whose service gives no answer is fit, as with NVRx; a warning says why."""
    with Service(tmp) as service:
        for kind, why in (("abort", "gRPC status 13: no"), ("junk", "no HealthCheckResponse"),
                          ("huge", "gave no answer")):
            service.say(kind)
            done = service.job()
            assert done.returncode == 0 and why in done.stderr, (kind, done)
            assert "the node counts as well" in done.stderr, (kind, done)


def test_a_service_that_is_too_slow(tmp):
    with Service(tmp) as service:
        service.say("slow")
        done = service.job("--health-timeout=1")
        assert done.returncode == 1 and "not ended within 1 s" in done.stderr, done


if __name__ == "__main__":
    if run([PYTHON, "-c", "import grpc"]).returncode != 0:
        skip("no Python with grpcio; make interop-grpc fetches it")
    run_tests(globals())
