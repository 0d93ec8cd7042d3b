#!/usr/bin/env python3
"""What is written about the command line is what the option table says: crun(1) and the completion are
as `make docs` would write them, docs/usage.md names every option, variable and rdzv key, and the
completion completes."""
import os
import pathlib
import re
import subprocess
import unittest

BUILD = pathlib.Path(os.environ.get("BUILD", "build")).resolve()
DOC = BUILD / "tools" / "crun-doc"
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def doc(what):
    return subprocess.run([DOC, what], stdout=subprocess.PIPE, check=True, text=True).stdout


class Documents(unittest.TestCase):
    maxDiff = None

    def test_man_page(self):
        self.assertEqual((ROOT / "docs/crun.1").read_text(), doc("man"), "run: make docs")

    def test_completion_file(self):
        self.assertEqual((ROOT / "docs/completion/crun.bash").read_text(), doc("completion"),
                         "run: make docs")

    def test_usage(self):
        text = (ROOT / "docs/usage.md").read_text()
        for option in re.search(r'_crun_options="(.*)"', doc("completion")).group(1).split():
            self.assertRegex(text, rf"`(-\w`, `)?{option}\b", f"docs/usage.md lacks {option}")
        table = (ROOT / "launcher/values.c").read_text()
        for key, kind in re.findall(r'\{"(\w+)", CONF_(\w+)', table):
            if kind not in ("ACCEPTED", "TAKEN"):
                self.assertIn(f"| `{key}` |", text)

    def complete(self, *words):
        script = ('source "$1"; shift; COMP_WORDS=(crun "$@"); COMP_CWORD=$#; _crun; '
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        out = subprocess.run(["bash", "-c", script, "bash", ROOT / "docs/completion/crun.bash", *words],
                             stdout=subprocess.PIPE, check=True, text=True).stdout
        return out.split()

    def test_completion(self):
        self.assertEqual(self.complete("--nproc"), ["--nproc-per-node"])
        self.assertEqual(self.complete("--nproc_per"), ["--nproc-per-node"])
        self.assertEqual(self.complete("--nproc_per_node", "a"), ["auto"])
        self.assertEqual(self.complete("--start-method", "=", "fo"), ["fork", "forkserver"])
        self.assertEqual(self.complete("-r", ""), ["0", "1", "2", "3"])
        self.assertIn("--max-restarts", self.complete("-"))


if __name__ == "__main__":
    unittest.main()
