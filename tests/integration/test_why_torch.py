#!/usr/bin/env python3
# timeout: 240
"""crun-agent why reads what stock torch offers: the socket of its worker server, and the dump pipe
of ProcessGroupNCCL. Here a Python program stands in for torch, with the answers of torch 2.15.

CRUN_TEST_MODERN_PYTHON (make interop-modern) names a Python with a torch that has worker_main();
then tests/interop/test_why_torch.py does the same with torch itself."""
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, CRUN, clean_env, crun, run, run_tests, script, start, wait_for

WORKER = r'''#!/usr/bin/python3
import http.server, json, os, socketserver, stat, sys, threading, time
rank = int(os.environ["RANK"])
def entry(number, done):
    return {"collective_seq_id": number, "process_group": ["0", "default_pg"], "retired": done,
            "profiling_name": "gloo:all_reduce" if rank != 2 else "gloo:broadcast",
            "state": "scheduled"}
RECORD = json.dumps({"entries": [entry(3, True), entry(4, False), entry(5, False)]})
STACK = """Current thread 0x00007f0957fff6c0 (most recent call first):
  <no Python frame>

Thread 0x00007f0a18614b80 (most recent call first):
  File "/x/torch/distributed/distributed_c10d.py", line 4181 in all_reduce
  File "/x/train.py", line 9 in main
  File "/x/train.py", line 10 in <module>
"""
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        answers = {"/handler/fr_trace_json": RECORD, "/handler/dump_traceback": STACK}
        if os.environ.get("MUTE") or self.path not in answers:
            time.sleep(600 if os.environ.get("MUTE") else 0)
            self.send_response(404)
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answers[self.path].encode())
    def log_message(self, *_):
        pass
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    def get_request(self):
        return super().get_request()[0], ("crun", 0)
pipe = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + str(rank) + ".pipe"
os.mkfifo(pipe)
fd = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
server = Server(os.environ["TORCH_WORKER_SERVER_SOCKET"], Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
open(os.path.join(os.environ["READY"], str(rank)), "w").close()
while True:
    time.sleep(0.02)
    try:
        asked = os.read(fd, 1)
    except BlockingIOError:  # a writer has opened the pipe and has not written yet
        continue
    if asked:
        with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(rank), "w") as f:
            f.write("record")
'''


def look(tmp, **more):
    """Starts three workers, and returns the rows of crun-agent why. Unless the workers are mute, it
    asks again until all have answered: a worker may be too late on a busy machine."""
    name = f"torch-{os.getpid()}-{len(more)}"
    (tmp / "ready").mkdir(exist_ok=True)
    logs = tmp / f"logs{len(more)}"
    env = clean_env(OMP_NUM_THREADS=1, READY=tmp / "ready", PATH="/usr/bin:/bin", **more)
    job = start([CRUN, "--nproc-per-node=3", f"--rdzv-id={name}", f"--log-dir={logs}",
                 script(tmp, "w", WORKER)], env=env)
    try:
        wait_for(lambda: len(list((tmp / "ready").iterdir())) == 3, "the workers")

        def ask():
            done = run([BUILD / "bin" / "crun-agent", "why", "--job", name, "--json"], env=env)
            assert done.returncode == 0, done
            rows = {r["rank"]: r for r in map(json.loads, done.stdout.splitlines())}
            return rows if more or all(r["operation"] and r["python"] for r in rows.values()) \
                else None
        rows = wait_for(ask, "the answers of all workers")
        if not more:
            wait_for(lambda: len(list(logs.rglob("torch_flight_record_*"))) == 3
                     or job.poll() is not None, "the records")
            assert job.poll() is None, job.communicate()
        return rows
    finally:
        job.terminate()
        job.communicate()


def test_operation_and_python_stack(tmp):
    """PATH has no py-spy, so the Python stack comes from the worker server."""
    rows = look(tmp)
    assert len(rows) == 3, rows
    for rank, row in rows.items():
        what = "broadcast" if rank == 2 else "all_reduce"
        assert row["operation"] == f"gloo:{what} 4 of group 'default_pg'", row
        assert row["python"] == ("all_reduce (distributed_c10d.py:4181) < main (train.py:9) < "
                                 "<module> (train.py:10)"), row
        assert "torch writes its flight record" in row["note"], row


def test_a_server_that_does_not_answer(tmp):
    rows = look(tmp, MUTE="1")
    assert len(rows) == 3, rows
    for row in rows.values():
        assert row["operation"] == "" and "did not answer" in row["note"], row


WATCHES_THE_KEY = """#!/usr/bin/python3
import os, socket, struct, sys, time
sys.path.insert(0, os.environ["TEST_LIB"])
from store_raw import Modern
class Store:
    def connect(self, host):
        return socket.create_connection((os.environ["MASTER_ADDR"],
                                         int(os.environ["MASTER_PORT"])))
rank = os.environ["RANK"]
os.mkfifo(os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + rank + ".pipe")
store = Modern(Store())
store.wait("exception_dump")
store.byte()
value = store.get("exception_dump")
with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + rank, "w") as f:
    f.write(str(struct.unpack("i", value)[0]))
time.sleep(3600)
"""


def test_a_hang_sets_the_key_that_ranks_of_torch_watch(tmp):
    done = crun("--nproc-per-node=2", "--hang-timeout=1", f"--log-dir={tmp}/logs",
                script(tmp, "w", WATCHES_THE_KEY),
                env=clean_env(OMP_NUM_THREADS=1,
                              TEST_LIB=pathlib.Path(__file__).resolve().parent.parent / "lib"))
    assert done.returncode == 1 and "hang (for 1 s" in done.stderr, done
    records = sorted((tmp / "logs").rglob("torch_flight_record_*"))
    assert [p.read_text() for p in records] == ["0", "0"], (records, done)


if __name__ == "__main__":
    run_tests(globals())
