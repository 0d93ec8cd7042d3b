#!/usr/bin/env python3
# timeout: 500
"""Tests the backend etcd with a real etcd cluster of three members, with and without TLS. The nodes
elect a leader; if it dies, another one leads under a higher epoch. The job must go on if the
leader, an etcd member, or both are lost. A round must go on without any stop while members of etcd
stall, while etcd has no majority, and while the leader alone cannot reach etcd."""
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import netns
from crun_test import CRUN, PACE, SCALE, clean_env, read_text, run_tests, skip, wait_for
from etcd_cluster import ETCD, Authority, EtcdCluster
from nodes import Nodes
from free_port import free_port
from rdzv_node import Cast, end_well, go_on

# Leases short enough for a test, long enough for a busy machine.
SETTINGS = ["min_nodes=2", "max_nodes=3", "keep_alive_interval_ms=1000", "keep_alive_max_attempt=3",
            "join_timeout_ms=60000", "last_call_timeout_ms=1000"]
CONF = ["last_call_timeout=1", "keep_alive_interval=1"]


def led(node):
    return any("(this node)" in line for line in node.story)


def three(cast, cluster):
    nodes = [cast.node("etcd", cluster.endpoint, *SETTINGS, f"local_world_size={i + 1}")
             for i in range(3)]
    for n in nodes:
        n.until_round(lambda m: m["groups"] == 3)
    leader = next(n for n in nodes if led(n))
    return leader, [n for n in nodes if n is not leader]


def test_a_round_and_a_good_end(tmp):
    with EtcdCluster(tmp, 1) as cluster, Cast() as cast:
        leader, others = three(cast, cluster)
        others[0].tell("fail")  # no restart is left: all nodes end
        for n in [leader, *others]:
            while not (line := n.next()).startswith("end"):
                assert line.startswith("stop"), line
            assert "exit code 7" in line


def test_the_leader_dies_and_another_takes_over(tmp):
    with EtcdCluster(tmp) as cluster, Cast() as cast:
        leader, others = three(cast, cluster)
        leader.signal(signal.SIGKILL)
        go_on(others, 0)
        assert any(led(n) for n in others)
        seen = epochs(others[0])
        assert seen == sorted(set(seen)) and len(seen) == 2, seen
        end_well(others)


def test_nobody_waits_for_a_leader_whose_process_has_ended(tmp):
    """With the default lease of 15 s. The others resume with the new leader; only the dead leader's
    node is missing, so the next round need not wait until its workers are certainly gone."""
    with EtcdCluster(tmp, 1) as cluster, Cast() as cast:
        slow = [s for s in SETTINGS if not s.startswith("keep_alive")]
        nodes = [cast.node("etcd", cluster.endpoint, *slow) for _ in range(3)]
        for n in nodes:
            n.until_round(lambda m: m["groups"] == 3)
        leader = next(n for n in nodes if led(n))
        others = [n for n in nodes if n is not leader]
        leader.signal(signal.SIGKILL)
        began = time.monotonic()
        go_on(others, 0)
        took = time.monotonic() - began
        print(f"the next round began {took:.1f} s after the leader's death")
        assert took < 12 * SCALE, took  # 5 s of it is the leader's lease in etcd
        end_well(others)


def test_the_leader_leaves_and_another_takes_over(tmp):
    with EtcdCluster(tmp, 1) as cluster, Cast() as cast:
        leader, others = three(cast, cluster)
        leader.tell("leave")
        leader.tell("quit")
        go_on(others, 0)
        end_well(others)


def test_a_member_of_etcd_dies(tmp):
    with EtcdCluster(tmp) as cluster, Cast() as cast:
        leader, others = three(cast, cluster)
        cluster.kill(0)  # the etcd member that is every node's endpoint
        others[0].signal(signal.SIGKILL)
        after = go_on([leader, others[1]], 0)[0]["round"]
        late = cast.node("etcd", f"127.0.0.1:{cluster.ports[1]}", *SETTINGS)
        go_on([leader, others[1], late], after)
        end_well([leader, others[1], late])


def test_a_member_and_the_leader_die_together(tmp):
    with EtcdCluster(tmp) as cluster, Cast() as cast:
        leader, others = three(cast, cluster)
        cluster.kill(0)
        leader.signal(signal.SIGKILL)
        go_on(others, 0)
        end_well(others)


def test_a_leader_that_sleeps_is_replaced_and_obeys_when_it_wakes(tmp):
    with EtcdCluster(tmp, 1) as cluster, Cast() as cast:
        leader, others = three(cast, cluster)
        leader.signal(signal.SIGSTOP)
        after = go_on(others, 0)[0]["round"]
        leader.signal(signal.SIGCONT)
        go_on([leader, *others], after)
        end_well([leader, *others])


def test_no_etcd_is_said(tmp):
    with Cast() as cast:
        node = cast.node("etcd", f"127.0.0.1:{free_port()}", *SETTINGS,
                         f"read_timeout_ms={round(2000 * PACE)}")
        end = node.expect("end")
        assert end.startswith("2 cannot reach the rendezvous at '") and "no answer" not in end, end
        assert "': Connection refused; is etcd up, the address right, and no firewall" in end, end
        assert node.wait() == 0


def test_real_launchers_survive_their_leader(tmp):
    with EtcdCluster(tmp) as cluster, Nodes(tmp, "--nnodes=2:3", backend="etcd",
                                        endpoint=cluster.endpoint,
                                        conf="last_call_timeout=1,keep_alive_interval=1") as nodes:
        launchers = {name: nodes.start(name) for name in "abc"}
        first = nodes.round(3)
        leader = next(n for n in launchers.values() if "(this node)" in n.text)
        cluster.kill(0)
        leader.signal(signal.SIGKILL)
        second = nodes.round(2)
        nodes.gone(first)
        assert {w.restarts for w in second} == {0}
        assert leader.name not in {w.node for w in second}
        for w in second:
            w.signal(signal.SIGUSR2)
        assert all(n.wait() == 0 for n in launchers.values() if n is not leader)

def test_a_job_with_a_secret_survives_its_leader(tmp):
    """The leaders and their nodes authenticate each other; a node without the secret, which finds
    the leader in etcd, is refused."""
    token = tmp / "token"
    token.touch(0o600)
    token.write_text("a secret of more than 32 characters\n")
    with EtcdCluster(tmp) as cluster, Nodes(tmp, "--nnodes=2:3", backend="etcd",
                                        endpoint=cluster.endpoint,
                                        conf="last_call_timeout=1,keep_alive_interval=1") as nodes:
        secret = f"--rdzv-token-file={token}"
        launchers = [nodes.start(name, secret) for name in "abc"]
        first = nodes.round(3)
        leader = next(n for n in launchers if "(this node)" in n.text)
        stranger = nodes.start("d", "--rdzv-conf=last_call_timeout=1,candidate=0")
        assert stranger.wait() == 1
        assert "only those that have the job's secret" in stranger.text, stranger.text
        leader.signal(signal.SIGKILL)
        second = nodes.round(2)
        nodes.gone(first)
        assert {w.restarts for w in second} == {0}
        for w in second:
            w.signal(signal.SIGUSR2)
        assert all(n.wait() == 0 for n in launchers if n is not leader)


def epochs(node):
    return [int(line.rsplit("epoch ", 1)[1]) for line in node.story if "epoch" in line]


# ---- nothing stops while nothing needs a decision ----


def undisturbed(nodes, workers):
    """No worker was stopped, and no launcher reports the end of a round."""
    assert all(w.alive for w in workers), [(w.node, w.alive) for w in workers]
    for n in nodes.nodes:
        assert " is over: " not in n.text, n.text


def launchers(tmp, cluster, *more, count=3):
    """The job of `count` real launchers, and the workers of its first round."""
    nodes = Nodes(tmp, f"--nnodes=1:{count}", *more, backend="etcd", endpoint=cluster.endpoint,
                  conf=",".join(CONF + cluster.conf()))
    return nodes


def leader_of(nodes):
    """The node that led last."""
    leaders = [n for n in nodes.nodes if "(this node)" in n.text and n.process.poll() is None]
    assert len(leaders) == 1, [n.name for n in leaders]
    return leaders[0]


def test_members_stall_in_turn_and_the_leader_dies(tmp):
    """A member that stalls for longer than a lease must neither stop workers nor make a node drop
    out of the election."""
    with EtcdCluster(tmp, tls=True) as cluster, launchers(tmp, cluster) as nodes:
        for name in "abc":
            nodes.start(name)
        workers = nodes.round(3)
        for i in range(3):
            cluster.stall(i)
            time.sleep(3.5)  # the fault lasts longer than the lease
            cluster.go_on(i)
            cluster.wait(range(3))
        undisturbed(nodes, workers)
        leader = leader_of(nodes)
        leader.signal(signal.SIGKILL)
        second = nodes.round(2)
        assert {w.restarts for w in second} == {0} and leader.name not in {w.node for w in second}
        for w in second:
            w.signal(signal.SIGUSR2)
        assert all(n.wait() == 0 for n in nodes.nodes if n is not leader)


def test_a_stall_and_the_leaders_death_together(tmp):
    with EtcdCluster(tmp, tls=True) as cluster, launchers(tmp, cluster, count=2) as nodes:
        nodes.start("a"), nodes.start("b")
        nodes.round(2)
        cluster.stall(0)
        leader_of(nodes).signal(signal.SIGKILL)
        assert {w.restarts for w in nodes.round(1)} == {0}
        cluster.go_on(0)


def test_the_majority_is_lost_and_comes_back(tmp):
    with EtcdCluster(tmp, tls=True) as cluster, launchers(tmp, cluster) as nodes:
        for name in "abc":
            nodes.start(name)
        workers = nodes.round(3)
        leader = leader_of(nodes)
        cluster.kill(1)
        cluster.kill(2)
        wait_for(lambda: "does not confirm this node" in leader.text, "the leader's warning")
        time.sleep(8)  # the outage lasts longer than all leases
        undisturbed(nodes, workers)
        cluster.restart(1)
        cluster.restart(2)
        cluster.wait(range(3))
        wait_for(lambda: cluster.keys(), "the leader's key")
        undisturbed(nodes, workers)
        next(w for w in workers if w.node != leader.name).signal(signal.SIGKILL)
        for n in nodes.nodes:  # no restart is left: the job ends everywhere, by the coordinator
            assert n.wait() == 1
            assert "exit" in n.text or "SIGKILL" in n.text, n.text


def test_a_failure_while_the_majority_is_lost_waits_for_it(tmp):
    with EtcdCluster(tmp, tls=True) as cluster, \
            launchers(tmp, cluster, "--max-restarts=3") as nodes:
        for name in "abc":
            nodes.start(name)
        first = nodes.round(3)
        leader = leader_of(nodes)
        cluster.kill(1)
        cluster.kill(2)
        wait_for(lambda: "does not confirm this node" in leader.text, "the leader's warning")
        first[0].signal(signal.SIGKILL)
        nodes.gone(first)
        wait_for(lambda: "this node stands by" in leader.text, "the leader to stand by")
        assert not any(w.alive for w in nodes.workers())
        cluster.restart(1)
        cluster.restart(2)
        second = nodes.round(3)
        assert {w.restarts for w in second} == {1}


class Proxy:
    """Carries connections to a port, until it is cut: then they stay open, but nothing flows."""

    def __init__(self, port):
        self.target, self.listener = ("127.0.0.1", port), socket.create_server(("127.0.0.1", 0))
        self.port, self.flows, self.sockets = self.listener.getsockname()[1], threading.Event(), []
        self.flows.set()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near = self.listener.accept()[0]
            except OSError:
                return
            far = socket.create_connection(self.target)
            self.sockets += [near, far]
            for a, b in (near, far), (far, near):
                threading.Thread(target=self.carry, args=(a, b), daemon=True).start()

    def carry(self, source, to):
        try:
            while data := source.recv(65536):
                self.flows.wait()
                to.sendall(data)
        except OSError:
            pass
        for s in (source, to):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.flows.set()
        for s in [self.listener, *self.sockets]:
            s.close()


def behind_a_proxy(cast, cluster, proxy):
    """A leader whose only way to etcd is the proxy, and two nodes that are no candidates at
    first."""
    through = f"127.0.0.1:{proxy.port},127.0.0.1:{proxy.port}"
    leader = cast.node("etcd", through, *SETTINGS)
    wait_for(lambda: led(leader), "the leader")
    others = [cast.node("etcd", cluster.endpoint, *SETTINGS) for _ in range(2)]
    for n in [leader, *others]:
        n.until_round(lambda m: m["groups"] == 3)
    return leader, others


def test_a_leader_that_alone_cannot_reach_etcd_goes_on(tmp):
    """Its key expires, but its nodes are connected to it, so none of them takes its place. When it
    reaches etcd again, it leads with a larger epoch, and nothing has stopped."""
    with EtcdCluster(tmp) as cluster, Proxy(cluster.ports[0]) as proxy, Cast() as cast:
        leader, others = behind_a_proxy(cast, cluster, proxy)
        first = epochs(leader)[-1]
        proxy.flows.clear()
        wait_for(lambda: not cluster.keys(), "the key to expire")
        time.sleep(4)  # longer than a node's lease: the nodes still get answers to their beats
        assert not cluster.keys()
        proxy.flows.set()
        wait_for(lambda: cluster.keys(), "the leader's new key")
        wait_for(lambda: all(epochs(n)[-1] > first for n in [leader, *others]), "the new epoch")
        assert led(leader) and not any(led(n) for n in others)
        for n in [leader, *others]:
            assert n.lines.empty(), n.lines.get()
        others[0].tell("leave")
        others[0].tell("quit")
        go_on([leader, others[1]], 0)
        end_well([leader, others[1]])


def test_a_round_is_due_and_the_leader_cannot_reach_etcd(tmp):
    with EtcdCluster(tmp) as cluster, Proxy(cluster.ports[0]) as proxy, Cast() as cast:
        leader, others = behind_a_proxy(cast, cluster, proxy)
        proxy.flows.clear()
        wait_for(lambda: not cluster.keys(), "the key to expire")
        late = cast.node("etcd", f"127.0.0.1:{proxy.port},127.0.0.1:{proxy.port}", *SETTINGS)
        others[0].signal(signal.SIGKILL)
        assert others[1].expect("stop")
        wait_for(lambda: led(others[1]), "another leader")
        proxy.flows.set()
        go_on([leader, others[1], late], 0)
        end_well([leader, others[1], late])


# ---- TLS, users, endpoints ----


def test_tls_with_client_certificates_and_a_user(tmp):
    password = tmp / "password"
    password.write_text("secret\n")
    with EtcdCluster(tmp, 1, tls=True) as cluster, Cast() as cast:
        cluster.demand_users("trainer", "secret")
        conf = [f"etcd.{c}" for c in
                [*cluster.conf(), "user=trainer", f"password_file={password}"]]
        nodes = [cast.node("etcd", cluster.endpoint, *SETTINGS, *conf) for _ in range(3)]
        for n in nodes:
            n.until_round(lambda m: m["groups"] == 3)
        end_well(nodes)


def refused(cast, cluster, *conf):
    node = cast.node("etcd", cluster.endpoint, *SETTINGS,
                     f"read_timeout_ms={round(1500 * min(SCALE, 4))}",
                     *(f"etcd.{c}" for c in conf))
    end = node.expect("end")
    assert end.startswith("2 cannot reach the rendezvous"), end
    assert node.wait() == 0
    return end


def test_a_wrong_certificate_or_password_is_said(tmp):
    (tmp / "password").write_text("wrong")
    with EtcdCluster(tmp, 1, tls=True) as cluster, Cast() as cast:
        stranger = Authority(tmp / "stranger", "stranger")
        good = cluster.conf()
        end = refused(cast, cluster, "protocol=https", f"ca_cert={stranger.cert}")
        assert "certificate" in end, end
        # etcd demands the client's certificate: it sends an alert and closes the connection. If
        # libcurl meets the close before it has read the alert, it knows only of a poll error.
        for _ in range(5):
            end = refused(cast, cluster, "protocol=https", f"ca_cert={cluster.authority.cert}")
            if "select/poll returned error" not in end:
                break
        assert "alert" in end or "certificate" in end, end
        cluster.demand_users("trainer", "secret")
        assert "user name is empty" in refused(cast, cluster, *good)
        end = refused(cast, cluster, *good, "user=trainer", f"password_file={tmp / 'password'}")
        assert "authentication failed" in end, end


def test_several_endpoints_of_which_the_first_is_dead(tmp):
    with EtcdCluster(tmp) as cluster, Cast() as cast:
        cluster.kill(0)
        nodes = [cast.node("etcd", cluster.endpoints, *SETTINGS) for _ in range(3)]
        for n in nodes:
            n.until_round(lambda m: m["groups"] == 3)
        end_well(nodes)


def test_only_candidates_lead_and_only_the_leader_has_a_lease(tmp):
    with EtcdCluster(tmp, 1) as cluster, Cast() as cast:
        nodes = [cast.node("etcd", cluster.endpoint, *SETTINGS, f"etcd.candidate={c}")
                 for c in ("false", "false", "true")]
        for n in nodes:
            n.until_round(lambda m: m["groups"] == 3)
        assert [led(n) for n in nodes] == [False, False, True]
        assert cluster.leases() == 1 and len(cluster.keys()) == 1
        end_well(nodes)
        wait_for(lambda: not cluster.all_keys() and cluster.leases() == 0, "an empty etcd")


def test_a_leader_beside_etcd_publishes_an_address_that_others_reach(tmp):
    """One node reaches etcd by localhost. The address of its coordinator must not be loopback,
    because the other node is another host."""
    with netns.Net(2) as net, EtcdCluster(tmp, 1, host="0.0.0.0", ports=[2379],
                                          prefix=net.hosts[0].run, check=False) as cluster, \
            Cast() as cast:
        first = cast.node("etcd", "localhost:2379", *SETTINGS, prefix=net.hosts[0].run)
        wait_for(lambda: led(first), f"a leader; etcd: {read_text(tmp / 'etcd0.log')[-2000:]}")
        second = cast.node("etcd", f"{net.hosts[0].addr}:2379", *SETTINGS, prefix=net.hosts[1].run)
        for n in first, second:
            n.until_round(lambda m: m["groups"] == 2)
        assert f"'{net.hosts[0].addr}'" in "".join(second.story), second.story
        assert cluster.members[0].poll() is None


def test_no_libcurl_is_said(tmp):
    """A mount namespace of its own hides the library."""
    hide = ("for f in $(ldconfig -p | sed -n 's/.*libcurl[^ ]*so.4 .*=> //p'); do "
            "mount --bind /dev/null $(readlink -f $f) || exit 99; done; exec \"$@\"")
    done = subprocess.run(["unshare", "-m", "sh", "-c", hide, "sh", CRUN, "--nnodes=2",
                           "--rdzv-backend=etcd", "--rdzv-endpoint=127.0.0.1:1", "--no-python",
                           "true"], env=clean_env(), capture_output=True, text=True)
    if done.returncode == 99 or "unshare" in done.stderr:
        print("mount namespaces are not allowed here: left out")
        return
    assert done.returncode == 1 and "Debian: libcurl4" in done.stderr, done


if ETCD is None:
    skip("etcd is not installed")
if __name__ == "__main__":
    run_tests(globals())
