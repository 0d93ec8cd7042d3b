#!/usr/bin/env python3
# timeout: 300
"""The status address of crun and crun-agent (--status-addr): its paths, its metrics as Prometheus
reads them, its socket file, and that it costs nothing while nobody asks."""
import ctypes.util
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, CRUN, DEBIAN_PYTHON, PACE, TIMEOUT_S, clean_env, crun, run, \
    run_tests, script, skip, start, wait_for  # noqa: E402
from free_port import free_port  # noqa: E402
from nodes import Nodes  # noqa: E402

AGENT = str(BUILD / "bin" / "crun-agent")
PROGRAM = """#!/usr/bin/python3
import os, sys, time
rank = os.environ["RANK"]
print(f"rank {rank} begins", file=sys.stderr, flush=True)
while not os.path.exists(sys.argv[1] + rank): time.sleep(0.02)
status = int(open(sys.argv[1] + rank).read() or 0)
os.unlink(sys.argv[1] + rank)
sys.exit(status)
"""

if ctypes.util.find_library("microhttpd") is None:
    skip("libmicrohttpd is not installed (Debian: libmicrohttpd12)")
if "built without microhttpd.h" in crun("--status-addr=127.0.0.1:0", "true").stderr:
    skip("crun was built without microhttpd.h (Debian: libmicrohttpd-dev)")


def ask(port, path, method="GET", headers={}, body=None):
    """Returns (status, headers, text)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, body=body, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, text


def status(port):
    return json.loads(ask(port, "/status.json")[2])


def listens(port):
    try:
        return ask(port, "/healthz")[0] == 200
    except OSError:
        return False


class Job:
    """A crun with workers that end when end() says so."""

    def __init__(self, tmp, *options):
        self.tmp, self.port = tmp, free_port()
        self.process = start([CRUN, f"--status-addr=127.0.0.1:{self.port}", *options,
                              script(tmp, "w", PROGRAM), f"{tmp}/end"],
                             env=clean_env(OMP_NUM_THREADS=1))
        wait_for(lambda: listens(self.port), "the status address")
        wait_for(lambda: ask(self.port, "/readyz")[0] == 200, "the workers")

    def end(self, rank, status=0):
        (self.tmp / "new").write_text(str(status))
        (self.tmp / "new").rename(self.tmp / f"end{rank}")

    def wait(self):
        out, err = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, out + err

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def test_the_paths(tmp):
    with Job(tmp, "--nproc-per-node=2", "--rdzv-id=a job") as job:
        assert ask(job.port, "/healthz")[::2] == (200, "ok\n")
        assert ask(job.port, "/readyz")[::2] == (200, "ready\n")
        code, headers, page = ask(job.port, "/")
        assert code == 200 and page.startswith("<!doctype html>") and page.endswith("</html>\n")
        assert headers["Content-Type"] == "text/html; charset=utf-8", headers
        assert "default-src 'none'" in headers["Content-Security-Policy"], headers
        assert ask(job.port, "/", "HEAD")[2] == ""
        assert ask(job.port, "/other")[0] == 404
        code, headers, _ = ask(job.port, "/status.json", "POST", body="x" * 100000)
        assert code == 405 and headers["Allow"] == "GET, HEAD", headers
        assert ask(job.port, "/status.json?job=1&x=<script>")[0] == 200
        long = ask(job.port, "/" + "x" * 100000)
        assert long[0] in (404, 413, 414, 431), long
        job.end(0), job.end(1)
        assert job.wait()[0] == 0


def test_the_snapshot(tmp):
    with Job(tmp, "--nproc-per-node=2", "--rdzv-id=a job", "--max-restarts=1") as job:
        wait_for(lambda: all("last_line" in r for r in status(job.port)["jobs"][0]["ranks"]),
                 "the first lines")
        now = status(job.port)
        assert now["schema"] == 1 and now["pid"] == job.process.pid, now
        found = now["jobs"][0]
        assert len(now["jobs"]) == 1 and found["id"] == "a job", now
        assert (found["round"], found["restarts"], found["max_restarts"]) == (0, 0, 1), found
        assert (found["group_state"], found["phase"], found["odd"]) == ("running",) * 2 + (None,)
        assert [n["state"] for n in found["nodes"]] == ["running"], found
        for i, rank in enumerate(found["ranks"]):
            assert (rank["rank"], rank["state"]) == (i, "running") and rank["pid"] > 1, rank
            assert rank["last_line"] == f"rank {i} begins" and rank["output_age_s"] < 60, rank
            assert rank["rss_bytes"] > 1 << 20 and rank["kernel_state"] in "RSD", rank
            assert "step" not in rank, rank  # it counts none
        ledger = found["ledger"]
        assert abs(sum(ledger["parts_s"].values()) - ledger["wall_s"]) < 1e-3, ledger
        pid = found["ranks"][1]["pid"]
        job.end(1, 3)
        wait_for(lambda: status(job.port)["jobs"][0]["restarts"] == 1, "the restart")
        wait_for(lambda: ask(job.port, "/readyz")[0] == 200, "the workers")
        rows = status(job.port)["jobs"][0]["ledger"]["rows"]
        assert [r["cause"] for r in rows] == ["start", "failure"], rows
        assert pid not in [r.get("pid") for r in status(job.port)["jobs"][0]["ranks"]]
        job.end(0), job.end(1)
        assert job.wait()[0] == 0


def test_not_ready_while_it_waits_for_nodes(tmp):
    port = free_port()
    job = start([CRUN, "--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{free_port()}",
                 "--rdzv-backend=c10d", f"--status-addr=127.0.0.1:{port}", "true"])
    wait_for(lambda: listens(port), "the status address")
    assert ask(port, "/readyz")[::2] == (503, "joining: waits for a round\n")
    found = wait_for(lambda: [j for j in status(port)["jobs"]
                              if j["phase"] == "forming" and j["nodes"]], "the job")
    assert found[0]["awaited"] == 1 and len(found[0]["nodes"]) == 1, found
    # the host's own node sends no messages that could be late
    assert found[0]["nodes"][0]["heard_s_ago"] == 0, found
    assert found[0]["ledger"]["parts_s"]["rendezvous"] > 0, found
    job.terminate()
    job.communicate()


def test_every_node_has_its_own_ranks(tmp):
    a_port, b_port = free_port(), free_port()
    with Nodes(tmp, "--nnodes=2") as nodes:
        a = nodes.start("a", "--nproc-per-node=2", f"--status-addr=127.0.0.1:{a_port}")
        b = nodes.start("b", "--nproc-per-node=1", f"--status-addr=127.0.0.1:{b_port}")
        workers = nodes.round(3)
        jobs = [status(p)["jobs"][0] for p in (a_port, b_port)]
        ranks = [[r["rank"] for r in j["ranks"]] for j in jobs]
        assert sorted(ranks[0] + ranks[1]) == [0, 1, 2] and len(ranks[0]) == 2, ranks
        assert sorted(len(j["nodes"]) for j in jobs) == [0, 2], jobs  # the host knows all nodes
        assert {(j["id"], j["world_size"], j["round"]) for j in jobs} == {("job", 3, 0)}, jobs
        for w in workers:
            w.signal(signal.SIGUSR2)
        assert a.wait() == 0 and b.wait() == 0


def test_metrics_as_prometheus_reads_them(tmp):
    with Job(tmp, "--nproc-per-node=2", '--rdzv-id="\\ö', "--max-restarts=1") as job:
        code, headers, old = ask(job.port, "/metrics")
        assert code == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert 'crun_restarts_total{job="\\"\\\\ö"} 0\n' in old, old
        accept = {"Accept": "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;q=0.5"}
        _, headers, new = ask(job.port, "/metrics", headers=accept)
        assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
        assert new.endswith("# EOF\n"), new
        check_with_parser(new)
        check_with_promtool(old)
        job.end(0), job.end(1)
        job.wait()


def check_with_parser(text):
    reads = "import sys; from prometheus_client.openmetrics.parser import *; " \
            "print(len(list(text_string_to_metric_families(sys.stdin.read()))))"
    for python in (sys.executable, DEBIAN_PYTHON):
        if subprocess.run([python, "-c", "import prometheus_client"],
                          capture_output=True).returncode != 0:
            continue
        done = subprocess.run([python, "-c", reads], input=text, capture_output=True, text=True)
        assert done.returncode == 0 and int(done.stdout) > 15, done.stderr
        return
    print("SKIPPED: no prometheus_client reads the metrics (Debian: python3-prometheus-client)")


def check_with_promtool(text):
    if shutil.which("promtool") is None:
        print("SKIPPED: no promtool checks the metrics (Debian: prometheus)")
        return
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True,
                          text=True)
    assert done.returncode == 0 and done.stdout + done.stderr == "", done


def ask_unix(path):
    connection = http.client.HTTPConnection("localhost", timeout=20)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(path))
    connection.request("GET", "/status.json")
    text = connection.getresponse().read().decode()
    connection.close()
    return json.loads(text)


def test_a_socket_file(tmp):
    path = tmp / "status.sock"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()  # the file stays, as after a SIGKILL
    job = start([CRUN, f"--status-addr=unix:{path}", "sleep", "100"])
    now = wait_for(lambda: path.is_socket() and try_unix(path), "the socket")
    assert now["pid"] == job.pid and path.stat().st_mode & 0o777 == 0o600, now
    second = crun(f"--status-addr=unix:{path}", "true")
    assert second.returncode == 1 and "Address already in use" in second.stderr, second
    assert ask_unix(path)["pid"] == job.pid
    job.terminate()
    job.communicate()
    assert not path.exists()


def try_unix(path):
    try:
        return ask_unix(path)
    except (ConnectionRefusedError, FileNotFoundError):  # crun replaces the dead socket's file
        return None


def test_addresses_that_cannot_be_used(tmp):
    for address, why in (("127.0.0.1:99999", "port"), ("unix:", "needs a path"),
                         ("unix:" + "x" * 200, "needs a path"),
                         ("unix:/no/such/folder/s", "No such file"),
                         ("192.0.2.1:1", "Cannot assign requested address")):
        done = crun(f"--status-addr={address}", "true")
        assert done.returncode != 0 and why in done.stderr, done
    taken = socket.create_server(("127.0.0.1", 0))
    done = crun(f"--status-addr=127.0.0.1:{taken.getsockname()[1]}", "true")
    assert done.returncode == 1 and "status address" in done.stderr, done
    keeps = tmp / "keeps"
    keeps.write_text("a file that is no socket")
    done = crun(f"--status-addr=unix:{keeps}", "true")
    assert done.returncode == 1 and keeps.read_text().startswith("a file"), done


def test_slow_and_many_clients_do_not_hold_the_job_up(tmp):
    with Job(tmp, "--nproc-per-node=1") as job:
        silent = [socket.create_connection(("127.0.0.1", job.port)) for _ in range(100)]
        silent[0].send(b"GET /status.json HTTP/1.1\r\n")
        job.end(0)
        assert job.wait()[0] == 0
        for s in silent:
            s.close()


# Counts steps: rank 2 one every 0.2 s, the others one every 0.02 s. Ends when the file is there.
STEPS = """#!/usr/bin/python3
import os, sys, time
from link_worker import Link
link, rank = Link(), int(os.environ["RANK"])
print("rank", rank, "trains", file=sys.stderr, flush=True)
while not os.path.exists(os.environ["TEST_DIR"] + "/end"):
    link.step()
    time.sleep(0.2 if rank == 2 else 0.02)
"""
LIB = str(pathlib.Path(__file__).resolve().parent.parent / "lib")


def ranks_of(port):
    jobs = status(port)["jobs"]
    return {r["rank"]: r for r in jobs[0].get("ranks", []) if "step" in r} if jobs else {}


def test_ranks_of_other_nodes(tmp):
    """The node that hosts the coordinator shows the ranks of all nodes; so does crun-agent."""
    job = f"top-{os.getpid()}"  # another test of this host may have nodes of a job 'job'
    with Nodes(tmp, "--nnodes=2", "--nproc-per-node=2", f"--rdzv-id={job}",
               conf="last_call_timeout=0.3") as nodes:
        port, other = free_port(), free_port()
        program = script(tmp, "train", STEPS)
        how = {"program": program, "PYTHONPATH": LIB}
        a = nodes.start_host("a", f"--status-addr=127.0.0.1:{port}", **how)
        b = nodes.start("b", f"--status-addr=127.0.0.1:{other}", **how)
        wait_for(lambda: listens(port) and listens(other), "the status addresses")
        found = wait_for(lambda: len(ranks_of(port)) == 4 and ranks_of(port), "all four ranks")
        here = set(ranks_of(other))
        assert len(here) == 2, here  # a node that hosts nothing shows its own ranks
        far = [found[r] for r in here]
        assert all(r["host"] and r["seen_s_ago"] < 60 and r["pid"] > 1 for r in far), far
        assert all(r["state"] == "running" and r["rss_bytes"] > 0 for r in far), far
        wait_for(lambda: all("trains" in r.get("last_line", "") for r in ranks_of(port).values()),
                 "the last lines")
        steps = {r: found[r]["step"] for r in here}
        wait_for(lambda: all(ranks_of(port).get(r, {"step": 0})["step"] > steps[r] for r in here),
                 "more steps")
        wait_for(lambda: (status(port)["jobs"][0]["odd"] or {}).get("rank") == 2, "the odd rank")
        wait_for(lambda: all(f'crun_rank_steps{{job="{job}",rank="{r}"}}' in
                             ask(port, "/metrics")[2] for r in range(4)),
                 "the metrics of all ranks")
        view = run([AGENT, "top", "--once", f"127.0.0.1:{port}"])
        assert [f"{r}" in [line.split()[0] for line in view.stdout.splitlines() if line.split()]
                for r in range(4)] == [True] * 4, view.stdout
        # on this host, top merges what both nodes say; no rank comes twice
        both = json.loads(run([AGENT, "top", job, "--json"]).stdout)["jobs"][0]["ranks"]
        assert sorted(r["rank"] for r in both) == [0, 1, 2, 3], both
        (tmp / "end").touch()
        assert a.wait() == 0 and b.wait() == 0


def test_slow_ranks_are_named_and_get_notice(tmp):
    """The rule of --rdzv-conf: a log line and crun-agent status name the rank, and its node has to
    leave with notice."""
    conf = f"last_call_timeout=0.3,slow_percent=50,slow_time={2 * PACE:g},slow_notice=2"
    with Nodes(tmp, "--nnodes=2:3", conf=conf) as nodes:
        how = {"program": script(tmp, "train", STEPS), "PYTHONPATH": LIB}
        a = nodes.start_host("a", **how)
        rest = [nodes.start("b", **how), nodes.start("c", **how)]

        def slow():
            return [line for line in a.text.splitlines() if "slow: rank 2 on " in line]
        line = wait_for(slow, "the line that names the slow rank")[0]
        assert "less than 50 % of the steps a second of the median rank" in line, line
        # its node leaves; the two others go on, and a rank 2 is not there any more
        wait_for(lambda: "2 nodes" in run([AGENT, "status", nodes.endpoint]).stdout or
                 [n for n in (a, *rest) if n.process.poll() is not None], "a node to leave")
        (tmp / "end").touch()
        codes = [n.wait() for n in (a, *rest)]
        texts = "".join(n.text for n in (a, *rest))
        assert "less than 50 % of the steps" in texts and codes.count(0) >= 2, (codes, texts)


def test_crun_agent(tmp):
    port = free_port()
    agent = start([AGENT, "serve", "--listen=127.0.0.1:0", f"--status-addr=127.0.0.1:{port}"])
    where = agent.stdout.readline().strip()
    assert status(port)["jobs"] == [] and ask(port, "/readyz")[0] == 200
    job = start([CRUN, "--rdzv-backend=c10d", f"--rdzv-endpoint={where}", "--rdzv-id=x",
                 "--rdzv-conf=is_host=0", "--nnodes=1:2", "sleep", "100"])
    found = wait_for(lambda: [j for j in status(port)["jobs"] if j["nodes"]], "the job")
    assert found[0]["id"] == "x" and found[0]["nodes"][0]["pid"] == job.pid, found
    check_with_parser(ask(port, "/metrics", headers={"Accept": "application/openmetrics-text"})[2])
    job.terminate()
    job.communicate()
    agent.terminate()
    assert agent.communicate()[1] == "" and agent.returncode == 0
    taken = socket.create_server(("127.0.0.1", 0))
    done = run([AGENT, "serve", "--listen=127.0.0.1:0",
                f"--status-addr=127.0.0.1:{taken.getsockname()[1]}"])
    assert done.returncode == 1 and "crun-agent serve: cannot listen" in done.stderr, done


def test_nobody_asks(tmp):
    """The server makes no system call while nobody asks."""
    if BUILD.name == "tsan":
        skip("ThreadSanitizer's own thread wakes ten times a second")
    with Job(tmp, "--nproc-per-node=1") as job:
        pid = job.process.pid
        tasks = list(pathlib.Path(f"/proc/{pid}/task").iterdir())

        def switches():
            return [line for t in tasks for line in (t / "status").read_text().splitlines()
                    if "voluntary_ctxt" in line]

        def is_at_rest(state={"before": None, "same": 0}):
            found = switches()
            state["same"] = state["same"] + 1 if found == state["before"] else 0
            state["before"] = found
            return state["same"] > 200  # about 2 s
        wait_for(is_at_rest, "two seconds without a system call")
        job.end(0)
        assert job.wait()[0] == 0


if __name__ == "__main__":
    run_tests(globals())
