#!/usr/bin/env python3
# timeout: 300
"""crun --on: jobs that are started through the daemons of the hosts (crun-agent jobs), as the user
who has called, and what the daemon refuses. The hosts are network namespaces, or loopback."""
import os
import pwd
import shutil
import signal
import socket
import subprocess

from crun_test import CRUN, alive, clean_env, read_text, run, run_tests, skip, start, wait_for
from hosts import processes_of
from job_daemon import AGENT, Cluster
from netns import Net
from secure_raw import Channel, Refused, mac

NOBODY, NOBODY_NAME = 65534, b"65534:nobody"
SELF = f"{os.geteuid()}:{pwd.getpwuid(os.geteuid()).pw_name}"
SHOW = "echo $RANK/$WORLD_SIZE $GROUP_RANK $(id -u)"


def need_root():
    if os.geteuid() != 0:
        skip("only root can become other users")


def lines(text):
    return sorted(line for line in text.splitlines() if line.startswith("["))


# ---- a call ----


def test_a_call_is_like_ssh(tmp):
    with Cluster(tmp) as cluster:
        done = cluster.call("cat; echo bad >&2; exit 3", stdin=subprocess.PIPE)
        assert (done.returncode, done.stdout, done.stderr) == (3, "", "bad\n"), done
        done = cluster.call("kill -KILL $$")
        assert done.returncode == 128 + 9, done
        big = tmp / "big"
        big.write_bytes(os.urandom(3 << 20))
        done = cluster.call(f"cmp - {big}", stdin=open(big, "rb"))
        assert done.returncode == 0, done
        done = cluster.call(f"od -An -tx1 -v {big} | md5sum; od -An -tx1 -v -N 300000 {big}")
        assert len(done.stdout.split()) == 2 + 300000, len(done.stdout)
        # a process that keeps the pipes does not keep the call
        done = cluster.call("sleep 1000 & echo $!")
        assert done.returncode == 0 and alive(int(done.stdout)), done
        os.kill(int(done.stdout), signal.SIGKILL)


def test_the_command_ends_with_its_connection(tmp):
    with Cluster(tmp) as cluster:
        pid_file = tmp / "pid"
        p = start([CRUN, "--call", "127.0.0.1", f"echo $$ > {pid_file}; exec sleep 1000"],
                  env=cluster.first.env(), stdin=subprocess.PIPE)
        wait_for(lambda: read_text(pid_file).endswith("\n"), "the command")
        p.kill()
        p.wait()
        wait_for(lambda: not alive(int(read_text(pid_file))), "the end of the command")


def test_a_host_without_a_daemon_is_named(tmp):
    with Cluster(tmp) as cluster:
        done = cluster.crun("--on", "127.0.0.1,127.0.0.2", "--no-python", "true",
                            env={"CRUN_AGENT_PORT": "1"})
        assert done.returncode == 1 and "'127.0.0.2': cannot reach the daemon" in done.stderr, done
        assert "port 1: Connection refused" in done.stderr, done
        done = cluster.crun("ps", "--on=127.0.0.1,127.0.0.2", env={"CRUN_AGENT_SOCKET": "/none"})
        assert done.returncode == 1 and done.stderr.count("no daemon answers") == 1, done
        done = cluster.crun("--on=127.0.0.2", "true", env={"CRUN_AGENT_SOCKET": "/none"})
        assert done.returncode == 1 and done.stderr.startswith("crun: error: cannot start crun on "
            "'127.0.0.2': cannot get this user's key: no daemon answers at '/none'"), done
        done = cluster.call("true", env={"CRUN_AGENT_SOCKET": "/none"})
        assert done.returncode == 255 and "no daemon answers at '/none'" in done.stderr, done


def test_a_user_in_front_of_a_host_is_refused(tmp):
    with Cluster(tmp) as cluster:
        (tmp / "hosts").write_text("127.0.0.1\nme@127.0.0.1\n")
        for on in (["--on=me@127.0.0.1"], ["--on=all"]):
            for command in ([*on, "true"], ["ps", *on]):
                done = cluster.crun(*command, env={"CRUN_CLUSTER_HOSTS": tmp / "hosts"})
                assert done.returncode == 2 and "write '127.0.0.1'" in done.stderr, done


# ---- jobs ----


def test_a_job_on_two_hosts(tmp):
    with Net(2) as net, Cluster(tmp, net.hosts) as cluster:
        want = [f"[10.77.0.{1 + i // 2}] {i}/4 {i // 2} {os.geteuid()}" for i in range(4)]
        done = cluster.crun("--on", ",".join(f"{h.addr}:2" for h in net.hosts), "--no-python",
                            "sh", "-c", SHOW)
        assert done.returncode == 0 and lines(done.stdout) == want, done
        (tmp / "hosts").write_text("".join(f"{h.addr} slots=2\n" for h in net.hosts))
        done = cluster.crun("--on=all", "--no-python", "sh", "-c", SHOW,
                            env={"CRUN_CLUSTER_HOSTS": tmp / "hosts"})
        assert done.returncode == 0 and lines(done.stdout) == want, done
        # the rendezvous of one host is closed to others, too
        done = cluster.crun("--on", net.hosts[1].addr, "--no-python", "sh", "-c", SHOW)
        assert done.stdout == f"[10.77.0.2] 0/1 0 {os.geteuid()}\n" and done.stderr == "", done
        done = cluster.crun("--on", cluster.names, "--no-python", "sh", "-c", "exit 5")
        assert done.returncode == 1 and "exit code 5" in done.stderr, done
        done = cluster.crun("--on", cluster.names, "--no-python", "cat", input="to rank 0\n",
                            stdin=None)
        assert done.stdout == "[10.77.0.1] to rank 0\n", done


def test_a_tree_of_hosts(tmp):
    with Net(4) as net, Cluster(tmp, net.hosts) as cluster:
        done = cluster.crun("--on", cluster.names, "--fan-out=2", "--no-python", "sh", "-c", SHOW)
        assert done.returncode == 0, done
        assert lines(done.stdout) == [f"[10.77.0.{i + 1}] {i}/4 {i} {os.geteuid()}"
                                      for i in range(4)], done


def test_nothing_is_left_when_the_starter_is_killed(tmp):
    with Net(2) as net, Cluster(tmp, net.hosts) as cluster:
        p = start([*net.hosts[0].run, CRUN, "--on", cluster.names, "--no-python", "sh", "-c",
                   f"touch {tmp}/up.$RANK; setsid sleep 1000 & exec sleep 1000"],
                  env=cluster.first.env())
        wait_for(lambda: len(list(tmp.glob("up.*"))) == 2, "the workers")
        # A caller is a fork of the starter. If it held the pipes of another caller open, that
        # caller's host would not see the end of its input.
        callers = run(["ps", "--ppid", str(p.pid), "-o", "pid=,comm="]).stdout.splitlines()
        assert len(callers) == 2, callers
        for pid, comm in (line.split() for line in callers):
            assert comm == "crun-call" and len(os.listdir(f"/proc/{pid}/fd")) == 4, callers
        os.kill(p.pid, signal.SIGKILL)
        p.wait()
        daemons = {str(d.p.pid) for d in cluster.daemons}
        wait_for(lambda: set(processes_of(net.hosts)) == daemons, "the end of all else")


def test_the_daemons_are_restarted_while_a_job_runs(tmp):
    """The program is replaced, as for an upgrade. One daemon then ends by SIGTERM, the other by
    SIGKILL; the job does not notice, and the new daemons serve at the old ports and sockets."""
    agent = tmp / "crun-agent"
    shutil.copy(AGENT, agent)
    with Net(2) as net, Cluster(tmp, net.hosts, agent) as cluster:
        p = start([*net.hosts[0].run, CRUN, "--on", cluster.names, "--no-python", "sh", "-c",
                   f"touch {tmp}/up.$RANK; until [ -e {tmp}/go ]; do sleep 0.05; done; {SHOW}"],
                  env=cluster.first.env())
        wait_for(lambda: len(list(tmp.glob("up.*"))) == 2, "the workers")
        shutil.copy(AGENT, tmp / "new")
        os.replace(tmp / "new", agent)
        assert cluster.call("echo still here").stdout == "still here\n"
        for daemon, signum in zip(cluster.daemons, (signal.SIGTERM, signal.SIGKILL)):
            daemon.p.send_signal(signum)
            assert daemon.p.wait() == (0 if signum == signal.SIGTERM else -signal.SIGKILL)
        for daemon in cluster.daemons:
            daemon.start()
        done = cluster.crun("--on", cluster.names, "--no-python", "sh", "-c", SHOW)
        assert done.returncode == 0 and len(lines(done.stdout)) == 2, done
        (tmp / "go").touch()
        out, err = p.communicate()
        assert p.returncode == 0 and len(lines(out)) == 2, (out, err)


def test_a_kept_job_on_two_hosts(tmp):
    with Net(2) as net, Cluster(tmp, net.hosts) as cluster:
        (tmp / "jobs").mkdir(mode=0o700)
        keep = {"CRUN_JOBS_DIR": tmp / "jobs"}
        done = cluster.crun("run", "--detach", "--name=two", "--on", cluster.names, "--no-python",
                            "sh", "-c", f"{SHOW}; exec sleep 1000", env=keep)
        assert done.stdout == "two\n", done
        wait_for(lambda: len(lines(cluster.crun("logs", "two", env=keep).stdout)) == 2, "output")
        # from another host, through the daemon of the host where the job was started
        there = {**keep, "CRUN_AGENT_SOCKET": cluster.daemons[1].socket}
        from_other = [*net.hosts[1].run, "env", *(f"{k}={v}" for k, v in there.items()), CRUN]
        done = run([*from_other, "ps", "--on", net.hosts[0].addr])
        assert done.stdout.splitlines()[1].split()[:2] == ["two", "running"], done
        done = run([*from_other, "ps", "--on", cluster.names])
        assert [line for line in done.stdout.splitlines() if line[0] == "["] == [
            f"[{h.addr}]" for h in net.hosts] and done.returncode == 0, done
        assert len(lines(run([*from_other, "logs", f"--on={net.hosts[0].addr}"]).stdout)) == 2
        done = run([*from_other, "logs", f"--on={net.hosts[0].addr}", "it's"])
        assert done.returncode == 1 and "no job has the id 'it's'" in done.stderr, done
        done = run([*from_other, "attach", "--on", cluster.names])
        assert done.returncode == 2 and "give one" in done.stderr, done
        assert run([*from_other, "stop", "--on", net.hosts[0].addr, "two"]).returncode == 0
        daemons = {str(d.p.pid) for d in cluster.daemons}
        wait_for(lambda: set(processes_of(net.hosts)) == daemons, "the end of all else")


# ---- users ----


def test_a_job_runs_as_the_user_who_calls(tmp):
    need_root()
    with Net(2) as net, Cluster(tmp, net.hosts) as cluster:
        done = cluster.crun("--on", cluster.names, "--no-python", "sh", "-c", SHOW, user=NOBODY,
                            cwd="/")
        assert lines(done.stdout) == [f"[10.77.0.{i + 1}] {i}/2 {i} {NOBODY}" for i in (0, 1)], done
        done = cluster.call(f"id -G; grep -c . {cluster.token}; grep Cap /proc/self/status",
                            user=NOBODY, cwd="/")
        assert done.stdout.startswith("65534\n"), done
        assert "Permission denied" in done.stderr, done
        assert "CapEff:\t0000000000000000\n" in done.stdout, done


def test_a_session_of_a_user_keeps_no_secret(tmp):
    """The process that carries the bytes of a user's command belongs to that user, who must be able
    neither to read its memory nor to find the cluster's secret in it."""
    need_root()
    with Cluster(tmp) as cluster:
        command = "echo $PPID; cat /proc/$PPID/maps > /dev/null; exec sleep 1000"
        p = start(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", CRUN,
                   "--call", "127.0.0.1", command], env=cluster.first.env(), cwd="/",
                  stdin=subprocess.PIPE)
        session = int(p.stdout.readline())
        assert "Permission denied" in p.stderr.readline()
        ids = "\t".join([str(NOBODY)] * 4)
        assert f"Uid:\t{ids}\n" in read_text(f"/proc/{session}/status")
        memory = memory_of(session)
        assert NOBODY_NAME in memory  # so it is the memory of the session
        assert cluster.secret.encode() not in memory
        # what the keys of all users follow from
        assert mac(b"crun rendezvous 1", cluster.secret.encode()) not in memory
        p.kill()
        p.wait()
        wait_for(lambda: not alive(session), "the end of the session")


def memory_of(pid):
    found = b""
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in read_text(f"/proc/{pid}/maps").splitlines():
            span, rights = line.split()[:2]
            begin, end = (int(x, 16) for x in span.split("-"))
            if rights.startswith("rw") and end - begin < 256 << 20:  # not the shadow of ASan
                memory.seek(begin)
                found += memory.read(end - begin)
    return found


def test_a_key_in_a_file(tmp):
    need_root()
    with Cluster(tmp) as cluster:
        done = run([AGENT, "key", "--role=user", "--user=nobody", "--rdzv-token-file",
                    cluster.token])
        assert done.returncode == 0 and done.stdout.startswith("crun-key:user:"), done
        assert done.stdout.endswith(":65534:nobody\n"), done
        key = tmp / "key"
        key.write_text(done.stdout)
        key.chmod(0o644)
        env = {"CRUN_USER_KEY": key, "CRUN_AGENT_SOCKET": "/none"}
        refused = cluster.call("id -u", env=env)
        assert refused.returncode == 255 and "others can read it" in refused.stderr, refused
        key.chmod(0o600)
        done = cluster.call("id -u", env=env)
        assert done.stdout == f"{NOBODY}\n", done
        # the key of one user does not serve another
        key.write_text(read_text(key).replace("65534:nobody", "0:root"))
        done = cluster.call("id -u", env=env)
        assert done.returncode == 255 and "it has another secret" in done.stderr, done


def as_nobody(*command):
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]


def test_a_daemon_of_a_user_serves_that_user_only(tmp):
    need_root()
    tmp.chmod(0o755)
    own = tmp / "own"
    own.mkdir()
    token = own / "token"
    token.touch(mode=0o600)
    token.write_text("e" * 64)
    for path in (own, token):
        os.chown(path, NOBODY, NOBODY)
    daemon = start(as_nobody(AGENT, "jobs", "--listen=127.0.0.1:0", "--rdzv-token-file", token,
                             "--socket", own / "s"))
    port = daemon.stdout.readline().strip().rsplit(":", 1)[1]
    env = clean_env(CRUN_AGENT_SOCKET=own / "s", CRUN_AGENT_PORT=port, HOME="/none")
    done = run(as_nobody(CRUN, "--call", "127.0.0.1", "id -u"), env=env, cwd="/")
    assert done.stdout == f"{NOBODY}\n", done
    # root takes no key from somebody else's daemon, and with a key of the own gets nothing there
    done = run([CRUN, "--call", "127.0.0.1", "id -u"], env=env)
    assert done.returncode == 255 and f"runs as the user {NOBODY}, not as root" in done.stderr, done
    os.chown(token, 0, 0)
    key = run([AGENT, "key", "--role=user", "--user=root", "--rdzv-token-file", token]).stdout
    os.chown(token, NOBODY, NOBODY)
    (tmp / "key").touch(mode=0o600)
    (tmp / "key").write_text(key)
    env["CRUN_USER_KEY"] = str(tmp / "key")
    done = run([CRUN, "--call", "127.0.0.1", "id -u"], env=env)
    assert done.returncode == 255, done
    assert f"this daemon runs as the user {NOBODY}, so it runs no command of 'root'" in done.stderr
    daemon.terminate()
    assert daemon.wait() == 0


# ---- attacks ----


def attempt(cluster, *who, **how):
    sock = socket.create_connection(("127.0.0.1", cluster.first.port), timeout=60)
    return Channel(sock, *who, **how)


def refusal(cluster, *who, **how):
    try:
        attempt(cluster, *who, **how)
    except Refused as e:
        return e.args[0]
    return None


def command(text):
    payload = b"\x01" + text.encode()
    return len(payload).to_bytes(4, "big") + b"\x01" + payload


def answer_of(channel):
    data = b""
    while True:
        more = channel.recv(65536)
        if not more:
            return data
        data += more


def test_who_has_no_key_is_refused(tmp):
    with Cluster(tmp) as cluster:
        mark = tmp / "mark"
        assert refusal(cluster, "f" * 64, "user", "0:root") == 1
        user_key = run([AGENT, "key", "--role=user", "--user=nobody", "--rdzv-token-file",
                        cluster.token]).stdout.strip()
        assert refusal(cluster, user_key, "user", "0:root") == 1
        assert refusal(cluster, user_key, "operator", "") == 1
        # somebody who has the key of another role, or of an account that is not there
        for role, run_id, words in (("member", "job", b"runs no commands"),
                                    ("operator", "", b"runs no commands"),
                                    ("user", "12345:root", b"has the number 0 on this host"),
                                    ("user", "1:no-such-user", b"there is no account")):
            channel = attempt(cluster, cluster.secret, role, run_id)
            channel.send(command(f"touch {mark}"))
            answer = answer_of(channel)
            assert answer[4] == 6 and words in answer, (role, answer)
            channel.close()
        assert not mark.exists()
        wait_for(lambda: cluster.first.log().count("refused 127.0.0.1:") == 7, "the log")


def test_nonsense_and_replays_are_refused(tmp):
    with Cluster(tmp) as cluster:
        mark = tmp / "mark"
        for words in (b"GET / HTTP/1.0\r\n\r\n", b"CRUNrdzv" + bytes(100), b"CRUNsec1" + bytes(100),
                      os.urandom(1000)):
            sock = socket.create_connection(("127.0.0.1", cluster.first.port), timeout=60)
            sock.sendall(words)
            assert sock.recv(100) in (b"", b"CRUNA\x01", b"CRUNA\x03"), words
            sock.close()
        # the recorded bytes of a caller
        channel = attempt(cluster, cluster.secret, "user", SELF)
        channel.send(command(f"echo x >> {mark}"))
        answer_of(channel)
        recorded = channel.record(command(f"echo x >> {mark}"))
        second = attempt(cluster, cluster.secret, "user", SELF)
        second.socket.sendall(recorded)
        assert second.socket.recv(100) == b""
        assert read_text(mark) == "x\n"
        # an authenticated caller that sends nonsense
        for frame in (b"\xff\xff\xff\xff\x01", b"\x00\x00\x00\x01\x09x", b"\x00\x00\x00\x01\x02x"):
            third = attempt(cluster, cluster.secret, "user", SELF)
            third.send(frame)
            assert third.socket.recv(100) == b"", frame
        # a caller of another version
        other = attempt(cluster, cluster.secret, "user", SELF)
        other.send(b"\x00\x00\x00\x04\x01\x07abc")
        answer = answer_of(other)
        assert answer[4] == 6 and b"does not know version 7 of the messages" in answer, answer
        assert cluster.call("echo fine").stdout == "fine\n"


def test_another_program_at_the_port_is_told_from_a_refused_key(tmp):
    with Cluster(tmp) as cluster, socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        for answer, words in ((b"SSH-2.0-OpenSSH_9.2\r\n", "it speaks another protocol"),
                              (b"CRUNA\x03", "it has another version of the authenticated")):
            p = start([CRUN, "--call", "127.0.0.1", "true"], stdin=subprocess.DEVNULL,
                      env=cluster.first.env(CRUN_AGENT_PORT=port))
            connection, _ = other.accept()
            connection.recv(1000)
            connection.sendall(answer)
            err = p.communicate()[1]
            connection.close()
            assert p.returncode == 255 and f"at '127.0.0.1' port {port}: {words}" in err, err
            assert "refuses this user's key" not in err, err


def test_silent_strangers_do_not_keep_out_others(tmp):
    with Net(2) as net, Cluster(tmp, net.hosts) as cluster:
        stranger = start([*net.hosts[1].run, "python3", "-c", f"""
import socket, time
all = [socket.create_connection(("10.77.0.1", {cluster.first.port})) for _ in range(200)]
print("up", flush=True)
time.sleep(1000)
"""])
        assert stranger.stdout.readline() == "up\n"
        done = cluster.crun("--call", "10.77.0.1", "echo fine")
        assert done.stdout == "fine\n", done
        stranger.kill()
        stranger.wait()


if __name__ == "__main__":
    run_tests(globals())
