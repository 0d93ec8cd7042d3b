#!/usr/bin/env python3
# timeout: 120
"""Errors of GPUs that NVML reports as events are evidence of a failure: in the report and in
verdict.json. A library stands in for NVML, because no GPU was at hand."""
import json
import os
import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import CRUN, clean_env, crun, run_tests, start, wait_for

# Each line in the pipe TEST_EVENTS is an event: what nvmlEventSetWait_v2() returns, and the Xid.
# The file TEST_TOLD gets a byte whenever crun-xid waits for another event, so the last event has
# been written to the agent's pipe.
NVML = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int events = -1;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 4; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) {
    *d = (void *) (long) (i + 1);
    return i == 0 ? 15 : 0;
}
struct pci { char legacy[16]; unsigned numbers[5]; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(void *d, struct pci *p) {
    snprintf(p->bus_id, sizeof(p->bus_id), "00000000:4%d:00.0", (int) (long) d - 1);
    return 0;
}
int nvmlEventSetCreate(void **set) {
    *set = &events;
    events = open(getenv("TEST_EVENTS"), O_RDWR);
    return 0;
}
int nvmlDeviceRegisterEvents(void *d, unsigned long long types, void *set) {
    return types == 8 && set == &events && (long) d != 2 ? 0 : 3;
}
struct event { void *device; unsigned long long type, xid; unsigned more[2]; };
int nvmlEventSetWait_v2(void *set, struct event *e, unsigned ms) {
    char line[16];
    int told = open(getenv("TEST_TOLD"), O_WRONLY | O_APPEND | O_CREAT, 0600), rc, xid;
    if (write(told, "x", 1) != 1 || read(events, line, 8) != 8) _exit(9);
    close(told);
    sscanf(line, "%3d %3d", &rc, &xid);
    *e = (struct event){.device = (void *) 3, .type = xid == 7 ? 4 : 8, .xid = xid};
    return rc;
}
"""

# Sends events, waits until they have been told, and fails or hangs.
WORKER = """printf "$EVENTS" > $TEST_EVENTS
while test $(cat $TEST_TOLD 2>/dev/null | wc -c) -le $COUNT; do sleep 0.05; done
%s"""
LINE = "NVML: Xid 79 of GPU 2 (PCI 00000000:42:00.0)"


def stand_in(tmp, **more):
    (tmp / "nvml.c").write_text(NVML)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp / "libnvidia-ml.so.1", tmp / "nvml.c"],
                   check=True)
    os.mkfifo(tmp / "events")
    return clean_env(LD_LIBRARY_PATH=tmp, TEST_EVENTS=tmp / "events", TEST_TOLD=tmp / "told",
                     CRUN_XID="1", OMP_NUM_THREADS=1, **more)


def verdict(tmp, ending, *options, **env):
    done = crun("--no-python", f"--log-dir={tmp}/logs", *options, "sh", "-c", WORKER % ending,
                env=stand_in(tmp, **env))
    assert done.returncode == 1, done
    found = json.loads(next((tmp / "logs").rglob("verdict.json")).read_text())
    return done, found


def test_an_error_is_evidence_of_the_failure(tmp):
    """A timeout and an event of another type come first; they are no evidence."""
    done, found = verdict(tmp, "exit 3", EVENTS=" 10  48\\n  0   7\\n  0  79\\n", COUNT="3")
    assert found["first_failure"]["kernel"] == LINE, found
    assert LINE in found["kernel_log"]["lines"], found
    assert not any("Xid 7 " in t or "Xid 48 " in t for t in found["kernel_log"]["lines"]), found
    assert f"kernel: {LINE}" in done.stderr, done


def test_a_hang_after_an_error(tmp):
    _, found = verdict(tmp, "sleep 600", "--hang-timeout=1", EVENTS="  0  79\\n", COUNT="1")
    assert found["first_failure"]["kind"] == "hang", found
    assert found["first_failure"]["kernel"] == LINE, found


def test_a_gpu_that_is_lost(tmp):
    """crun-xid ends after this event: the last byte of TEST_TOLD comes before it."""
    ending = "while pgrep -f ^crun-xid -P $PPID; do sleep 0.05; done; exit 3"
    env = {"EVENTS": " 15   0\\n", "COUNT": "0"}
    _, found = verdict(tmp, ending, **env)
    assert found["first_failure"]["kernel"].startswith("NVML: a GPU is lost"), found


def test_without_the_library_a_job_is_as_before(tmp):
    done = crun("--no-python", "true", env=clean_env(CRUN_XID="1"))
    assert done.returncode == 0 and done.stderr == "", done


def test_nothing_outlives_crun(tmp):
    env = stand_in(tmp)
    job = start([CRUN, "--no-python", "sleep", "600"], env=env)
    wait_for((tmp / "told").exists, "crun-xid")
    children = [int(p) for p in pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children")
                .read_text().split()]
    xid = [p for p in children
           if pathlib.Path(f"/proc/{p}/cmdline").read_bytes() == b"crun-xid\0"]
    assert len(xid) == 1, children
    job.send_signal(signal.SIGKILL)
    job.communicate()
    wait_for(lambda: not os.path.exists(f"/proc/{xid[0]}"), "the end of crun-xid")


if __name__ == "__main__":
    run_tests(globals())
