"""The tutorial programs of examples/ in another language: what they print under crun is compared
with what the programs in C print."""
import os
import re
import subprocess

from crun_test import BUILD, ROOT, clean_env, crun, skip

LIBRARY = f"{BUILD.resolve()}/lib"


def need_gloo():
    if not os.path.exists(f"{BUILD}/lib/crunrt/gloo.so"):
        skip("the gloo backend was not built (libgloo-dev)")


def compile_with(argv, folder, **env):
    done = subprocess.run(argv, cwd=ROOT / folder, env={**os.environ, **env}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, f"{argv}:\n{done.stdout}"


def lines(ranks, *argv, restarts=0):
    done = crun("--standalone", f"--nproc-per-node={ranks}", f"--max-restarts={restarts}", *argv,
                env=clean_env(LD_LIBRARY_PATH=LIBRARY, OMP_NUM_THREADS=1))
    assert done.returncode == 0, done
    return sorted(done.stdout.splitlines())


def tutorial(start):
    """Compares each program with the one in C. `start` returns the command of a program."""
    for name, ranks in (("all_reduce", 4), ("ping", 4), ("subgroups", 5)):
        assert lines(ranks, *start(name)) == lines(ranks, BUILD / "examples" / name), name
    found = [re.fullmatch(r"hello from rank (\d) of 4, number (\d) to arrive", line)
             for line in lines(4, *start("hello"))]
    assert sorted(m[1] for m in found) == list("0123"), found
    assert sorted(m[2] for m in found) == list("1234"), found
    ended = [re.fullmatch(r"rank \d: (\d) rounds, 100 steps, sum (\d+)", line)
             for line in lines(4, *start("elastic"), restarts=2)]
    assert sorted(m[1] for m in ended) == ["1", "2", "2", "2"], ended  # three have survived
    assert {m[2] for m in ended} == {"4950"}, ended
