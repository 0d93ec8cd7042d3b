#!/usr/bin/env python3
# timeout: 600
"""make wheel gives a wheel that pip installs into a fresh virtual environment without a compiler;
its programs, library and package work there, and uninstalling it leaves nothing."""
import pathlib
import re
import subprocess
import sys
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, ROOT, clean_env, read_text, run, run_tests  # noqa: E402
from crun_test import script, skip, start, wait_for  # noqa: E402
from free_port import free_port  # noqa: E402

if BUILD.name in ("asan", "tsan", "ubsan", "coverage"):
    skip("packages are made of the plain build")
if subprocess.run([sys.executable, "-c", "import venv, ensurepip"], capture_output=True).returncode:
    skip("this Python has no venv with pip (Debian: python3-venv)")

OLDEST = "/usr/bin:/bin"  # a PATH without the virtual environment


def make(*args):
    env = clean_env(MAKEFLAGS=None, MAKELEVEL=None)
    done = run(["make", "-s", *args], cwd=ROOT, env=env, timeout=500)
    if "is missing (Debian: " in done.stderr:
        skip(done.stderr.strip().splitlines()[0])
    assert done.returncode == 0, done
    return done.stdout


def wheel():
    path = re.search(r"^(\S+\.whl): ", make("wheel"), re.M).group(1)
    return ROOT / path


def new_environment(tmp, path):
    """Returns the folder bin of a virtual environment into which the wheel has been installed with
    no access to an index and no compiler."""
    home = tmp / "venv"
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    done = run([home / "bin" / "python", "-m", "pip", "install", "--no-index", "--quiet",
                "--disable-pip-version-check", path], env=clean_env(PATH=OLDEST, CC="false"),
               timeout=100)
    assert done.returncode == 0, done
    return home / "bin"


WORKER = """
import array, os, sys, crunrt
assert crunrt.version() == crunrt.__version__ and "site-packages" in crunrt.__file__
rt = crunrt.init()
x = array.array("d", [rt.rank + 1])
if os.environ["HAVE_GLOO"] == "1":
    with rt.group(timeout=60) as group:
        group.all_reduce(x)
    assert x[0] == 3, x
assert crunrt.step() is None
sys.stdout.write(f"rank {rt.rank} fine\\n")  # one write: print() makes two
"""

ALONE = """
import crunrt
crunrt.init("tcp://127.0.0.1:%d?rank=0&world_size=1").store.set("a", "b")   # hosts the store
print("hosted")
"""


def check_files(path):
    assert path.stat().st_size < 5 * 2**20, path.stat().st_size
    assert re.fullmatch(r"crun_launcher-[\d.]+-py3-none-manylinux_2_\d+_\w+\.whl", path.name), path
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return archive.namelist()


def test_fresh_virtual_environment(tmp):
    path = wheel()
    names = check_files(path)
    assert "crunrt/py.typed" in names and "crunrt/lib/crunrt/store_host.so" in names, names
    has_gloo = "crunrt/lib/crunrt/gloo.so" in names
    bin_ = new_environment(tmp, path)
    for program in ("crun", "crun-store", "crun-agent"):
        assert (bin_ / program).read_bytes()[:4] == b"\x7fELF", f"{program} starts through Python"
        assert run([bin_ / program, "--version"]).returncode == 0
        needs = run(["ldd", bin_ / program]).stdout
        assert not re.search(r"lib(uv|jansson|python)", needs), needs
    done = run([bin_ / "crun", "--nproc-per-node=2", script(tmp, "w.py", WORKER)], cwd=tmp,
               env=clean_env(PATH=OLDEST, PYTHON_EXEC=bin_ / "python", OMP_NUM_THREADS=1,
                             HAVE_GLOO=int(has_gloo)))
    assert done.returncode == 0 and done.stdout.count("fine") == 2, done
    alone = run([bin_ / "python", "-c", ALONE % free_port()], cwd=tmp)
    assert alone.stdout == "hosted\n", alone
    done = run([bin_ / "python", "-m", "pip", "uninstall", "--yes", "crun-launcher"])
    assert done.returncode == 0 and not (bin_ / "crun").exists(), done
    left = [p for p in (tmp / "venv").rglob("*") if "crun" in p.name and p.suffix != ".pyc"
            and p.name not in ("__pycache__", "crunrt")]
    assert left == [], left


# What the script of a user has before the lines of the page.
USER = """
import os, pathlib, threading
folder, rank = pathlib.Path(os.environ["SAVES"]), os.environ["RANK"]
restart = os.environ["TORCHELASTIC_RESTART_COUNT"]
def save(change):
    (folder / f"saved.{rank}").write_text(str(change.step))
def train(batch):
    (folder / f"pid.{rank}.{restart}").write_text(str(os.getpid()))
    threading.Event().wait(0.01)
loader = range(1 << 40)
"""


def test_the_first_screen_of_the_page(tmp):
    """The commands and the lines of Python at the top of docs/pytorch.md, word for word, but for
    the pid."""
    path, page = wheel(), read_text(ROOT / "docs" / "pytorch.md")
    install, python, kills = re.findall(r"^```\w*\n(.*?)^```$", page, re.M | re.S)[:3]
    made, pip, launch = install.splitlines()
    assert made.startswith("make wheel ") and python.startswith("import crunrt\n"), (made, python)
    subprocess.run([sys.executable, "-m", "venv", tmp / "venv"], check=True)
    env = clean_env(PATH=f"{tmp}/venv/bin:{OLDEST}", SAVES=tmp, OMP_NUM_THREADS=1,
                    PIP_NO_INDEX=1, PIP_DISABLE_PIP_VERSION_CHECK=1)
    done = run(["bash", "-c", pip], cwd=ROOT, env=env, timeout=100)
    assert done.returncode == 0 and f"Processing ./{path.relative_to(ROOT)}" in done.stdout, done
    script(tmp, "train.py", USER + python)
    job = start(["bash", "-c", f"exec {launch}"], cwd=tmp, env=env, start_new_session=True)
    try:
        pids = [tmp / f"pid.{rank}.0" for rank in range(4)]
        wait_for(lambda: all(p.exists() and read_text(p) for p in pids), "the first steps")
        kill_9, notice = kills.splitlines()
        subprocess.run(["bash", "-c", kill_9.replace("PID", read_text(pids[2]))], check=True)
        again = [tmp / f"pid.{rank}.1" for rank in range(4)]
        wait_for(lambda: all(p.exists() for p in again), "the steps after the death")
        # other cruns may run here, so pgrep looks only at this one
        mine = notice.replace("pgrep -xo crun", f"pgrep -xo crun -g {job.pid}")
        assert mine != notice
        subprocess.run(["bash", "-c", mine], check=True)
        _, err = job.communicate(timeout=60)
    finally:
        job.kill()
        job.wait()
    assert job.returncode == 1 and "has left the job" in err, err
    assert re.search(r"rank 2 .*SIGKILL", err), err
    saves = [read_text(tmp / f"saved.{rank}") for rank in range(4)]
    assert len(set(saves)) == 1 and int(saves[0]) > 0, (saves, err)


def test_the_wheel_is_the_same_each_time(tmp):
    first = wheel().read_bytes()
    assert wheel().read_bytes() == first


if __name__ == "__main__":
    run_tests(globals())
