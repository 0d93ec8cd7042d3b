#!/usr/bin/env python3
"""The tutorial programs in Python, without torch:

    crun --standalone --nproc-per-node=4 examples/tutorial.py all_reduce

The package crunrt comes with crun's wheel; in a built tree, PYTHONPATH=python finds it.
"""
import array
import os
import signal
import sys

import crunrt

LAST = 100


def hello(rt):
    arrived = rt.store.add("hello", 1)
    print(f"hello from rank {rt.rank} of {rt.world_size}, number {arrived} to arrive")


def all_reduce(rt):
    with rt.group() as world:
        total = array.array("f", [rt.rank])
        world.all_reduce(total)
        print(f"rank {rt.rank} of {rt.world_size}: the sum of all ranks is {total[0]:g}")
        world.barrier()


def ping(rt):
    """Ranks 0 and 1 send a counter to each other. Then the even ranks send to their right before
    they receive from their left, and the odd ranks the other way round."""
    with rt.group() as world:
        rank, size, ball = world.rank, world.size, array.array("q", [0])
        for turn in range(4 if rank < 2 else 0):
            if turn % 2 == rank:
                ball[0] += 1
                world.send(ball, 1 - rank)
            else:
                world.recv(ball, 1 - rank)
                print(f"rank {rank} has the ball: {ball[0]}")
        mine, from_left = array.array("q", [rank]), array.array("q", [-1])
        if rank % 2 == 0:
            world.send(mine, (rank + 1) % size)
        world.recv(from_left, (rank - 1) % size)
        if rank % 2 == 1:
            world.send(mine, (rank + 1) % size)
        print(f"rank {rank} got {from_left[0]} from its left")
        world.barrier()


def subgroups(rt):
    for parity, name in enumerate(("evens", "odds")):
        ranks = list(range(parity, rt.world_size, 2))
        group = rt.group(name=name, ranks=ranks)  # every rank makes every group, in the same order
        if group.rank < 0:  # this rank is not in the list
            continue
        total = array.array("i", [rt.rank])
        group.all_reduce(total)
        print(f"rank {rt.rank} is number {group.rank} of the {len(ranks)} {name}; their sum is "
              f"{total[0]}")
        group.barrier()
        group.close()


def run_round(rt, model):
    """Makes steps until all are made, and returns True; or until the round ends."""
    with rt.group() as world:
        steps = array.array("q", [0] * world.size)
        world.all_gather(array.array("q", [model["step"]]), steps)
        best = max(range(world.size), key=lambda r: (steps[r], -r))
        newest = array.array("d", [model["sum"]])
        world.broadcast(newest, best)
        model.update(step=steps[best], sum=newest[0])
        while model["step"] < LAST:
            if rt.rank == 1 and rt.restart_count == 0 and model["step"] == 50:
                os.kill(os.getpid(), signal.SIGKILL)
            add = array.array("d", [model["step"] / rt.world_size])
            world.all_reduce(add)
            model.update(step=model["step"] + 1, sum=model["sum"] + add[0])
            if rt.step():
                return False
    return True


def elastic(rt):
    """Rank 1 kills itself at step 50 of its first life; the other processes go on."""
    model, rounds = {"step": 0, "sum": 0.0}, 0
    rt.can_rejoin()
    while True:
        rounds += 1
        try:
            if run_round(rt, model):
                break
        except crunrt.Error:
            pass  # the round has failed
        rt.rejoin()
    print(f"rank {rt.rank}: {rounds} rounds, {model['step']} steps, sum {model['sum']:g}")


if __name__ == "__main__":
    programs = {f.__name__: f for f in (hello, all_reduce, ping, subgroups, elastic)}
    if len(sys.argv) != 2 or sys.argv[1] not in programs:
        sys.exit(f"usage: tutorial.py {'|'.join(programs)}")
    with crunrt.init() as runtime:
        programs[sys.argv[1]](runtime)
