#!/usr/bin/env python3
# timeout: 120
"""Tests verdict.json: the failures of all nodes, the outcome, and when the file is written."""
import json
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, CRUN, SCALE, clean_env, crun, run_tests, script, start, wait_for
from free_port import free_port

STUCK = BUILD / "tests" / "workers" / "stuck"
FIELDS = {"version", "job", "program", "outcome", "reason", "written_by", "written_at", "round",
          "restarts", "first_failure", "failures", "failures_left_out", "victims", "inspection",
          "kernel_log"}
FAILURE_FIELDS = {"host", "rank", "local_rank", "pid", "kind", "exit_code", "signal", "what",
                  "message", "last_words", "kernel", "log_folder", "failed_at", "clock_ahead_s",
                  "clock_error_s", "advice"}


def verdict(folder):
    (path,) = pathlib.Path(folder).glob("*/verdict.json")
    found = json.loads(path.read_text())
    assert set(found) == FIELDS, found
    assert all(set(f) == FAILURE_FIELDS for f in found["failures"]), found
    assert found["first_failure"] == (found["failures"] or [None])[0]
    assert found["version"] == 1 and abs(found["written_at"] - time.time()) < 60 * SCALE
    return found


def test_a_failure(tmp):
    path = script(tmp, "w.sh", "#!/bin/sh\nif [ $RANK = 1 ]; then echo no bread >&2; exit 7; fi\n"
                               "exec sleep 60\n")
    done = crun("--no-python", "--nproc-per-node=3", "--rdzv-id=j", "--log-dir=logs", path, cwd=tmp)
    found = verdict(tmp / "logs")
    assert done.returncode == 1 and found["outcome"] == "failed" and found["job"] == "j"
    (failure,) = found["failures"]
    assert failure["rank"] == 1 and failure["kind"] == "exit" and failure["exit_code"] == 7
    assert failure["signal"] is None and failure["what"] == "exit code 7"
    assert failure["last_words"] == ["no bread"] and failure["clock_ahead_s"] == 0
    assert pathlib.Path(failure["log_folder"]).name == "1" and "log_folder" in failure["advice"]
    assert {(v["rank"], v["stopped_by_crun_with"]) for v in found["victims"]} == \
        {(0, "SIGTERM"), (2, "SIGTERM")}
    assert found["restarts"] == {"used": 0, "max": 0} and found["round"] == 0


def test_a_crash_and_the_kernels_word(tmp):
    path = script(tmp, "w.sh", "#!/bin/sh\nkill -SEGV $$\n")
    crun("--no-python", "--log-dir=logs", path, cwd=tmp)
    (failure,) = verdict(tmp / "logs")["failures"]
    assert (failure["kind"], failure["signal"], failure["exit_code"]) == ("signal", "SIGSEGV", None)


def test_restarts_and_the_end(tmp):
    """While the job goes on after a failure, the file is about that failure."""
    path = script(tmp, "w.sh", "#!/bin/sh\n[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 3\n"
                               f"while [ ! -e {tmp}/go ]; do sleep 0.05; done\n")
    job = start([CRUN, "--no-python", "--max-restarts=2", "--log-dir=logs", path],
                cwd=tmp, env=clean_env())
    wait_for(lambda: list(tmp.glob("logs/*/verdict.json")), "the verdict of the first round")
    found = verdict(tmp / "logs")
    assert found["outcome"] == "restarted" and found["first_failure"]["exit_code"] == 3, found
    (tmp / "go").touch()
    job.communicate(timeout=60 * SCALE)
    found = verdict(tmp / "logs")
    assert job.returncode == 0 and found["outcome"] == "succeeded" and found["failures"] == []
    assert found["restarts"] == {"used": 1, "max": 2} and found["round"] == 1


def test_a_job_that_ends_well_leaves_no_folder(tmp):
    """Without --log-dir the temp folder is removed, also after a restart."""
    path = script(tmp, "w.sh", "#!/bin/sh\n[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3\n")
    done = crun("--no-python", "--max-restarts=1", path, cwd=tmp, env=clean_env(TMPDIR=tmp))
    assert done.returncode == 0 and not list(tmp.glob("torchelastic_*")), list(tmp.iterdir())


def test_a_signal(tmp):
    job = start([CRUN, "--no-python", "--log-dir=logs", "sh", "-c", "echo up; exec sleep 60"],
                cwd=tmp, env=clean_env())
    assert job.stdout.readline() == "up\n"
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=60 * SCALE)
    found = verdict(tmp / "logs")
    assert found["outcome"] == "signaled" and found["failures"] == [], found


def test_a_hang(tmp):
    crun("--no-python", "--nproc-per-node=4", "--hang-timeout=1", "--log-dir=logs", STUCK, "3",
         "load_batch", cwd=tmp)
    found = verdict(tmp / "logs")
    assert found["first_failure"]["kind"] == "hang" and found["first_failure"]["rank"] == 3, found
    assert found["first_failure"]["pid"] > 0 and len(found["victims"]) == 4, found
    assert any("load_batch" in line for line in found["inspection"]), found


def test_all_nodes_know_what_failed(tmp):
    """Rank 1 on the second node fails; rank 0 on the first node fails because of that."""
    port, began = free_port(), time.monotonic()
    path = script(tmp, "w.sh", "#!/bin/sh\nif [ $RANK = 1 ]; then echo lost it >&2; exit 9; fi\n"
                               "exec sleep 60\n")
    nodes = [start([CRUN, "--no-python", "--nnodes=2", "--rdzv-backend=c10d", f"--log-dir=n{i}",
                    f"--rdzv-endpoint=127.0.0.1:{port}", path], cwd=tmp, env=clean_env())
             for i in range(2)]
    outputs = [n.communicate(timeout=60 * SCALE)[1] for n in nodes]
    took = time.monotonic() - began  # no message about a clock was under way for longer
    for i, node in enumerate(nodes):
        found = verdict(tmp / f"n{i}")
        assert node.returncode == 1 and found["outcome"] == "failed", (found, outputs)
        (failure,) = found["failures"]
        assert failure["rank"] == 1 and failure["exit_code"] == 9, found
        assert failure["last_words"] == ["lost it"], found
        assert abs(failure["clock_ahead_s"]) < took and 0 <= failure["clock_error_s"] < took, found
    elsewhere = [o for o in outputs if "the job failed on another node" in o]
    assert len(elsewhere) == 1 and "    | lost it" in elsewhere[0], outputs


if __name__ == "__main__":
    run_tests(globals())
