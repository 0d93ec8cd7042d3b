#!/usr/bin/env python3
"""The documents about command lines agree with the tables of the programs.

Manual pages and completions are as `make docs` writes them, docs/usage.md names every option,
variable and rdzv key of crun, and the completions complete."""
import os
import pathlib
import re
import subprocess
import unittest

BUILD = pathlib.Path(os.environ.get("BUILD", "build")).resolve()
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAMS = ["crun", "crun-agent", "crun-store"]


def printed(program, *request):
    return subprocess.run([BUILD / "bin" / program, *request], stdout=subprocess.PIPE, check=True,
                          text=True).stdout


class Documents(unittest.TestCase):
    maxDiff = None

    def test_manual_pages(self):
        for program in PROGRAMS:
            self.assertEqual((ROOT / f"docs/{program}.1").read_text(),
                             printed(program, "--print-manual"), "run: make docs")

    def test_completion_files(self):
        for program in PROGRAMS:
            self.assertEqual((ROOT / f"docs/completion/{program}.bash").read_text(),
                             printed(program, "--print-completion", "bash"), "run: make docs")

    def test_usage(self):
        text = (ROOT / "docs/usage.md").read_text()
        script = printed("crun", "--print-completion", "bash")
        for option in re.search(r'options="(.*)"', script).group(1).split():
            self.assertRegex(text, rf"`(-\w`, `)?{option}\b", f"docs/usage.md lacks {option}")
        table = (ROOT / "launcher/options/values.c").read_text()
        for key, kind in re.findall(r'\{"(\w+)", CONF_(\w+)', table):
            if kind not in ("ACCEPTED", "TAKEN"):
                self.assertIn(f"| `{key}` |", text)

    def complete(self, program, *words):
        script = ('source "$1"; f=$2; shift 2; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); $f; '
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        file = ROOT / f"docs/completion/{program}.bash"
        function = "_" + program.replace("-", "_")
        out = subprocess.run(["bash", "-c", script, "bash", file, function, program, *words],
                             stdout=subprocess.PIPE, check=True, text=True).stdout
        return out.split()

    def test_completion_of_crun(self):
        self.assertEqual(self.complete("crun", "--nproc"), ["--nproc-per-node"])
        self.assertEqual(self.complete("crun", "--nproc_per"), ["--nproc-per-node"])
        self.assertEqual(self.complete("crun", "--nproc_per_node", "a"), ["auto"])
        self.assertEqual(self.complete("crun", "--start-method", "=", "fo"), ["fork", "forkserver"])
        self.assertEqual(self.complete("crun", "-r", ""), ["0", "1", "2", "3"])
        self.assertIn("--max-restarts", self.complete("crun", "-"))

    def test_completion_of_crun_agent(self):
        self.assertEqual(self.complete("crun-agent", "st"), ["status"])
        self.assertEqual(self.complete("crun-agent", "notify", "--k"), ["--kind"])
        self.assertEqual(self.complete("crun-agent", "notify", "--kind", "pre"), ["preemption"])

    def test_completion_of_crun_store(self):
        self.assertEqual(self.complete("crun-store", "st"), ["stat"])
        self.assertEqual(self.complete("crun-store", "serve", "--max-c"),
                         ["--max-clients", "--max-client-buffer"])


if __name__ == "__main__":
    unittest.main()
