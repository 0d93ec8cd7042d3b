#!/usr/bin/env python3
"""Tests that systemd accepts the units of the daemons: `systemd-analyze verify` reads each unit,
with the program of this build in place of the installed one. No unit is started, because no systemd
runs where the tests run."""
import pathlib
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, ROOT, run, run_tests, skip  # noqa: E402


def test_systemd_accepts_the_units(tmp):
    units = sorted((ROOT / "operator").glob("*.service"))
    assert len(units) == 2, units
    for unit in units:
        text, count = re.subn(r"(?m)^ExecStart=\S+", f"ExecStart={BUILD}/bin/crun-agent",
                              unit.read_text())
        assert count == 1, unit
        (tmp / unit.name).write_text(text)
        done = run(["systemd-analyze", "verify", "--man=no", tmp / unit.name])
        assert done.returncode == 0 and unit.name not in done.stderr, done


def test_a_mistake_in_a_unit_is_found(tmp):
    (tmp / "bad.service").write_text("[Service]\nExecStart=/nowhere/crun-agent\nTasksMax=many\n")
    done = run(["systemd-analyze", "verify", "--man=no", tmp / "bad.service"])
    assert "bad.service" in done.stderr, done


if __name__ == "__main__":
    if shutil.which("systemd-analyze") is None:
        skip("systemd-analyze is not installed")
    run_tests(globals())
