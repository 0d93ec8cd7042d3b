#!/usr/bin/env python3
# timeout: 300
"""The tutorial programs in Python without torch, examples/tutorial.py."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from crun_test import BUILD, ROOT, run_tests
from tutorial import need_gloo, tutorial

need_gloo()


def test_programs(tmp):
    os.environ.update(PYTHONPATH=f"{ROOT}/python", PYTHONDONTWRITEBYTECODE="1",
                      CRUNRT_LIBRARY=f"{BUILD.resolve()}/lib/libcrunrt.so.0")
    tutorial(lambda name: ["--no-python", sys.executable, f"{ROOT}/examples/tutorial.py", name])


if __name__ == "__main__":
    run_tests(globals())
