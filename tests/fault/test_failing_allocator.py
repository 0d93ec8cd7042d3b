#!/usr/bin/env python3
# timeout: 300
"""Every program either does its job or ends with a clear error when an allocation fails."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from allocation_failures import FAILING, for_each_allocation  # noqa: E402
from crun_test import run_tests  # noqa: E402

CRUN = FAILING / "crun"


def shell(text):
    return ["--no-python", "/bin/sh", "-c", text.replace("$", "$$")]


def start(case):
    return case.run([CRUN, "--standalone", "--nproc-per-node=2", f"--log-dir={case.folder}/logs",
                     "--tee=3", *shell("echo out; echo err >&2")])


def restart(case):
    return case.run([CRUN, "--standalone", "--nproc-per-node=2", "--max-restarts=1",
                     *shell('exit "$((1 - TORCHELASTIC_RESTART_COUNT))"')])


def report(case):
    """The worker writes an error file and fails: status 1, whether or not memory lasts."""
    text = '{"message": {"message": "broken", "extraInfo": {"timestamp": "1"}}}'
    status, err = case.run([CRUN, "--standalone", "--nproc-per-node=2",
                            *shell(f"echo '{text}' >$TORCHELASTIC_ERROR_FILE; exit 3")])
    assert status == 1, (status, err)
    return (0, err) if "broken" in err or "exit code 3" in err else (1, err)


def test_start(tmp):
    for_each_allocation(tmp, start, CRUN, later="")


def test_restart(tmp):
    for_each_allocation(tmp, restart, CRUN, later="")


def test_report(tmp):
    for_each_allocation(tmp, report, CRUN, later="")


if __name__ == "__main__":
    run_tests(globals())
