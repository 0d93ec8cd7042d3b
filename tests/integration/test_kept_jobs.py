#!/usr/bin/env python3
"""crun run, ps, attach, logs and stop: jobs that live on without their terminal."""
import fcntl
import os
import pty
import signal
import socket
import struct
import subprocess
import termios

from crun_test import CRUN, alive, clean_env, crun, read_text, run, run_tests, script, skip, \
    start, wait_for

WAITS = '#!/bin/sh\ntrap "echo asked to end; exit 0" TERM\necho up $$\nwhile [ ! -e go ]; do ' \
        'sleep 0.05; done\necho gone\nexit ${1:-0}\n'


class Jobs:
    def __init__(self, tmp):
        (tmp / "jobs").mkdir(mode=0o700)
        self.tmp = tmp
        self.env = clean_env(CRUN_JOBS_DIR=tmp / "jobs", OMP_NUM_THREADS=1)
        self.program = script(tmp, "waits", WAITS)

    def __call__(self, *args, **how):
        return crun(*args, cwd=self.tmp, env=self.env, **how)

    def start(self, *args, **how):
        return start([CRUN, *args], cwd=self.tmp, env=self.env, **how)

    def state(self, name):
        lines = [line.split() for line in self("ps").stdout.splitlines()[1:]]
        found = [line for line in lines if line[0] == name]
        return " ".join(found[0][1:3]) if found and found[0][1] == "ended" else \
            found[0][1] if found else None

    def wait_for_output(self, name, text):
        wait_for(lambda: text in self("logs", name).stdout, f"'{text}' in the output of {name}")

    def detached(self, name, *args):
        done = self("run", "--detach", "--name", name, *args)
        assert done.returncode == 0 and done.stdout == f"{name}\n", done

    def pid_of_worker(self, name):
        self.wait_for_output(name, "up ")
        return int(self("logs", name).stdout.split()[1])


def test_run_is_like_crun(tmp):
    jobs = Jobs(tmp)
    done = jobs("run", "--nproc-per-node=2", "--no-python", "sh", "-c", "echo $RANK; exit 0")
    assert done.returncode == 0 and sorted(done.stdout.split()) == ["0", "1"], done
    done = jobs("run", "--no-python", "sh", "-c", "echo bad >&2; exit 3")
    assert done.returncode == 1 and "exit code 3" in done.stdout, done
    assert jobs("run", "no-such-program").returncode == 2
    assert jobs("run").returncode == 2 and jobs("run", "--detach").returncode == 2
    assert jobs("logs", "a", "b").returncode == 2 and jobs("ps", "x").returncode == 2


def test_a_job_lives_on_and_is_attached_and_stopped(tmp):
    jobs = Jobs(tmp)
    jobs.detached("job", jobs.program)
    pid = jobs.pid_of_worker("job")
    assert jobs.state("job") == "running"
    done = jobs("run", "--name=job", "true")
    assert done.returncode == 1 and "there is a job 'job' already" in done.stderr, done
    followers = [jobs.start("attach"), jobs.start("logs", "--follow", "job")]
    for f in followers:
        assert f.stdout.readline() == f"up {pid}\n"
    done = jobs("stop", "jo")
    assert done.returncode == 0 and not alive(pid), done
    for f in followers:
        out, _ = f.communicate()
        assert "asked to end" in out and f.returncode == 1, (out, f.returncode)
    assert jobs.state("job") == "ended 1"
    assert "asked to end" in jobs("logs", "job").stdout
    done = jobs("stop", "job")
    assert done.returncode == 0 and "does not run any more" in done.stderr, done


def test_many_clients_of_one_job(tmp):
    """`attach`, `logs --follow` and `stop` can be clients of one keeper at a time. If there are too
    many clients, the error says so, and does not say that the job's keeper was killed."""
    jobs = Jobs(tmp)
    first = jobs.start("run", "--name=job", jobs.program, stdin=subprocess.PIPE)
    assert first.stdout.readline().startswith("up ")
    pid = jobs.pid_of_worker("job")
    path = str(tmp / "jobs" / "job" / "socket")
    clients = []

    def connect():
        clients.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        clients[-1].connect(path)
        return clients[-1].recv(100)[:1]

    while len(clients) < 40:
        assert connect() == b"C", len(clients)
    follower = jobs.start("logs", "--follow", "job")
    assert follower.stdout.readline() == f"up {pid}\n"
    while connect() == b"C":
        assert len(clients) < 1000
    for command in (["attach"], ["logs", "--follow"], ["stop"]):
        done = jobs(*command, "job")
        assert done.returncode == 1 and "other commands follow it" in done.stderr, done
        assert "was killed" not in done.stderr, done
    assert alive(pid)
    clients.pop(0).close()
    wait_for(lambda: connect() == b"C", "a free place")  # the keeper reads the close first
    clients.pop().close()
    wait_for(lambda: jobs("stop", "job").returncode == 0, "the end of the job")
    assert not alive(pid)
    for p in (first, follower):
        assert "asked to end" in p.communicate()[0]


def test_the_exit_status_comes_through_attach(tmp):
    jobs = Jobs(tmp)
    jobs.detached("job", "--exit-codes=distinct", jobs.program, "93")
    jobs.wait_for_output("job", "up ")
    follower = jobs.start("attach", "job")
    follower.stdout.readline()
    (tmp / "go").touch()
    out, _ = follower.communicate()
    assert follower.returncode == 93 and "gone\n" in out, (follower.returncode, out)
    assert jobs("attach", "job").returncode == 93  # also after the end
    assert jobs.state("job") == "ended 93"


def test_signals_go_to_the_job_but_quit_and_hangup_detach(tmp):
    jobs = Jobs(tmp)
    first = jobs.start("run", "--name=job", jobs.program)
    assert first.stdout.readline().startswith("up ")
    first.send_signal(signal.SIGQUIT)
    _, err = first.communicate()
    assert first.returncode == 0 and "goes on" in err, (first.returncode, err)
    second = jobs.start("attach", "job")
    assert second.stdout.readline().startswith("up ")
    second.send_signal(signal.SIGHUP)
    second.communicate()
    assert second.returncode == 0 and jobs.state("job") == "running"
    third = jobs.start("attach", "job")
    assert third.stdout.readline().startswith("up ")
    third.send_signal(signal.SIGTERM)
    out, _ = third.communicate()
    assert "asked to end" in out and third.returncode == 1, (out, third.returncode)


def test_the_end_of_the_terminal_leaves_the_job(tmp):
    jobs = Jobs(tmp)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp)
        os.execve(CRUN, ["crun", "run", "--name=job", jobs.program], jobs.env)
    jobs.wait_for_output("job", "up ")
    os.close(terminal)
    os.waitpid(pid, 0)
    assert jobs.state("job") == "running"
    (tmp / "go").touch()
    wait_for(lambda: jobs.state("job") == "ended 0", "the job's end")


def test_input_goes_to_the_job(tmp):
    jobs = Jobs(tmp)
    done = jobs("run", "--no-python", "cat", input="one\ntwo\n", stdin=None)
    assert done.returncode == 0 and done.stdout == "one\ntwo\n", done
    big = tmp / "big"
    big.write_bytes(os.urandom(1 << 20))
    done = jobs("run", "--no-python", "sh", "-c", f"sleep 0.3; cmp - {big}", stdin=open(big, "rb"))
    assert done.returncode == 0, done
    # a job that does not read its input, and one that closes it
    done = jobs("run", "--no-python", "true", stdin=open(big, "rb"))
    assert done.returncode == 0, done
    done = jobs("run", "--detach", "--name=quiet", "--no-python", "cat")
    wait_for(lambda: jobs.state("quiet") == "ended 0", "the end of stdin of a detached job")


def test_input_goes_on_after_a_detach(tmp):
    jobs = Jobs(tmp)
    program = ["--no-python", "sh", "-c", 'while read word; do echo "got $word"; done; echo over']
    first = jobs.start("run", "--name=talk", *program, stdin=subprocess.PIPE)
    first.stdin.write("one\n")
    first.stdin.flush()
    assert first.stdout.readline() == "got one\n"
    first.kill()
    first.wait()
    # the end of what an attached client has to say is not the end of the job's input
    second = jobs.start("attach", "talk", stdin=subprocess.PIPE)
    second.stdin.write("two\n")
    second.stdin.close()
    assert [second.stdout.readline() for _ in range(2)] == ["got one\n", "got two\n"]
    second.send_signal(signal.SIGQUIT)
    assert second.wait() == 0
    third = jobs.start("attach", "talk", stdin=subprocess.PIPE)
    third.stdin.write("three\n")
    third.stdin.flush()
    jobs.wait_for_output("talk", "got three")
    assert jobs("stop", "talk").returncode == 0
    third.wait()


def test_the_job_learns_the_width_of_the_terminal(tmp):
    jobs = Jobs(tmp)
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 133, 0, 0))
    jobs.env.pop("COLUMNS", None)
    p = jobs.start("run", "--no-python", "sh", "-c", "echo width $COLUMNS", stdout=follower,
                   stderr=follower)
    os.close(follower)
    text = ""
    while "width 133" not in text:
        text += os.read(leader, 1000).decode()
    assert p.wait() == 0
    os.close(leader)


def test_a_killed_client_leaves_the_job(tmp):
    jobs = Jobs(tmp)
    client = jobs.start("run", "--name=job", jobs.program)
    assert client.stdout.readline().startswith("up ")
    client.kill()
    client.communicate()
    assert jobs.state("job") == "running" and jobs("stop").returncode == 0


def test_a_killed_keeper_ends_the_job(tmp):
    jobs = Jobs(tmp)
    jobs.detached("job", jobs.program)
    worker = jobs.pid_of_worker("job")
    launcher = int(read_text(f"/proc/{worker}/stat").rsplit(")", 1)[1].split()[1])
    keeper = int(read_text(f"/proc/{launcher}/stat").rsplit(")", 1)[1].split()[1])
    assert read_text(f"/proc/{keeper}/comm").strip() == "crun-keeper"
    os.kill(keeper, signal.SIGKILL)
    wait_for(lambda: not alive(worker) and not alive(launcher), "the job's end")
    assert jobs.state("job") == "lost"
    jobs("stop", "job")
    assert jobs.state("job") == "ended 1"


def test_a_stopped_reader_does_not_stop_the_job(tmp):
    jobs = Jobs(tmp)
    flood = jobs.start("run", "--name=job", "--no-python", "sh", "-c", "seq 200000")
    wait_for(lambda: jobs.state("job") == "ended 0", "the end of a job whose output nobody reads")
    out, _ = flood.communicate()
    assert out.splitlines()[-1] == "200000" and flood.returncode == 0


def test_other_users_cannot_reach_the_job(tmp):
    if os.geteuid() != 0:
        print("SKIP of this part: only root can act as a second user")
        return
    jobs = Jobs(tmp)
    jobs.detached("job", jobs.program)
    jobs.wait_for_output("job", "up ")
    os.chmod(tmp, 0o755)
    done = run(["setpriv", "--reuid=65534", "--clear-groups", CRUN, "stop", "job"], env=jobs.env)
    assert done.returncode == 1 and "only you may enter" in done.stderr, done
    os.chmod(tmp / "jobs", 0o755)  # even if the folder were open, the keeper refuses the stranger
    os.chmod(tmp / "jobs" / "job", 0o755)
    os.chmod(tmp / "jobs" / "job" / "socket", 0o777)
    send = ("import socket, struct, sys\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
            "s.connect(sys.argv[1])\ntry:\n    s.send(struct.pack('=cxxxi', b'S', 15))\n"
            "    s.recv(8)\nexcept OSError: pass\n")
    done = run(["setpriv", "--reuid=65534", "--clear-groups", "python3", "-c", send,
                tmp / "jobs" / "job" / "socket"])
    assert done.returncode == 0, done
    os.chmod(tmp / "jobs", 0o700)
    assert jobs.state("job") == "running" and "asked" not in jobs("logs", "job").stdout
    assert jobs("stop", "job").returncode == 0


def test_a_file_of_this_name_is_the_program(tmp):
    jobs = Jobs(tmp)
    script(tmp, "run", "#!/bin/sh\necho I am the file run, $1\n")
    done = jobs("run", "--detach")
    assert done.returncode == 0 and done.stdout == "I am the file run, --detach\n", done


if __name__ == "__main__":
    if os.environ.get("CRUN_JOBS_DIR"):
        skip("CRUN_JOBS_DIR is set")
    run_tests(globals())
