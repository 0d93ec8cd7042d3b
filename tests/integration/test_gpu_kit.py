#!/usr/bin/env python3
# timeout: 300
"""`make check-gpu` on the host NCCL: the kit for the day of the first GPU runs to its end, and all
its rows pass. It is no run of NCCL."""

import os
import re
import subprocess
import sys
import tempfile

BUILD = os.environ.get("BUILD", "build")
if not os.path.exists(f"{BUILD}/tests/gpu/gpu_streams"):
    print("SKIP: the programs were not built (no CUDA runtime or NCCL headers)")
    sys.exit(77)
done = subprocess.run(["tests/gpu/check_gpu.py", "--dry-run"], stdout=subprocess.PIPE,
                      stderr=subprocess.STDOUT, text=True)
# What the failed rows wrote comes first: the runner shows only the first lines of a failure.
print(*(f"FAILED {text}" for text in done.stdout.split("\nFAILED ")[1:]), done.stdout, sep="\n")
if done.returncode != 0 or "DRY RUN" not in done.stdout:
    sys.exit(f"FAIL: exit status {done.returncode}")
if not re.search(r"\n\d+ passed, 0 failed, 0 skipped", done.stdout):
    sys.exit("FAIL: not every row passed")

# A row whose program works only at its second start fails.
sys.path.insert(0, "tests/gpu")
sys.argv.append("--dry-run")
import check_gpu  # noqa: E402

with tempfile.TemporaryDirectory() as folder:
    script = os.path.join(folder, "flaky")
    with open(script, "w") as f:
        f.write(f"#!/bin/sh\nif [ -e {folder}/once ]; then echo ok flaky; exit 0; fi\n"
                f"touch {folder}/once\nexit 1\n")
    os.chmod(script, 0o755)
    name, result, seen = check_gpu.row("flaky", 1, [script], r"ok flaky")
    if result != "FAIL":
        sys.exit(f"FAIL: a row that failed first has the result {result}: {seen}")
