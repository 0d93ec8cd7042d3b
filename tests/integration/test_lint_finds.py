#!/usr/bin/env python3
# timeout: 300
"""Tests make/lint_arrows.py: in a copy of the tree each of its rules is broken in a file of its
own, and its report must name every one.

A case appends text to a file, or makes a file, and gives what the report says about that place."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ROOMS = ("base", "contract", "store", "rendezvous", "remote", "inspect", "status", "agent",
         "launcher", "operator",
         "worker_runtime", "examples", "make", "docs")
NEW = "/* A new file. */\n"

# name: (file, text that is appended, what the report says)
CASES = {
    "an arrow to a higher room":
        ("store/wire/answer.c", '#include "agent/agent.h"\n', "store/wire/ may not see agent/"),
    "an arrow between chambers that the table lacks":
        ("store/wire/encoder.c", '#include "store/keyspace/keyspace.h"\n',
         "store/wire/ may not see store/keyspace/"),
    "a private header of another room":
        ("launcher/job.c", '#include "agent/process/nursery.h"\n', "is private to agent/"),
    "a header of a chamber that is not its door":
        ("rendezvous/rendezvous.c", '#include "rendezvous/coordinator/coordinator_internal.h"\n',
         "is not the door of rendezvous/coordinator/"),
    "a chamber that is not in the table":
        ("store/cellar/cask.c", NEW, "store/cellar/: not in the table of chambers"),
    "a circle of files":
        ("base/log/trace.h", '#include "base/log/log.h"\n', "base/log/: a circle of files"),
    "a circle of chambers":
        ("rendezvous/types.h", '#include "rendezvous/member/member.h"\n', "a circle of chambers"),
    "a pure file that includes libuv":
        ("launcher/options/table.c", "#include <uv.h>\n", "table.c:1: pure, but reaches <uv.h>"),
    "a pure file that reaches an impure header through another one":
        ("store/wire/parser.h", "#include <unistd.h>\n",
         "store/wire/parser.c:1: pure, but reaches <unistd.h>, through store/wire/parser.h"),
    "a pure file that looks at the clock":
        ("rendezvous/rules/assignment.c", "long now(void) { return time(NULL); }\n",
         "pure, but calls time()"),
    "a library that needs what its users may lack":
        ("worker_runtime/report/error_file.c", "#include <jansson.h>\n",
         "worker_runtime/ must not need <jansson.h>"),
    "a banned call":
        ("base/text/parse.c", "int bad(const char *t) { return atoi(t); }\n", "banned call atoi()"),
    "a sleep": ("base/time/clock.c", "void bad(void) { usleep(1); }\n", "sleeps"),
    "a sleep by poll": ("base/log/log.c", "void bad(void) { poll(NULL, 0, 1); }\n", "sleeps"),
    "a sleep by select":
        ("base/text/token.c", "void bad(void) { select(0, NULL, NULL, NULL, &t); }\n", "sleeps"),
    "a library that prints":
        ("agent/agent.c", 'void bad(void) { printf("x"); }\n', "a library prints or exits"),
    "a library that exits":
        ("agent/attempt/environment.c", "void bad(void) { exit(1); }\n",
         "a library prints or exits"),
    "a line that is too wide": ("operator/dump.c", "/* " + "x" * 100 + " */\n", "columns; at most"),
    "a file that says nothing about itself":
        ("operator/new.c", "int x;\n", "no comment at the top"),
    "a header that the table of contents lacks":
        ("base/unlisted.h", NEW, "base/README.md: unlisted.h is not listed"),
    "a table of contents that lists too much":
        ("base/README.md", "| `gone.h` | nothing |\n", "gone.h is listed, but not there"),
    # The arrows that the other cases add are not in the document.
    "a picture of the rooms that is old": ("docs/architecture.md", "", "is not up to date"),
}


def lint(folder):
    return subprocess.run([sys.executable, ROOT / "make/lint_arrows.py", folder],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def is_reported(report, file, wanted):
    """A line about the file, or one that begins with the folder it is about."""
    return any(wanted in line and (line.startswith(f"{file}:") or not line.startswith(file))
               for line in report.splitlines())


def main():
    with tempfile.TemporaryDirectory(prefix="crun-lint-") as tmp:
        folder = pathlib.Path(tmp)
        for room in ROOMS:
            shutil.copytree(ROOT / room, folder / room,
                            ignore=shutil.ignore_patterns("__pycache__"))
        before = lint(folder)
        assert before.returncode == 0, before.stdout
        assert len({file for file, _, _ in CASES.values()}) == len(CASES)
        for file, text, _ in CASES.values():
            path = folder / file
            path.parent.mkdir(exist_ok=True)
            path.write_text((path.read_text() if path.exists() else "") + text)
        after = lint(folder)
    missed = [name for name, (file, _, wanted) in CASES.items()
              if not is_reported(after.stdout, file, wanted)]
    for name in missed:
        print(f"FAIL {name}: not in the report")
    if missed or after.returncode != 1:
        print(after.stdout)
    print(f"{len(CASES)} rules broken, {len(missed)} not noticed")
    sys.exit(1 if missed or after.returncode != 1 else 0)


if __name__ == "__main__":
    main()
