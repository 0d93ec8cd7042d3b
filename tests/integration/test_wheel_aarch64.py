#!/usr/bin/env python3
# timeout: 300
"""The wheel for aarch64: its files are programs of that machine, and under qemu-user crun parses
command lines and crun-store serves clients of this machine. `make check-aarch64` makes the wheel.

qemu-user cannot start a job: crun must be the reaper of orphaned processes, and qemu-user does not
emulate that (PR_SET_CHILD_SUBREAPER)."""
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, TIMEOUT_S, clean_env, run, run_tests, skip, wait_for  # noqa: E402
from free_port import free_port  # noqa: E402

FOLDER = os.environ.get("CRUN_TEST_AARCH64")
QEMU = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
LIBC = "/usr/aarch64-linux-gnu"
MACHINE = (183).to_bytes(2, "little")  # e_machine of aarch64, at byte 18 of an ELF file

if not FOLDER:
    skip("CRUN_TEST_AARCH64 is not set; make check-aarch64 sets it")
if not QEMU or not os.path.exists(LIBC):
    skip("qemu-aarch64 or its C library is missing (Debian: qemu-user-static libc6-arm64-cross)")


def unpack(tmp):
    """Unpacks the wheel, and returns {name: path} of the files in it."""
    wheel, = pathlib.Path(FOLDER).glob("crun_launcher-*_aarch64.whl")
    assert wheel.stat().st_size < 5 * 2**20, wheel.stat().st_size
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp)
    return {str(p.relative_to(tmp)): p for p in tmp.rglob("*") if p.is_file()}


def program(files, name):
    path = next(p for n, p in files.items() if n.endswith(f"/scripts/{name}"))
    path.chmod(0o755)
    return [QEMU, "-L", LIBC, path]


def test_all_files_are_of_that_machine(tmp):
    files = unpack(tmp)
    elf = [p for p in files.values() if p.read_bytes()[:4] == b"\x7fELF"]
    assert len(elf) >= 6, elf
    for path in elf:
        assert path.read_bytes()[18:20] == MACHINE, path
    assert "crunrt/lib/crunrt/bundled/libuv.so.1" in files, sorted(files)


def test_programs_start(tmp):
    files = unpack(tmp)
    native = {name: run([BUILD / "bin" / name, "--help"]) for name in ("crun", "crun-store")}
    for name, here in native.items():
        there = run([*program(files, name), "--help"], env=clean_env(), timeout=TIMEOUT_S)
        assert (there.returncode, there.stdout) == (0, here.stdout), there
    wrong = run([*program(files, "crun"), "--nproc-per-node=x", "train.py"], timeout=TIMEOUT_S)
    assert wrong.returncode == 2 and "is not a number of workers" in wrong.stderr, wrong


def test_the_store_serves_this_machine(tmp):
    files, port = unpack(tmp), free_port()
    store = [BUILD / "bin" / "crun-store"]
    there = f"127.0.0.1:{port}"
    server = subprocess.Popen([*program(files, "crun-store"), "serve", "--host=127.0.0.1",
                               f"--port={port}"],
                              stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: run([*store, "set", there, "key", "value"]).returncode == 0,
                 "the emulated store", TIMEOUT_S)
        for client in (store, program(files, "crun-store")):
            got = run([*client, "get", there, "key"], timeout=TIMEOUT_S)
            assert got.stdout.strip() == "value", got
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    run_tests(globals())
