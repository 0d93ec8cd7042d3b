#!/usr/bin/env python3
"""The disk of the logs is full: one warning, the job goes on, the console gets every line."""
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import clean_env, crun, run_tests, script, skip  # noqa: E402

ENV = clean_env(OMP_NUM_THREADS=1)
PY = "#!/usr/bin/python3\nimport os\nrank = int(os.environ['RANK'])\n"


def test_full_disk(tmp):
    disk = tmp / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", disk],
                             capture_output=True, text=True)
    if mounted.returncode != 0:
        skip(f"cannot mount a small tmpfs: {mounted.stderr.strip()}")
    try:
        worker = script(tmp, "w", PY + "for i in range(5000): print(i, 'x' * 100)\n"
                                       f"open('{tmp}/ended.%d' % rank, 'w').close()\n")
        done = crun("--nproc-per-node=2", "-t", "3", f"--log-dir={disk}", worker, env=ENV)
        assert done.returncode == 0 and (tmp / "ended.0").exists() and (tmp / "ended.1").exists()
        assert done.stderr.count("No space left on device") == 1, done.stderr
        for rank in range(2):
            shown = [t for t in done.stdout.splitlines() if t.startswith(f"[default{rank}]:")]
            assert shown == [f"[default{rank}]:{i} {'x' * 100}" for i in range(5000)]
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


if __name__ == "__main__":
    run_tests(globals())
