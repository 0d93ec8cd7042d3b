#!/usr/bin/env python3
"""A program that uses every call of our mpi.h is built as MPI programs are, with MPI_HOME alone,
and runs under crun; without a launcher its world is itself; a wrong call names itself."""

from crun_test import BUILD, ROOT, crun, run, run_tests, skip

MPI_HOME = BUILD / "lib" / "crunmpi"


def build(tmp):
    program = tmp / "mpi_calls"
    flags = {"asan": ["-fsanitize=address,undefined"], "tsan": ["-fsanitize=thread"],
             "coverage": ["--coverage"]}.get(BUILD.name, [])
    built = run(["cc", "-Wall", "-Wextra", "-Werror", *flags, f"-I{MPI_HOME}/include",
                 ROOT / "tests/programs/mpi_calls.c", "-o", program, f"-L{MPI_HOME}/lib", "-lmpi",
                 f"-Wl,-rpath,{MPI_HOME}/lib", f"-Wl,-rpath-link,{BUILD}/lib"])
    assert built.returncode == 0, built
    return program


def test_every_call_on_several_ranks(tmp):
    program = build(tmp)
    for count in (1, 2, 5):
        done = crun(f"--nproc-per-node={count}", program)
        assert done.returncode == 0 and f"all calls agree on {count} ranks" in done.stdout, done


def test_world_of_one_says_so(tmp):
    done = run([build(tmp)])
    assert done.returncode == 0 and "all calls agree on 1 ranks" in done.stdout, done
    assert "the world is this process alone" in done.stderr, done


def test_wrong_call_is_named(tmp):
    done = crun("--nproc-per-node=2", build(tmp), "--bad-root")
    assert done.returncode == 1, done
    assert "MPI_Bcast: the root is not a rank of the communicator" in done.stderr, done


def test_what_is_not_there_is_refused(tmp):
    program = build(tmp)
    for flag, status, text in (
            ("--abort", 7, "MPI_Abort: the program ends with status 7"),
            ("--to-itself", 1, "MPI_Send: a rank cannot send to itself here"),
            ("--gaps", 1, "MPI_Allgatherv: the parts do not follow each other in rank order")):
        done = crun("--nproc-per-node=2", program, flag)
        assert done.returncode in (1, status) and text in done.stderr, done


def test_calls_outside_of_mpi_are_refused(tmp):
    program = build(tmp)
    for flag, text in (("--before-init", "MPI_Comm_rank: MPI_Init has not been called"),
                       ("--init-twice", "MPI_Init: it has been called before"),
                       ("--after-finalize", "MPI_Barrier: MPI_Finalize has been called")):
        done = crun("--nproc-per-node=2", program, flag)
        assert done.returncode == 1 and text in done.stderr, done


def test_finalize_alone_is_nothing(tmp):
    done = crun("--nproc-per-node=2", build(tmp), "--finalize-only")
    assert done.returncode == 0, done


def test_rank_and_size_as_flags_of_a_program(_):
    """Rank and size are flags of the program, and the shell replaces them by crun's variables, as
    docs/mpi.md shows for llm.c."""
    done = crun("--standalone", "--nproc-per-node=2", "sh", "-c",
                'echo "-ps $MASTER_ADDR -pn $WORLD_SIZE -pr $RANK -pg $LOCAL_WORLD_SIZE"')
    assert done.returncode == 0, done
    for rank in (0, 1):
        assert f"-ps 127.0.0.1 -pn 2 -pr {rank} -pg 2\n" in done.stdout, done


if __name__ == "__main__":
    if not (BUILD / "lib" / "crunrt" / "gloo.so").exists():
        skip("built without Gloo, which carries libcrunmpi")
    run_tests(globals())
