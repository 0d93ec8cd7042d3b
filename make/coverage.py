#!/usr/bin/env python3
"""Prints how many lines and branches the tests covered: per room, then the files with the least
coverage. Reads the .gcda files that a run of the tests left under a build folder.

    make/coverage.py build/coverage [FOLDER MINIMUM]

With FOLDER it prints only the files in this folder, and ends with status 1 if less than MINIMUM per
cent of their lines were covered.
"""
import collections
import json
import os
import pathlib
import subprocess
import sys

ROOMS = ["base", "store", "rendezvous", "remote", "inspect", "agent", "launcher", "operator",
         "worker_runtime"]


class Count:
    def __init__(self):
        self.lines, self.branches = {}, {}  # where -> was it taken?

    def add(self, name, file):
        for line in file["lines"]:
            at = (name, line["line_number"])
            self.lines[at] = self.lines.get(at, False) or line["count"] > 0
            for number, branch in enumerate(line.get("branches", [])):
                if not branch.get("throw"):
                    where = (*at, number)
                    self.branches[where] = self.branches.get(where, False) or branch["count"] > 0

    def row(self, name):
        def share(taken):
            return f"{100 * sum(taken.values()) / len(taken):5.1f} %" if taken else "      -"
        return (f"{name:40} {len(self.lines):6} lines {share(self.lines)}   "
                f"branches {share(self.branches)}")

    def line_share(self):
        return sum(self.lines.values()) / max(1, len(self.lines))


def print_folder(folder, minimum, files):
    total = Count()
    for name in sorted(name for name in files if name.startswith(folder)):
        print(files[name].row(name[len(folder):].lstrip("/")))
        total.lines.update(files[name].lines)
        total.branches.update(files[name].branches)
    print(total.row(folder))
    if total.line_share() < minimum / 100:
        sys.exit(f"FAIL: {minimum} % of the lines of {folder} must be covered")


def main():
    build = pathlib.Path(sys.argv[1])
    folder = sys.argv[2] if len(sys.argv) > 2 else ""
    rooms, files = collections.defaultdict(Count), collections.defaultdict(Count)
    for data in sorted(build.rglob("*.gcda")):
        if folder not in str(data):
            continue
        # Objects are named after the source: <build>/obj/<path without suffix>.gcda
        command = ["gcov", "--json-format", "--stdout", "--branch-probabilities", str(data)]
        done = subprocess.run(command, capture_output=True, text=True)
        for text in done.stdout.splitlines():
            for file in json.loads(text)["files"]:
                name = os.path.relpath(file["file"])
                room = name.split("/")[0]
                if room in ROOMS:
                    rooms[room].add(name, file)
                    files[name].add(name, file)
    if not rooms:
        sys.exit(f"no coverage data under {build}; is gcov there, and did the tests run?")
    if folder:
        return print_folder(folder, float(sys.argv[3]), files)
    for room in ROOMS:
        if room in rooms:
            print(rooms[room].row(room + "/"))
    print("\nleast covered files:")
    for name in sorted(files, key=lambda n: files[n].line_share())[:12]:
        print(files[name].row(name))


if __name__ == "__main__":
    main()
