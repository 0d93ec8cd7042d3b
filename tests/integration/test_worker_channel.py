#!/usr/bin/env python3
# timeout: 300
"""Tests the agent's end of the channel with its workers (contract/channel.h): which peers and
packets the agent accepts and refuses, workers that go on in their processes over several rounds,
hung workers, and flight records on request. The workers are Python scripts that send and receive
the channel's packets themselves (tests/lib/link_worker.py), without libcrunrt."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

LIB = pathlib.Path(__file__).resolve().parent.parent / "lib"
sys.path.insert(0, str(LIB))
from crun_test import CRUN, PACE, TIMEOUT_S, alive, clean_env, crun, kill, read_text, \
    run_tests, script, skip, start, wait_for  # noqa: E402

ENV = clean_env(OMP_NUM_THREADS=1, PYTHONPATH=LIB)
PY = f"""#!/usr/bin/python3
import os, signal, sys, time
from link_worker import *
rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
def note(name, text=""):
    with open(f"{{tmp}}/new.{{name}}", "w") as f: f.write(str(text) + "\\n")
    os.rename(f"{{tmp}}/new.{{name}}", f"{{tmp}}/{{name}}")
def until(*names):
    while not all(os.path.exists(f"{{tmp}}/{{n}}") for n in names): time.sleep(0.01)
"""


def worker(tmp, text):
    return script(tmp, "worker.py", PY + f"tmp = {str(tmp)!r}\n" + text)


def test_hello_and_a_sealed_page(tmp):
    done = crun("--nproc-per-node=2", worker(tmp, """
link = Link()
try: os.ftruncate(link.page_fd, 0)
except PermissionError: note(f"sealed.{rank}")
"""), env=ENV)
    assert done.returncode == 0, done
    assert (tmp / "sealed.0").exists() and (tmp / "sealed.1").exists(), done


def test_who_is_refused(tmp):
    done = crun(worker(tmp, """
assert Link(token="0" * 32).first["type"] == REFUSED
for data in (b"", b"GET / HTTP/1.0", b"x" * 4000, packet(HELLO)[:-1], packet(REJOIN), packet(77),
             packet(HELLO, 0, bytes([9, 0, 0, 0, 0, 0, 0, 0]))):
    s = connect()
    try:
        if data: s.send(data)
        else: s.close()
        if data: assert s.recv(PACKET)[:1] == bytes([REFUSED])
    except BrokenPipeError: pass
silent = [connect() for i in range(70)]   # more than crun keeps
link = Link.__new__(Link)
for s in silent: s.close()
link.__init__()
link.send(77)
assert link.recv()["type"] == REFUSED
assert link.recv() is None
Link().step()                             # and once more, in its own right
"""), env=ENV)
    assert done.returncode == 0, done
    assert "its token belongs to no living worker" in done.stderr, done
    assert "it sent something that is not a packet" in done.stderr, done


FLOOD = """
import os, socket, sys
os.setuid(65533)
refused = 0
for i in range(400):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect("\\0" + sys.argv[1])
    try: refused += s.recv(400) == b""
    except ConnectionResetError: refused += 1
print(refused)
"""


def test_another_user_is_refused(tmp):
    """A flood of connections by another user disturbs no channel, and few lines are logged."""
    if os.geteuid() != 0:
        skip("changing the user needs root")
    job = start([CRUN, "--standalone", worker(tmp, """
note("address", os.environ["CRUN_AGENT"].rsplit(":", 1)[0])
link = Link()
link.step()
until("go")
link.send(READY)          # the channel still works
Link().step()
""")], env=ENV)
    wait_for(lambda: (tmp / "address").exists(), "the worker")
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", FLOOD, read_text(tmp / "address").strip()],
                          capture_output=True, text=True)
    (tmp / "go").touch()
    _, err = job.communicate()
    took = time.monotonic() - began
    assert done.stdout == "400\n", done
    assert job.returncode == 0, err
    # 20 lines are logged in 10 s, and the others are counted
    logged = err.count("belongs to user 65533")
    counted = sum(int(n) for n in re.findall(
        r"(\d+) more lines about the workers' channels were not logged", err))
    assert logged + counted == 400 and 20 <= logged <= 20 * (1 + took / 10), (logged, err)


def test_a_worker_that_has_changed_its_user_is_not_refused(tmp):
    if os.geteuid() != 0:
        skip("changing the user needs root")
    done = crun(worker(tmp, """
os.setuid(65533)
Link().step()
"""), env=ENV)
    assert done.returncode == 0, done


def test_a_hung_worker_is_ended_and_started_anew(tmp):
    limit = f"{2 * PACE:g}"
    done = crun(f"--step-timeout={limit}", "--max-restarts=1", "--nproc-per-node=2",
                worker(tmp, """
link = Link()
for i in range(3): link.step()
if attempt == 0 and rank == 1: time.sleep(1000)
while attempt == 0: link.step(); time.sleep(0.05)
"""), env=ENV)
    assert done.returncode == 0, done
    assert f"rank 1 has made no step for {limit} s, after step 3" in done.stderr, done
    assert "failed first" in done.stderr
    assert f"it had made no step for {limit} s, after step 3" in done.stderr


def test_a_job_that_was_stopped_does_not_hang(tmp):
    """Crun and its workers are stopped for longer than every limit, as Slurm does when it suspends
    a job. Then crun alone is stopped, while the workers go on. Neither is a hang."""
    limit = 3
    launch = start([CRUN, f"--step-timeout={limit}", f"--hang-timeout={limit}",
                    "--hang-when=silent", f"--hang-rule=600:{limit}:tick", "--nproc-per-node=2",
                    worker(tmp, """
link = Link()
note(f"pid.{rank}", os.getpid())
ticks = 0
while not os.path.exists(f"{tmp}/end"):
    link.step()
    ticks += 1
    print("tick", flush=True)
    if ticks % 20 == 0: note(f"ticks.{rank}", ticks)
    time.sleep(0.05)
""")], stdout=subprocess.DEVNULL, env=ENV)

    def ticks():
        return min(int(read_text(tmp / f"ticks.{r}") or 0) for r in range(2))
    try:
        wait_for(ticks, "the workers to make steps")
        workers = [int(read_text(tmp / f"pid.{r}")) for r in range(2)]
        for stopped in ([launch.pid, *workers], [launch.pid]):
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(1.5 * limit)
            before = ticks()
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            wait_for(lambda: ticks() > before + 20 or launch.poll() is not None, "more steps")
            assert launch.poll() is None, launch.communicate()
        (tmp / "end").touch()
        _, err = launch.communicate(timeout=TIMEOUT_S)
    finally:
        kill(launch)
    assert launch.returncode == 0, err


def test_a_limit_of_its_own_and_its_flight_record_first(tmp):
    done = crun(worker(tmp, """
def dump(number, frame):
    note("asked", link.get(DUMP_ID))
    link.send(DUMPED, link.get(DUMP_ID), b"", b"/the/record")
signal.signal(signal.SIGRTMIN + 5, dump)
link = Link(dump_signal=signal.SIGRTMIN + 5)
link.step()
link.put(LIMIT_MS, 1000)
link.send(LIMIT)
while True: time.sleep(1)
"""), env=ENV)
    assert done.returncode == 1 and (tmp / "asked").exists(), done
    assert "rank 0 has written its flight record to /the/record" in done.stderr, done
    assert "it had made no step for 1 s, after step 1" in done.stderr, done


def test_flight_records_on_request(tmp):
    launch = start([CRUN, "--nproc-per-node=2", worker(tmp, """
def dump(number, frame):
    link.send(DUMPED, link.get(DUMP_ID), b"", b"record.%d" % rank)
    note(f"done.{rank}")
signal.signal(signal.SIGRTMIN + 5, dump)
link = Link(dump_signal=signal.SIGRTMIN + 5 if rank == 0 else 0)
note(f"up.{rank}")
until("end")
""")], env=ENV)
    wait_for(lambda: (tmp / "up.0").exists() and (tmp / "up.1").exists(), "the workers")
    launch.send_signal(signal.SIGUSR2)
    wait_for(lambda: (tmp / "done.0").exists(), "the record")
    (tmp / "end").touch()
    _, err = launch.communicate(timeout=TIMEOUT_S)
    assert launch.returncode == 0, err
    assert "1 of 2 workers are asked for their flight records" in err, err
    assert "rank 0 has written its flight record to record.0" in err, err


STAYS = """
link = Link()
link.put32(CAN_REJOIN, 1)
note(f"pid.{rank}.{attempt}", os.getpid())
until(*[f"pid.{r}.0" for r in range(3)])
if rank == 1 and attempt == 0: sys.exit(7)
if attempt > 0: sys.exit(0)
over = link.recv()
assert over["type"] == OVER, over
link.send(REJOIN)
place = link.recv()
assert place["type"] == ROUND and place["restart_count"] == 1 and place["rank"] == rank, place
assert place["world_size"] == 3 and place["round"] == 1 and place["kept"] == 2, place
assert place["master_addr"] == os.environ["MASTER_ADDR"], place
assert place["master_port"] != int(os.environ["MASTER_PORT"]), place
assert link.get(STEP) == 0
print("went on", flush=True)
print("went on, too", file=sys.stderr, flush=True)
"""


def test_the_others_stay(tmp):
    done = crun("--nproc-per-node=3", "--max-restarts=1", "-t", "3", f"--log-dir={tmp}/logs",
                worker(tmp, STAYS), env=ENV)
    assert done.returncode == 0, done
    assert "[default0]:went on\n" in done.stdout and "[default2]:went on\n" in done.stdout, done
    assert "[default2]:went on, too\n" in done.stderr, done
    assert "rank 1 (local rank 1" in done.stderr and "restart 1 of 1" in done.stderr, done
    assert not (tmp / "pid.0.1").exists() and (tmp / "pid.1.1").exists()
    logs = [p for p in (tmp / "logs").rglob("stdout.log") if "went on" in p.read_text()]
    assert sorted(p.parent.name for p in logs) == ["0", "2"], logs
    assert {p.parent.parent.name for p in logs} == {"attempt_0"}, logs


def test_those_that_stay_are_ended_when_the_budget_is_spent(tmp):
    done = crun("--nproc-per-node=3", worker(tmp, STAYS), env=ENV)
    assert done.returncode == 1 and "exit code 7" in done.stderr, done
    for rank in range(3):
        assert not alive(int(read_text(tmp / f"pid.{rank}.0")))


def test_one_that_stayed_fails_in_the_next_round(tmp):
    done = crun("--nproc-per-node=2", "--max-restarts=2", worker(tmp, """
link = Link()
link.put32(CAN_REJOIN, 1)
note(f"up.{rank}.{attempt}")
if attempt == 2: sys.exit(0)
if rank == 1: until("up.0.0"); sys.exit(10 + attempt) if attempt == 0 else None
if rank == 0:
    assert link.recv()["type"] == OVER
    link.send(REJOIN)
    assert link.recv()["type"] == ROUND
    sys.exit(20)
assert link.recv()["type"] == OVER
link.send(REJOIN)
assert link.recv()["restart_count"] == 2
"""), env=ENV)
    assert done.returncode == 0, done
    assert "exit code 10; restart 1 of 2" in done.stderr, done
    assert "exit code 20; restart 2 of 2" in done.stderr, done


def test_a_parked_worker_that_dies_is_started_anew(tmp):
    done = crun("--nproc-per-node=3", "--max-restarts=1", worker(tmp, """
link = Link()
link.put32(CAN_REJOIN, 1)
if attempt > 0: note(f"again.{rank}"); sys.exit(0)
note(f"up.{rank}")
until("up.0", "up.1", "up.2")
if rank == 1: sys.exit(7)
assert link.recv()["type"] == OVER
if rank == 2:
    until("going")
    def is_dead(pid):  # to those who wait for it, not only on its way
        try:
            return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] in "ZX"
        except OSError:
            return True
    while not is_dead(open(f"{tmp}/going").read().strip()):
        time.sleep(0.01)
    link.send(REJOIN)
    assert link.recv()["type"] == ROUND
    sys.exit(0)
link.send(REJOIN)
note("going", os.getpid())
os._exit(9)
"""), env=ENV)
    assert done.returncode == 0, done
    assert (tmp / "again.0").exists() and (tmp / "again.1").exists(), done
    assert not (tmp / "again.2").exists(), done


def test_a_round_given_up_by_its_workers_counts_as_a_failure(tmp):
    # Crun waits a second for the other worker to give up, too, and ends it if it does not. Such a
    # worker goes on in a new process.
    text = """
link = Link()
note(f"up.{rank}")
until("up.0", "up.1")
for i in range(attempt, int(sys.argv[1])):
    link.send(REJOIN)
    place = link.recv()
    if place is None: time.sleep(1000)
    assert place["type"] == ROUND and place["restart_count"] == i + 1, place
"""
    done = crun("--nproc-per-node=2", "--max-restarts=2", worker(tmp, text), "2", env=ENV)
    assert done.returncode == 0, done
    assert "gave up its process groups" in done.stderr and "restart 2 of 2" in done.stderr, done
    done = crun("--nproc-per-node=2", worker(tmp, text), "1", env=ENV)
    assert done.returncode == 1 and "gave up its process groups" in done.stderr, done


def test_signals_end_those_that_wait_for_the_next_round(tmp):
    launch = start([CRUN, "--nproc-per-node=2", "--max-restarts=3", "--shutdown-timeout=5",
                    worker(tmp, """
link = Link()
link.put32(CAN_REJOIN, 1)
note(f"pid.{rank}", os.getpid())
until("pid.0", "pid.1")
if rank == 1: signal.signal(15, signal.SIG_IGN); note("stubborn"); time.sleep(1000)
link.send(REJOIN)
note("parked")
time.sleep(1000)
""")], env=ENV)
    wait_for(lambda: (tmp / "parked").exists() and (tmp / "stubborn").exists(), "one parked worker")
    workers = [int(read_text(tmp / f"pid.{r}")) for r in range(2)]
    launch.terminate()
    _, err = launch.communicate(timeout=TIMEOUT_S)
    assert launch.returncode == 1 and not any(alive(p) for p in workers), err


def test_nothing_stays_behind_a_killed_crun(tmp):
    launch = start([CRUN, "--nproc-per-node=2", "--max-restarts=3", worker(tmp, """
link = Link()
link.put32(CAN_REJOIN, 1)
note(f"pid.{rank}", os.getpid())
until("pid.0", "pid.1")
if rank == 1: os._exit(5)
link.recv()
note("over")
time.sleep(1000)
""")], env=ENV)
    wait_for(lambda: (tmp / "over").exists(), "the worker that stays")
    launch.kill()
    launch.communicate(timeout=TIMEOUT_S)
    stayed = int(read_text(tmp / "pid.0"))
    wait_for(lambda: not alive(stayed), "its end")


if __name__ == "__main__":
    run_tests(globals())
