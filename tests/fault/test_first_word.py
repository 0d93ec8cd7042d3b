#!/usr/bin/env python3
# timeout: 200
"""What crun says, and when: a failure is reported as soon as it is known, although other workers
still run; a process that SIGKILL does not end is named; output that a full disk has swallowed is
not called silence; without /proc the reason and the remedy are printed."""
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import CRUN, TIMEOUT_S, alive, clean_env, read_text  # noqa: E402
from crun_test import run, run_tests, script, skip, start, wait_for  # noqa: E402

ENV = clean_env(OMP_NUM_THREADS=1)
PY = "#!/usr/bin/python3\nimport os, signal, sys, time\nrank = int(os.environ['RANK'])\n"
FREEZER = pathlib.Path("/sys/fs/cgroup/freezer")


def stubborn_job(tmp, *args):
    """Rank 0 fails as soon as the file "fail" is there, while rank 1 ignores SIGTERM. Returns
    (crun, the file with its stderr, the pid of rank 1)."""
    worker = script(tmp, "w", PY + "signal.signal(15, signal.SIG_IGN)\n"
                    f"if rank == 1:\n    print(os.getpid(), file=open('{tmp}/pid', 'w'))\n"
                    "    time.sleep(1000)\n"
                    f"while not os.path.exists('{tmp}/fail'): time.sleep(0.01)\n"
                    "print('10%\\r20%\\nRuntimeError: no luck\\n\\n', file=sys.stderr)\n"
                    "sys.exit(9)\n")
    err = tmp / "err"
    with open(err, "w") as file:
        launch = start([CRUN, "--nproc-per-node=2", *args, worker], env=ENV, stderr=file)
    pid = wait_for(lambda: read_text(tmp / "pid").endswith("\n") and int(read_text(tmp / "pid")),
                   "rank 1")
    return launch, err, pid


def test_a_failure_is_reported_at_once(tmp):
    launch, err, pid = stubborn_job(tmp, "--shutdown-timeout=10000")
    (tmp / "fail").touch()

    def first_word():
        words = read_text(err)
        return "failed first" in words and words.endswith("\n") and words
    words = wait_for(first_word, "the first word")
    assert alive(pid), "the report has waited for rank 1"
    line = [text for text in words.splitlines() if "failed first" in text][0]
    assert "rank 0 (local rank 0, pid " in line and "exit code 9" in line, line
    assert "; its last line: 'RuntimeError: no luck'; stopping the other workers" in line, line
    os.kill(pid, signal.SIGKILL)
    assert launch.wait(timeout=TIMEOUT_S) == 1
    launch.stdout.close()


def test_a_process_that_cannot_be_killed(tmp):
    if os.geteuid() != 0 or not (FREEZER / "tasks").exists():
        skip("no cgroup v1 freezer, which holds a process like an uninterruptible sleep")
    group = FREEZER / f"crun-test-{os.getpid()}"
    group.mkdir()
    launch, err, pid = stubborn_job(tmp, "--shutdown-timeout=0.1")
    try:
        (group / "tasks").write_text(str(pid))
        (group / "freezer.state").write_text("FROZEN")
        launch.terminate()
        words = wait_for(lambda: "cannot kill" in read_text(err) and read_text(err), "the words")
        line = [text for text in words.splitlines() if "cannot kill" in text][0]
        assert f"cannot kill rank 1 (local rank 1), pid {pid} (" in line, line
        assert " s after SIGKILL, in state " in line and "frozen" in line, line
    finally:
        (group / "freezer.state").write_text("THAWED")
        (FREEZER / "tasks").write_text(str(pid)) if alive(pid) else None
        assert launch.wait(timeout=TIMEOUT_S) == 1
        wait_for(lambda: not (group / "tasks").read_text(), "an empty group")
        group.rmdir()
        launch.stdout.close()


def test_last_words_on_a_full_disk(tmp):
    logs = tmp / "logs"
    logs.mkdir()
    if os.geteuid() != 0 or run(["mount", "-t", "tmpfs", "-o", "size=64k", "none",
                                 logs]).returncode != 0:
        skip("a tmpfs cannot be mounted here, which stands for a full disk")
    try:
        worker = script(tmp, "w", f"#!/bin/sh\ncat /dev/zero > {logs}/filler 2>/dev/null\n"
                                  "echo 'important' >&2\nexit 3\n")
        done = run([CRUN, "-r", "3", f"--log-dir={logs}", worker], env=ENV)
    finally:
        run(["umount", "-l", logs])
    assert done.returncode == 1 and "it wrote nothing" not in done.stderr, done
    assert "its last words are lost: No space left on device" in done.stderr, done


def test_without_proc(tmp):
    """In a root folder that has no /proc. There has to be one, or crun could not find the processes
    that workers leave behind."""
    root, bin_folder = tmp / "root", pathlib.Path(CRUN).parent
    steps = [f"mount -t tmpfs none {root}", f"cd {root}", f"mkdir -p dev usr tmp .{bin_folder}"]
    steps += [f"ln -s usr/{name} {name}" for name in ("bin", "lib", "lib64")]
    steps += [f"mount --rbind {path} .{path}" for path in ("/dev", "/usr", str(bin_folder))]
    root.mkdir()
    steps += [f"exec chroot . {CRUN} true"]
    done = run(["unshare", "--mount", "sh", "-ec", "\n".join(steps)])
    if "unshare" in done.stderr or "mount:" in done.stderr or "chroot" in done.stderr:
        skip("no root folder can be made here: " + done.stderr)
    assert done.returncode == 1 and "/proc: No such file or directory" in done.stderr, done
    assert "(mount -t proc proc /proc)" in done.stderr, done


if __name__ == "__main__":
    run_tests(globals())
