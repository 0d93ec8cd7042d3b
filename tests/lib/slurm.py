"""A real Slurm on network namespaces: slurmctld on the first host, a slurmd on each of the others,
and one munged for all.

    with Net(4, names=["head", "n1", "n2", "n3"]) as net, Slurm(net, tmp) as slurm:
        done = slurm.run("srun", "--nodes=3", "--ntasks-per-node=1", CRUN, "prog")

Its files are in `tmp`. It needs the Debian packages slurmctld, slurmd, slurm-client and munge;
without them, Slurm() skips the test file.
"""
import os
import pathlib
import secrets
import shutil
import subprocess
import time

from crun_test import clean_env, run, skip

PROGRAMS = ["slurmctld", "slurmd", "srun", "sbatch", "sinfo", "squeue", "scontrol", "munged"]
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
START_S = 60

CONF = """ClusterName=test
SlurmctldHost=head(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={tmp}/munge.socket,cred_expire=10
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldTimeout=30
SlurmdTimeout=30
KillWait=5
StateSaveLocation={tmp}/state
SlurmdSpoolDir={tmp}/spool.%n
SlurmctldPidFile={tmp}/slurmctld.pid
SlurmdPidFile={tmp}/slurmd.%n.pid
SlurmctldLogFile={tmp}/slurmctld.log
SlurmdLogFile={tmp}/slurmd.%n.log
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=1
{nodes}
PartitionName=low Nodes=ALL Default=YES State=UP PriorityTier=1 MaxTime=INFINITE GraceTime=0
PartitionName=spot Nodes=ALL State=UP PriorityTier=1 MaxTime=INFINITE GraceTime=40 \
PreemptMode=CANCEL
PartitionName=high Nodes=ALL State=UP PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE
"""


class Slurm:
    def __init__(self, net, tmp):
        missing = [p for p in PROGRAMS if shutil.which(p, path=PATH) is None]
        if missing:
            skip(f"not installed: {', '.join(missing)} (packages slurmctld slurmd slurm-client "
                 "munge)")
        self.tmp, self.daemons = pathlib.Path(tmp), []
        self.head, *self.nodes = net.hosts
        names = [f"{h.addr} {h.hostname}" for h in net.hosts]
        for host in net.hosts:
            host.etc_hosts(*names)
        for name in ["state", *(f"spool.{h.hostname}" for h in self.nodes)]:
            (self.tmp / name).mkdir()
        nodes = "\n".join(f"NodeName={h.hostname} NodeAddr={h.addr} CPUs=4 State=UNKNOWN"
                          for h in self.nodes)
        self.conf = self.tmp / "slurm.conf"
        self.conf.write_text(CONF.format(tmp=tmp, nodes=nodes))
        # Without a plugin named here, slurmd looks for mounted cgroups, of which a network
        # namespace made by "ip netns exec" has none. Nothing in CONF uses cgroups.
        (self.tmp / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        self.env = clean_env(SLURM_CONF=self.conf, PATH=PATH,
                             MUNGE_SOCKET=self.tmp / "munge.socket")

    def __enter__(self):
        try:
            self.start_all()
        except BaseException:
            self.stop_all()
            raise
        return self

    def start_all(self):
        key = self.tmp / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        self.start(["munged", "--foreground", "--force", "--key-file", key, "--socket",
                    self.tmp / "munge.socket", "--pid-file", self.tmp / "munged.pid",
                    "--seed-file", self.tmp / "munged.seed"], "munged")
        self.wait_for("munged", lambda: (self.tmp / "munge.socket").exists())
        self.start([*self.head.run, "slurmctld", "-D", "-c", "-f", self.conf], "slurmctld")
        for host in self.nodes:
            self.start([*host.run, "slurmd", "-D", "-c", "-f", self.conf], host.hostname)
        self.wait_until_idle()

    def wait_until_idle(self):
        """Waits until no node completes an earlier job: Slurm would give the next job others."""
        self.wait_for("all nodes idle", self.is_ready)

    def start(self, argv, name):
        with open(self.tmp / f"{name}.out", "wb") as out:
            self.daemons.append(subprocess.Popen([str(a) for a in argv], env=self.env, stdout=out,
                                                 stderr=out, stdin=subprocess.DEVNULL))

    def is_ready(self):
        done = self.run("sinfo", "-h", "-p", "low", "-t", "idle", "-o", "%D")
        return done.returncode == 0 and done.stdout.strip() == str(len(self.nodes))

    def wait_for(self, what, is_true):
        end = time.monotonic() + START_S
        while not is_true():
            if time.monotonic() > end:
                logs = "".join(f"--- {p.name}\n{p.read_text(errors='replace')[-2000:]}"
                               for p in sorted(self.tmp.glob("*.out")))
                raise AssertionError(f"Slurm: waited {START_S} s for: {what}\n{logs}")
            time.sleep(0.1)

    def run(self, *argv, **how):
        """Runs a command of Slurm on the head, where a login node's user would run it."""
        return run([*self.head.run, *argv], env=self.env, **how)

    def wait_for_job(self, job, states):
        """Waits until the job is in one of the states, and returns it."""
        found = []

        def is_there():
            done = self.run("scontrol", "show", "job", "-o", job)
            found[:] = [w.split("=")[1] for w in done.stdout.split() if w.startswith("JobState=")]
            return bool(found) and found[0] in states
        self.wait_for(f"job {job} in {states}", is_there)
        return found[0]

    def __exit__(self, *_):
        self.run("scancel", "--full", "--user=root")
        self.stop_all()

    def stop_all(self):
        for daemon in reversed(self.daemons):
            # "ip netns exec" and "unshare" become the daemon by exec, so the signal reaches it.
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
