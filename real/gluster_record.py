#!/usr/bin/env python3
"""Records the state of real glusterd peers, for the model in crates/pool.

Each glusterd has its own network and mount namespace, on one bridge. A scenario is a list of actions. After each action
the script waits until the pool is stable and records the state of every glusterd: `peer status` as XML, glusterd.info,
the files in peers/, and the version, checksum and bricks of each volume.

    real/gluster_record.py testdata/gluster            # all scenarios
    real/gluster_record.py testdata/gluster form wipe   # some of them

It needs root and glusterfs-server. Everything that it creates has its process id in the name and is removed again.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

DOMAIN = "pool.default.svc.cluster.local"
TAG = "sg%d" % (os.getpid() % 100000)
WORK = pathlib.Path(tempfile.mkdtemp(prefix=TAG))
NET = 10 + os.getpid() % 200


def run(*command, check=True):
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode:
        raise RuntimeError("%s: %s%s" % (" ".join(command), done.stdout, done.stderr))
    return done


def text(path):
    try:
        return path.read_text()
    except OSError:
        return None


class Pod:
    """One glusterd, which can be stopped; its state persists."""

    def __init__(self, pool, number):
        self.pool = pool
        self.number = number
        self.name = "pool-%d" % number
        self.host = "%s.%s" % (self.name, DOMAIN)
        self.space = "%s-%d" % (TAG, number)
        self.folder = WORK / self.name
        self.process = None
        self.address = None
        for part in ("lib", "run", "log", "bricks"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        (self.folder / "hosts").write_text("")
        run("ip", "netns", "add", self.space)
        run("ip", "link", "add", self.veth(), "type", "veth", "peer", "name", "eth0", "netns", self.space)
        self.plug(0)
        self.inside("ip", "link", "set", "lo", "up")
        self.move(10 + number)

    def veth(self):
        return "%sv%d" % (TAG, self.number)

    def inside(self, *command, check=True):
        return run("ip", "netns", "exec", self.space, *command, check=check)

    def plug(self, side):
        run("ip", "link", "set", self.veth(), "master", "%sb%d" % (TAG, side), "up")

    def move(self, last):
        """Replaces the pod's address."""
        self.address = "10.%d.7.%d" % (NET, last)
        self.inside("ip", "addr", "flush", "dev", "eth0")
        self.inside("ip", "addr", "add", self.address + "/24", "dev", "eth0")
        self.inside("ip", "link", "set", "eth0", "up")

    def start(self):
        mounts = [("lib", "/var/lib/glusterd"), ("run", "/run"), ("log", "/var/log/glusterfs"), ("hosts", "/etc/hosts")]
        script = "".join("mount --bind %s/%s %s; " % (self.folder, a, b) for a, b in mounts)
        script = "set -e; mkdir -p %s/run/gluster; " % self.folder + script + "exec glusterd -N"
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", self.space, "unshare", "-m", "sh", "-c", script],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(150):
            if self.process.poll() is not None:
                raise RuntimeError("%s: glusterd ended: %s" % (self.name, self.process.returncode))
            if self.gluster("pool", "list").returncode == 0:
                return
            time.sleep(0.2)
        raise RuntimeError("%s: glusterd does not answer" % self.name)

    def stop(self):
        """Kills all processes in the pod, as when a container ends."""
        for pid in run("ip", "netns", "pids", self.space).stdout.split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self.process:
            self.process.wait()
        self.process = None

    def gluster(self, *words):
        return run("timeout", "20", "nsenter", "-t", str(self.process.pid), "-m", "-n", "gluster", "--mode=script",
                   *words, check=False)

    def wipe(self):
        shutil.rmtree(self.folder / "lib")
        (self.folder / "lib").mkdir()

    def uuid(self):
        info = text(self.folder / "lib/glusterd.info") or ""
        return next((l[5:] for l in info.splitlines() if l.startswith("UUID=")), None)

    def restore(self, identity, friends, state=3, without=("peers", "vols")):
        """Replaces the identity and the list of peers."""
        lib = self.folder / "lib"
        for part in without:
            shutil.rmtree(lib / part, ignore_errors=True)
        (lib / "peers").mkdir(parents=True)
        (lib / "glusterd.info").write_text("UUID=%s\noperating-version=100000\n" % identity)
        for uuid, host in friends:
            (lib / "peers" / uuid).write_text("uuid=%s\nstate=%d\nhostname1=%s\n" % (uuid, state, host))

    def observe(self):
        lib = self.folder / "lib"
        seen = {"running": self.process is not None, "address": self.address, "info": text(lib / "glusterd.info")}
        seen["files"] = {f.name: text(f) for f in sorted((lib / "peers").glob("*"))}
        seen["volumes"] = {
            v.name: {"info": text(v / "info"), "cksum": text(v / "cksum"),
                     "bricks": {b.name: text(b) for b in sorted((v / "bricks").glob("*"))}}
            for v in sorted((lib / "vols").glob("*"))}
        if self.process:
            seen["status"] = self.gluster("--xml", "peer", "status").stdout
        return seen


class Pool:
    def __init__(self, name, count):
        self.name = name
        self.steps = []
        for side in (0, 1):
            run("ip", "link", "add", "%sb%d" % (TAG, side), "type", "bridge")
            run("ip", "link", "set", "%sb%d" % (TAG, side), "up")
        self.pods = [Pod(self, n) for n in range(count)]
        self.names()
        for pod in self.pods:
            pod.start()
        self.step("start")

    def names(self):
        """Names resolve; an address resolves to another name first, as without a reverse zone for the pods."""
        lines = "127.0.0.1 localhost\n" + "".join(
            "%s %s\n%s %s\n" % (p.address, p.address.replace(".", "-"), p.address, p.host) for p in self.pods)
        for pod in self.pods:
            (pod.folder / "hosts").write_text(lines)

    def settle(self, limit=75, still=7):
        """Waits until the state of all peers has not changed for a while."""
        last, since, begin = None, time.time(), time.time()
        while time.time() - begin < limit:
            seen = json.dumps([p.observe() for p in self.pods])
            if seen != last:
                last, since = seen, time.time()
            elif time.time() - since > still:
                return
            time.sleep(0.7)

    def step(self, *deed, answer=None, **settle):
        self.settle(**settle)
        seen = {p.name: p.observe() for p in self.pods}
        self.steps.append({"deed": list(deed), "answer": answer, "seen": seen})
        print("%s: %s%s" % (self.name, " ".join(map(str, deed)), "" if answer is None else " -> %r" % answer))
        for pod in self.pods:
            said = self.brief(pod, seen[pod.name])
            print("    %s" % said, flush=True)

    def brief(self, pod, seen):
        import re
        import xml.etree.ElementTree as tree
        if not seen["running"]:
            return pod.name + " stopped; files " + str(
                [(k[:4], re.findall("state=(.*)|hostname.=(.*)", v)) for k, v in seen["files"].items()])
        try:
            root = tree.fromstring(seen["status"])
        except tree.ParseError:
            return pod.name + " " + seen["status"]
        words = []
        for peer in root.iter("peer"):
            hosts = [h.text.split(".pool")[0] for h in peer.iter("hostname")]
            file = seen["files"].get(peer.findtext("uuid")) or ""
            words.append("%s %s %s(%s)%s file=%s" % (
                peer.findtext("uuid")[:4], "+".join(sorted(set(hosts))), peer.findtext("stateStr"), peer.findtext("state"),
                "" if peer.findtext("connected") == "1" else " DISC", re.findall("state=(.*)", file)))
        vols = {k: (re.findall("^version=(.*)", v["info"] or "", re.M), v["cksum"]) for k, v in seen["volumes"].items()}
        return "%s %s: %s %s" % (pod.name, (pod.uuid() or "-")[:4], "; ".join(words), vols or "")

    def gluster(self, who, *words, **settle):
        done = self.pods[who].gluster(*words)
        self.step("gluster", who, *words, answer=(done.stdout + done.stderr).strip(), **settle)

    def probe(self, who, whom, **settle):
        done = self.pods[who].gluster("peer", "probe", self.pods[whom].host)
        self.step("probe", who, whom, answer=(done.stdout + done.stderr).strip(), **settle)

    def detach(self, who, whom, **settle):
        done = self.pods[who].gluster("peer", "detach", self.pods[whom].host)
        self.step("detach", who, whom, answer=(done.stdout + done.stderr).strip(), **settle)

    def form(self):
        """All peers in one pool, each known by name to all others."""
        for pod in self.pods[1:]:
            self.pods[0].gluster("peer", "probe", pod.host)
        self.settle(still=3)
        self.pods[1].gluster("peer", "probe", self.pods[0].host)
        self.step("form")

    def friends(self, of, among=None):
        return [(p.uuid(), p.host) for p in self.pods if p.number != of and (among is None or p.number in among)]

    def volume(self, name, *pods, start=False):
        bricks = ["%s:/run/brick-%s" % (self.pods[p].host, name) for p in pods]
        for p in pods:
            (self.pods[p].folder / "run" / ("brick-" + name)).mkdir(exist_ok=True)
        kind = ["replica", str(len(pods))] if len(pods) > 1 else []
        done = self.pods[pods[0]].gluster("volume", "create", name, *kind, *bricks, "force")
        self.step("volume", name, *pods, answer=(done.stdout + done.stderr).strip())

    def stop(self, *who, **settle):
        for number in who:
            self.pods[number].stop()
        self.step("stop", *who, **settle)

    def start(self, *who, **settle):
        for number in who:
            self.pods[number].start()
        self.step("start", *who, **settle)

    def close(self):
        for pod in self.pods:
            pod.stop()
            run("ip", "link", "del", pod.veth(), check=False)
            run("ip", "netns", "del", pod.space, check=False)
            shutil.rmtree(pod.folder, ignore_errors=True)
        for side in (0, 1):
            run("ip", "link", "del", "%sb%d" % (TAG, side), check=False)


def form(p):
    """Three new peers; the one that probes is known by its address until another peer probes it by name."""
    p.probe(0, 1)
    p.probe(0, 2)
    p.probe(1, 0)
    p.probe(1, 2)


def nameless(p):
    """A peer that is detached by another name than the one it is known by."""
    p.probe(0, 1)
    p.probe(0, 2)
    p.detach(1, 0)


def refused(p):
    """A peer of another pool, or one that does not exist, cannot be probed."""
    p.probe(0, 1)
    p.probe(2, 3)
    p.probe(0, 2)
    p.probe(1, 3)
    p.stop(3)
    p.probe(0, 3)


def wipe(p):
    """Lost state, then the old identity with all peers."""
    p.form()
    old = p.pods[2].uuid()
    p.pods[2].stop()
    p.pods[2].wipe()
    p.step("wipe", 2)
    p.start(2)
    p.probe(0, 2)
    p.probe(2, 0)
    p.pods[2].stop()
    p.pods[2].restore(old, p.friends(2))
    p.step("restore", 2, 2, 0, 1)
    p.start(2)


def restore(p):
    """The old identity before the first start: no rejection."""
    p.form()
    p.volume("v", 0, 1, 2)
    old = p.pods[2].uuid()
    p.pods[2].stop()
    p.pods[2].wipe()
    p.pods[2].restore(old, p.friends(2))
    p.step("restore", 2, 2, 0, 1)
    p.start(2)


def some(p):
    """The old identity with one of two peers."""
    p.form()
    old = p.pods[2].uuid()
    p.pods[2].stop()
    p.pods[2].wipe()
    p.pods[2].restore(old, p.friends(2, [0]))
    p.step("restore", 2, 2, 0)
    p.start(2)
    p.stop(2)
    p.pods[2].restore(old, p.friends(2))
    p.step("restore", 2, 2, 0, 1)
    p.start(2)


def alone(p):
    """The old identity without peers."""
    p.form()
    old = p.pods[2].uuid()
    p.pods[2].stop()
    p.pods[2].wipe()
    p.pods[2].restore(old, [])
    p.step("restore", 2, 2)
    p.start(2)
    p.probe(0, 2)
    p.probe(2, 0)
    p.stop(2)
    p.pods[2].restore(old, p.friends(2))
    p.step("restore", 2, 2, 0, 1)
    p.start(2)


def down(p):
    """The old identity while another peer is down."""
    p.form()
    old = p.pods[2].uuid()
    p.stop(1)
    p.pods[2].stop()
    p.pods[2].wipe()
    p.pods[2].restore(old, p.friends(2))
    p.step("restore", 2, 2, 0, 1)
    p.start(2)
    p.start(1)


def late(p):
    """A rejection that is resolved while another peer is down; then that peer returns."""
    p.form()
    old = p.pods[2].uuid()
    p.pods[2].stop()
    p.pods[2].wipe()
    p.step("wipe", 2)
    p.start(2)
    p.stop(1)
    p.pods[2].stop()
    p.pods[2].restore(old, p.friends(2))
    p.step("restore", 2, 2, 0, 1)
    p.start(2)
    p.start(1)


def detach(p):
    """A detach is refused while another peer is down, and succeeds while only the peer itself is; then it returns and is probed."""
    p.form()
    p.stop(1)
    p.detach(0, 3)
    p.start(1)
    p.detach(0, 3)
    p.probe(0, 3)
    p.stop(3)
    p.detach(0, 3)
    p.start(3)
    p.probe(0, 3)


def forget(p):
    """A peer that was detached while it was down returns, loses its list of peers, and is probed."""
    p.form()
    p.volume("v", 0, 1, 2)
    p.stop(3)
    p.detach(0, 3)
    p.start(3)
    p.pods[3].stop()
    p.pods[3].restore(p.pods[3].uuid(), [])
    p.step("restore", 3, 3)
    p.start(3)
    p.detach(3, 0)
    p.probe(0, 3)


def bricks(p):
    """A peer with bricks is not detached."""
    p.form()
    p.volume("v", 0, 1, 2)
    p.detach(0, 2)
    p.stop(2)
    p.detach(0, 2)
    p.start(2)
    p.volume("w", 2)
    p.detach(0, 2)
    p.detach(0, 3)


def checksum(p):
    """The same version of a volume with another checksum; then its definition is removed."""
    p.form()
    p.volume("v", 0, 1, 2)
    p.pods[2].stop()
    info = p.pods[2].folder / "lib/vols/v/info"
    info.write_text(info.read_text() + "features.read-only=on\n")
    p.step("spoil", 2, "v")
    p.start(2)
    p.pods[2].stop()
    shutil.rmtree(p.pods[2].folder / "lib/vols/v")
    p.step("forget-volumes", 2)
    p.start(2)


def keeps(p):
    """The same on a peer that alone has another volume: only the differing definition is removed."""
    p.form()
    p.volume("v", 0, 1, 2)
    p.stop(0, 1)
    p.volume("w", 2)
    p.pods[2].stop()
    info = p.pods[2].folder / "lib/vols/v/info"
    info.write_text(info.read_text() + "features.read-only=on\n")
    p.step("spoil", 2, "v")
    p.start(0, 1, 2)
    p.pods[2].stop()
    shutil.rmtree(p.pods[2].folder / "lib/vols/v")
    p.step("forget-volumes", 2, "v")
    p.start(2)


def older(p):
    """Volumes that were changed or created while a peer was down."""
    p.form()
    p.volume("v", 0, 1, 2)
    p.stop(2)
    p.gluster(0, "volume", "set", "v", "performance.cache-size", "64MB")
    p.volume("w", 0, 1)
    p.start(2)


def address(p):
    """A new address; all peers know the name."""
    p.form()
    p.pods[2].stop()
    p.pods[2].move(99)
    p.names()
    p.step("move", 2)
    p.start(2)


def moved(p):
    """A new address of the peer that probed first, before it was probed by name; then it is."""
    p.probe(0, 1)
    p.probe(0, 2)
    p.pods[0].stop()
    p.pods[0].move(99)
    p.names()
    p.step("move", 0)
    p.start(0)
    p.probe(2, 0)


def founder(p):
    """A new address of the peer that probed first, after it was probed by name; then the others are restarted."""
    p.form()
    p.pods[0].stop()
    p.pods[0].move(99)
    p.names()
    p.step("move", 0)
    p.start(0)
    p.stop(1)
    p.start(1)
    p.pods[2].stop()
    p.pods[2].restore(p.pods[2].uuid(), p.friends(2))
    p.step("restore", 2, 2, 0, 1)
    p.start(2)


def names(p):
    """The same with a volume, which keeps its bricks when the names are corrected."""
    p.form()
    p.volume("v", 0, 1, 2)
    p.pods[0].stop()
    p.pods[0].move(99)
    p.names()
    p.step("move", 0)
    p.start(0)
    for n in (1, 2):
        p.pods[n].stop()
        p.pods[n].restore(p.pods[n].uuid(), p.friends(n), without=["peers"])
        p.step("name", n, *(f for f in (0, 1, 2) if f != n))
        p.start(n)


def restart(p):
    """All peers stop and start."""
    p.form()
    p.volume("v", 0, 1, 2)
    p.stop(0, 1, 2)
    p.start(0)
    p.start(1, 2)


def halves(p):
    """A partition into halves, then healed; a detach and a probe are tried meanwhile."""
    p.form()
    for n in (2, 3):
        p.pods[n].plug(1)
    p.step("cut", 2, 3, limit=120, still=45)
    p.detach(0, 2)
    for n in (2, 3):
        p.pods[n].plug(0)
    p.step("heal", limit=120, still=25)


def twice(p):
    """Copied state: one identity in two pods."""
    p.form()
    p.pods[3].stop()
    shutil.rmtree(p.pods[3].folder / "lib")
    shutil.copytree(p.pods[2].folder / "lib", p.pods[3].folder / "lib")
    p.step("clone", 2, 3)
    p.start(3)


def anew(p):
    """New state for a pod without bricks: detached, then probed."""
    p.form()
    p.pods[2].stop()
    p.pods[2].wipe()
    p.step("wipe", 2)
    p.start(2)
    p.detach(0, 2)
    p.probe(0, 2)


SCENARIOS = [(form, 3), (nameless, 3), (refused, 4), (wipe, 3), (restore, 3), (some, 3), (alone, 3), (down, 3), (late, 3), (detach, 4), (forget, 4),
             (bricks, 4), (checksum, 3), (keeps, 3), (older, 3), (address, 3), (moved, 3), (founder, 3), (names, 3), (restart, 3), (halves, 4), (twice, 4), (anew, 3)]


def main():
    out, chosen = pathlib.Path(sys.argv[1]), sys.argv[2:]
    out.mkdir(parents=True, exist_ok=True)
    version = run("glusterd", "--version").stdout.splitlines()[0]
    for scenario, count in SCENARIOS:
        if chosen and scenario.__name__ not in chosen:
            continue
        pool = Pool(scenario.__name__, count)
        try:
            scenario(pool)
        finally:
            pool.close()
        recording = {"what": scenario.__doc__, "glusterd": version, "pods": count, "domain": DOMAIN, "steps": pool.steps}
        (out / (scenario.__name__ + ".json")).write_text(json.dumps(recording, indent=1) + "\n")


try:
    main()
finally:
    shutil.rmtree(WORK, ignore_errors=True)
