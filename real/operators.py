#!/usr/bin/env python3
"""Replays recordings of the OpenStack operators on a cluster with Stead's operator, and compares the results.

operators.py SERVER TOKEN recordings.jsonl.gz [--only TEXT] [--show CASES] [--lines N] [--workers N] [--quiet SECONDS] [--ours FILE]
`cargo xtask operators` prepares the cluster (a real control plane, seven stand-in nodes, a storage class, the definitions, the operator with
--default-anti-affinity=replace) and calls this.
Two comparisons: `placement` (everything that decides where pods run: StatefulSets' identity, replicas, selector, labels, affinity, spread, nodeSelector,
claims; Topology finalizers; lastAppliedTopology, readyCount, TopologyReady and DeploymentReady; pods, claims, Services' names and ports;
answers' codes) and `whole` (everything that was recorded, except objects and conditions of other operators).
--ours FILE: lines `PATTERN<TAB>REASON`; a difference whose path matches PATTERN (a regular expression on CASE-ID + JSON pointer) is intended
and counted separately."""
import argparse, copy, gzip, json, random, re, sys, threading, time, datetime, traceback
import requests, urllib3

urllib3.disable_warnings()
P = argparse.ArgumentParser()
P.add_argument("server"), P.add_argument("token"), P.add_argument("recordings")
P.add_argument("--only", default=""), P.add_argument("--show", type=int, default=10), P.add_argument("--workers", type=int, default=6)
P.add_argument("--ours"), P.add_argument("--lines", type=int, default=6), P.add_argument("--quiet", type=float, default=5.0)
A = P.parse_args()
G = "/apis/glance.openstack.org/v1beta1"
KINDS = {"glances": G + "/glances", "glanceapis": G + "/glanceapis", "topologies": "/apis/topology.openstack.org/v1beta1/topologies", "statefulsets": "/apis/apps/v1/statefulsets", "services": "/api/v1/services",
         "pvcs": "/api/v1/persistentvolumeclaims", "pods": "/api/v1/pods", "cronjobs": "/apis/batch/v1/cronjobs", "openstackcontrolplanes": "/apis/core.openstack.org/v1beta1/openstackcontrolplanes"}
ON_PURPOSE = [l.rstrip("\n").split("\t", 1) for l in open(A.ours)] if A.ours else []
OTHERS = {"keystoneendpoints", "galeras", "memcacheds", "rabbitmqs", "keystoneapis", "routes"}
OTHERS_CONDITIONS = re.compile(r"Keystone|MariaDB|Memcached|Cinder|RabbitMQ|Galera|NetworkAttachments|TLS|OpenStackControlPlane(?!Glance)|CA|Client|^DBReady$")
local, lock, cache, last_event = threading.local(), threading.Lock(), {}, {}


def call(method, path, body=None, ctype=None):
    if not hasattr(local, "s"):
        local.s = requests.Session()
        local.s.verify = local.s.trust_env = False
        local.s.headers.update({"Authorization": "Bearer " + A.token, "User-Agent": "play/1.0"})
    ctype = ctype or ("application/merge-patch+json" if method == "PATCH" else "application/json")
    return local.s.request(method, A.server + path, data=None if body is None else json.dumps(body), headers={"Content-Type": ctype}, timeout=60)


def finish_job(o):
    """Containers on stand-in nodes never finish: a Job's pod is marked as succeeded as soon as it runs."""
    s = o.get("status", {})
    cs = s.get("containerStatuses") or []
    if o["metadata"].get("deletionTimestamp") or s.get("phase") != "Running" or not cs or not all(c.get("ready") for c in cs):
        return
    t = datetime.datetime.utcnow().strftime("%Y-%m-%dT%H:%M:%SZ")
    for c in cs:
        c.update(ready=False, started=False, state={"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": t, "finishedAt": t}})
    conditions = [{"type": k, "status": "True" if k in ("Initialized", "PodScheduled") else "False", "lastTransitionTime": t} for k in ("Initialized", "Ready", "ContainersReady", "PodScheduled")]
    call("PATCH", "/api/v1/namespaces/%s/pods/%s/status" % (o["metadata"]["namespace"], o["metadata"]["name"]), {"status": {"phase": "Succeeded", "containerStatuses": cs, "conditions": conditions}})


def watch(kind, path):
    cache[kind] = {}
    ready = threading.Event()

    def on(ev, o):
        ns = o["metadata"].get("namespace")
        with lock:
            if ev == "DELETED":
                cache[kind].pop((ns, o["metadata"]["name"]), None)
            else:
                cache[kind][ns, o["metadata"]["name"]] = o
            last_event[ns] = time.time()
        if kind == "pods" and ev != "DELETED" and "batch.kubernetes.io/job-name" in o["metadata"].get("labels", {}):
            finish_job(o)

    def run():
        while True:
            try:
                r = call("GET", path).json()
                have = {(o["metadata"].get("namespace"), o["metadata"]["name"]) for o in r.get("items", [])}
                for o in r.get("items", []):
                    on("ADDED", o)
                with lock:
                    for k in [k for k in cache[kind] if k not in have]:
                        cache[kind].pop(k)
                ready.set()
                with local.s.get(A.server + path, params={"watch": 1, "resourceVersion": r["metadata"]["resourceVersion"], "allowWatchBookmarks": "true"}, stream=True, timeout=(5, 3600)) as w:
                    for line in w.iter_lines(chunk_size=None):
                        if line:
                            e = json.loads(line)
                            if e["type"] == "ERROR":
                                break
                            if e["type"] != "BOOKMARK":
                                on(e["type"], e["object"])
            except Exception as x:
                print("watch", path, repr(x)[:160], file=sys.stderr)
            time.sleep(0.3)
    threading.Thread(target=run, daemon=True).start()
    return ready


def settle(ns, least=0.0, limit=90.0):
    t0, least = time.time(), max(A.quiet, least)
    while time.time() - t0 < limit:
        t = time.time()
        with lock:
            quiet = t - max(last_event.get(ns, 0), t0)
            mine = [o for (n, _), o in cache["pods"].items() if n == ns]
        pending = any(not o["spec"].get("nodeName") for o in mine)
        moving = any(o["metadata"].get("deletionTimestamp") or (o["spec"].get("nodeName") and o.get("status", {}).get("phase") in ("Pending", "Running") and not all(c.get("ready") for c in o["status"].get("containerStatuses") or [{}])) for o in mine)
        if quiet >= (max(8.0, least) if pending else least) and not moving:
            return True
        time.sleep(0.1)
    return False


# ---- the format of the recordings
def meta(o):
    m, out = o["metadata"], {"name": o["metadata"]["name"]}
    for k in ("labels", "annotations"):
        if m.get(k):
            out[k] = m[k]
    if m.get("finalizers"):
        out["finalizers"] = sorted(m["finalizers"])
    if m.get("ownerReferences"):
        out["owner"] = ["%s/%s%s" % (r["kind"], r["name"], " controller" if r.get("controller") else "") for r in m["ownerReferences"]]
    if m.get("deletionTimestamp"):
        out["deleting"] = True
    return out


def resource(o):
    st = o.get("status") or {}
    s = {k: v for k, v in st.items() if k not in ("conditions", "hash", "observedGeneration")}
    s["conditions"] = [{k: v for k, v in c.items() if k not in ("lastTransitionTime", "observedGeneration")} for c in st.get("conditions") or []]
    if "hash" in st:
        s["hash"] = {k: "<hash>" for k in st["hash"] or {}}
    s["observedGeneration"] = "current" if st.get("observedGeneration") == o["metadata"].get("generation") else "behind"
    return dict(meta(o), spec=o.get("spec", {}), status=s)


def container(c):
    out = {"name": c["name"], "image": c["image"], "env": [{"name": e["name"], "value": "<hash>" if e["name"] == "CONFIG_HASH" else e.get("value", "")} for e in c.get("env", [])]}
    out.update({k: c[k] for k in ("livenessProbe", "readinessProbe", "startupProbe", "volumeMounts", "resources") if c.get(k)})
    return out


def statefulset(o, before):
    sp, t, p = o["spec"], o["spec"]["template"], before.get(o["metadata"]["name"])
    out = meta(o)
    out["uid"] = "new" if p is None else "same" if p["metadata"]["uid"] == o["metadata"]["uid"] else "made anew"
    if p is not None:
        out["template"] = "same" if p["spec"]["template"] == t else "changed"
    out.update({k: sp[k] for k in ("replicas", "serviceName", "podManagementPolicy", "updateStrategy", "selector", "revisionHistoryLimit", "persistentVolumeClaimRetentionPolicy", "minReadySeconds") if k in sp})
    out["pod"] = {"labels": t["metadata"].get("labels", {}), "annotations": t["metadata"].get("annotations", {})}
    out["pod"].update({k: t["spec"][k] for k in ("affinity", "topologySpreadConstraints", "nodeSelector", "tolerations", "serviceAccountName", "hostPID", "securityContext", "volumes", "schedulerName", "terminationGracePeriodSeconds") if k in t["spec"]})
    out["pod"]["containers"] = [container(c) for c in t["spec"]["containers"]]
    out["volumeClaimTemplates"] = [dict(meta(v), spec=v["spec"]) for v in sp.get("volumeClaimTemplates", [])]
    out["status"] = {k: o.get("status", {}).get(k, 0) for k in ("replicas", "readyReplicas", "updatedReplicas")}
    return out


def pod(o, revision):
    st = o.get("status", {})
    cs = st.get("containerStatuses") or []
    out = {"name": o["metadata"]["name"], "phase": st.get("phase"), "ready": "%d/%d" % (sum(1 for c in cs if c.get("ready")), len(o["spec"]["containers"])), "scheduled": bool(o["spec"].get("nodeName"))}
    own = [r["name"] for r in o["metadata"].get("ownerReferences", [])]
    if own:
        out["latest"] = revision.get(own[0]) == o["metadata"].get("labels", {}).get("controller-revision-hash")
    for c in st.get("conditions", []):
        if c["type"] == "PodScheduled" and c["status"] == "False" and not out["scheduled"]:
            out["why"] = c.get("message")
    return out


def state(ns, before):
    with lock:
        of = {k: [copy.deepcopy(o) for (n, _), o in sorted(v.items(), key=lambda x: (str(x[0][0]), x[0][1])) if n == ns] for k, v in cache.items()}
    sets = of["statefulsets"]
    revision = {o["metadata"]["name"]: o.get("status", {}).get("updateRevision") for o in sets}
    out = {"glances": [resource(o) for o in of["glances"]], "glanceapis": [resource(o) for o in of["glanceapis"]], "statefulsets": [statefulset(o, before) for o in sets],
           "services": [dict(meta(o), type=o["spec"].get("type"), clusterIP="None" if o["spec"].get("clusterIP") == "None" else "<ip>", selector=o["spec"].get("selector"), ports=o["spec"].get("ports")) for o in of["services"] if not o["metadata"]["name"].startswith("hostname-for-")],
           "pvcs": [{"name": o["metadata"]["name"], "storageClassName": o["spec"].get("storageClassName"), "request": o["spec"]["resources"]["requests"]["storage"], "phase": o.get("status", {}).get("phase"), "deleting": bool(o["metadata"].get("deletionTimestamp"))} for o in of["pvcs"]],
           "topologies": [dict(meta(o), spec=o.get("spec", {})) for o in of["topologies"]],
           "cronjobs": [dict(meta(o), schedule=o["spec"]["schedule"], pod={k: v for k, v in o["spec"]["jobTemplate"]["spec"]["template"]["spec"].items() if k in ("affinity", "nodeSelector", "topologySpreadConstraints")}) for o in of["cronjobs"]],
           "pods": [pod(o, revision) for o in of["pods"] if "batch.kubernetes.io/job-name" not in o["metadata"].get("labels", {})]}
    planes = []
    for o in of["openstackcontrolplanes"]:
        r = resource(o)
        planes.append({"name": r["name"], "status": {"conditions": r["status"]["conditions"]}, "spec": {k: o["spec"][k] for k in ("topologyRef", "nodeSelector", "glance") if k in o["spec"]}})
    if planes:
        out["openstackcontrolplanes"] = planes
    return {k: v for k, v in out.items() if v}, {o["metadata"]["name"]: o for o in sets}


def mark(x, ns):
    if isinstance(x, dict):
        return {mark(k, ns): mark(v, ns) for k, v in sorted(x.items()) if k != "kubectl.kubernetes.io/last-applied-configuration"}
    if isinstance(x, list):
        return [mark(v, ns) for v in x]
    return x.replace(ns, "{ns}").replace("registry.test/glance-api:1", "<image>") if isinstance(x, str) else x


def fill(x, ns):
    return json.loads(json.dumps(x).replace("{ns}", ns))


def answer(r):
    out = {"code": r.status_code}
    if r.headers.get("Warning"):
        out["warning"] = r.headers["Warning"]
    if r.status_code >= 300:
        try:
            b = r.json()
            out.update(reason=b.get("reason"), message=b.get("message"))
            causes = (b.get("details") or {}).get("causes")
            if causes:
                out["causes"] = sorted(causes, key=lambda e: json.dumps(e, sort_keys=True))
        except ValueError:
            out["message"] = r.text
    return out


def request(q, ns):
    for _ in range(5):
        r = call(q["method"], fill(q["path"], ns), fill(q.get("body"), ns), q.get("type"))
        if r.status_code == 409 and "please apply your changes" in r.text:
            time.sleep(0.2)
            continue
        return r
    return r


def play(case):
    ns = "zq" + "".join(random.SystemRandom().choice("bcdfghjkmnpqrstvwxz") for _ in range(8))
    call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns}})
    for q in case["given"]:
        request(q, ns)  # kinds of other operators may be unknown here
    before, after = {}, []
    for i, step in enumerate(case["steps"]):
        answers = [mark(answer(request(q, ns)), ns) for q in step["requests"]]
        for least in (A.quiet, 20.0):
            calm = settle(ns, least)
            s, sets = state(ns, before)
            seen = {"answers": answers, "state": mark(s, ns)} if calm else {"answers": answers, "state": mark(s, ns), "unsettled": True}
            # On a busy machine the state can pause before it changes again: a difference counts only if it stays.
            if not any(compare(case, i, seen)[:2]):
                break
        before = sets
        after.append(seen)
    call("DELETE", "/apis/core.openstack.org/v1beta1/namespaces/%s/openstackcontrolplanes" % ns)
    call("DELETE", G + "/namespaces/%s/glances" % ns, {"propagationPolicy": "Background"})
    return after


# ---- comparison
def forget(doc, pointer):
    keys = [k.replace("~1", "/").replace("~0", "~") for k in pointer.split("/")[1:]]
    for k in keys[:-1]:
        try:
            doc = doc[int(k)] if isinstance(doc, list) else doc[k]
        except (KeyError, IndexError, ValueError):
            return
    k = keys[-1]
    if isinstance(doc, list) and k.isdigit() and int(k) < len(doc):
        doc[int(k)] = "(unstable)"
    elif isinstance(doc, dict) and k in doc:
        doc[k] = "(unstable)"


def ours_only(s):
    """Objects of other operators are not compared."""
    s = {k: v for k, v in s.items() if k not in OTHERS}
    for k in ("glances", "glanceapis", "openstackcontrolplanes"):
        for o in s.get(k, []):
            c = o.get("status", {}).get("conditions") if isinstance(o, dict) and isinstance(o.get("status"), dict) else None
            if isinstance(c, list):
                o["status"]["conditions"] = [x for x in c if not (isinstance(x, dict) and OTHERS_CONDITIONS.search(x.get("type", "")))]
    return s


def placement(a):
    s, out = a["state"], {"codes": [x.get("code") for x in a["answers"]]}
    pick = lambda o, ks: {k: o.get(k) for k in ks if k in o}
    out["statefulsets"] = [dict(pick(o, ("name", "uid", "replicas", "podManagementPolicy", "selector")), pod=pick(o["pod"], ("labels", "affinity", "topologySpreadConstraints", "nodeSelector")), claims=[(v["name"], v["spec"]) for v in o["volumeClaimTemplates"]]) for o in s.get("statefulsets", [])]
    out["topologies"] = [pick(o, ("name", "finalizers", "deleting")) for o in s.get("topologies", [])]
    out["glanceapis"] = [{"name": o["name"], "last": o["status"].get("lastAppliedTopology"), "ready": o["status"].get("readyCount", 0), "conditions": [c for c in o["status"]["conditions"] if isinstance(c, dict) and c["type"] in ("TopologyReady", "DeploymentReady")]} for o in s.get("glanceapis", [])]
    out["services"] = [pick(o, ("name", "selector", "ports", "clusterIP")) for o in s.get("services", [])]
    out["pods"], out["pvcs"] = s.get("pods"), s.get("pvcs")
    return out


def differences(want, have, path=""):
    if isinstance(want, dict) and isinstance(have, dict):
        for k in sorted(set(want) | set(have)):
            yield from differences(want.get(k, "(absent)"), have.get(k, "(absent)"), path + "/" + str(k))
    elif isinstance(want, list) and isinstance(have, list):
        for i in range(max(len(want), len(have))):
            yield from differences(want[i] if i < len(want) else "(absent)", have[i] if i < len(have) else "(absent)", "%s/%d" % (path, i))
    elif want != have and "(unstable)" not in (want, have):
        yield path, want, have


def compare(case, i, seen):
    """The differences of a step from its recording: in placement, anywhere, and whether some are intended."""
    want, have = {"after": copy.deepcopy(case["after"])}, {"after": [{}] * i + [copy.deepcopy(seen)]}
    for p in case.get("unstable", []):
        forget(want, p), forget(have, p)
    w, h = want["after"][i], have["after"][i]
    w["state"], h["state"] = ours_only(w["state"]), ours_only(h["state"])
    try:
        near = list(differences(placement(w), placement(h), "/placement"))
    except (KeyError, TypeError) as x:
        near = [("/placement", "comparable", repr(x))]
    far = list(differences(w, h))
    meant = lambda d: any(re.search(r[0], case["id"] + d[0]) for r in ON_PURPOSE)
    return [d for d in near if not meant(d)], [d for d in far if not meant(d)], any(map(meant, near + far))


def main():
    cases = [json.loads(l) for l in gzip.open(A.recordings, "rt")]
    cases = [c for c in cases if A.only in c["id"]]
    for e in [watch(k, p) for k, p in KINDS.items()]:
        e.wait(30)
    todo, total = list(cases), {"cases": 0, "placement": 0, "whole": 0, "purpose": 0, "steps": 0, "steps placement": 0, "steps whole": 0}
    out, kinds, shown = threading.Lock(), {}, [0]

    def work():
        while True:
            with out:
                if not todo:
                    return
                c = todo.pop(0)
            try:
                after = play(c)
            except Exception:
                traceback.print_exc()
                after = []
            lines, good, fine, purposed = [], True, True, False
            for i in range(len(c["after"])):
                near, far, meant = compare(c, i, after[i] if i < len(after) else {"answers": [], "state": {}})
                purposed = purposed or meant
                total["steps"] += 1
                total["steps placement"] += not near
                total["steps whole"] += not far
                good, fine = good and not near, fine and not far
                for path, a, b in far:
                    shape = re.sub(r"/\d+", "/*", path)
                    kinds[shape] = kinds.get(shape, 0) + 1
                lines += ["   step %d %s want %s have %s" % (i, path, json.dumps(a)[:300], json.dumps(b)[:300]) for path, a, b in (near or far)[:A.lines]]
            with out:
                total["cases"] += 1
                total["placement"] += good
                total["whole"] += fine
                total["purpose"] += purposed
                if lines and shown[0] < A.show:
                    shown[0] += 1
                    print("--", c["id"], "|", c["about"], *lines, sep="\n", flush=True)
    ts = [threading.Thread(target=work) for _ in range(A.workers)]
    [t.start() for t in ts], [t.join() for t in ts]
    for k in sorted(kinds, key=lambda k: -kinds[k])[:25]:
        print("%5d %s" % (kinds[k], k))
    print("operators: placement %d of %d cases (%d of %d steps), whole %d cases (%d steps), on purpose in %d" % (total["placement"], total["cases"], total["steps placement"], total["steps"], total["whole"], total["steps whole"], total["purpose"]))
    sys.exit(0 if total["placement"] == total["cases"] and total["whole"] == total["cases"] else 1)


main()
