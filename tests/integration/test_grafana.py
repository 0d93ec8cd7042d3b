#!/usr/bin/env python3
"""The Grafana dashboard of docs/grafana: every metric and label in its expressions is one that crun
writes, the panels do not overlap, and Prometheus understands the expressions."""
import json
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import ROOT, run_tests  # noqa: E402

BOARD = json.loads((ROOT / "docs" / "grafana" / "crun.json").read_text())
SOURCE = (ROOT / "status" / "metrics.c").read_text()
CAUSES_AND_PARTS = (ROOT / "agent" / "report" / "ledger.h").read_text()


def expressions():
    return [t["expr"] for p in BOARD["panels"] for t in p["targets"]]


def metrics():
    """The names that crun writes: family and suffix."""
    suffix = {"GAUGE": "", "COUNTER": "_total", "INFO": "_info"}
    found = re.findall(r'\{\s*"([a-z_]+)", (GAUGE|COUNTER|INFO),', SOURCE)
    assert len(found) > 15, found
    return {f"crun_{name}{suffix[kind]}" for name, kind in found}


def test_names(tmp):
    known = metrics()
    used = {name for e in expressions() for name in re.findall(r"crun_[a-z_]+", e)}
    assert used and used <= known, used - known
    assert re.findall(r"crun_[a-z_]+", json.dumps(BOARD["templating"])) == ["crun_round"]
    for e in expressions():
        for label in re.findall(r'[{,]([a-z]+)[=!]', e):
            assert f'{{"{label}",' in SOURCE, (label, e)
    for part in ("work", "wait"):
        assert f'"{part}"' in CAUSES_AND_PARTS


def test_panels(tmp):
    cells = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        mine = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])}
        assert not mine & cells and max(x for x, _ in mine) < 24, panel["title"]
        cells |= mine
    assert len({p["id"] for p in BOARD["panels"]}) == len(BOARD["panels"])


def test_prometheus_understands_it(tmp):
    if shutil.which("promtool") is None:
        print("SKIPPED: no promtool parses the expressions (Debian: prometheus)")
        return
    rules = [{"record": f"panel:{i}", "expr": e.replace("$job", "j")}
             for i, e in enumerate(expressions())]
    path = tmp / "rules.json"  # JSON is YAML
    path.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0, done


if __name__ == "__main__":
    run_tests(globals())
