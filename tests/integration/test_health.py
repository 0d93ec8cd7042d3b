#!/usr/bin/env python3
# timeout: 240
"""--health-check and --health-builtin: a node that is not fit gets no place in a round and is
named; a spare comes in its place; a node that becomes fit takes part."""
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_job import DUMP, Job
from crun_test import BUILD, TIMEOUT_S, read_text, run_tests, wait_for
from nodes import Nodes

AGENT = os.path.join(BUILD, "bin", "crun-agent")


def members_of(nodes):
    done = subprocess.run([AGENT, "status", "--json", nodes.endpoint], stdout=subprocess.PIPE,
                          text=True, timeout=TIMEOUT_S)
    jobs = json.loads(done.stdout)["jobs"] if done.returncode == 0 else []
    return jobs[0]["members"] if jobs else []


def the_unfit(nodes):
    return [m for m in members_of(nodes) if m["state"] == "UNFIT"]


def end_well(workers):
    for w in workers:
        w.signal(Nodes.WELL)


def test_one_bad_node_of_sixteen_is_named_and_replaced(tmp):
    check = 'test "$TEST_NODE" != n5 || { echo "GPU 3 has fallen off the bus"; exit 1; }'
    with Nodes(tmp, "--nnodes=16", f"--health-check={check}") as nodes:
        host = nodes.start_host("n0")
        begun = time.monotonic()
        rest = [nodes.start(f"n{i}") for i in range(1, 16)]
        wait_for(lambda: the_unfit(nodes), "the bad node in crun-agent status")
        spare = nodes.start("spare")
        joined = time.monotonic()
        workers = nodes.round(16)
        print(f"round formed {time.monotonic() - joined:.2f} s after the spare was started, "
              f"{time.monotonic() - begun:.2f} s after the first node")
        assert {w.node for w in workers} == {f"n{i}" for i in range(16) if i != 5} | {"spare"}
        bad = the_unfit(nodes)
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
        wait_for(lambda: len(members_of(nodes)) == 3, "the spare")
        first[0].signal(10)  # SIGUSR1: the worker fails
        second = nodes.round(2)
        assert {w.node for w in second} == {"a", "spare"}, [w.node for w in second]
        assert [m["unfit"] for m in the_unfit(nodes)] == ["disk full"]
        end_well(second)
        assert {n.wait() for n in (a, b, spare)} == {0}


def test_a_node_that_becomes_fit_takes_part(tmp):
    check = f'test "$TEST_NODE" = a || test -e {tmp}/repaired || {{ echo "no disk"; exit 3; }}'
    with Nodes(tmp, "--nnodes=2", f"--health-check={check}") as nodes:
        a, b = nodes.start_host("a"), nodes.start("b")
        wait_for(lambda: the_unfit(nodes), "the bad node")
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
    begun = time.monotonic()
    job = Job(f"--health-check={check}", "--health-timeout=1", DUMP)
    assert time.monotonic() - begun >= 1
    assert "not ended within 1 s; it wrote last: waits for the switch" in job.err, job.err
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

LIMITED = ["sh", "-c", 'ulimit -n 60; exec "$0" "$@"', os.path.join(BUILD, "bin", "crun")]

if __name__ == "__main__":
    run_tests(globals())
