#!/usr/bin/env python3
# timeout: 600
"""Process groups on the mpi backend, under a real mpirun: every collective against computed
numbers, works, groups of some ranks; ranks that differ from MPI's; a program that uses MPI
itself; a stopped peer; starts that cannot work. Runs for each complete installation of an MPI:
Open MPI, MPICH."""

import functools
import os
import pathlib
import shutil
import subprocess

from crun_test import BUILD, ROOT, SCALE, clean_env, run, run_tests, skip
from free_port import free_port
from workers import Store

WORKER = BUILD / "tests" / "workers" / "crunrt_worker"
DEADLINE_S = 90 * SCALE
REVERSED = 'RANK=$(($WORLD_SIZE - 1 - ${OMPI_COMM_WORLD_RANK:-$PMI_RANK})) exec "$@"'


class Mpi:
    """One MPI: its launcher, its compiler wrapper, and the folder of the module built for it."""

    def __init__(self, name, launch, wrapper, modules):
        self.name, self.launch, self.wrapper, self.modules = name, launch, wrapper, modules

    def env(self, port, **more):
        return clean_env(CRUNRT_BACKEND="mpi", CRUNRT_BACKEND_DIR=self.modules,
                         MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                         TORCHELASTIC_USE_AGENT_STORE="True", OMPI_ALLOW_RUN_AS_ROOT=1,
                         OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, ASAN_OPTIONS="detect_leaks=0", **more)

    def start(self, count, argv, env):
        """A launcher sometimes hangs before it starts a process; `started` shows that it has
        not."""
        noting = ["sh", "-c", 'echo started; exec "$@"', "sh"]
        return subprocess.Popen([str(a) for a in [*self.launch, "-n", count, *noting, *argv]],
                                env=env, text=True, errors="replace", stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                start_new_session=True)

    def run(self, count, argv, env):
        return self.run_together(count, (argv, env))[0]

    def run_together(self, count, *jobs):
        """Launches each job with `count` ranks, at the same time: [(exit status, output)]."""
        for _ in range(3):
            begun = [self.start(count, argv, env) for argv, env in jobs]
            try:
                texts = [process.communicate(timeout=DEADLINE_S)[0] for process in begun]
                return [(process.returncode, text) for process, text in zip(begun, texts)]
            except subprocess.TimeoutExpired:
                for process in begun:
                    if process.poll() is None:
                        os.killpg(process.pid, 9)
                text = "".join(
                    process.communicate()[0] for process in begun if not process.stdout.closed
                )
                assert text.count("started") < count * len(
                    jobs
                ), f"{self.name}: not over after {DEADLINE_S} s:\n{text}"
        skip(f"{self.launch[0]} started nothing in three attempts")

    def works(self, count, argv, says, **more):
        """Runs with a store of its own; every rank must print `says`."""
        with Store() as store:
            code, text = self.run(count, argv, self.env(store.port, **more))
        assert (
            code == 0 and text.count(says) == count
        ), f"{self.name}, {count} ranks: exit {code}\n{text}"


def linked_with(module):
    return subprocess.run(["ldd", module], capture_output=True, text=True).stdout


def build_for(wrapper, folder):
    """Builds the module for another MPI than this build has found, in another build folder."""
    module = folder / "lib" / "crunrt" / "mpi.so"
    if BUILD.name in ("asan", "ubsan", "coverage"):
        return None
    done = run(["make", "-s", f"MPICC={wrapper}", f"BUILD={folder}", "GLOO=no", "NCCL=no", module],
               cwd=ROOT, timeout=DEADLINE_S)
    return module.parent if done.returncode == 0 else None


@functools.cache
def find_mpis():
    built = BUILD / "lib" / "crunrt" / "mpi.so"
    if not built.exists():
        skip("the mpi backend was not built (no MPI found)")
    kinds = [
        (
            "Open MPI",
            "libmpi.so",
            ["mpirun.openmpi", "mpirun"],
            ["--oversubscribe"],
            "mpicc.openmpi",
        ),
        ("MPICH", "libmpich", ["mpiexec.mpich", "mpiexec"], [], "mpicc.mpich"),
    ]
    found = []
    for name, library, launchers, options, wrapper in kinds:
        launcher = next((p for p in map(shutil.which, launchers) if p), None)
        if launcher is None:
            continue
        if library in linked_with(built):
            found.append(
                Mpi(name, [launcher, *options], shutil.which(wrapper) or "mpicc", built.parent)
            )
        elif shutil.which(wrapper) and (
            modules := build_for(shutil.which(wrapper), BUILD / "other_mpi")
        ):
            found.append(Mpi(name, [launcher, *options], shutil.which(wrapper), modules))
    if not found:
        skip("no mpirun or mpiexec of the MPI that the module was built for")
    return found


def test_every_collective(tmp):
    for mpi in find_mpis():
        for count in (1, 2, 4):
            mpi.works(count, [WORKER, "collectives"], "collectives right")


def test_works_arguments_and_subgroups(tmp):
    for mpi in find_mpis():
        mpi.works(4, [WORKER, "works"], "works right")
        mpi.works(3, [WORKER, "arguments"], "arguments checked")
        mpi.works(4, [WORKER, "subgroups"], "sub-groups right")


def test_ranks_need_not_be_those_of_mpi(tmp):
    for mpi in find_mpis():
        mpi.works(4, ["sh", "-c", REVERSED, "sh", WORKER, "collectives"], "collectives right",
                  WORLD_SIZE=4)


def test_rank_0_hosts_the_store(tmp):
    mpi = find_mpis()[0]
    port = free_port()
    if not (pathlib.Path(mpi.modules) / "store_host.so").exists():
        return
    env = mpi.env(port)
    del env["TORCHELASTIC_USE_AGENT_STORE"]
    code, text = mpi.run(2, [WORKER, "subgroups"], env)
    assert code == 0 and text.count("sub-groups right") == 2, text


def compile_own(mpi, tmp):
    program = tmp / f"mpi_own_{mpi.name.split()[-1]}"
    flags = ["-fsanitize=address,undefined"] if BUILD.name == "asan" else []
    built = run(
        [
            mpi.wrapper,
            "-Wall",
            "-Wextra",
            *flags,
            f"-I{ROOT}/worker_runtime/include",
            ROOT / "tests/programs/mpi_own.c",
            "-o",
            program,
            f"-L{BUILD}/lib",
            "-lcrunrt",
            f"-Wl,-rpath,{BUILD}/lib",
        ]
    )
    assert built.returncode == 0, built
    return program


def test_program_with_an_mpi_of_its_own(tmp):
    for mpi in find_mpis():
        mpi.works(3, [compile_own(mpi, tmp)], "both right")


def test_two_mpi_jobs_are_not_one_group(tmp):
    for mpi in find_mpis():
        program = compile_own(mpi, tmp)
        with Store() as store:
            done = mpi.run_together(
                2,
                *(
                    ([program, "part", part], mpi.env(store.port, RANK=part, WORLD_SIZE=2))
                    for part in (0, 1)
                ),
            )
        assert any(
            "do all ranks run under one mpirun?" in text for _, text in done
        ), f"{mpi.name}: {done}"


def test_stopped_peer_is_named_in_time(tmp):
    for mpi in find_mpis():
        with Store() as store:
            code, text = mpi.run(3, [WORKER, "lose", "stop", 1], mpi.env(store.port))
        assert code != 0 and "no sign of rank 1" in text, f"{mpi.name}: exit {code}\n{text}"
        assert "timed out after 2000 ms" in text, text


def test_killed_peer_ends_the_job(tmp):
    for mpi in find_mpis():
        with Store() as store:
            code, text = mpi.run(3, [WORKER, "lose", "kill", 1], mpi.env(store.port))
        assert code != 0, f"{mpi.name}: {text}"


def test_without_an_mpi_launcher(tmp):
    mpi = find_mpis()[0]
    with Store() as store:
        env = mpi.env(store.port, RANK=0, WORLD_SIZE=2)
        done = run([WORKER, "backend", "mpi"],
                   env={k: v for k, v in env.items() if not k.startswith("SLURM")})
    assert (
        done.returncode == 3 and "start the program with mpirun, mpiexec or srun" in done.stdout
    ), done


def test_launcher_of_another_mpi(tmp):
    mpis = find_mpis()
    if len(mpis) < 2:
        print("       (left out: there is one MPI only)")
        return
    with Store() as store:
        code, text = mpis[1].run(2, [WORKER, "backend", "mpi"], mpis[0].env(store.port))
    assert code != 0 and f"start all with one mpirun of {mpis[0].name}" in text, text


def test_no_address_says_how_to_give_one(tmp):
    for mpi in find_mpis():
        env = {k: v for k, v in mpi.env(1).items() if not k.startswith("MASTER_")}
        code, text = mpi.run(2, [WORKER, "subgroups"], env)
        how = (
            "mpirun -x MASTER_ADDR=HOST"
            if mpi.name == "Open MPI"
            else "mpiexec -genv MASTER_ADDR HOST"
        )
        assert code != 0 and how in text, f"{mpi.name}: {text}"


if __name__ == "__main__":
    if BUILD.name == "tsan":
        skip("ThreadSanitizer does not see the synchronisation inside an MPI")
    run_tests(globals())
