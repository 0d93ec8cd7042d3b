#!/usr/bin/env python3
"""make/lint_arrows.py finds what it is there for: each case breaks one rule in a copy of the tree.

A case appends text to a file, or makes a file, and names what the report must say."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ROOMS = ("base", "contract", "store", "rendezvous", "agent", "launcher", "operator",
         "worker_runtime", "examples", "make")
NEW = "/* A new file. */\n"

# name: (file, text that is appended, what the report says)
CASES = {
    "an arrow to a higher room":
        ("store/wire/parser.c", '#include "agent/agent.h"\n', "store/wire/ may not see agent/"),
    "an arrow between chambers that the table lacks":
        ("store/wire/parser.c", '#include "store/keyspace/keyspace.h"\n',
         "store/wire/ may not see store/keyspace/"),
    "a private header of another room":
        ("launcher/job.c", '#include "agent/process/nursery.h"\n', "is private to agent/"),
    "a header of a chamber that is not its door":
        ("rendezvous/rendezvous.c", '#include "rendezvous/coordinator/assignment.h"\n',
         "is not the door of rendezvous/coordinator/"),
    "a chamber that is not in the table":
        ("store/cellar/cask.c", NEW, "store/cellar/: not in the table of chambers"),
    "a circle of files":
        ("base/text.h", '#include "base/log.h"\n', "base/: a circle of files"),
    "a circle of chambers":
        ("rendezvous/types.h", '#include "rendezvous/member/member.h"\n', "a circle of chambers"),
    "a pure file that includes libuv":
        ("store/wire/parser.c", "#include <uv.h>\n", "pure, but reaches <uv.h>"),
    "a pure file that reaches an impure header through another one":
        ("store/wire/parser.h", "#include <unistd.h>\n",
         "pure, but reaches <unistd.h>, through store/wire/parser.h"),
    "a pure file that looks at the clock":
        ("rendezvous/coordinator/assignment.c", "long now(void) { return time(NULL); }\n",
         "pure, but calls time()"),
    "a library that needs what its users may lack":
        ("worker_runtime/report/error_file.c", "#include <jansson.h>\n",
         "worker_runtime/ must not need <jansson.h>"),
    "a banned call":
        ("base/parse.c", "int bad(const char *t) { return atoi(t); }\n", "banned call atoi()"),
    "a sleep": ("base/parse.c", "void bad(void) { usleep(1); }\n", "sleeps"),
    "a sleep by poll": ("base/parse.c", "void bad(void) { poll(NULL, 0, 1); }\n", "sleeps"),
    "a sleep by select":
        ("base/parse.c", "void bad(void) { select(0, NULL, NULL, NULL, &t); }\n", "sleeps"),
    "a library that prints":
        ("agent/agent.c", 'void bad(void) { printf("x"); }\n', "a library prints or exits"),
    "a library that exits":
        ("agent/agent.c", "void bad(void) { exit(1); }\n", "a library prints or exits"),
    "a line that is too wide": ("operator/dump.c", "/* " + "x" * 100 + " */\n", "columns; at most"),
    "a file that says nothing about itself":
        ("operator/new.c", "int x;\n", "no comment at the top"),
}


def lint(folder):
    return subprocess.run([sys.executable, ROOT / "make/lint_arrows.py", folder],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def plant(folder, file, text):
    """Breaks a rule; returns what undoes it."""
    path = folder / file
    before = path.read_text() if path.exists() else None
    path.parent.mkdir(exist_ok=True)
    path.write_text((before or "") + text)

    def undo():
        if before is not None:
            path.write_text(before)
            return
        path.unlink()
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
    return undo


def main():
    failed = 0
    with tempfile.TemporaryDirectory(prefix="crun-lint-") as tmp:
        folder = pathlib.Path(tmp)
        for room in ROOMS:
            shutil.copytree(ROOT / room, folder / room,
                            ignore=shutil.ignore_patterns("__pycache__"))
        assert lint(folder).returncode == 0, lint(folder).stdout
        for name, (file, text, wanted) in CASES.items():
            undo = plant(folder, file, text)
            done = lint(folder)
            undo()
            if done.returncode != 1 or wanted not in done.stdout:
                print(f"FAIL {name}: '{wanted}' is not in the report:\n{done.stdout}")
                failed += 1
        assert lint(folder).returncode == 0, "a case was not undone"
    print(f"{len(CASES)} rules broken, {failed} not noticed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
