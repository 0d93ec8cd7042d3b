#!/usr/bin/env python3
"""A worker of tests/bench/torch_recovery.py: trains a small model in one of three ways, and after
each step writes a line "pid rank size step time" to stdout. A step takes at least 5 ms."""
import datetime
import os
import sys
import time

import torch
import torch.distributed as dist

STEP_S = 0.005
FOR_EVER = 1 << 40


def report(rank, size, step):
    os.write(1, f"{os.getpid()} {rank} {size} {step} {time.monotonic():.6f}\n".encode())
    time.sleep(STEP_S)


def loss_of(model):
    return model(torch.ones(2, 16)).pow(2).mean()


def in_place(model, optimizer, fewest):
    import crunrt.recovery
    recovery = crunrt.recovery.Recovery(model, optimizer, fewest=fewest)
    for step in recovery.steps(FOR_EVER):
        with recovery:
            optimizer.zero_grad()
            loss_of(recovery.model).backward()
            optimizer.step()
        report(dist.get_rank(), dist.get_world_size(), step)


def restarted(model, optimizer):
    dist.init_process_group("gloo")
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    for step in range(FOR_EVER):
        optimizer.zero_grad()
        loss_of(parallel).backward()
        optimizer.step()
        report(dist.get_rank(), dist.get_world_size(), step)


def with_torchft(model, optimizer):
    import torchft

    def load(state):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    def state():
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    limit = datetime.timedelta(seconds=60)
    replica = os.environ["REPLICA"]
    manager = torchft.Manager(pg=torchft.ProcessGroupGloo(timeout=limit), load_state_dict=load,
                              state_dict=state, min_replica_size=1, replica_id=f"r{replica}",
                              timeout=limit, quorum_timeout=limit, connect_timeout=limit)
    parallel = torchft.DistributedDataParallel(manager, model)
    fault_tolerant = torchft.Optimizer(manager, optimizer)
    while True:
        before = manager.current_step()  # step() does not return whether it has changed the model
        fault_tolerant.zero_grad()
        loss_of(parallel).backward()
        fault_tolerant.step()
        if manager.current_step() > before:
            report(replica, manager.num_participants(), manager.current_step())


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    how = sys.argv[1]
    if how == "torchft":
        with_torchft(model, optimizer)
    elif how == "restart":
        restarted(model, optimizer)
    else:
        in_place(model, optimizer, 1 if how == "at-once" else None)


if __name__ == "__main__":
    main()
