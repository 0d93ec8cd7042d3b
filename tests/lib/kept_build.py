"""Builds an older crun from the project's history, so that tests can run it together with this
build. The result is kept in build/kept/ and made once.

    old = kept_build("66bf4a9")       # old / "crun" and old / "crun-agent" are its programs

Without the history (in an unpacked release, for example) the test file is skipped.
"""
import fcntl
import os
import subprocess

from crun_test import ROOT, skip

KEPT = ROOT / "build" / "kept"


def kept_build(commit):
    folder = KEPT / commit
    programs = folder / "build" / "bin"
    git = ["git", "-C", ROOT]
    known = subprocess.run([*git, "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True)
    if known.returncode != 0 and not (folder / "made").exists():
        skip(f"this tree has no history with commit {commit}, the older build to test with")
    KEPT.mkdir(parents=True, exist_ok=True)
    with open(KEPT / f"{commit}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test files may ask for the same build at once
        if not (folder / "made").exists():
            make(git, commit, folder)
    return programs


def make(git, commit, folder):
    folder.mkdir(parents=True, exist_ok=True)
    tree = subprocess.run([*git, "archive", commit], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=tree, check=True)
    env = {k: v for k, v in os.environ.items() if k not in ("BUILD", "MAKEFLAGS", "MAKELEVEL")}
    built = subprocess.run(["make", "-C", folder, "-j2", "build/bin/crun", "build/bin/crun-agent"],
                           capture_output=True, text=True, errors="replace", env=env)
    assert built.returncode == 0, built.stdout + built.stderr
    (folder / "made").touch()
