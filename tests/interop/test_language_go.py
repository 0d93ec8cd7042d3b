#!/usr/bin/env python3
# timeout: 300
"""The tutorial programs in Go, examples/go."""

import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from crun_test import BUILD, ROOT, run_tests, skip
from tutorial import LIBRARY, compile_with, need_gloo, tutorial

need_gloo()
if shutil.which("go") is None:
    skip("go is not installed; make interop-languages installs it")


def test_programs(tmp):
    folder = tmp / "pkgconfig"
    folder.mkdir()
    (folder / "crunrt.pc").write_text(
        "Name: crunrt\nDescription: the worker runtime, not installed\nVersion: 0\n"
        f"Cflags: -I{ROOT}/worker_runtime/include\nLibs: -L{LIBRARY} -lcrunrt\n")
    program = f"{BUILD.resolve()}/go/tutorial"
    compile_with(["go", "build", "-o", program, "."], "examples/go", PKG_CONFIG_PATH=str(folder),
                 GOCACHE=f"{BUILD.resolve()}/go/cache", GOFLAGS="-mod=mod", GOPROXY="off",
                 GOTOOLCHAIN="local")
    tutorial(lambda name: [program, name])


if __name__ == "__main__":
    run_tests(globals())
