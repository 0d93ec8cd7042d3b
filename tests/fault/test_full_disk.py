#!/usr/bin/env python3
"""The disk of the log files, or the one to which the console is redirected, is full. crun must
print one warning and go on with the job, and the outputs that are not on it must get every line."""
import pathlib
import resource
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import (CRUN, TIMEOUT_S, clean_env, crun, run_tests, script, skip,
                       start,  # noqa: E402
                       wait_for)

ENV = clean_env(OMP_NUM_THREADS=1)
PY = "#!/usr/bin/python3\nimport os\nrank = int(os.environ['RANK'])\n"


def test_limit_of_file_sizes(tmp):
    """A write beyond RLIMIT_FSIZE also raises SIGXFSZ, which would end crun if crun did not ignore
    it."""
    worker = script(tmp, "w",
                    f"#!/bin/sh\n: >{tmp}/up\nwhile [ ! -e {tmp}/go ]; do sleep 0.05; done\n"
                              "for i in 1 2 3; do echo line $i; done\n")
    job = start([CRUN, "-t", "1", f"--log-dir={tmp}/logs", worker], env=ENV)
    wait_for((tmp / "up").exists, "the worker")
    # The limit is set after the start, because ThreadSanitizer writes a file at the start.
    resource.prlimit(job.pid, resource.RLIMIT_FSIZE, (0, 0))
    (tmp / "go").touch()
    out, err = job.communicate(timeout=TIMEOUT_S)
    assert job.returncode == 0, err
    assert out.splitlines() == [f"[default0]:line {i}" for i in (1, 2, 3)], out
    assert err.count("File too large") == 1, err


def test_console_on_a_full_disk(tmp):
    worker = script(tmp, "w", "#!/bin/sh\necho one\necho two\n")
    with open("/dev/full", "w") as full:
        job = start([CRUN, "--nproc-per-node=2", "-t", "1", f"--log-dir={tmp}/logs", worker],
                    env=ENV, stdout=full)
        _, err = job.communicate(timeout=TIMEOUT_S)
    assert job.returncode == 0, err
    assert err.count("cannot write to the console any more: No space left on device") == 1, err
    assert [p.read_text() for p in tmp.glob("logs/*/attempt_0/*/stdout.log")] == ["one\ntwo\n"] * 2


def test_stderr_on_a_full_disk(tmp):
    """crun cannot write its own messages, but the job goes on."""
    for both in (False, True):
        with open("/dev/full", "w") as full:
            job = start([CRUN, "--nproc-per-node=2", "-t", "3", f"--log-dir={tmp}/logs", "echo",
                         "one"],
                        env=clean_env(LOGLEVEL="debug"), stderr=full,
                        **({"stdout": full} if both else {}))
            out, _ = job.communicate(timeout=TIMEOUT_S)
        assert job.returncode == 0
        assert both or sorted(out.splitlines()) == ["[default0]:one", "[default1]:one"], out


def test_full_disk(tmp):
    """This test is the last of the file, because it skips without root, and skip() also skips all
    later tests."""
    disk = tmp / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", disk],
                             capture_output=True, text=True)
    if mounted.returncode != 0:
        skip(f"cannot mount a small tmpfs: {mounted.stderr.strip()}")
    try:
        worker = script(tmp, "w", PY + "for i in range(5000): print(i, 'x' * 100)\n"
                                       f"open('{tmp}/ended.%d' % rank, 'w').close()\n")
        done = crun("--nproc-per-node=2", "-t", "3", f"--log-dir={disk}", worker, env=ENV)
        assert done.returncode == 0 and (tmp / "ended.0").exists() and (tmp / "ended.1").exists()
        assert done.stderr.count("No space left on device") == 1, done.stderr
        for rank in range(2):
            shown = [t for t in done.stdout.splitlines() if t.startswith(f"[default{rank}]:")]
            assert shown == [f"[default{rank}]:{i} {'x' * 100}" for i in range(5000)]
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


if __name__ == "__main__":
    run_tests(globals())
