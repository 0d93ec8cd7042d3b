#!/usr/bin/env python3
# timeout: 120
"""Golden environments of cluster schedulers: with the variables of tests/golden/schedulers/NAME.env
and no others, "crun --scheduler=show train.py" must print what is in NAME.expected.

A line NAME=VALUE sets a variable ("\\n" in the value is a newline), "# args: ..." adds options to
the command line, other comments describe the environment. The variables were written down from the
documentation and source of the schedulers, except where a comment says that they were recorded. To
add a case, add its .env file and run with `GOLDEN_UPDATE=1`; read the result before committing."""
import difflib
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent / "schedulers"
CRUN = pathlib.Path(os.environ.get("BUILD", "build")).resolve() / "bin" / "crun"
UPDATE = os.environ.get("GOLDEN_UPDATE") == "1"
KEPT = ("ASAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "CRUN_TEST_RUN")


def read_case(path):
    env, args = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}, []
    for line in path.read_text().splitlines():
        if line.startswith("# args: "):
            args = line[len("# args: "):].split()
        elif line and not line.startswith("#"):
            name, value = line.split("=", 1)
            env[name] = value.replace("\\n", "\n")
    env.update({name: os.environ[name] for name in KEPT if name in os.environ})
    return env, args


def check(path):
    env, args = read_case(path)
    done = subprocess.run([CRUN, "--scheduler=show", *args, "train.py"], env=env, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    got = f"exit {done.returncode}\n{done.stdout}{done.stderr}"
    expected = path.with_suffix(".expected")
    if UPDATE:
        expected.write_text(got)
    wanted = expected.read_text() if expected.exists() else ""
    return "".join(difflib.unified_diff(wanted.splitlines(True), got.splitlines(True),
                                        expected.name, "got"))


def main():
    cases, failed = sorted(HERE.glob("*.env")), 0
    if len(cases) < 16:
        sys.exit(f"only {len(cases)} cases in {HERE}")
    for case in cases:
        problem = check(case)
        failed += bool(problem)
        if problem:
            print(f"FAIL {case.stem}:\n{problem}")
    print(f"{len(cases)} environments, {failed} failed")
    sys.exit(1 if failed else 0)


main()
