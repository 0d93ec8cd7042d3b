#!/usr/bin/env python3
# timeout: 300
"""Recovery on the host NCCL: after a failure the ranks make their communicator out of that of the
last round, by shrink, split and grow, and from nothing where that is not possible. The program
tests/host_nccl/findings/r_reform counts the calls of NCCL. No run here is a run of NCCL."""

import os
import re
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from crun_test import BUILD, clean_env, crun, run_tests, skip, wait_for
from nodes import Nodes
from workers import host_nccl

PROGRAM = BUILD / "tests" / "host_nccl" / "findings" / "r_reform"
if not PROGRAM.exists():
    skip("the host NCCL was not built (no CUDA or NCCL headers)")

# How often a process that has lived through the failure calls ncclCommInitRankConfig,
# ncclCommShrink, ncclCommSplit and ncclCommGrow, in both rounds together; -1 means any number.
ANEW = "2 0 0 0"


def recover(ranks, loses, counts, **extra):
    done = crun("--standalone", f"--nproc-per-node={ranks}", "--max-restarts=1", PROGRAM,
                env=clean_env(REFORM_LOSES=loses, REFORM_COUNTS=counts, **host_nccl(), **extra))
    text = done.stdout + done.stderr
    assert done.returncode == 0 and "BROKEN" not in text, done
    survivors = ranks if loses == "none" else ranks - 1
    assert len(re.findall(r"in the next round of \d+ ranks after", text)) == survivors, done


def test_a_lost_rank_is_replaced(tmp):
    recover(4, "3", "1 1 0 1")
    recover(2, "1", "1 1 0 1")


def test_groups_can_be_split_from_a_communicator_that_was_made_so(tmp):
    recover(3, "2", "1 1 2 1", REFORM_SUBGROUP="1")


def test_no_rank_is_lost(tmp):
    recover(3, "none", "1 0 1 0")


def test_a_lost_node_is_not_replaced(tmp):
    with Nodes(tmp, "--nnodes=1:2", "--nproc-per-node=2", "--max-restarts=1") as nodes:
        how = dict(program=PROGRAM, REFORM_LOSES="node", REFORM_COUNTS="1 1 0 0", **host_nccl())
        a = nodes.start_host("a", NCCL_HOSTID="a", **how)
        b = nodes.start("b", NCCL_HOSTID="b", **how)
        wait_for(lambda: (a.text + b.text).count("running") == 4, "four ranks to run")
        b.signal(signal.SIGKILL)
        assert a.wait() == 0, a.text
        assert a.text.count("in the next round of 2 ranks") == 2, a.text


def test_new_ranks_that_are_not_the_last_begin_anew(tmp):
    recover(3, "1", ANEW)


def test_it_can_be_turned_off(tmp):
    recover(3, "2", ANEW, CRUNRT_NCCL_REFORM="0")
    recover(3, "2", ANEW, CRUNRT_NCCL_BLOCKING="0")
    recover(3, "2", ANEW, NCCL_COMM_BLOCKING="0")


def test_a_step_that_fails_on_one_rank(tmp):
    for fault, counts in (
        ("ncclCommRevoke:1:ncclSystemError@0", ANEW),
        ("ncclCommShrink:1:ncclSystemError@1", "2 1 0 0"),
        ("ncclCommGrow:1:ncclSystemError@1", "2 1 0 1"),
        ("ncclCommGetUniqueId:1:ncclSystemError@0", "2 1 0 -1"),
    ):
        recover(3, "2", counts, HOST_NCCL_FAULT=fault, REFORM_TIMEOUT_MS="4000")


if __name__ == "__main__":
    run_tests(globals())
