#!/usr/bin/env python3
# timeout: 300
"""The crate worker_runtime/rust, with the tutorial programs in Rust."""

import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from crun_test import BUILD, run_tests, skip
from tutorial import LIBRARY, compile_with, lines, need_gloo, tutorial

need_gloo()
if shutil.which("cargo") is None:
    skip("cargo is not installed; make interop-languages installs it")


def test_programs(tmp):
    target = f"{BUILD.resolve()}/rust"
    compile_with(["cargo", "build", "--quiet", "--offline", "--examples", "--target-dir", target],
                 "worker_runtime/rust", CRUNRT_LIB_DIR=LIBRARY)
    tutorial(lambda name: [f"{target}/debug/examples/{name}"])
    assert lines(3, f"{target}/debug/examples/collectives") == [
        line for line in lines(3, BUILD / "examples" / "collectives") if "_counts" not in line]


if __name__ == "__main__":
    run_tests(globals())
