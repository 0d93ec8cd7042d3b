#!/usr/bin/env python3
"""The pictures and the section "Figures" of docs/benchmarks.md are those of docs/figures/
benchmarks.json: drawn again, each picture is the same, byte for byte. measure.py reads the lines
that the benchmarks print."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FIGURES = ROOT / "docs" / "figures"
PYTHON = "/usr/bin/python3"  # Debian's packages are those of this Python
sys.path[:0] = [str(ROOT / "tests" / "bench"), str(ROOT / "tests" / "lib")]
import figures  # noqa: E402  (its folder is known only now)
import measure  # noqa: E402

# One line of each kind, as the benchmarks print it, and what the reader has to make of it.
PRINTED = [
    (measure.LAUNCH, "  32  crun           12.65 ms  [   11.63 …    17.80]     1.21x floor      "
     "2.5 MiB  (11 runs, 0 hung)",
     {"workers": 32, "who": "crun", "median_ms": 12.65, "highest_ms": 17.8, "memory_mib": 2.5,
      "hung": 0}),
    (measure.RESTART, "   4 workers  torchrun   replacement   162.71 ms   last of all   173.49 ms  "
     "[98.96 … 276.07]  (6 runs)",
     {"who": "torchrun", "replacement_ms": 162.71, "last_ms": 173.49}),
    (measure.IN_PLACE, "4 ranks, all anew: median   56.2 ms, fastest   32.4, slowest   124.2, "
     "processes kept 0", {"how": "all anew", "median_ms": 56.2}),
    (measure.STORE, "16 deep, 64 conn         torch         123456 op/s   8.12 us server cpu/op  "
     "ours/it 22.10 (21.00 to 23.00)", {"depth": 16, "who": "torch", "crun_to_it": 22.1}),
    (measure.STORE_TIME, "join of  4096 clients      torch         1640.2 ms (900.1 ms until all "
     "were connected)", {"what": "join of 4096 clients", "who": "torch", "ms": 1640.2}),
    (measure.MEMBERS, "    16      no       1.2         3.6       0.0       0.9      526   5.0  "
     "    483   3.9     144.9",
     {"members": 16, "join_ms": 1.2, "push_ms": 0, "next_round_ms": 0.9}),
    (measure.NODES, "   8      101         -                   3.2      32                    10.7 "
     "    125", {"launchers": 8, "torchrun_start_ms": None, "launcher_dies_again_ms": 125}),
]


def version_in(svg):
    """Returns the version of matplotlib that has drawn the picture; it is in the metadata."""
    return re.search(r"Matplotlib v([\d.]+)", svg.read_text()).group(1)


class Figures(unittest.TestCase):
    maxDiff = 2000

    def setUp(self):
        self.data = json.loads((FIGURES / "benchmarks.json").read_text())

    def test_the_document_says_what_the_json_says(self):
        text = figures.DOCUMENT.read_text()
        self.assertEqual(text, figures.documented(text, self.data), "run: make figures")

    def test_the_pictures_are_drawn_from_the_json(self):
        found = subprocess.run([PYTHON, "-c", "import matplotlib as m; print(m.__version__)"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        drawn_by = version_in(FIGURES / "launch.svg")
        if found.stdout.strip() != drawn_by:
            has = found.stdout.strip() or "none (python3-matplotlib)"
            self.skipTest(f"the pictures were drawn by matplotlib {drawn_by}; {PYTHON} has {has}")
        with tempfile.TemporaryDirectory(prefix="crun-figures-") as tmp:
            folder = pathlib.Path(tmp)
            (folder / "benchmarks.json").write_text((FIGURES / "benchmarks.json").read_text())
            subprocess.run([PYTHON, ROOT / "tests/bench/figures.py", folder], check=True,
                           stdout=subprocess.DEVNULL)
            for name in figures.NAMES:
                self.assertEqual((folder / f"{name}.svg").read_text(),
                                 (FIGURES / f"{name}.svg").read_text(), "run: make figures")

    def test_the_readers_know_the_lines_of_the_benchmarks(self):
        for reader, line, wanted in PRINTED:
            rows = measure.rows_of(reader, [line])
            self.assertEqual(len(rows), 1, line)
            self.assertEqual({key: rows[0].get(key) for key in wanted}, wanted)

    def test_no_other_line_is_taken_for_a_figure(self):
        for other in ("redis is not installed: left out", "mpirun     left out: it fails", ""):
            self.assertFalse([r for r, _, _ in PRINTED if measure.rows_of(r, [other])])


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    for _, reason in result.skipped:
        print(f"SKIP: {reason}")
    sys.exit(1 if not result.wasSuccessful() else 77 if result.skipped else 0)
