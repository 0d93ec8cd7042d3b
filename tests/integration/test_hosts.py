#!/usr/bin/env python3
# timeout: 300
"""`crun --hosts` runs one job on several hosts: ranks, variables, input, output, exit status, hosts
that cannot be reached, and a copy of crun where it is missing. The hosts are loopback addresses of
this machine, with a stand-in for ssh; two tests use network namespaces and a real sshd."""
import os
import pathlib
import pty
import subprocess

from crun_test import CRUN, SCALE, TIMEOUT_S, alive, clean_env, crun, read_text, run, run_tests, \
    script, signal, start, wait_for
from hosts import Sshd, local_rsh, namespace_rsh, processes_of
from netns import Net

SHOW = 'echo "$RANK/$WORLD_SIZE $GROUP_RANK/$LOCAL_RANK $MASTER_ADDR ${WHAT-unset}"'
ENV = clean_env(OMP_NUM_THREADS=1)


def on(rsh, *args, **how):
    how.setdefault("env", ENV)
    return crun("--rsh", rsh, *args, **how)


def lines(text):
    return sorted(text.splitlines())


def test_two_hosts(tmp):
    done = on(local_rsh(tmp), "--hosts", "127.0.0.2:2,127.0.0.3", "-x", "WHAT=a b", "--no-python",
              "sh", "-c", SHOW)
    assert done.returncode == 0, done
    assert lines(done.stdout) == ["[127.0.0.2] 0/3 0/0 127.0.0.2 a b",
                                  "[127.0.0.2] 1/3 0/1 127.0.0.2 a b",
                                  "[127.0.0.3] 2/3 1/0 127.0.0.2 a b"], done
    assert done.stderr == "", done


def test_the_port_of_the_rendezvous_is_one_of_the_range(tmp):
    done = on(local_rsh(tmp), "--hosts", "127.0.0.2,127.0.0.3", "--port-range=14100-14139",
              "--no-python", "sh", "-c", "tr '\\0' '\\n' < /proc/$PPID/cmdline")
    assert done.returncode == 0, done
    ends = [line.split("=")[1] for line in lines(done.stdout) if "--rdzv-endpoint=" in line]
    assert len(ends) == 2 and len(set(ends)) == 1, done
    assert 14100 <= int(ends[0].rsplit(":", 1)[1]) <= 14139, ends


def test_hostfile_and_number_of_workers(tmp):
    (tmp / "hosts").write_text("# mine\n127.0.0.2 slots=2\n127.0.0.3:2\n127.0.0.4 slots=2\n")
    done = on(local_rsh(tmp), "--hostfile", tmp / "hosts", "-np", "3", "--no-python", "sh", "-c",
              SHOW)
    assert [line.split()[1:3] for line in lines(done.stdout)] == [
        ["0/3", "0/0"], ["1/3", "0/1"], ["2/3", "1/0"]], done
    done = crun("--hostfile", tmp / "none", "true")
    assert done.returncode == 2 and "cannot read" in done.stderr, done


def test_a_tree_of_hosts(tmp):
    hosts = [f"127.0.1.{i}" for i in range(1, 12)]
    done = on(local_rsh(tmp), "--fan-out=3", "--hosts", ",".join(hosts), "--no-python", "sh", "-c",
              "echo $RANK; exec seq 1000")
    assert done.returncode == 0, done
    assert len(done.stdout.splitlines()) == 11 * 1001, done
    for i, host in enumerate(hosts):
        mine = [line.split()[1] for line in done.stdout.splitlines()
                if line.startswith(f"[{host}]")]
        assert mine == [str(i)] + [str(n) for n in range(1, 1001)], mine[:5]


def test_this_machine_needs_no_ssh(tmp):
    done = crun("--hosts", "localhost:2", "--no-python", "sh", "-c", SHOW,
                env=clean_env(OMP_NUM_THREADS=1, PATH="/usr/bin:/bin"))
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 2, done


def test_a_host_that_cannot_be_reached(tmp):
    rsh = local_rsh(tmp, lost=["127.0.0.9"])
    done = on(rsh, "--hosts", "127.0.0.2,127.0.0.9", "--no-python", "sh", "-c", SHOW)
    assert done.returncode == 1 and done.stdout == "", done
    want = ("crun: error: cannot start crun on '127.0.0.9': ssh: connect to host 127.0.0.9 port "
            f"22: No route to host ({rsh} ended with status 255)\n")
    assert done.stderr == want, done
    done = on(rsh, "--hosts", "127.0.0.9,127.0.0.2,127.0.0.3", "--nnodes=1:3", "--no-python", "sh",
              "-c", SHOW)
    assert done.returncode == 0, done
    assert sorted(line.split()[1] for line in lines(done.stdout)) == ["0/2", "1/2"], done
    assert "cannot start crun on '127.0.0.9': ssh: connect to host" in done.stderr, done


def test_hosts_behind_one_that_cannot_be_reached(tmp):
    hosts = [f"127.0.1.{i}" for i in range(1, 8)]
    rsh = local_rsh(tmp, lost=[hosts[0], hosts[5]])
    done = on(rsh, "--fan-out=2", "--hosts", ",".join(hosts), "--nnodes=5:7", "--no-python", "sh",
              "-c", SHOW)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 5, done


def test_failures_and_exit_status(tmp):
    rsh = local_rsh(tmp)
    done = on(rsh, "--hosts", "127.0.0.2,127.0.0.3", "--no-python", "sh", "-c",
              "[ $RANK = 1 ] && exit 7; sleep 1000")  # longer than on() waits
    assert done.returncode == 1, done
    assert "rank 1 (local rank 0" in done.stderr and "exit code 7" in done.stderr, done
    done = on(rsh, "--hosts", "127.0.0.2,127.0.0.3", "./nonesuch")
    assert done.returncode == 2 and "no such file" in done.stderr, done
    done = crun("--rsh", "nonesuch -x", "--hosts", "a,b", "true")
    assert done.returncode == 1 and "cannot start 'nonesuch'" in done.stderr, done


def test_the_folder_must_be_there(tmp):
    (tmp / "gone").mkdir()
    rsh = script(tmp, "rsh", f'#!/bin/sh\nshift\nrmdir {tmp}/gone 2>/dev/null\nsh -c "$*"\n')
    done = on(rsh, "--hosts", "127.0.0.2", "--no-python", "true", cwd=tmp / "gone")
    assert done.returncode == 1 and f"cannot enter the folder '{tmp}/gone'" in done.stderr, done


def test_the_secret_of_the_job(tmp):
    """Launchers get the secret on a descriptor: neither a command line nor a variable has it."""
    token, rsh = tmp / "token", local_rsh(tmp)
    token.write_text("ab" * 32 + "\n")
    token.chmod(0o600)
    look = ("for p in $PPID $(pgrep -P 1) $(pgrep crun); do tr '\\0' '\\n' < /proc/$p/cmdline; "
            "tr '\\0' '\\n' < /proc/$p/environ; done | sort -u")
    for options in (["--rdzv-token-file", token], []):
        done = on(rsh, *options, "--rdzv-conf=auth=required", "--hosts", "127.0.0.2,127.0.0.3",
                  "--no-python", "sh", "-c", look)
        assert done.returncode == 0, done
        assert "--rdzv-token-file=/proc/self/fd/" in done.stdout, done
        assert "abababab" not in done.stdout, done
    done = on(rsh, "--rdzv-conf=auth=off", "--hosts", "127.0.0.2,127.0.0.3", "--no-python", "sh",
              "-c", "tr '\\0' '\\n' < /proc/$PPID/cmdline")  # other tests may run crun with a token
    assert done.returncode == 0 and "--rdzv-conf=" in done.stdout, done
    assert "--rdzv-token-file=" not in done.stdout, done


def test_restarts(tmp):
    done = on(local_rsh(tmp), "--hosts", "127.0.0.2,127.0.0.3", "--max-restarts=1", "--no-python",
              "sh", "-c", "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && [ $RANK = 1 ] && exit 1; "
              "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 100; echo again $RANK")
    assert done.returncode == 0, done
    assert lines(done.stdout) == ["[127.0.0.2] again 0", "[127.0.0.3] again 1"], done


def test_input(tmp):
    rsh = local_rsh(tmp)
    data = "line\n" * 200000
    p = subprocess.run([CRUN, "--rsh", rsh, "--hosts", "127.0.0.2,127.0.0.3", "--no-python", "sh",
                        "-c", "wc -c"], input=data, capture_output=True, text=True, env=ENV,
                       timeout=TIMEOUT_S)
    assert lines(p.stdout) == ["[127.0.0.2] 1000000", "[127.0.0.3] 0"], p


def test_a_prompt_without_newline_is_shown(tmp):
    p = start([CRUN, "--rsh", local_rsh(tmp), "--hosts", "127.0.0.2", "--no-python", "sh", "-c",
               'printf "name? "; read name; echo "hello $name"'], stdin=subprocess.PIPE, env=ENV)
    want, got = "[127.0.0.2] name? ", ""
    while len(got) < len(want):  # the prefix and the prompt may come one after the other
        part = os.read(p.stdout.fileno(), 100).decode()
        assert part, (got, p.communicate())
        got += part
    assert got == want, got
    out, err = p.communicate("you\n", timeout=TIMEOUT_S)
    assert out == "hello you\n", (out, err)


def test_a_signal_that_was_ignored_at_the_start(tmp):
    """A script ignores SIGINT for a command that it starts in the background."""
    body = f"touch {tmp}/runs; exec sleep 1000"
    p = start(["sh", "-c", 'trap "" INT; exec "$@"', "sh", CRUN, "--rsh", local_rsh(tmp), "--hosts",
               "127.0.0.2", "--no-python", "sh", "-c", body], env=ENV)
    wait_for((tmp / "runs").exists, "the worker")
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=TIMEOUT_S)
    assert p.returncode == 1 and "got signal: 2 (SIGINT)" in err, (p.returncode, out, err)


def test_signals(tmp):
    rsh, marks = local_rsh(tmp), tmp / "marks"
    marks.mkdir()
    body = (f'trap "touch {marks}/$RANK.TERM; exit 0" TERM; trap "touch {marks}/$RANK.INT; exit 0" '
            f'INT; touch {marks}/$RANK; while :; do sleep 0.05; done')
    for which, name in ((signal.SIGTERM, "TERM"), (signal.SIGINT, "INT")):
        p = start([CRUN, "--rsh", rsh, "--hosts", "127.0.0.2,127.0.0.3", "--no-python", "sh", "-c",
                   body], env=ENV)
        wait_for(lambda: len(list(marks.glob("[01]"))) == 2, "both workers")
        p.send_signal(which)
        out, err = p.communicate(timeout=TIMEOUT_S)
        # A launcher that is about to end, because the other one has left the job, is ended by the
        # signal itself.
        assert p.returncode in (1, 128 + which), (p.returncode, out, err)
        # The launcher that gets the signal first leaves the job, for which the other one may stop
        # its worker with SIGTERM.
        got = sorted(m.name for m in marks.glob("*.*"))
        assert f"0.{name}" in got or f"1.{name}" in got, (got, err)
        assert {m[0] for m in got} == {"0", "1"}, (got, err)
        for mark in marks.iterdir():
            mark.unlink()


def test_a_signal_before_any_launcher_runs(tmp):
    rsh = script(tmp, "rsh", f"#!/bin/sh\ntouch {tmp}/called\nexec sleep 1000\n")
    p = start([CRUN, "--rsh", rsh, "--hosts", "127.0.0.2", "true"])
    wait_for((tmp / "called").exists, "the stand-in for ssh")
    p.send_signal(signal.SIGTERM)
    assert p.wait(timeout=TIMEOUT_S) == -signal.SIGTERM, p.communicate()


def test_the_width_of_the_terminal(tmp):
    rsh = local_rsh(tmp)
    master, slave = pty.openpty()
    import fcntl
    import struct
    import termios
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    p = start([CRUN, "--rsh", rsh, "--hosts", "127.0.0.2", "--no-python", "sh", "-c",
               "echo $COLUMNS"], stdout=slave, env=ENV)
    p.wait(timeout=TIMEOUT_S)
    got = os.read(master, 100).decode().strip()
    os.close(master)
    os.close(slave)
    assert got == "[127.0.0.2] 88", got


def test_a_copy_where_crun_is_missing(tmp):
    home = tmp / "home"
    home.mkdir()
    # this host lacks the starter's crun: its path cannot be executed, and PATH has none
    rsh = script(tmp, "rsh", f"""#!/bin/sh
shift
case $* in {CRUN}*|crun*) echo "sh: crun: not found" >&2; exit 127 ;; esac
unset XDG_CACHE_HOME
HOME={home} exec sh -c "$*"
""")
    line = ["--hosts", "127.0.0.2,127.0.0.3", "--no-python", "sh", "-c", SHOW]
    done = on(rsh, *line)
    assert done.returncode == 1 and "not found" in done.stderr, done
    assert "install crun there, or give --copy-crun" in done.stderr, done
    for _ in range(2):
        done = on(rsh, "--copy-crun", *line)
        assert done.returncode == 0 and len(done.stdout.splitlines()) == 2, done
        copies = list((home / ".cache/crun").iterdir())
        assert len(copies) == 1, copies
        assert copies[0].read_bytes() == pathlib.Path(CRUN).read_bytes()


def test_another_version_is_refused_or_replaced(tmp):
    home = tmp / "home"
    home.mkdir()
    old = script(tmp, "old", "#!/bin/sh\necho 'crun-deputy 2 0.0.1'\ncat >/dev/null\n")
    rsh = script(tmp, "rsh", f"""#!/bin/sh
shift
case $* in {CRUN}*) exec {old} ;; esac
unset XDG_CACHE_HOME
HOME={home} exec sh -c "$*"
""")
    line = ["--hosts", "127.0.0.2", "--no-python", "sh", "-c", SHOW]
    done = on(rsh, *line)
    assert done.returncode == 1, done
    assert "'127.0.0.2' has crun 0.0.1, but this is crun " in done.stderr, done
    done = on(rsh, "--copy-crun", *line)
    assert done.returncode == 0, done


def test_words_that_a_profile_prints(tmp):
    rsh = script(tmp, "rsh", '#!/bin/sh\nshift\necho "Welcome!"\necho motd >&2\nexec sh -c "$*"\n')
    done = on(rsh, "--hosts", "127.0.0.2", "--no-python", "sh", "-c", SHOW)
    assert done.returncode == 0, done
    assert done.stdout == "[127.0.0.2] 0/1 0/0 127.0.0.2 unset\n", done
    assert done.stderr == "[127.0.0.2] motd\n", done


def test_the_deputy_is_not_for_users(tmp):
    done = crun("--deputy")
    assert done.returncode == 2 and "not meant to be called by hand" in done.stderr, done
    done = run([CRUN, "--deputy"], stdin=subprocess.PIPE)
    assert done.returncode == 0 and done.stdout.startswith("crun-deputy "), done


def test_namespaces(tmp):
    with Net(3) as net:
        done = on(namespace_rsh(tmp, net.hosts), "--hosts",
                  ",".join(f"{h.addr}:2" for h in net.hosts), "--no-python", "sh", "-c", SHOW)
        assert done.returncode == 0, done
        assert lines(done.stdout) == [f"[10.77.0.{1 + i // 2}] {i}/6 {i // 2}/{i % 2} 10.77.0.1 "
                                      "unset" for i in range(6)], done
        wait_for(lambda: not processes_of(net.hosts), "the end of all processes")


def test_sshd(tmp):
    with Sshd(tmp) as sshd:
        line = ["--hosts", "127.0.0.2:2,127.0.0.3", "-x", "WHAT=1 '2'", "--no-python", "sh", "-c",
                SHOW]
        done = on(sshd.rsh, *line)
        assert done.returncode == 0, (done, read_text(tmp / "sshd.log"))
        assert [line.split()[1:] for line in lines(done.stdout)] == [
            ["0/3", "0/0", "127.0.0.2", "1", "'2'"], ["1/3", "0/1", "127.0.0.2", "1", "'2'"],
            ["2/3", "1/0", "127.0.0.2", "1", "'2'"]], done
        done = on(sshd.rsh.replace("/user", "/host"), *line)
        assert done.returncode == 1 and "Permission denied (publickey" in done.stderr, done
        p = start([CRUN, "--rsh", sshd.rsh, "--hosts", "127.0.0.2,127.0.0.3", "--no-python", "sh",
                   "-c", f"echo $$$$ > {tmp}/pid.$RANK; exec sleep 1000"])  # crun makes $ of $$
        files = [tmp / "pid.0", tmp / "pid.1"]
        wait_for(lambda: all(read_text(f).endswith("\n") for f in files), "the workers")
        pids = [int(read_text(f)) for f in files]
        p.kill()
        p.wait()
        wait_for(lambda: not any(alive(pid) for pid in pids), "the end of the workers",
                 timeout=10 * SCALE)


if __name__ == "__main__":
    run_tests(globals())
