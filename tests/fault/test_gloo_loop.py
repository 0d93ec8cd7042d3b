#!/usr/bin/env python3
"""The threads of Gloo and of the gloo backend's watch neither delay nor busy each other.

Making, breaking and closing groups must not wait for the turns that an idle loop of Gloo makes. And
when a peer has died, the thread that watches the connections must sleep until Gloo has closed its
end, not run on the same event again and again."""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from crun_test import BUILD, CRUN, clean_env

if not (BUILD / "lib" / "crunrt" / "gloo.so").exists():
    print("SKIP: built without Gloo")
    sys.exit(77)
if BUILD.name in ("asan", "tsan"):
    print("SKIP: the sanitizers want to be loaded first")
    sys.exit(77)


def run(library, *args, **env):
    """Runs the example elastic on three ranks, of which one is killed and replaced."""
    ended = subprocess.run(
        [CRUN, "--standalone", "--nproc-per-node=3", "--max-restarts=1", BUILD / "examples/elastic",
         "4", "--kill", "1@2", *args], capture_output=True, text=True, timeout=100,
        env=clean_env(LD_PRELOAD=library, **env))
    text = ended.stdout + ended.stderr
    assert ended.returncode == 0, text
    assert len(re.findall(r"rank \d of 3: process \d+, \d rounds, 4 steps", text)) == 3, text
    return text


with tempfile.TemporaryDirectory() as tmp:
    library = f"{tmp}/slow_gloo_loop.so"
    subprocess.run([*os.environ.get("CC", "cc").split(), "-shared", "-fPIC", "-o", library,
                    "tests/fake/slow_gloo_loop.c"], check=True)
    # each wait for a turn of a loop would take longer than the whole test may
    run(library, IDLE_LOOP_MS="200000")
    text = run(library, BUSY_LOOP_MS="100")
    woken = [int(n) for n in re.findall(r"watch: (\d+)", text)]
    assert len(woken) >= 3, text
    assert max(woken) < 200, f"the watch was woken {woken} times"
    print(f"the watch was woken {woken} times")
print("PASS")
