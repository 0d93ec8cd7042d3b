#!/usr/bin/env python3
# timeout: 300
"""Programs of the MPICH family run under crun without mpirun, by PMI-1: programs of Debian's MPICH,
mpi4py with the MPICH of PyPI, on one node and on several (network namespaces). The user of a
program of Open MPI is told that it would run alone."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from crun_test import CRUN, clean_env, crun, run, run_tests, script, skip
from hosts import namespace_rsh
from netns import Net

MPICC = shutil.which("mpicc.mpich") or shutil.which("mpicc")
ENV = clean_env(OMP_NUM_THREADS=1)

PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    int rank, size, sum = 0, local_size;
    MPI_Comm local;
    if (argc > 1 && strcmp(argv[1], "early") == 0) return 3;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1 && rank == 1) return 5;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local);
    MPI_Comm_size(local, &local_size);
    printf("%d of %d, sum %d, %d on this node\n", rank, size, sum, local_size);
    MPI_Finalize();
    return 0;
}
"""


def build(tmp):
    if MPICC is None:
        skip("mpicc of MPICH is not installed (package libmpich-dev)")
    (tmp / "program.c").write_text(PROGRAM)
    done = run([MPICC, "-o", tmp / "program", tmp / "program.c"])
    if "libmpi.so.40" in run(["readelf", "-d", tmp / "program"]).stdout:
        skip("mpicc is that of Open MPI; install libmpich-dev")
    assert done.returncode == 0, done
    return tmp / "program"


def want(size, *local_sizes):
    ranks = [local for local in local_sizes for _ in range(local)]
    return [f"{i} of {size}, sum {size * (size - 1) // 2}, {local} on this node"
            for i, local in enumerate(ranks)]


def test_a_program_of_mpich(tmp):
    program = build(tmp)
    for size in (1, 2, 5):
        done = crun("-n", size, program, env=ENV)
        assert done.returncode == 0 and done.stderr == "", done
        assert sorted(done.stdout.splitlines()) == want(size, size), done


def test_a_path_with_a_dollar(tmp):
    program = build(tmp)
    shutil.copyfile(program, tmp / "a$local_rank$$")
    (tmp / "a$local_rank$$").chmod(0o755)
    done = crun("-n", 2, "./a$local_rank$$", cwd=tmp, env=ENV)
    assert sorted(done.stdout.splitlines()) == want(2, 2), done


def test_restarts(tmp):
    program = build(tmp)
    shell = f'[ "$TORCHELASTIC_RESTART_COUNT" = 0 ] && exec {program} fail; exec {program}'
    done = crun("-n", 3, "--pmi", "--max-restarts=1", "--no-python", "sh", "-c", shell, env=ENV)
    assert done.returncode == 0, done
    assert sorted(done.stdout.splitlines()) == want(3, 3), done


def test_a_failure_is_reported(tmp):
    program = build(tmp)
    began = time.monotonic()
    done = crun("-n", 3, program, "fail", env=ENV)
    assert done.returncode == 1 and "rank 1 (local rank 1" in done.stderr, done
    assert "exit code 5" in done.stderr, done
    done = crun("-n", 2, program, "early", env=ENV)
    assert done.returncode == 1 and "exit code 3" in done.stderr, done
    assert time.monotonic() - began < 60, "a helper held up the end"


def test_several_nodes(tmp):
    program = build(tmp)
    with Net(3) as net:
        a, b, c = (h.addr for h in net.hosts)
        done = crun("--rsh", namespace_rsh(tmp, net.hosts), "--hosts", f"{a}:2,{b}:2,{c}:1",
                    program, env=ENV)
        assert done.returncode == 0, done
        lines = sorted(line.split("] ")[1] for line in done.stdout.splitlines())
        assert lines == want(5, 2, 2, 1), done


def test_another_mpi_is_told(tmp):
    (tmp / "lib.c").write_text("int MPI_Init(void) { return 0; }\n")
    (tmp / "main.c").write_text("int MPI_Init(void); int main(void) { return MPI_Init(); }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-soname,libmpi.so.40", "-o",
                    tmp / "libmpi.so.40", tmp / "lib.c"], check=True)
    subprocess.run(["gcc", "-o", tmp / "other", tmp / "main.c", tmp / "libmpi.so.40",
                    f"-Wl,-rpath,{tmp}"], check=True)
    done = crun("-n", 2, tmp / "other", env=ENV)
    assert done.returncode == 0 and "is linked with Open MPI" in done.stderr, done
    done = crun(tmp / "other", env=ENV)
    assert done.returncode == 0 and done.stderr == "", done
    done = crun("-n", 2, "--pmi", "--no-python", "true", env=ENV)
    assert done.returncode == 0 and "ended without a request by PMI" in done.stderr, done


def test_not_by_hand(tmp):
    done = run([CRUN, "--pmi-worker", "/bin/true"])
    assert done.returncode == 2 and "not meant to be called by hand" in done.stderr, done


def mpi4py_python():
    """A Python with mpi4py and MPICH, both from PyPI."""
    python = os.environ.get("CRUN_TEST_MPI4PY_PYTHON")
    if python:
        return python
    folder = pathlib.Path(tempfile.gettempdir(), "crun-test-mpi4py")
    python = folder / "bin/python"
    check = [python, "-c", "import mpi4py.MPI"]
    if not python.exists() or run(check, timeout=120).returncode != 0:
        made = run([sys.executable, "-m", "venv", folder], timeout=120)
        if made.returncode == 0:
            made = run([folder / "bin/pip", "install", "-q", "mpi4py", "mpich"], timeout=240)
        if made.returncode != 0 or run(check, timeout=120).returncode != 0:
            skip("mpi4py and mpich cannot be installed from PyPI here")
    return python


def test_mpi4py(tmp):
    python = mpi4py_python()
    program = script(tmp, "m.py", "from mpi4py import MPI\nc = MPI.COMM_WORLD\n"
                     "import os\n"
                     "words = c.rank, c.size, c.allreduce(c.rank), c.bcast('x', root=0)\n"
                     "os.write(1, (' '.join(map(str, words)) + '\\n').encode())\n")
    env = dict(ENV, PYTHON_EXEC=str(python))
    done = crun("-n", 3, "--pmi", program, env=env, timeout=120)
    assert done.returncode == 0, done
    assert sorted(done.stdout.splitlines()) == ["0 3 3 x", "1 3 3 x", "2 3 3 x"], done


if __name__ == "__main__":
    run_tests(globals())
