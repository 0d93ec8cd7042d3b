#!/usr/bin/env python3
"""--event-log-handler=console: one JSON object a line on stderr, torchrun's names (contract 64)."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import clean_env, crun, run_tests, script  # noqa: E402

PREFIX = "torchelastic.worker.status."


def events(done):
    found = [json.loads(t) for t in done.stderr.splitlines() if t.startswith('{"name"')]
    for e in found:
        assert set(e) == {"name", "source", "timestamp", "metadata"} and e["timestamp"] == 0, e
        assert e["name"] == PREFIX + e["metadata"]["state"], e
        json.loads(e["metadata"]["metadata"])
    return [(e["source"], e["metadata"]["state"]) for e in found], found


def test_success(tmp):
    done = crun("--nproc-per-node=2", "--event-log-handler=console", "--role=tr", "--rdzv-id=j",
                "true",
                env=clean_env(OMP_NUM_THREADS=1))
    names, found = events(done)
    assert names[:4] == [("AGENT", "RENDEZVOUS"), ("AGENT", "ASSIGN_WORKER_RANKS"),
                         ("WORKER", "START"), ("WORKER", "START")], done
    assert names[4:] == [("WORKER", "SUCCEEDED")] * 2 + [("AGENT", "SUCCEEDED")], done
    started = found[3]["metadata"]
    assert (started["run_id"], started["global_rank"], started["role"]) == ("j", 1, "tr"), started
    assert started["agent_restarts"] == 0 and started["worker_id"].isdigit(), started
    inner = json.loads(started["metadata"])
    assert inner["local_rank"] == [1] and inner["role_world_size"] == [2], inner
    assert inner["worker_pid"] == [int(started["worker_id"])], inner


def test_failure_and_victim(tmp):
    worker = script(tmp, "w", "#!/bin/sh\n[ $RANK = 1 ] && exit 3\nexec sleep 100\n")
    done = crun("--nproc-per-node=2", "--event-log-handler=console", worker)
    names, found = events(done)
    assert done.returncode == 1
    assert names[-3:] == [("WORKER", "FAILED"), ("WORKER", "TERMINATED"),
                          ("AGENT", "SUCCEEDED")], done
    assert json.loads(found[-3]["metadata"]["metadata"])["exit_code"] == [3], done


def test_silent_by_default(tmp):
    assert crun("true").stderr == ""


if __name__ == "__main__":
    run_tests(globals())
