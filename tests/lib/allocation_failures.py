"""Runs a scenario once per allocation of a program, and lets another allocation fail each time.

    def start(case):                        # a scenario: starts the program, returns how it ended
        return case.run([FAILING / "crun", "--standalone", "--no-python", "/bin/true"])

    for_each_allocation(tmp, start)

The programs in build/tests/failing/ have the allocator of tests/failing_allocator/, which writes
down every call and lets one fail. A first run without a failure counts the calls; then call 1, 2,
3, … fails. Each run must end with status 0, or with a documented status and a line on stderr which
says that memory was short. No run may die of a signal, fail an assertion, exceed its deadline,
leave a process, or leak memory (under ASan).

By default a scenario with more than LIMIT calls runs only those calls whose stack of callers is
new, thinned out to LIMIT if there are still more; CRUN_TEST_EVERY_ALLOCATION=1 runs all of them.
"""
import collections
import concurrent.futures
import os
import pathlib
import re
import signal
import subprocess
import threading

from crun_test import BUILD, SCALE, clean_env, wait_for

FAILING = BUILD / "tests" / "failing"
EVERY = bool(os.environ.get("CRUN_TEST_EVERY_ALLOCATION"))
LIMIT = 1000
DEADLINE_S = 20 * SCALE  # for one run, which usually takes less than a second
PROBLEMS_MAX = 12  # after so many problems, the rest of the scenario is skipped
PARALLEL = 4 * (os.cpu_count() or 1)  # most of the time of a run is spent waiting
SANITIZER_STATUS = 99
BUG = re.compile(r"assertion failed|AddressSanitizer|LeakSanitizer|runtime error:|terminate called")
SHORT_OF_MEMORY = re.compile(r"memory", re.I)

Call = collections.namedtuple("Call", "number function failed stack")


class Case:
    """One run of a scenario: its folder, the allocation that fails, the processes that it
    started."""

    def __init__(self, folder, wish, name):
        self.folder, self.wish = folder, wish
        self.mark = f"{os.getpid()}-{name}"
        self.log = folder / "allocations"
        folder.mkdir()

    def environment(self, **more):
        """Returns the environment of the program whose allocator fails."""
        sanitizer = f"exitcode={SANITIZER_STATUS}"
        return self.plain_environment(
            CRUN_TEST_FAIL_ALLOCATION=self.wish, CRUN_TEST_ALLOCATION_LOG=self.log,
            ASAN_OPTIONS=f"{os.environ.get('ASAN_OPTIONS', '')}:{sanitizer}", **more)

    def plain_environment(self, **more):
        """Returns the environment of all other programs of the case."""
        return clean_env(OMP_NUM_THREADS=1, TMPDIR=self.folder, CRUN_TEST_CASE=self.mark, **more)

    def start(self, argv, env=None, **how):
        how.setdefault("stdout", subprocess.PIPE)
        how.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL, text=True,
                                errors="replace", env=env or self.environment(), **how)

    def run(self, argv, env=None, **how):
        return self.finish(self.start(argv, env, **how))

    def finish(self, process, timeout=DEADLINE_S):
        """Waits until the process ends. Returns (status, stderr), and stores stdout in self.out."""
        try:
            self.out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            _, err = process.communicate()
            raise AssertionError(f"did not end within {timeout:.0f} s; stderr:\n{err}") from None
        return process.returncode, err

    def processes(self):
        needle = f"CRUN_TEST_CASE={self.mark}".encode()
        found = []
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                try:
                    if needle in pathlib.Path(entry.path, "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
                except OSError:
                    continue  # the process has ended, or belongs to another user
        return found

    def end_processes(self):
        """Waits 10 s for the end of all processes of the case. Kills those that are left, and
        fails if there are any."""
        try:
            wait_for(lambda: not self.processes(), "the end of all processes", 10)
        finally:
            for pid in self.processes():
                os.kill(pid, signal.SIGKILL)

    def calls(self):
        found = []
        for line in self.log.read_text().splitlines() if self.log.exists() else []:
            _, number, function, outcome, *stack = line.split()
            found.append(Call(int(number), function, outcome == "failed", tuple(stack)))
        return found


def judge(status, err, statuses):
    """Returns what is wrong with the way in which a program ended, or None."""
    found = BUG.search(err)
    if found:
        return f"'{found.group()}' on stderr"
    if status < 0:
        return f"died of {signal.Signals(-status).name}"
    if status == 0:
        return None
    if status not in statuses:
        return f"ended with status {status}, which is not documented"
    if not SHORT_OF_MEMORY.search(err):
        return f"ended with status {status}, but stderr does not say that memory was short"
    return None


def run_case(folder, scenario, wish, statuses):
    """Runs the scenario once. Returns (what is wrong or None, stderr, the calls, the status)."""
    case = Case(folder, wish, f"{scenario.__name__}-{wish}")
    status, err, wrong = None, "", None
    try:
        status, err = scenario(case)
        wrong = judge(status, err, statuses)
    except (AssertionError, OSError, EOFError) as error:
        wrong = str(error) or repr(error)
    try:
        case.end_processes()
    except AssertionError as error:
        wrong = wrong or str(error)
    return wrong, err, case.calls(), status


def choose(calls):
    """Returns the numbers of the calls that are to fail, one run for each."""
    if EVERY or len(calls) <= LIMIT:
        return [c.number for c in calls]
    first = {}
    for c in calls:
        first.setdefault((c.function, c.stack), c.number)
    numbers = sorted(first.values())
    stride = -(-len(numbers) // LIMIT)
    return numbers[::stride]


def callers(program, call):
    """Returns the stack of a call as a list of function names with their source lines."""
    done = subprocess.run(["addr2line", "-fpse", str(program), *call.stack], capture_output=True,
                          text=True, check=False)
    lines = [line.split(" at ") for line in done.stdout.splitlines()]
    return [f"{name} ({os.path.relpath(where[0], os.getcwd()) if where else '?'})"
            for name, *where in lines if not name.startswith(("fails", "__wrap", "log_call"))]


def for_each_allocation(tmp, scenario, program, statuses=(1,), stride=1):
    """Lets each allocation of `program` fail in turn; then every `stride`-th one together with all
    later ones. Fails with a list of all that went wrong, one entry for each call site."""
    wrong, err, calls, status = run_case(tmp / "count", scenario, "0", ())
    assert wrong is None and calls, f"without a failure: {wrong}, {len(calls)} calls\n{err}"
    numbers = choose(calls)
    wishes = [f"{n}" for n in numbers] + [f"{n}+" for n in numbers[::1 if EVERY else stride]]
    lock, problems, ends = threading.Lock(), {}, collections.Counter()

    def one(wish):
        if len(problems) >= PROBLEMS_MAX:
            return
        wrong, err, calls, status = run_case(tmp / wish, scenario, wish, statuses)
        hit = next((c for c in calls if c.failed), None)
        with lock:
            ends["not reached" if hit is None else "as usual" if status == 0
                 else "with an error"] += 1
            if wrong is not None:
                key = (wrong.splitlines()[0], hit and hit.stack)
                problems.setdefault(key, []).append((wish, wrong, hit, err))

    with concurrent.futures.ThreadPoolExecutor(max_workers=PARALLEL) as pool:
        list(pool.map(one, wishes))
    print(f"{scenario.__name__}: {len(calls)} allocations, {len(wishes)} runs: "
          + ", ".join(f"{n} {how}" for how, n in sorted(ends.items())))
    for found in problems.values():
        wish, wrong, hit, err = found[0]
        print(f"--- {scenario.__name__}, allocation {', '.join(w for w, *_ in found)}: {wrong}")
        if hit is not None:
            print(f"    {hit.function} called by " + "\n        ".join(callers(program, hit)))
        print("".join(f"    | {line}\n" for line in err.splitlines()[:12]), end="", flush=True)
    assert not problems, f"{sum(map(len, problems.values()))} of {len(wishes)} runs went wrong"
