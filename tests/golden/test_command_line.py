#!/usr/bin/env python3
# timeout: 300
"""Golden command lines: sh runs tests/golden/command_line/NAME.cmd, and its exit status and output
must be those in NAME.expected.

To add a case, add these two files; no other list has to change. `GOLDEN_UPDATE=1` rewrites the
.expected files; read the diff before you commit it. Each command runs in a new folder with the
fixtures below, with crun first in PATH, an otherwise small environment and a TMPDIR of its own. In
the output pids are replaced by PID, the folder by HERE, time and host by these words. The test also
checks that a command that fails with status 2, and every case named refused-*, prints exactly one
line to stderr and leaves no file in the folder or in TMPDIR."""
import difflib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent / "command_line"
BUILD = pathlib.Path(os.environ.get("BUILD", "build")).resolve()
UPDATE = os.environ.get("GOLDEN_UPDATE") == "1"


def make_fixtures(folder):
    (folder / "train.py").write_text("print('trained')\n")
    (folder / "hello").write_text("#!/bin/sh\necho hello $RANK of $WORLD_SIZE: \"$@\"\n")
    (folder / "hello").chmod(0o755)
    (folder / "locked").write_text("#!/bin/sh\n")
    shutil.copyfile("/bin/true", folder / "locked-elf")
    (folder / "orphan").write_text("#!/no/such/interpreter -x\n")
    (folder / "orphan").chmod(0o755)
    (folder / "windows").write_bytes(b"#!/bin/sh\r\necho hi\r\n")
    (folder / "windows").chmod(0o755)
    (folder / "folder").mkdir()
    (folder / "a-file").write_text("")


def run_case(command, folder, tmp):
    env = {"PATH": f"{BUILD / 'bin'}:/usr/bin:/bin", "TMPDIR": str(tmp), "LC_ALL": "C",
           "PYTHON_EXEC": "/usr/bin/python3", "HOME": str(folder)}
    for name in ("ASAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "CRUN_TEST_RUN"):
        if name in os.environ:
            env[name] = os.environ[name]
    busy = socket.socket()
    busy.bind(("127.0.0.1", 0))
    busy.listen()
    env["BUSY_PORT"] = str(busy.getsockname()[1])
    done = subprocess.run(["sh", "-c", command], cwd=folder, env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    busy.close()

    def clean(data):
        text = data.decode("utf-8", "replace")
        text = text.replace(env["BUSY_PORT"], "BUSY_PORT").replace(str(folder), "HERE")
        text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}_\w{8}", "RUN", text)
        text = re.sub(r"^\S+ \S+ \S+ crun\[\d+\]", "TIME HOST crun[PID]", text, flags=re.M)
        return re.sub(r"crun\[\d+\]", "crun[PID]", text)
    return done.returncode, clean(done.stdout), clean(done.stderr)


def leftovers(folder, tmp, before):
    return sorted({str(p) for p in folder.rglob("*")} - before) + sorted(str(p)
                                                                         for p in tmp.iterdir())


def check(case):
    with tempfile.TemporaryDirectory(prefix="crun-golden-") as root:
        folder, tmp = pathlib.Path(root, "work"), pathlib.Path(root, "tmp")
        folder.mkdir()
        tmp.mkdir()
        make_fixtures(folder)
        before = {str(p) for p in folder.rglob("*")}
        status, out, err = run_case(case.read_text(), folder, tmp)
        got = f"exit {status}\n--- stdout\n{out}--- stderr\n{err}"
        problems = []
        if status == 2 or case.stem.startswith("refused-"):
            if err.count("\n") != 1:
                problems.append(f"{err.count(chr(10))} lines on stderr, not one")
            left = leftovers(folder, tmp, before)
            if left:
                problems.append(f"left behind: {left}")
        expected = case.with_suffix(".expected")
        if UPDATE:
            expected.write_text(got)
        wanted = expected.read_text() if expected.exists() else ""
        if got != wanted:
            problems.append("".join(difflib.unified_diff(
                wanted.splitlines(True), got.splitlines(True), expected.name, "got")))
        return problems


def main():
    if not (BUILD / "bin" / "crun").exists():
        sys.exit(f"{BUILD}/bin/crun is missing; build it first")
    cases, failed = sorted(HERE.glob("*.cmd")), 0
    if not cases:
        sys.exit(f"no cases in {HERE}")
    for case in cases:
        problems = check(case)
        failed += bool(problems)
        for problem in problems:
            print(f"FAIL {case.stem}: {problem}")
    print(f"{len(cases)} command lines, {failed} failed")
    sys.exit(1 if failed else 0)


main()
