#!/usr/bin/env python3
"""Tests programs that start crun themselves, so that cruns are nested. What the user means as one
job must stay one job, and crun must refuse a recursion without end. Each test counts the running
cruns; if they are more than CRUNS_MAX, it kills the outermost crun, which ends all the others."""
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import CRUN, DEBIAN_PYTHON, TIMEOUT_S, clean_env, read_text  # noqa: E402
from crun_test import run_tests, script, start  # noqa: E402

CRUNS_MAX = 24
SAME = "a crun with the same arguments in the same folder"
DEEP = "3 cruns are around this one already"


def count_cruns(mark):
    """Counts the crun processes, without wardens, that have the mark in their environment."""
    count = 0
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            count += (os.path.samefile(process / "exe", CRUN)
                      and mark in (process / "environ").read_bytes()
                      and b"warden" not in (process / "comm").read_bytes())
        except OSError:
            pass  # the process has ended, or belongs to another user
    return count


def launch(tmp, *argv, **variables):
    """Runs argv until it ends. Returns (status, stdout, stderr)."""
    path = f"{tmp}:{os.path.dirname(CRUN)}:{os.environ['PATH']}"
    env = clean_env(**{"NESTING_TEST": tmp, "PYTHON_EXEC": DEBIAN_PYTHON, "OMP_NUM_THREADS": 1,
                       "TMPDIR": tmp, "PATH": path, **variables})
    with open(tmp / "out", "w") as out, open(tmp / "err", "w") as err:
        outermost = start(argv, env=env, cwd=tmp, stdout=out, stderr=err)
    deadline, most = time.monotonic() + TIMEOUT_S, 0
    while outermost.poll() is None:
        most = max(most, count_cruns(f"NESTING_TEST={tmp}\0".encode()))
        if most > CRUNS_MAX or time.monotonic() > deadline:
            outermost.kill()
            outermost.wait()
            raise AssertionError(f"{argv} does not end; there were {most} cruns at once")
        time.sleep(0.02)
    return outermost.returncode, read_text(tmp / "out"), read_text(tmp / "err")


def expect_ranks(done, count):
    assert (done[0], sorted(done[1].split())) == (0, [f"{i}/{count}" for i in range(count)]), done


def expect_refused(done, why):
    assert done[0] == 1 and f"crun: error: cannot run '" in done[2] and why in done[2], done


PRINT = "import os\nos.write(1, f\"{os.environ['RANK']}/{os.environ['WORLD_SIZE']}\\n\".encode())\n"


def test_shebang_of_env(tmp):
    expect_ranks(launch(tmp, script(tmp, "train", "#!/usr/bin/env crun\n" + PRINT)), 1)


def test_shebang_with_options(tmp):
    train = script(tmp, "train", "#!/usr/bin/env -S crun --nproc-per-node=2\n" + PRINT)
    expect_ranks(launch(tmp, train), 2)
    expect_ranks(launch(tmp, "train"), 2)  # through PATH
    expect_ranks(launch(tmp, CRUN, "--nproc-per-node=3", train), 3)  # the command line goes first


def test_shebang_of_a_link(tmp):
    for name in ("torchrun", "launch"):
        os.symlink(CRUN, tmp / name)
        expect_ranks(launch(tmp, script(tmp, "train", f"#!{tmp}/{name}\n" + PRINT)), 1)
        expect_ranks(launch(tmp, script(tmp, "train", f"#!/usr/bin/env {name}\n" + PRINT)), 1)


def test_script_in_path(tmp):
    (tmp / "bin").mkdir()
    script(tmp / "bin", "train", "#!/usr/bin/env crun\n" + PRINT)
    path = f"{tmp}/bin:{os.path.dirname(CRUN)}:/usr/bin:/bin"
    expect_ranks(launch(tmp, CRUN, "--nproc-per-node=2", "train", PATH=path), 2)


def test_no_python(tmp):
    done = launch(tmp, script(tmp, "train", "#!/usr/bin/env -S crun --no-python\n" + PRINT))
    assert done[:2] == (2, "") and "leave out --no-python" in done[2], done


def test_wrapper_that_starts_itself(tmp):
    by_exec = f'#!/bin/sh\nexec {CRUN} --nproc-per-node=2 "$0"\n'
    expect_refused(launch(tmp, script(tmp, "w", by_exec)), SAME)
    without_environment = f"#!/bin/sh\nenv -i NESTING_TEST={tmp} {CRUN} ./w\nexit $?\n"
    expect_refused(launch(tmp, script(tmp, "w", without_environment)), SAME)


def test_wrapper_as_interpreter(tmp):
    script(tmp, "launcher", f'#!/bin/sh\nexec {CRUN} --nproc-per-node=2 "$@"\n')
    train = script(tmp, "train", f"#!{tmp}/launcher\n" + PRINT)
    expect_refused(launch(tmp, train), SAME)
    os.rename(train, train + ".py")
    expect_ranks(launch(tmp, train + ".py"), 2)  # the remedy that the text names


def test_wrapper_that_changes_something(tmp):
    more = script(tmp, "more", f'#!/bin/sh\nexec {CRUN} "$0" "$@" x\n')
    expect_refused(launch(tmp, more), DEEP)
    links = script(tmp, "w", f'#!/bin/sh\nln -s "$0" "$0-"; exec {CRUN} "$0-"\n')
    expect_refused(launch(tmp, links), DEEP)


def test_two_programs_that_start_each_other(tmp):
    script(tmp, "a", f"#!/bin/sh\nexec {CRUN} ./b\n")
    script(tmp, "b", f"#!/bin/sh\nexec {CRUN} ./a\n")
    expect_refused(launch(tmp, CRUN, "./a"), SAME)


def test_jobs_of_a_worker(tmp):
    script(tmp, "train.py", PRINT)
    inner = f"{CRUN} --nproc-per-node=2 train.py"
    script(tmp, "sweep", f"#!/bin/sh\n{inner} && {inner} > /dev/null\n")
    expect_ranks(launch(tmp, CRUN, "./sweep"), 2)
    expect_ranks(launch(tmp, CRUN, CRUN, "./sweep"), 2)  # two around it
    (tmp / "sub").mkdir()
    script(tmp / "sub", "all", f"#!/bin/sh\ncd .. && exec {inner}\n")
    script(tmp, "all", f"#!/bin/sh\ncd sub && exec {CRUN} ./all\n")
    expect_ranks(launch(tmp, CRUN, "./all"), 2)  # one name, two folders


def test_job_that_outlives_its_worker(tmp):
    """A worker may hand its own command line to a batch system: the environment goes along."""
    save = script(tmp, "save", f"#!/bin/sh\nenv > {tmp}/env\n")
    assert launch(tmp, CRUN, save)[0] == 0
    lines = [line.split("=", 1) for line in read_text(tmp / "env").splitlines()]
    left = {line[0]: line[1] for line in lines if line[0].startswith("CRUN_")}
    assert "CRUN_NURSERY" in left, left
    done = launch(tmp, CRUN, save, **left)
    assert done[0] == 0, done


if __name__ == "__main__":
    run_tests(globals())
