"""Functions that all tests with real processes use: run_tests(), crun(), skip() and others.

    from crun_test import crun, run_tests

    def test_exit_code(tmp):
        done = crun("--no-python", "false", cwd=tmp)
        assert done.returncode == 1, done

    if __name__ == "__main__":
        run_tests(globals())

Every function test_*(tmp) gets an empty folder of its own. skip("reason") skips the whole file.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = (ROOT / os.environ.get("BUILD", "build")).resolve()
CRUN = str(BUILD / "bin" / "crun")
CRUN_STORE = str(BUILD / "bin" / "crun-store")
SCALE = float(os.environ.get("CK_TIMEOUT_MULTIPLIER", "1"))
# For times that a test waits out in full: a slow build gets twice the time, but not more.
PACE = min(SCALE, 2)
TIMEOUT_S = 60 * SCALE

DEBIAN_PYTHON = "/usr/bin/python3"

# Under nohup SIGHUP is ignored, and crun would rightly leave it so. The tests check how crun
# handles SIGHUP, so they must not inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


def torch_python():
    """Returns a Python that can import torch, or None. CRUN_TEST_TORCH_PYTHON overrides it."""
    for python in (os.environ.get("CRUN_TEST_TORCH_PYTHON"), DEBIAN_PYTHON,
                   shutil.which("python3")):
        if python and os.path.exists(python):
            found = subprocess.run([python, "-c", "import torch.distributed"], capture_output=True)
            if found.returncode == 0:
                return python
    return None


def python_that_reconfigures(target):
    """Returns CRUN_TEST_MODERN_PYTHON, which the make target sets. Skips the script if it is not
    set, or if its torch cannot reconfigure process groups."""
    python = os.environ.get("CRUN_TEST_MODERN_PYTHON")
    if not python:
        skip(f"CRUN_TEST_MODERN_PYTHON is not set; make {target} sets it")
    if subprocess.run([python, "-c", "import torch.distributed as d; d._reconfigure"],
                      capture_output=True).returncode:
        skip("this torch cannot reconfigure groups; 2.14 and later can")
    return python


def clean_env(**more):
    """Returns our environment without the variables that a launcher around the tests may have
    set, and with those of `more`; the value None removes a variable."""
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("PET_", "TORCHELASTIC_", "CRUN_")) or k == "CRUN_TEST_RUN"}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "LOGLEVEL"):
        env.pop(name, None)
    for name, value in more.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = str(value)
    return env


class Finished(subprocess.CompletedProcess):
    def __repr__(self):
        return (f"exit status {self.returncode} of {self.args}\n--- stdout\n{self.stdout}\n"
                f"--- stderr\n{self.stderr}")


def run(argv, timeout=TIMEOUT_S, env=None, **how):
    """Runs a program to its end. The result has stdout and stderr as text."""
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, errors="replace",
                          timeout=timeout, env=env or clean_env(),
                          stdin=how.pop("stdin", subprocess.DEVNULL),
                          **how)
    return Finished(done.args, done.returncode, done.stdout, done.stderr)


def crun(*args, **how):
    return run([CRUN, *args], **how)


def start(argv, env=None, **how):
    """Starts a program. Unless `how` says otherwise, stdout and stderr are pipes of text."""
    how.setdefault("stdout", subprocess.PIPE)
    how.setdefault("stderr", subprocess.PIPE)
    how.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen([str(a) for a in argv], text=True, errors="replace",
                            env=env or clean_env(), **how)


def kill(process):
    """Kills a process that may be stopped by SIGSTOP, or may have ended, and waits for its end."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.kill()
    process.wait()


def wait_for(condition, what, timeout=TIMEOUT_S):
    """Calls condition() until it returns something true, and returns that."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:.0f} s in vain for {what}")
        time.sleep(0.01)


def alive(pid):
    """Returns whether the process exists and is not a zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")",
                                                                    1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def read_text(path):
    """Returns the file's text, or "" if there is no such file."""
    try:
        return pathlib.Path(path).read_text(errors="replace")
    except OSError:
        return ""


def script(folder, name, text):
    """Writes an executable script and returns its path."""
    path = pathlib.Path(folder, name)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def run_tests(names):
    """Runs every test_* function of a module, and exits with status 0 if all have passed."""
    failed = 0
    for name, test in list(names.items()):
        if not name.startswith("test_") or not callable(test):
            continue
        if len(sys.argv) > 1 and not any(text in name for text in sys.argv[1:]):
            continue
        tmp = tempfile.mkdtemp(prefix=f"crun-{name}-")
        begin = time.monotonic()
        try:
            test(pathlib.Path(tmp))
            print(f"ok     {name} ({time.monotonic() - begin:.2f} s)", flush=True)
        except SystemExit:  # skip() skips the rest of the file, but hides no failure
            if failed:
                sys.exit(1)
            raise
        except Exception:  # the other tests of the file still run
            failed += 1
            print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
        finally:
            shutil.rmtree(tmp, ignore_errors=True)
    sys.exit(1 if failed else 0)


__all__ = ["BUILD", "CRUN", "CRUN_STORE", "DEBIAN_PYTHON", "PACE", "ROOT", "SCALE", "TIMEOUT_S",
           "alive", "clean_env", "crun", "read_text", "run", "run_tests", "script", "signal",
           "skip", "start", "torch_python", "wait_for"]
