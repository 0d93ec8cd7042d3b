#!/usr/bin/env python3
# timeout: 900
"""The Python package crunrt under crun: rank, store, groups, steps, and changes with notice. It
needs no torch.

NOTICES=1000 makes test_all_ranks_save_after_the_same_step send as many notices."""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, CRUN, ROOT, SCALE, clean_env, read_text  # noqa: E402
from crun_test import run, run_tests, script, skip, start, wait_for  # noqa: E402
from free_port import free_port  # noqa: E402

PYTHON = sys.executable
NOTICES = int(os.environ.get("NOTICES", "20"))
SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))

if BUILD.name in ("asan", "tsan", "ubsan", "coverage"):
    skip("an unsanitized Python cannot load a sanitizer's library")


def environment(**more):
    return clean_env(PYTHONPATH=ROOT / "python", PYTHON_EXEC=PYTHON, OMP_NUM_THREADS=1,
                     PYTHONDONTWRITEBYTECODE=1,
                     CRUNRT_LIBRARY=BUILD / "lib" / "libcrunrt.so.0", **more)


def under_crun(tmp, text, workers=3, **more):
    path = script(tmp, "worker.py", text)
    done = run([CRUN, f"--nproc-per-node={workers}", path], env=environment(**more), timeout=100)
    assert done.returncode == 0, done
    return done.stdout


STORE = """
import crunrt
rt = crunrt.init(timeout=60)
assert (rt.world_size, rt.local_world_size, rt.local_rank) == (3, 3, rt.rank), rt.rank
s = rt.store
own = s.prefix("of %d" % rt.rank)
own.set("a", "b\\0c"); assert own.get("a") == b"b\\0c"
assert own.compare_set("a", "b\\0c", "new") == b"new" == own.compare_set("a", "x", "y")
rt.store.barrier("one", 3)
s.add("n", rt.rank + 1)
rt.store.barrier("two", 3)
assert s.add("n", 0) == 6
s.multi_set({f"m{rt.rank}": bytes([rt.rank]), f"l{rt.rank}": ""})
assert s.multi_get(["m0", "m1", "m2", "l0"]) == [b"\\0", b"\\1", b"\\2", b""]
s.wait(["m0", "m1"], timeout=5); assert s.check(["m0"]) and not s.check(["m0", "absent"])
view = s.prefix("own/%d" % rt.rank)
view.set("k", "v"); view.append("k", "w"); assert view.get("k") == b"vw" and view.keys() == ["k"]
assert view.delete("k") and not view.delete("k")
s.push("q%d" % rt.rank, "1"); s.push("q%d" % rt.rank, "2")
assert s.queue_len("q%d" % rt.rank) == 2 and s.pop("q%d" % rt.rank) == b"1"
assert s.num_keys() > 5
try:
    s.get("absent", timeout=0.05)
    raise SystemExit("no timeout")
except crunrt.Timeout as e:
    assert isinstance(e, TimeoutError) and "absent" in str(e), e
with crunrt.Store.connect(__import__("os").environ["MASTER_ADDR"],
                          int(__import__("os").environ["MASTER_PORT"])) as other:
    assert other.get("of 1/a") == b"new"
print("fine")
"""


def test_place_and_store(tmp):
    assert under_crun(tmp, STORE) .count("fine") == 3


GROUP = """
import array, crunrt
rt = crunrt.init()
r, n = rt.rank, rt.world_size
g = rt.group(timeout=60)
assert (g.rank, g.size, g.backend) == (r, n, "gloo")
x = array.array("f", [r + 1, 10])
g.all_reduce(x); assert x.tolist() == [6, 30], x
y = array.array("d", [0]); g.all_reduce(array.array("d", [r]), y, "max"); assert y[0] == 2
b = bytearray(b"root" if r == 1 else 4); g.broadcast(b, root=1); assert b == b"root"
o = array.array("i", [0] * 6); g.all_gather(array.array("i", [r, -r]), o)
assert o.tolist() == [0, 0, 1, -1, 2, -2]
o = bytearray(3) if r == 2 else None; g.gather(bytes([r]), o, root=2)
assert o is None or bytes(o) == b"\\0\\1\\2"
o = bytearray(1); g.scatter(b"abc" if r == 0 else None, o); assert bytes(o) == b"abc"[r:r + 1]
o = array.array("q", [0]); g.reduce_scatter(array.array("q", [1, 2, 3]), o)
assert o[0] == 3 * (r + 1), o
o = array.array("q", [0]) if r == 1 else None
g.reduce(array.array("q", [5]), o, op="sum", root=1); assert o is None or o[0] == 15
o = bytearray(3); g.all_to_all(bytes([10 * r, 10 * r + 1, 10 * r + 2]), o)
assert list(o) == [r, 10 + r, 20 + r], list(o)
o = bytearray(n); g.all_to_all(bytes([r]) * n, o, [1] * n, [1] * n); assert list(o) == [0, 1, 2]
if r == 0: g.send(b"hello", to=1, tag=3)
if r == 1:
    o = bytearray(5); g.recv(o, source=0, tag=3); assert o == b"hello"
half = array.array("H", [0x3f80]); g.all_reduce(half, dtype="bfloat16"); assert half[0] == 0x4040
g.barrier(); g.monitored_barrier(timeout=30)
for wrong, text in ((lambda: g.all_reduce(b"x"), "read-only"),
                    (lambda: g.all_reduce(x, op="mean"), "not a reduction"),
                    (lambda: g.all_gather(x, bytearray(5), dtype="uint8"), "needs"),
                    (lambda: g.all_reduce(memoryview(bytearray(8))[::2]), "contiguous"),
                    (lambda: g.all_reduce(array.array("u", "ab")), "no such type")):
    try:
        wrong(); raise SystemExit("no error: " + text)
    except ValueError as e:
        assert text in str(e), e
sub = rt.group(ranks=[0, 2])
assert (sub.size, sub.rank) == ((2, r // 2) if r != 1 else (-1, -1)), (sub.size, sub.rank)
if sub.rank >= 0: sub.barrier()  # a rank that closes a group may not yet have made it elsewhere
sub.close(); g.close(); rt.close(); assert crunrt.step() is None
print("fine")
"""


def test_groups(tmp):
    if not (BUILD / "lib" / "crunrt" / "gloo.so").exists():
        print("no gloo module here: groups are left out")
        return
    assert under_crun(tmp, GROUP) .count("fine") == 3


ALONE = """
import crunrt, sys, timeit
with crunrt.save_on_notice(lambda change: sys.exit("saved"), needs=3):
    assert list(crunrt.batches(range(5))) == [0, 1, 2, 3, 4]
crunrt.watch_steps(1); crunrt.change_done()
assert crunrt.step() is None and crunrt.change() is None and crunrt.runtime() is None
assert "torch" not in sys.modules
print("fine")
"""


def test_without_crun_steps_do_nothing(tmp):
    path = script(tmp, "alone.py", ALONE)
    for more in ({}, dict(RANK=0, WORLD_SIZE=2, LOCAL_RANK=0, MASTER_ADDR="127.0.0.1",
                          MASTER_PORT=1, TORCHELASTIC_USE_AGENT_STORE="True")):
        done = run([PYTHON, path], env=environment(**more))
        assert done.stdout == "fine\n", done


COST = """
import crunrt, timeit
crunrt.step()
assert crunrt.runtime() is not None
print(min(timeit.repeat(crunrt.step, number=1000, repeat=200)) / 1000)
"""


def test_a_step_costs_less_than_a_microsecond(tmp):
    seconds = float(under_crun(tmp, COST, workers=1))
    print(f"a step takes {seconds * 1e6:.2f} us")
    assert seconds < 1e-6, seconds


STUCK = """
import crunrt, os, threading
if os.environ["OWN_LIMIT"]: crunrt.watch_steps(1)
rt = crunrt.init()
for _ in range(3): assert crunrt.step() is None
while rt.rank == 0: threading.Event().wait(0.05); crunrt.step()
threading.Event().wait()
"""


def test_a_rank_that_makes_no_step_is_ended(tmp):
    """With no other call than step() in the loop. The flight record comes before the end."""
    path = script(tmp, "stuck.py", STUCK)
    for own_limit, options in (("", ["--step-timeout=1"]), ("1", [])):
        done = run([CRUN, "--nproc-per-node=2", *options, path], timeout=100,
                   env=environment(OWN_LIMIT=own_limit, CRUNRT_FLIGHT_FILE=tmp / "flight"))
        assert done.returncode == 1 and "Traceback" not in done.stderr, done
        assert "rank 1 has made no step for 1 s, after step 3" in done.stderr, done
        record = re.search(r"rank 1 has written its flight record to (\S+)", done.stderr)
        assert record and json.loads(read_text(record[1]))["rank"] == 1, done


ERROR = """
import crunrt
try:
    crunrt.init("tcp://127.0.0.1:1?rank=1&world_size=2", timeout=0.2)
except crunrt.Timeout as e:
    assert crunrt.report_error("ValueError: told by Python", "line 1\\nline 2") is True
    raise SystemExit(3)
"""


def test_errors_reach_the_report(tmp):
    path = script(tmp, "error.py", ERROR)
    done = run([CRUN, path], env=environment())
    assert done.returncode == 1 and "told by Python" in done.stderr, done
    alone = run([PYTHON, "-c", "import crunrt; print(crunrt.report_error('x'), crunrt.version())"],
                env=environment())
    assert alone.stdout.startswith("False 0."), alone


def test_failures_are_listed_for_the_program_that_starts_crun(tmp):
    """The hook of CRUN_TORCHRUN=1 makes torch's ChildFailedError of this list."""
    worker = script(tmp, "w", "#!/bin/sh\n[ $RANK = 1 ] && exit 3\nexec sleep 100\n")
    done = run([CRUN, "--nproc-per-node=3", worker],
               env=environment(CRUN_FAILURES_FILE=tmp / "failures"))
    assert done.returncode == 1, done
    lines = [line.split(" ") for line in read_text(tmp / "failures").splitlines()]
    assert len(lines) == 1 and lines[0][:2] == ["1", "1"] and lines[0][3:] == ["3", ""], lines


TOLD = """
import crunrt, os, signal, time
rt = crunrt.init(); rt.can_rejoin()
pid, is_new = os.getpid(), rt.restart_count > 0
assert rt.kept_ranks == -1
if rt.restart_count == 0:
    assert rt.wait_for_round_end(timeout=0.01) is False
    rt.store.barrier("all can rejoin", 3)
    if rt.rank == 1:
        rt.store.set("at", str(time.monotonic())); rt.store.get("at")
        os.kill(pid, signal.SIGKILL)
    at = float(rt.store.get("at"))
    assert rt.wait_for_round_end() is True
    told = time.monotonic()
    try:
        crunrt.step(); raise SystemExit("no RoundOver")
    except crunrt.RoundOver:
        pass
    rt.rejoin()
    print(f"told after {(told - at) * 1e3:.0f} ms, round after {(time.monotonic() - at) * 1e3:.0f}")
rt.store.barrier("next round", 3)
assert crunrt.step() is None and rt.restart_count == 1 and rt.world_size == 3
assert rt.kept_ranks == (-1 if is_new else 2)
print(f"rank {rt.rank} kept {os.getpid() == pid} fine")
"""


def test_a_death_is_told_at_once_and_survivors_rejoin(tmp):
    path = script(tmp, "told.py", TOLD)
    done = run([CRUN, "--nproc-per-node=3", "--max-restarts=1", path], env=environment())
    assert done.returncode == 0 and done.stdout.count("fine") == 3, done
    times = [int(ms) for ms in re.findall(r"told after (\d+) ms", done.stdout)]
    print(f"told after {times} ms")
    assert len(times) == 2 and max(times) < 5000 * SCALE, done


# Trains with pauses like those of an evaluation, after a warm-up of its own on each rank. The
# barrier stands for init_process_group(). What each rank has saved, and that it has begun, are in
# files.
TRAINING = """
import os, pathlib, random, threading
import crunrt
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
folder = pathlib.Path(os.environ["SAVES"])
chance = random.Random(int(os.environ["SEED"]) + rank)
made = 0
def save(change):
    (folder / f"saved.{rank}").write_text(f"{made} {change.step} {change.kind} {change.left > 0}")
def pause(most):
    threading.Event().wait(chance.random() * most)
with crunrt.save_on_notice(save):
    crunrt.init().store.barrier("init_process_group", size)
    (folder / f"begun.{rank}").touch()
    pause(0.2)                                                # the warm-up
    for batch in crunrt.batches(range(1 << 40)):
        made += 1
        pause(0.002)
        if made % 50 == 0: pause(0.1)                         # an evaluation
"""


def one_notice(folder, path, chance, workers):
    """Sends one notice at a random moment. Returns what was saved: a list per rank."""
    folder.mkdir()
    launch = start([CRUN, f"--nproc-per-node={workers}", path],
                   env=environment(SAVES=folder, SEED=chance.randrange(1 << 30)))
    try:
        wait_for(lambda: len(list(folder.glob("begun.*"))) == workers, "the workers")
        try:  # until a random moment; a launcher that ends meanwhile is found below
            launch.wait(chance.random() * 0.4)
        except subprocess.TimeoutExpired:
            pass
        launch.send_signal(signal.SIGUSR1)
        _, err = launch.communicate(timeout=60 * SCALE)
        assert launch.returncode == 1 and "has left the job" in err, err
    finally:
        launch.kill()
        launch.wait()
    return [read_text(p).split() for p in folder.glob("saved.*")]


def test_all_ranks_save_after_the_same_step(tmp):
    print(f"SEED={SEED}")
    chance, workers = random.Random(SEED), 3
    path = script(tmp, "training.py", TRAINING)
    for i in range(NOTICES):
        saves = one_notice(tmp / str(i), path, chance, workers)
        steps = {(made, step) for made, step, _, _ in saves}
        assert len(saves) == workers and len(steps) == 1, (i, saves)
        assert all(made == step for made, step in steps), (i, saves)
        assert all(kind == "preemption" and left == "True" for _, _, kind, left in saves), saves
    print(f"{NOTICES} notices: all ranks saved after the same step every time")


# Ranks 1 and 2 import crunrt after the notice. Rank 2 makes its step after the others have saved.
LATE = """
import os, pathlib, threading
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
folder = pathlib.Path(os.environ["SAVES"])
def wait_for(*names):
    while not all((folder / name).exists() for name in names):
        threading.Event().wait(0.01)
if rank > 0:
    wait_for("go")
import crunrt
made = 0
def save(change):
    (folder / f"saved.{rank}").write_text(f"{made} {change.step}")
with crunrt.save_on_notice(save):
    (folder / f"begun.{rank}").touch()
    crunrt.init().store.barrier("init_process_group", size)
    if rank == 2:
        wait_for("saved.0", "saved.1")
    for batch in crunrt.batches(range(1 << 40)):
        made += 1
"""


def test_ranks_that_connect_after_the_notice_save_too(tmp):
    path = script(tmp, "late.py", LATE)
    err = tmp / "err"
    with open(err, "w") as file:
        launch = start([CRUN, "--nproc-per-node=3", path], env=environment(SAVES=tmp), stderr=file)
    try:
        wait_for((tmp / "begun.0").exists, "rank 0")
        launch.send_signal(signal.SIGUSR1)
        wait_for(lambda: "leaves the job" in read_text(err), "the notice")
        (tmp / "go").touch()
        assert launch.wait(60 * SCALE) == 1 and "has left the job" in read_text(err), read_text(err)
    finally:
        launch.kill()
        launch.wait()
    saves = [read_text(tmp / f"saved.{rank}") for rank in range(3)]
    assert saves == ["1 1"] * 3, (saves, read_text(err))


def test_nodes_whose_ranks_all_connect_after_the_notice_save_too(tmp):
    path = script(tmp, "late.py", LATE)
    where = ["--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=job",
             f"--rdzv-endpoint=127.0.0.1:{free_port()}"]
    errs, nodes = [tmp / "err0", tmp / "err1"], []
    try:
        for i, err in enumerate(errs):
            with open(err, "w") as file:
                nodes.append(start([CRUN, *where, f"--node-rank={i}", path], stderr=file,
                                   env=environment(SAVES=tmp, LOGLEVEL="info")))
        wait_for((tmp / "begun.0").exists, "rank 0", 60 * SCALE)
        nodes[0].send_signal(signal.SIGUSR1)
        wait_for(lambda: "takes place after step 1" in read_text(errs[0]), "the agreed step")
        (tmp / "go").touch()
        assert nodes[0].wait(60 * SCALE) == 1, read_text(errs[0])
    finally:
        for node in nodes:
            node.kill()
            node.wait()
    saves = [read_text(tmp / f"saved.{rank}") for rank in range(4)]
    assert saves == ["1 1"] * 4, (saves, read_text(errs[0]), read_text(errs[1]))


# The ranks meet in each step, as in a collective. Those in HELD have not counted their first step
# when the notice comes; with LATE=1, they have not imported crunrt either.
HELD = """
import os, pathlib, threading
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
folder, is_held = pathlib.Path(os.environ["SAVES"]), os.environ["RANK"] in os.environ["HELD"]
def wait_for(*names):
    while not all((folder / name).exists() for name in names):
        threading.Event().wait(0.005)
if not (is_held and os.environ["LATE"] == "1"):
    import crunrt
for made in range(1, 100):
    (folder / f"in.{made}.{rank}").touch()
    wait_for(*(f"in.{made}.{other}" for other in range(size)))
    if is_held and made == 1:
        wait_for("go")
        import crunrt
    change = crunrt.step()
    if made == 1: (folder / f"counted.{rank}").touch()
    if change is not None:
        (folder / f"saved.{rank}").write_text(f"{made} {change.step}")
        crunrt.leave()
"""


def saved_though_held(folder, held, late, nodes):
    """Sends a notice when all ranks but those in `held` have counted one step. Returns what the
    four ranks have saved, and the log of the node that leaves."""
    folder.mkdir()
    path = script(folder, "held.py", HELD)
    where = [f"--nnodes={nodes}", f"--nproc-per-node={4 // nodes}", "--rdzv-backend=c10d",
             "--rdzv-id=job", f"--rdzv-endpoint=127.0.0.1:{free_port()}", path]
    settings = {"SAVES": folder, "HELD": held, "LATE": int(late), "LOGLEVEL": "info"}
    errs, crews = [folder / f"err{i}" for i in range(nodes)], []
    try:
        for i, err in enumerate(errs):
            with open(err, "w") as file:
                crews.append(start([CRUN, *where[:-1], f"--node-rank={i}", path], stderr=file,
                                   env=environment(**settings)))
        others = [rank for rank in range(4) if str(rank) not in held]
        wait_for(lambda: all((folder / f"counted.{rank}").exists() for rank in others),
                 "the first step of the others", 60 * SCALE)
        crews[0].send_signal(signal.SIGUSR1)
        wait_for(lambda: "takes place after step 2" in read_text(errs[0]), "the agreed step")
        (folder / "go").touch()
        assert crews[0].wait(60 * SCALE) == 1, read_text(errs[0])
    finally:
        for crew in crews:
            crew.kill()
            crew.wait()
    return [read_text(p) for p in sorted(folder.glob("saved.*"))], read_text(errs[0])


def test_ranks_that_have_not_counted_their_first_step_save_too(tmp):
    cases = [("3", False, 1), ("13", True, 1), ("23", False, 2), ("123", True, 2)]
    for i, (held, late, nodes) in enumerate(cases):
        saves, log = saved_though_held(tmp / str(i), held, late, nodes)
        assert saves == ["2 2"] * 4, (held, late, nodes, saves, log)


CHILDREN = """
import multiprocessing, os, subprocess, sys
import crunrt
def child(_): return crunrt.runtime() is None and crunrt.step() is None
if __name__ == "__main__":
    assert crunrt.init() is crunrt.runtime()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(child, [0]) == [True]
    says = "import crunrt; assert crunrt.runtime() is None"
    subprocess.run([sys.executable, "-c", says], check=True)
    crunrt.answer_changes("needs", 2)
    assert crunrt.step() is None
    print("fine")
"""


def test_children_of_a_worker_leave_its_connection_alone(tmp):
    assert under_crun(tmp, CHILDREN, workers=1) == "fine\n"


if __name__ == "__main__":
    run_tests(globals())
