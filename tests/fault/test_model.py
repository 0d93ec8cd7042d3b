#!/usr/bin/env python3
# timeout: 300
"""Explores the model of the rendezvous (tests/model) with Spin: it has no error, and the two
variants without a needed precaution have one. Then checks logs against the model: those of the
simulator, and of two real launchers."""
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, ROOT, clean_env, run, run_tests, skip
from nodes import Nodes

MODEL = ROOT / "tests" / "model" / "rendezvous.pml"
SUCCESSION = ROOT / "tests" / "model" / "succession.pml"
CHECK = ROOT / "tests" / "model" / "check_trace.py"
FOLLOW = ROOT / "tests" / "model" / "check_succession.py"
SIMULATOR = BUILD / "tests" / "sim" / "sim_rendezvous"


def explore(tmp, *defines, model=MODEL):
    """Returns (number of states, number of errors). The model of the succession has few states and
    much code, so that to optimize takes longer than to explore it."""
    optimize = "-O0" if model == SUCCESSION else "-O2"
    for command in (["spin", *defines, "-a", model],
                    ["gcc", optimize, "-w", "-DSAFETY", "-DMEMLIM=2000", "-DVECTORSZ=2048",
                     "-DCOLLAPSE", "-o", "pan", "pan.c"]):
        done = subprocess.run([*map(str, command)], cwd=tmp, capture_output=True, text=True)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    text = subprocess.run(["./pan", "-m300000"], cwd=tmp, capture_output=True, text=True).stdout
    assert "max search depth too small" not in text, text
    states = re.search(r"(\S+) states, stored", text).group(1)
    return float(states), int(re.search(r"errors: (\d+)", text).group(1))


def test_the_model_has_no_error(tmp):
    states, errors = explore(tmp)
    assert errors == 0 and states > 100000, (states, errors)


def test_a_new_leader_has_to_wait(tmp):
    assert explore(tmp, "-DNO_QUIET")[1] == 1


def test_the_documented_limit_is_one(tmp):
    assert explore(tmp, "-DLIMIT")[1] == 1


def test_no_two_coordinators_decide(tmp):
    states, errors = explore(tmp, "-DFAULTS=1", model=SUCCESSION)
    assert errors == 0 and states > 10000, (states, errors)


def test_a_node_has_to_wait_before_it_votes(tmp):
    assert explore(tmp, "-DFAULTS=2", "-DNO_FENCE", model=SUCCESSION)[1] == 1


def check(log):
    done = run([CHECK, log])
    assert done.returncode == 0, done.stdout
    return int(done.stdout.split()[0])


def test_simulated_schedules_keep_to_the_model(tmp):
    log = tmp / "log"
    with open(log, "w") as out:
        for seed in range(1, 31):
            subprocess.run([BUILD / "tests" / "sim" / "sim_rendezvous", "--seed", str(seed),
                            "--schedules", "1", "--verbose"], stdout=out, env=clean_env())
    assert check(log) > 1000


def test_real_launchers_keep_to_the_model(tmp):
    with Nodes(tmp, "--nnodes=1:2", "--max-restarts=1") as nodes:
        a = nodes.start_host("a", LOGLEVEL="debug")
        b = nodes.start("b", LOGLEVEL="debug")
        nodes.round(2)[0].signal(9)
        for w in nodes.round(2):
            w.signal(12)  # SIGUSR2: it ends well
        assert a.wait() == 0 and b.wait() == 0
        assert check(f"{a.path}.out") + check(f"{b.path}.out") > 10


def test_the_model_of_the_succession_follows_simulated_jobs(tmp):
    text = ""
    for seed in range(11, 11 + 16 * 32, 32):  # of the kind ONLY_CUTS
        subprocess.run([SIMULATOR, "--first", str(seed), "--schedules", "1", "--trace",
                        tmp / "one"], check=True, stdout=subprocess.DEVNULL, env=clean_env())
        text += (tmp / "one").read_text()
    (tmp / "traces").write_text(text)
    done = run([FOLLOW, tmp / "traces"])
    assert done.returncode == 0, done.stdout + done.stderr
    counts = {name: int(n) for n, name in re.findall(r"(\d+) (\w+)", done.stdout)}
    assert counts["form"] > 20 and counts["serve"] > 5, counts


def rejects(tmp, steps, wrong):
    (tmp / "traces").write_text("begin 3 1\n" + "\n".join(steps) + "\nend\n")
    done = run([FOLLOW, tmp / "traces"])
    return done.returncode == 1 and f"{wrong}, is not allowed by the model" in done.stdout


def test_a_wrong_step_of_the_succession_is_found(tmp):
    lost = ["lose 0 2", "release 0 2", "serve 0 2", "join 2 2"]
    assert rejects(tmp, ["lose 0 2", "serve 0 2"], "step 2, serve 0 2")  # its ballot is held
    assert rejects(tmp, [*lost, "form 2 7"], "step 5, form 2 7")         # without the majority
    assert rejects(tmp, ["form 0 7", "form 0 7"], "step 2, form 0 7")    # it is not settled
    taken = ["lose 0 1", "release 0 1", "join 2 1", "form 2 7"]
    assert rejects(tmp, [*lost, *taken, "form 0 7"], "step 9, form 0 7")  # another one has won


def test_a_wrong_transition_is_found(tmp):
    (tmp / "log").write_text("crun[1] debug: member: ENDED -> RUNNING (wrong)\n")
    done = run([CHECK, tmp / "log"])
    assert done.returncode == 1 and "the model has no MEMBER ENDED -> RUNNING" in done.stdout


if shutil.which("spin") is None or shutil.which("gcc") is None:
    skip("spin or gcc is not installed")
if __name__ == "__main__":
    run_tests(globals())
