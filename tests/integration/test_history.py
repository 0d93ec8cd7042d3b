#!/usr/bin/env python3
# timeout: 300
"""Where the time went: the ledger of a node in the table at the end of a job (--summary) and in the
event log (--event-log). The tests with steps use the Python package crunrt."""
import json
import os
import pathlib
import signal
import socket
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_job import Job  # noqa: E402
from crun_test import BUILD, CRUN, ROOT, clean_env, crun, read_text, run, run_tests, script, skip, \
    start, wait_for  # noqa: E402
from nodes import Nodes  # noqa: E402

TITLE = "crun: where the time went"
PARTS = ["detect", "stop", "rendezvous", "spawn", "first_step", "work", "wait"]
SLEEP = """#!/usr/bin/python3
import os, sys, time
first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
"""


def events_of(path):
    found = [json.loads(line) for line in read_text(path).splitlines()]
    for e in found:
        assert e["time"].endswith("Z") and e["at_s"] >= 0 and e["job"] and e["host"], e
    return found


def the(found, name):
    return [e for e in found if e["event"] == name]


def check_sums(found):
    """The parts of all rows add up to the parts of the job, and these to its wall time."""
    end, rows = the(found, "job_ended")[0], the(found, "round_accounted")
    for part in PARTS:
        assert abs(sum(r["parts_s"][part] for r in rows) - end["parts_s"][part]) < 1e-6, found
    assert list(end["parts_s"]) == PARTS, end
    assert abs(sum(end["parts_s"].values()) - end["wall_s"]) < 1e-3, end
    assert 0 <= end["at_s"] - end["wall_s"] < 5, end  # the time of the last write
    lost = sum(c["lost_s"] for c in end["causes"].values())
    used = end["parts_s"]["work"] + end["parts_s"]["wait"]
    assert abs(lost + used - end["wall_s"]) < 1e-3, end
    assert abs(end["effective"] - end["parts_s"]["work"] / end["wall_s"]) < 1e-3, end
    return end, rows


def test_a_restart(tmp):
    worker = script(tmp, "w", SLEEP + "time.sleep(0.2)\n"
                    "sys.exit(3 if first and os.environ['RANK'] == '1' else 0)\n")
    before = time.monotonic()
    done = crun("--nproc-per-node=2", "--max-restarts=1", f"--event-log={tmp}/e", "--rdzv-id=jöb",
                worker, env=clean_env(OMP_NUM_THREADS=1))
    took = time.monotonic() - before
    assert done.returncode == 0, done
    found = events_of(tmp / "e")
    names = [e["event"] for e in found]
    assert names[:3] == ["job_started", "round_began", "workers_started"], found
    assert found[0]["job"] == "jöb" and found[0]["workers"] == 2, found
    failed = [e for e in the(found, "worker_ended") if e["exit_code"] == 3]
    assert [e["rank"] for e in failed] == [1], found
    assert the(found, "round_broken")[0]["cause"] == "failure", found
    end, rows = check_sums(found)
    assert end["outcome"] == "succeeded" and end["rounds"] == 2 and end["wall_s"] < took, end
    assert [(r["round"], r["restart"], r["cause"]) for r in rows] == \
        [(0, 0, "start"), (1, 1, "failure")], rows
    assert all(r["parts_s"]["work"] > 0.15 for r in rows), rows
    table = done.stderr[done.stderr.index(TITLE):].splitlines()
    assert table[0].endswith("1 round after the first") and len(table) == 5, done
    assert table[1].split() == ["crun:", "round", "cause"] + PARTS, done
    assert table[2].split()[:3] == ["crun:", "0", "start"], done
    assert table[3].split()[:3] == ["crun:", "1", "failure"], done
    assert table[4].split()[:2] == ["crun:", "all"], done


def test_who_prints_the_table(tmp):
    assert crun("true").stderr == ""
    assert TITLE in crun("--summary=always", "true").stderr
    fails_once = script(tmp, "w", SLEEP + "sys.exit(1 if first else 0)\n")
    again = ["--max-restarts=1"]
    assert TITLE in crun(*again, fails_once).stderr
    assert TITLE not in crun(*again, "--summary=never", fails_once).stderr
    assert TITLE not in crun(*again, fails_once, env=clean_env(LOGLEVEL="error")).stderr
    report = crun(*again, "false").stderr  # the report on the failure comes last
    assert report.index(TITLE) < report.index("failed first: exit code 1\n"), report
    wrong = crun("--summary=perhaps", "true")
    assert wrong.returncode == 2 and "--summary: 'perhaps' is none of auto" in wrong.stderr, wrong


def test_the_file(tmp):
    wrong = crun(f"--event-log={tmp}/no/such/folder", "true")
    assert wrong.returncode == 1 and "no/such/folder' (--event-log)" in wrong.stderr, wrong
    full = crun("--event-log=/dev/full", "true")
    assert full.returncode == 0 and full.stderr.count("cannot write the event log") == 1, full
    # as in torchrun, where --event-log is short for --event-log-handler
    alias = crun("--event-log=console", "true", cwd=tmp)
    assert '"torchelastic.worker.status.SUCCEEDED"' in alias.stderr, alias
    assert crun("--event-log", "null", "true", cwd=tmp).stderr == "" and not list(tmp.iterdir())
    # the shorter prefixes, too, keep torchrun's meaning
    assert '"torchelastic' in crun("--event=console", "true").stderr


def test_a_signal(tmp):
    job = start([CRUN, f"--event-log={tmp}/e", "sleep", "100"])
    wait_for(lambda: the(events_of(tmp / "e"), "workers_started"), "the worker")
    job.send_signal(signal.SIGTERM)
    job.communicate()
    end, rows = check_sums(events_of(tmp / "e"))
    assert end["outcome"] == "signaled" and [r["cause"] for r in rows] == ["start", "signal"], rows
    assert rows[1]["round"] is None, rows


def test_a_failure_on_another_node(tmp):
    with Nodes(tmp, "--nnodes=2", "--max-restarts=1", "--nproc-per-node=1") as nodes:
        a = nodes.start("a", f"--event-log={tmp}/a.jsonl")
        b = nodes.start("b", f"--event-log={tmp}/b.jsonl")
        next(w for w in nodes.round(2) if w.node == "b").signal(signal.SIGUSR1)
        for w in nodes.round(2):
            w.signal(signal.SIGUSR2)
        assert a.wait() == 0 and b.wait() == 0
        rows = {n: check_sums(events_of(tmp / f"{n}.jsonl"))[1] for n in "ab"}
        causes = {n: [r["cause"] for r in rows[n]] for n in "ab"}
        assert causes == {"a": ["start", "elsewhere"], "b": ["start", "failure"]}, causes
        printed = [TITLE in n.text for n in (a, b)]
        assert printed.count(True) == 1, printed  # only the node with group rank 0


STEPS = SLEEP + """
import crunrt
rt = crunrt.init()
time.sleep(0.4)
for i in range(3):
    rt.step()
    time.sleep(0.1)
"""


def with_steps(tmp, text, *options):
    if BUILD.name in ("asan", "tsan", "ubsan", "coverage"):
        skip("an unsanitized Python cannot load a sanitizer's library")
    env = clean_env(PYTHONPATH=ROOT / "python", OMP_NUM_THREADS=1, PYTHONDONTWRITEBYTECODE=1,
                    CRUNRT_LIBRARY=BUILD / "lib" / "libcrunrt.so.0")
    done = run([CRUN, "--nproc-per-node=2", f"--event-log={tmp}/e", *options,
                script(tmp, "w", STEPS + text)], env=env)
    assert done.returncode == 0, done
    return check_sums(events_of(tmp / "e"))


def test_the_first_step(tmp):
    end, rows = with_steps(tmp, "sys.exit(1 if first else 0)", "--max-restarts=1")
    for r in rows:
        assert r["first_step_by"] == "step", rows
        # The news of a step may be late. Then the first step is longer, and the work shorter.
        first_step = r["parts_s"]["first_step"]
        assert first_step > 0.39 and first_step + r["parts_s"]["work"] > 0.69, rows


def test_a_hang(tmp):
    end, rows = with_steps(tmp, "if first and rt.rank == 0: time.sleep(100)\n"
                           "else: time.sleep(1 if first else 0)",
                           "--max-restarts=1", "--step-timeout=4")
    assert [r["cause"] for r in rows] == ["start", "hang"], rows
    assert rows[1]["parts_s"]["detect"] > 3.9, rows  # from the last step, not from the kill


def test_cycle_info_files_are_those_of_nvrx(tmp):
    """A worker fails once: two rounds, each with a file, and a link to the second."""
    folder = tmp / "nvrx"
    folder.mkdir()
    worker = script(tmp, "worker.sh", "#!/bin/sh\nexit $((1 - TORCHELASTIC_RESTART_COUNT))\n")
    job = Job("--cycle-info-dir", folder, "--max-restarts=1", "--rdzv-id=left", "--no-python",
              worker, env={"SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": "2",
                           "CRUN_SCHEDULER": "none", "PET_SCHEDULER": "none"})
    assert job.status == 0, job.err
    assert sorted(p.name for p in folder.iterdir()) == [
        "cycle_info.77.2.0", "cycle_info.77.2.1", "cycle_info.77.current"]
    assert os.readlink(folder / "cycle_info.77.current") == "cycle_info.77.2.1"
    first, second = (json.loads((folder / f"cycle_info.77.2.{i}").read_text()) for i in (0, 1))
    assert set(first) == {"job_id", "attempt_index", "cycle_number", "cycle_start_time",
                          "cycle_end_time", "cycle_log_file", "active_nodes", "standby_nodes",
                          "active_ranks", "generation"}
    assert (first["cycle_number"], second["cycle_number"]) == (0, 1)
    assert first["active_nodes"] == socket.gethostname() and first["active_ranks"] == "0"
    assert first["cycle_start_time"] <= first["cycle_end_time"] <= second["cycle_start_time"]
    assert first["generation"] == second["generation"] == 1
    job = Job("--cycle-info-dir", tmp / "missing", "--no-python", "true")
    assert job.status == 0 and "cannot write the cycle info file" in job.err, job.err


if __name__ == "__main__":
    run_tests(globals())
