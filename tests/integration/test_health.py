#!/usr/bin/env python3
# timeout: 240
"""--health-check and --health-builtin: a node that is not fit gets no place in a round and is
named; a spare comes in its place; a node that becomes fit takes part."""
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_job import DUMP, Job
from crun_test import BUILD, CRUN, PACE, ROOT, clean_env, read_text, run, run_tests, wait_for
from nodes import Nodes, end_well



def test_one_bad_node_of_sixteen_is_named_and_replaced(tmp):
    check = 'test "$TEST_NODE" != n5 || { echo "GPU 3 has fallen off the bus"; exit 1; }'
    with Nodes(tmp, "--nnodes=16", f"--health-check={check}") as nodes:
        host = nodes.start_host("n0")
        begun = time.monotonic()
        rest = [nodes.start(f"n{i}") for i in range(1, 16)]
        wait_for(nodes.unfit, "the bad node in crun-agent status")
        spare = nodes.start("spare")
        joined = time.monotonic()
        workers = nodes.round(16)
        print(f"round formed {time.monotonic() - joined:.2f} s after the spare was started, "
              f"{time.monotonic() - begun:.2f} s after the first node")
        assert {w.node for w in workers} == {f"n{i}" for i in range(16) if i != 5} | {"spare"}
        bad = nodes.unfit()
        assert [m["unfit"] for m in bad] == ["GPU 3 has fallen off the bus"], bad
        assert "is not fit and gets no place in a round: GPU 3 has fallen" in host.text, host.text
        assert "is not fit for the job: GPU 3 has fallen off the bus" in rest[4].text
        end_well(workers)
        assert {n.wait() for n in (host, spare, *rest)} == {0}
        # no worker had started before: every node of the round is in its first round
        assert {w.restarts for w in workers} == {0}


def test_a_sick_node_is_replaced_at_a_restart(tmp):
    """The node fails its check only after its first round."""
    check = f'test "$TEST_NODE" != b || test "$CRUN_ROUNDS" = 0 || {{ echo "disk full"; exit 1; }}'
    with Nodes(tmp, "--nnodes=2", "--max-restarts=2", f"--health-check={check}") as nodes:
        a, b = nodes.start("a"), nodes.start("b")
        first = nodes.round(2)
        spare = nodes.start("spare")
        wait_for(lambda: len(nodes.members()) == 3, "the spare")
        first[0].signal(10)  # SIGUSR1: the worker fails
        second = nodes.round(2)
        assert {w.node for w in second} == {"a", "spare"}, [w.node for w in second]
        assert [m["unfit"] for m in nodes.unfit()] == ["disk full"]
        end_well(second)
        assert {n.wait() for n in (a, b, spare)} == {0}


def test_a_check_after_each_of_many_restarts(_):
    """While a round ends, the agent looks for orphans of its workers among its children. It must
    not reap the process of a check. (It did in one of about sixty restarts.)"""
    done = run([CRUN, "--max-restarts=300", "--health-check=echo well", "--health-timeout=60",
                "--no-python", "sh", "-c", "exit 3"], env=clean_env())
    assert done.returncode == 1 and "not fit" not in done.stderr, done
    assert "restart 300 of 300" in done.stderr, done


def test_a_node_that_becomes_fit_takes_part(tmp):
    check = f'test "$TEST_NODE" = a || test -e {tmp}/repaired || {{ echo "no disk"; exit 3; }}'
    with Nodes(tmp, "--nnodes=2", f"--health-check={check}") as nodes:
        a, b = nodes.start_host("a"), nodes.start("b")
        wait_for(nodes.unfit, "the bad node")
        (tmp / "repaired").touch()
        workers = nodes.round(2)
        assert {w.node for w in workers} == {"a", "b"}
        wait_for(lambda: "has passed its health check now" in a.text, "the coordinator's line")
        end_well(workers)
        assert a.wait() == b.wait() == 0


def test_a_job_of_one_node_ends_with_the_reason(_):
    job = Job("--health-check=echo first; echo; echo 'no GPU'; exit 4", "--exit-codes=distinct",
              DUMP)
    assert job.status == 86 and not job.workers, job.err
    assert "this node is not fit for the job: no GPU" in job.err, job.err
    job = Job("--health-check=exit 7", DUMP)
    assert job.status == 1 and "exit code 7 and has written nothing" in job.err, job.err


def test_a_check_that_hangs_is_ended_with_all_it_has_started(tmp):
    """The check ignores SIGTERM and has a child, which must not outlive it."""
    pids = tmp / "pids"
    check = f"trap '' TERM; echo waits for the switch; sleep 600 & echo $! $$ > {pids}; wait; wait"
    limit = round(2 * PACE)  # seconds, in which the shell must write the pids
    begun = time.monotonic()
    job = Job(f"--health-check={check}", f"--health-timeout={limit}", DUMP)
    assert time.monotonic() - begun >= limit
    assert f"not ended within {limit} s; it wrote last: waits for the switch" in job.err, job.err
    assert len(read_text(pids).split()) == 2, read_text(pids)
    for pid in read_text(pids).split():
        wait_for(lambda pid=pid: not os.path.exists(f"/proc/{pid}"), f"the end of process {pid}")


def test_built_in_checks(_):
    job = Job("--health-builtin=all", DUMP)
    assert job.status == 0 and len(job.workers) == 1, job.err
    job = Job("--health-builtin=files", DUMP, launcher=LIMITED)
    assert job.status == 1 and not job.workers, job.err
    assert "files: a process may open 60 files, workers need at least 68" in job.err, job.err
    job = Job("--health-builtin=shm,gpus", DUMP)
    assert job.status == 2 and "'gpus' is no built-in check" in job.err, job.err


def test_a_segment_health_file_parks_the_allocation(tmp):
    """NVRx's contract: a regular file that is not empty marks the allocation; all else is well."""
    task = {"SLURM_JOB_ID": "71", "SLURM_ARRAY_JOB_ID": "70", "SLURM_ARRAY_TASK_ID": "3"}
    job = {"SLURM_JOB_ID": "70"}

    def launch(env):
        return Job("--scheduler=none", f"--health-segment-dir={tmp}", DUMP, env=env)
    mark = tmp / "segment_health_check.70.3"
    assert launch(task).status == 0  # no file
    mark.touch()
    assert launch(task).status == 0  # an empty one
    mark.write_text("drained: fan")
    done = launch(task)
    text = f"segment: the file '{mark}' marks this allocation as unavailable; repair the nodes, and"
    assert done.status == 1 and not done.workers and text in done.err, done.err
    assert launch(job).status == 0  # another allocation
    assert launch({}).status == 0   # none
    (tmp / "segment_health_check.70.70").mkdir()
    assert launch(job).status == 0  # a folder is no mark
    (tmp / "segment_health_check.70.70").rmdir()
    (tmp / "segment_health_check.70.70").write_text("x")
    assert launch(job).status == 1


def test_a_health_service_that_is_not_there(tmp):
    """A node whose service does not answer is fit, as with NVRx. The test with a service that
    answers is make interop-grpc."""
    job = Job(f"--health-service=unix://{tmp}/none.sock", DUMP)
    text = f"crun: warning: the node health service at '{tmp}/none.sock' gave no answer: "
    assert job.status == 0 and text in job.err and "counts as well" in job.err, job.err
    with socket.socket(socket.AF_UNIX) as s:  # a server that speaks no HTTP/2
        s.bind(str(tmp / "other.sock"))
        s.listen()

        def answer():
            peer = s.accept()[0]
            peer.recv(1000)
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            peer.close()
        thread = threading.Thread(target=answer)
        thread.start()
        job = Job(f"--health-service={tmp}/other.sock", DUMP)
        thread.join()
    assert job.status == 0 and "gave no answer" in job.err, job.err


def test_a_libcurl_without_http2_is_named(tmp):
    """The node is not fit, because the check that its user has requested cannot be made."""
    source = tmp / "curl.c"
    names = re.findall(r"F\((\w+)\)", (ROOT / "rendezvous/http/curl_internal.h").read_text())
    source.write_text("".join(f"int curl_{n}(void) {{ return 0; }}\n" for n in names
                              if n not in ("name", "version_info")) + VERSION_INFO)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp / "libcurl.so.4", source], check=True)
    job = Job("--health-service=/tmp/none.sock", DUMP, env={"LD_LIBRARY_PATH": str(tmp)})
    text = "service: --health-service needs a libcurl with HTTP/2; libcurl 7.0 was built without it"
    assert job.status == 1 and text in job.err, job.err


def test_a_gpu_with_memory_errors_is_refused(tmp):
    """A library stands in for NVML: four GPUs, one of which has uncorrected errors."""
    source = tmp / "nvml.c"
    source.write_text(NVML)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp / "libnvidia-ml.so.1", source], check=True)
    for sick, text in (("ecc", "gpu: GPU 2 has 5 uncorrected memory errors (ECC)"),
                       ("lost", "gpu: GPU 2 does not answer: GPU is lost"),
                       ("pages", "gpu: GPU 2 waits for a reset to retire bad memory pages"),
                       ("init", "gpu: the driver does not answer: GPU is lost")):
        job = Job("--health-builtin=gpu", DUMP,
                  env={"LD_LIBRARY_PATH": str(tmp), "TEST_SICK": sick})
        assert job.status == 1 and text in job.err, (sick, job.err)
    job = Job("--health-builtin=gpu", DUMP, env={"LD_LIBRARY_PATH": str(tmp), "TEST_SICK": ""})
    assert job.status == 0, job.err


def test_healthy_starts_are_not_refused(_):
    """A few here; HEALTHY_STARTS=10000 (make check-health) makes as many as the goal names."""
    count = int(os.environ.get("HEALTHY_STARTS", "20"))
    refused = 0
    for _ in range(count):
        refused += Job("--health-builtin=all", "--health-check=true", "--no-python",
                       "true").status != 0
    print(f"{refused} of {count} healthy starts were refused")
    assert refused == 0


NVML = """
#include <stdlib.h>
#include <string.h>
static int sick(const char *what) { return strcmp(getenv("TEST_SICK"), what) == 0; }
int nvmlInit_v2(void) { return sick("init") ? 15 : 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 4; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) {
    *d = (void *) (long) (i + 1);
    return i == 2 && sick("lost") ? 15 : 0;
}
int nvmlDeviceGetTotalEccErrors(void *d, int kind, int counter, unsigned long long *n) {
    *n = (long) d == 3 && kind == 1 && counter == 0 && sick("ecc") ? 5 : 0;
    return 0;
}
int nvmlDeviceGetRetiredPagesPendingStatus(void *d, int *pending) {
    *pending = (long) d == 3 && sick("pages");
    return 0;
}
const char *nvmlErrorString(int rc) { return rc == 15 ? "GPU is lost" : "fine"; }
"""

VERSION_INFO = """
static struct { int age; const char *version; unsigned number; const char *host; int features; }
    info = {0, "7.0", 0, "", 0};
void *curl_version_info(int now) { return &info; }
"""

LIMITED = ["sh", "-c", 'ulimit -n 60; exec "$0" "$@"', os.path.join(BUILD, "bin", "crun")]

if __name__ == "__main__":
    run_tests(globals())
