#!/usr/bin/env python3
"""Unusual clusters for the scheduler oracle, generated in a different way than in cases.py: odd_cases.py SEED COUNT"""

import json, random, sys

Mi = 1 << 20
HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
NS = ["apps", "db", "kube-system", "default", "ghost"]
NSL = {
    "apps": {"env": "prod", "kubernetes.io/metadata.name": "apps"},
    "db": {"env": "dev", "kubernetes.io/metadata.name": "db"},
    "kube-system": {"kubernetes.io/metadata.name": "kube-system"},
    "default": {},
}
K = ["app", "role", "app.kubernetes.io/name", "v"]
V = ["a", "b", "c", "x.y_z", "1", "-1"[1:], ""]
PROV = {
    "ebs": "ebs.csi.aws.com",
    "pd": "pd.csi.storage.gke.io",
    "intree": "kubernetes.io/aws-ebs",
    "ingce": "kubernetes.io/gce-pd",
    "incinder": "kubernetes.io/cinder",
    "local": "kubernetes.io/no-provisioner",
    "imm": "ebs.csi.aws.com",
    "topo": "topo.example.org",
}
INTREE = ["awsElasticBlockStore", "gcePersistentDisk", "azureDisk", "cinder", "portworxVolume"]


class Cluster:
    def __init__(self, r):
        self.r = r
        self.more = {}
        self.n = 0

    def put(self, k, o):
        self.more.setdefault(k, []).append(o)

    def chance(self, x):
        return self.r.random() < x

    def pick(self, l):
        return self.r.choice(l)

    def sample(self, l, lo=1, hi=3):
        return self.r.sample(l, min(len(l), self.r.randint(lo, hi)))

    def some_labels(self):
        r = self.r
        l = {}
        for k in K:
            if self.chance(0.5):
                l[k] = self.pick(V)
        return l

    def selector(self, keys=K, vals=V, none=True):
        k = self.r.random()
        if none and k < 0.07:
            return None
        if k < 0.14:
            return {}
        o = {}
        if self.chance(0.6):
            o["matchLabels"] = {q: self.pick(vals) for q in self.sample(keys, 1, 2)}
        if self.chance(0.5) or not o:
            o["matchExpressions"] = []
            for _ in range(self.r.randint(1, 3)):
                op = self.pick(["In", "NotIn", "Exists", "DoesNotExist"])
                e = {"key": self.pick(keys + ["nokey"]), "operator": op}
                if op in ("In", "NotIn"):
                    e["values"] = self.sample(vals, 1, 4)
                o["matchExpressions"].append(e)
        return o

    def node(self, i):
        name = self.pick(["w%d", "node-%d.example.org", "ip-10-0-0-%d", "N%d".lower()]) % i
        l = {}
        if self.chance(0.93):
            l[HOST] = name
        z = self.pick(["z1", "z2", "z3"])
        if self.chance(0.85):
            l[ZONE] = z
        if self.chance(0.3):
            l["failure-domain.beta.kubernetes.io/zone"] = z if self.chance(0.8) else "z9"
        if self.chance(0.6):
            l[REGION] = "r1"
        if self.chance(0.1):
            l["failure-domain.beta.kubernetes.io/region"] = "r1"
        if self.chance(0.7):
            l["pool"] = self.pick(["gold", "silver", ""])
        if self.chance(0.7):
            l["gen"] = self.pick(
                ["1", "12", "-3", "007", "abc", "9223372036854775807", "9223372036854775808", "+4", ""]
            )
        if self.chance(0.5):
            l["rack"] = self.pick(["k1", "k2"])
        sp = {}
        t = []
        seen = set()
        for _ in range(self.pick([0, 0, 0, 0, 1, 2, 5]) if self.theme != "taint" else self.r.randint(0, 6)):
            x = {
                "key": self.pick(
                    [
                        "ded",
                        "node.kubernetes.io/not-ready",
                        "node.kubernetes.io/unreachable",
                        "node.kubernetes.io/memory-pressure",
                        "x/y",
                        "gpu",
                    ]
                ),
                "effect": self.pick(
                    ["NoSchedule", "PreferNoSchedule", "PreferNoSchedule", "PreferNoSchedule", "NoExecute"]
                ),
            }
            if self.chance(0.6):
                x["value"] = self.pick(["", "a", "b"])
            if (x["key"], x["effect"]) in seen:
                continue
            seen.add((x["key"], x["effect"]))
            t.append(x)
        if t:
            sp["taints"] = t
        if self.chance(0.03):
            sp["unschedulable"] = True
        tight = self.theme in ("res", "preempt", "nom")
        a = {
            "cpu": self.pick(["4", "3920m", "0.5", "2", "7500m", "1e1"] if tight else ["64", "96", "128000m"]),
            "memory": self.pick(
                ["4Gi", "7910Mi", "8e9", "2Gi", "1234567Ki", "3G"] if tight else ["256Gi", "1Ti", "5e11"]
            ),
            "pods": self.pick(["5", "4", "110", "250"] if tight else ["110", "250", "1e2"]),
            "ephemeral-storage": self.pick(["10Gi", "47093746742", "100G"]),
        }
        if self.chance(0.06):
            del a[self.pick(list(a))]
        if self.chance(0.4):
            a["vendor.example/dev"] = self.pick(["1", "2", "3", "8"])
        if self.chance(0.3):
            a["hugepages-2Mi"] = self.pick(["128Mi", "1Gi", "0"])
        if self.chance(0.3):
            a["hugepages-1Gi"] = self.pick(["1Gi", "4Gi", "0"])
        if self.chance(0.1):
            a["attachable-volumes-aws-ebs"] = "25"
        st = {"allocatable": a, "capacity": dict(a)}
        if self.chance(0.5):
            st["images"] = []
            for im in self.sample(
                [
                    "r.example.org/a/web:1",
                    "r.example.org/a/web:2",
                    "docker.io/library/db:latest",
                    "plain:latest",
                    "q:5000/x:latest",
                ],
                1,
                4,
            ):
                st["images"].append(
                    {
                        "names": (
                            [im.split("@")[0].rsplit(":", 1)[0] + "@sha256:" + "0" * 64] if self.chance(0.5) else []
                        )
                        + [im]
                        + ([im.replace("r.example.org", "m.example.org")] if self.chance(0.2) else []),
                        "sizeBytes": self.pick([0, 1, 23 * Mi, 24 * Mi, 500 * Mi, 999 * Mi, 4000 * Mi, 123456789]),
                    }
                )
        if self.theme == "feat" or self.chance(0.1):
            st["declaredFeatures"] = sorted(
                self.sample(
                    [
                        "RestartAllContainersOnContainerExits",
                        "UserNamespacesHostNetworkSupport",
                        "Other",
                        "InPlacePodVerticalScalingExclusiveCPUs",
                    ],
                    0,
                    4,
                )
            )
        self.names.append(name)
        self.labels[name] = l
        m = {"name": name}
        if l or self.chance(0.5):
            m["labels"] = l
        return {"metadata": m, "spec": sp, "status": st}

    def host(self):
        return self.pick(self.names) if self.names else "none"

    def quantity(self, k):
        return {
            "cpu": ["1m", "10m", "100m", "1", "2", "1500m", "0.1", "3", "0", "1e-1", "250000u"],
            "memory": ["1", "1Ki", "100Mi", "1Gi", "1.5Gi", "1e9", "2G", "0", "1500m", "3Gi"],
            "ephemeral-storage": ["1Gi", "5G", "1", "30Gi"],
            "vendor.example/dev": ["1", "2", "0", "3"],
            "hugepages-2Mi": ["2Mi", "64Mi", "128Mi", "256Mi"],
            "hugepages-1Gi": ["1Gi", "2Gi"],
        }[k]

    def container(self, name, small=False):
        c = {"name": name}
        if self.chance(0.95):
            c["image"] = self.pick(
                [
                    "r.example.org/a/web:1",
                    "r.example.org/a/web:2",
                    "docker.io/library/db",
                    "plain",
                    "q:5000/x",
                    "db",
                    "r.example.org/a/web@sha256:" + "0" * 64,
                ]
            )
        req, lim = {}, {}
        for k, pr in (("cpu", 0.6), ("memory", 0.6), ("ephemeral-storage", 0.15)):
            if self.chance(pr):
                v = self.pick(self.quantity(k))
                w = self.r.random()
                if w < 0.6:
                    req[k] = v
                elif w < 0.8:
                    lim[k] = v
                else:
                    req[k] = v
                    lim[k] = v
        for k, pr in (("vendor.example/dev", 0.12), ("hugepages-2Mi", 0.08), ("hugepages-1Gi", 0.05)):
            if self.chance(pr * (2 if self.theme == "res" else 1)) and (
                k[0] != "h" or "cpu" in {**req, **lim} or "memory" in {**req, **lim}
            ):
                v = self.pick(self.quantity(k))
                lim[k] = v
                if self.chance(0.6):
                    req[k] = v
        res = {}
        if req:
            res["requests"] = req
        if lim:
            res["limits"] = lim
        if res:
            c["resources"] = res
        if self.chance(0.7 if self.theme == "port" else 0.03):
            c["ports"] = []
            for _ in range(self.r.randint(1, 3)):
                x = {"containerPort": self.pick([80, 81, 8080])}
                if self.chance(0.7):
                    x["protocol"] = self.pick(["TCP", "UDP", "SCTP"])
                if self.chance(0.8):
                    x["hostPort"] = x["containerPort"]
                if self.chance(0.5):
                    x["hostIP"] = self.pick(["0.0.0.0", "127.0.0.1", "10.1.1.1", "::", "::1", ""])
                c["ports"].append(x)
        return c

    def pod_spec(self, new):
        sp = {"containers": [self.container("c%d" % i) for i in range(self.pick([1, 1, 1, 2, 3]))]}
        if self.chance(0.35 if self.theme == "res" else 0.1):
            sp["initContainers"] = []
            for i in range(self.r.randint(1, 4)):
                c = self.container("i%d" % i)
                if self.chance(0.5):
                    c["restartPolicy"] = "Always"
                else:
                    c.pop("ports", None)
                sp["initContainers"].append(c)
        if self.chance(0.2 if self.theme == "res" else 0.03):
            sp["overhead"] = {
                k: self.pick(["10m", "1"] if k == "cpu" else ["64Mi", "1Gi"])
                for k in self.sample(["cpu", "memory"], 1, 2)
            }
        if self.theme == "res" and self.chance(0.35):
            self.pod_level(sp)
        if self.chance(0.2 if self.theme == "port" else 0.03):
            sp["hostNetwork"] = True
            if self.chance(0.3):
                sp["hostUsers"] = False
        tidy(sp)
        if self.chance(0.4) or self.theme in ("preempt", "nom"):
            sp["priority"] = self.pick([0, 0, 10, 10, -1, -100, 2000000000, 1000, 500])
        if self.chance(0.5 if self.theme == "taint" else 0.15):
            sp["tolerations"] = [self.toleration() for _ in range(self.r.randint(1, 4))]
        return sp

    def pod_level(self, sp):
        tot = {}
        for c in sp["containers"] + sp.get("initContainers", []):
            r_ = c.get("resources", {})
            for k in set(r_.get("requests", {})) | set(r_.get("limits", {})):
                v = num(r_.get("requests", {}).get(k, r_.get("limits", {}).get(k)))
                l_ = num(r_.get("limits", {}).get(k, "0"))
                tot[k] = tot.get(k, 0) + max(v, l_)
        w = {}
        for k in ("cpu", "memory", "hugepages-2Mi"):
            if self.chance(0.6) and (k[0] != "h" or k in tot):
                x = tot.get(k, 0)
                if k == "cpu":
                    w[k] = "%dm" % (int(x * 1000) + self.pick([1, 500, 2000]))
                elif k == "memory":
                    w[k] = str(int(x) + self.pick([1, Mi, 700 * Mi]))
                else:
                    w[k] = "%dMi" % (int(x) // Mi + self.pick([0, 2, 64]))
        if not w:
            return
        how = self.r.random()
        r_ = {}
        if how < 0.4:
            r_["requests"] = {k: v for k, v in w.items() if k[0] != "h"} or {
                "cpu": "%dm" % (int(tot.get("cpu", 0) * 1000) + 1)
            }
        elif how < 0.7:
            r_["limits"] = w
        else:
            r_["requests"] = w
            r_["limits"] = dict(w)
        sp["resources"] = r_

    def toleration(self):
        t = {}
        k = self.r.random()
        if k < 0.1:
            t = {"operator": "Exists"}
        else:
            t["key"] = self.pick(
                [
                    "ded",
                    "node.kubernetes.io/not-ready",
                    "node.kubernetes.io/unreachable",
                    "x/y",
                    "gpu",
                    "node.kubernetes.io/unschedulable",
                    "node.kubernetes.io/memory-pressure",
                ]
            )
            if self.chance(0.5):
                t["operator"] = "Exists"
            else:
                if self.chance(0.5):
                    t["operator"] = "Equal"
                if self.chance(0.8):
                    t["value"] = self.pick(["", "a", "b"])
        if self.chance(0.6):
            t["effect"] = self.pick(["NoSchedule", "PreferNoSchedule", "NoExecute", ""])
        if t.get("effect") == "NoExecute" and self.chance(0.4):
            t["tolerationSeconds"] = self.pick([0, -1, 300])
        return t

    def node_requirement(self):
        op = self.pick(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
        if op in ("Gt", "Lt"):
            return {
                "key": self.pick(["gen", "gen", "pool"]),
                "operator": op,
                "values": [self.pick(["0", "3", "11", "007", "9223372036854775807", "9223372036854775808", "abc"])],
            }
        e = {"key": self.pick([ZONE, "pool", "rack", "gen", HOST, "nolabel"]), "operator": op}
        if op in ("In", "NotIn"):
            e["values"] = self.sample(["z1", "z2", "gold", "silver", "", "k1", "1", "12"] + self.names[:3], 1, 4)
        return e

    def node_term(self, allow_empty=True):
        if allow_empty and self.chance(0.05):
            return {}
        t = {}
        if self.chance(0.8):
            t["matchExpressions"] = [self.node_requirement() for _ in range(self.r.randint(1, 3))]
        if self.chance(0.3) or not t:
            t["matchFields"] = [
                {
                    "key": "metadata.name",
                    "operator": self.pick(["In", "NotIn"]),
                    "values": [self.pick(self.names + ["gone"])],
                }
                for _ in range(self.pick([1, 1, 2]))
            ]
        return t

    def node_affinity(self):
        o = {}
        if self.chance(0.6):
            o["requiredDuringSchedulingIgnoredDuringExecution"] = {
                "nodeSelectorTerms": [self.node_term() for _ in range(self.r.randint(1, 3))]
            }
        if self.chance(0.2):
            o["requiredDuringSchedulingIgnoredDuringExecution"] = {
                "nodeSelectorTerms": [
                    {
                        "matchFields": [
                            {"key": "metadata.name", "operator": "In", "values": [self.pick(self.names + ["gone"])]}
                        ],
                        **({"matchExpressions": [self.node_requirement()]} if self.chance(0.3) else {}),
                    }
                    for _ in range(self.r.randint(1, 3))
                ]
            }
        if self.chance(0.6) or not o:
            o["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": self.r.randint(1, 100), "preference": self.node_term(self.chance(0.3))}
                for _ in range(self.r.randint(1, 4))
            ]
        return o

    def pod_term(self):
        t = {"topologyKey": self.pick([HOST, ZONE, ZONE, "pool", "rack", "nolabel", "gen"])}
        x = self.selector()
        if x is not None:
            t["labelSelector"] = x
        if self.chance(0.3):
            t["namespaces"] = self.sample(NS, 1, 3)
        if self.chance(0.3):
            t["namespaceSelector"] = self.pick(
                [
                    {},
                    {"matchLabels": {"env": "prod"}},
                    {"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]},
                    {"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]},
                    {"matchLabels": {"env": "none"}},
                ]
            )
        return t

    def pod_affinity(self, req=0.6):
        o = {}
        if self.chance(req):
            o["requiredDuringSchedulingIgnoredDuringExecution"] = [
                self.pod_term() for _ in range(self.pick([1, 1, 2, 3]))
            ]
        if self.chance(0.6) or not o:
            o["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": self.r.randint(1, 100), "podAffinityTerm": self.pod_term()}
                for _ in range(self.r.randint(1, 3))
            ]
        return o

    def spread(self, labels):
        out = []
        seen = set()
        for _ in range(self.pick([1, 2, 2, 3, 4])):
            c = {
                "topologyKey": self.pick([HOST, ZONE, ZONE, "pool", "rack", "gen"]),
                "maxSkew": self.pick([1, 1, 2, 5]),
                "whenUnsatisfiable": self.pick(["DoNotSchedule", "ScheduleAnyway"]),
            }
            if (c["topologyKey"], c["whenUnsatisfiable"]) in seen:
                continue
            seen.add((c["topologyKey"], c["whenUnsatisfiable"]))
            x = self.selector()
            if self.chance(0.4):
                x = {"matchLabels": {k: v for k, v in list(labels.items())[:1]}}
            if x is not None:
                c["labelSelector"] = x
            if c["whenUnsatisfiable"] == "DoNotSchedule" and self.chance(0.35):
                c["minDomains"] = self.r.randint(1, 6)
            if self.chance(0.4):
                c["nodeAffinityPolicy"] = self.pick(["Honor", "Ignore"])
            if self.chance(0.4):
                c["nodeTaintsPolicy"] = self.pick(["Honor", "Ignore"])
            out.append(c)
        return out

    # volumes
    def classes(self):
        topo = [
            {"matchLabelExpressions": [{"key": ZONE, "values": ["z1"]}, {"key": "pool", "values": ["gold"]}]},
            {"matchLabelExpressions": [{"key": ZONE, "values": ["z2", "z3"]}]},
        ]
        cl = [
            {
                "metadata": {"name": n},
                "provisioner": p_,
                "volumeBindingMode": "Immediate" if n == "imm" else "WaitForFirstConsumer",
            }
            for n, p_ in PROV.items()
        ]
        for c in cl:
            if c["metadata"]["name"] == "topo":
                c["allowedTopologies"] = topo[: self.r.randint(1, 2)]
            elif self.chance(0.15):
                c["allowedTopologies"] = [
                    {
                        "matchLabelExpressions": [
                            {"key": self.pick([ZONE, "failure-domain.beta.kubernetes.io/zone"]), "values": ["z1", "z2"]}
                        ]
                    }
                ]
        if self.chance(0.1):
            cl.pop(self.r.randrange(len(cl)))
        return cl

    def volume_source(self, name, cls):
        k = self.r.random()
        if k < 0.55:
            return {
                "csi": {
                    "driver": PROV[cls] if "csi" in PROV[cls] or "topo" in PROV[cls] else "ebs.csi.aws.com",
                    "volumeHandle": "h-" + self.pick([name, name, name, "shared"]),
                }
            }
        if k < 0.85:
            t = self.pick(INTREE)
            return {
                t: {
                    "awsElasticBlockStore": {"volumeID": "aws://z1/vol-" + name},
                    "gcePersistentDisk": {"pdName": "pd-" + name},
                    "azureDisk": {"diskName": "d", "diskURI": "/subscriptions/x/" + name},
                    "cinder": {"volumeID": "cv-" + name},
                    "portworxVolume": {"volumeID": "px-" + name},
                }[t]
            }
        return self.pick(
            [{"nfs": {"server": "s", "path": "/"}}, {"hostPath": {"path": "/x"}}, {"local": {"path": "/l"}}]
        )

    def volume_affinity(self):
        return {"required": {"nodeSelectorTerms": [self.volume_term() for _ in range(self.pick([1, 1, 2]))]}}

    def volume_term(self):
        k = self.r.random()
        if k < 0.4:
            return {
                "matchExpressions": [{"key": HOST, "operator": "In", "values": self.sample(self.names or ["x"], 1, 3)}]
            }
        if k < 0.7:
            return {
                "matchExpressions": [
                    {
                        "key": ZONE,
                        "operator": self.pick(["In", "NotIn"]),
                        "values": self.sample(["z1", "z2", "z3"], 1, 2),
                    }
                ]
            }
        return {"matchExpressions": [self.node_requirement() for _ in range(self.r.randint(1, 2))]}

    def volume_labels(self):
        l = {}
        if self.chance(0.4):
            l[self.pick([ZONE, "failure-domain.beta.kubernetes.io/zone"])] = self.pick(
                ["z1", "z2", "z1__z2", "z3", "z1__", "__", "z9"]
            )
        if self.chance(0.2):
            l[self.pick([REGION, "failure-domain.beta.kubernetes.io/region"])] = self.pick(["r1", "r2"])
        if self.chance(0.4):
            l["tier"] = self.pick(["fast", "slow"])
        return l

    def claim(self, ns, name, owner=None, modes=None):
        m = {"name": name, "namespace": ns, "uid": "u-" + ns + "-" + name}
        sp = {
            "accessModes": modes
            or self.pick(
                [
                    ["ReadWriteOnce"],
                    ["ReadWriteMany"],
                    ["ReadOnlyMany"],
                    ["ReadWriteOnce", "ReadOnlyMany"],
                    ["ReadWriteOnce"],
                ]
            ),
            "resources": {"requests": {"storage": self.pick(["1Gi", "8Gi", "1e9", "512Mi"])}},
        }
        cls = self.pick(list(PROV))
        if self.chance(0.05):
            m.setdefault("annotations", {})["volume.beta.kubernetes.io/storage-class"] = cls
        elif self.chance(0.92):
            sp["storageClassName"] = cls
        elif self.chance(0.5):
            sp["storageClassName"] = self.pick(["", "nosuch"])
        if self.chance(0.1):
            sp["volumeMode"] = self.pick(["Block", "Filesystem"])
        if self.chance(0.07):
            sp["volumeAttributesClassName"] = self.pick(["gold", "silver"])
        st = {"phase": "Pending"}
        if owner:
            m["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "Pod", "name": owner[0], "uid": owner[1], "controller": True}
            ]
        o = {"metadata": m, "spec": sp, "status": st}
        k = self.r.random()
        if k < 0.4:  # bound
            pv = "pv-" + ns + "-" + name
            sp["volumeName"] = pv
            m.setdefault("annotations", {})["pv.kubernetes.io/bind-completed"] = "yes"
            st["phase"] = "Bound"
            if self.chance(0.95):
                v = {
                    "metadata": {"name": pv, "labels": self.volume_labels()},
                    "spec": {
                        "capacity": {"storage": "8Gi"},
                        "accessModes": sp["accessModes"],
                        "storageClassName": sp.get("storageClassName", ""),
                        "claimRef": {"kind": "PersistentVolumeClaim", "namespace": ns, "name": name, "uid": m["uid"]},
                        **self.volume_source(name, cls),
                    },
                    "status": {"phase": "Bound"},
                }
                if self.chance(0.5):
                    v["spec"]["nodeAffinity"] = self.volume_affinity()
                self.pvs.append(v)
            if self.chance(0.04):
                st["phase"] = "Lost"
        elif k < 0.45:
            sp["volumeName"] = "pv-" + ns + "-" + name
        else:
            if self.chance(0.1):
                m.setdefault("annotations", {})["volume.kubernetes.io/selected-node"] = self.host()
            if self.chance(0.3):
                sp["selector"] = self.selector(["tier"], ["fast", "slow", "mid"], False)
        if self.chance(0.03):
            m.update(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["x/y"])
        self.pvcs.append(o)
        return o

    def free_volumes(self):
        for i in range(self.r.randint(0, 9)):
            cls = self.pick(["local", "local", "local", "ebs", "intree", ""])
            v = {
                "metadata": {"name": "free-%d" % i, "labels": self.volume_labels()},
                "spec": {
                    "capacity": {"storage": self.pick(["1Gi", "2Gi", "8Gi", "8589934592", "100G", "512Mi", "0"])},
                    "accessModes": self.pick(
                        [
                            ["ReadWriteOnce"],
                            ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"],
                            ["ReadWriteOncePod", "ReadWriteOnce"],
                        ]
                    ),
                    "storageClassName": cls,
                    **self.volume_source("free%d" % i, cls or "local"),
                },
                "status": {"phase": self.pick(["Available"] * 6 + ["Released", "Pending", "Failed", "Bound"])},
            }
            if self.chance(0.7):
                v["spec"]["nodeAffinity"] = self.volume_affinity()
            if self.chance(0.1):
                v["spec"]["volumeMode"] = self.pick(["Block", "Filesystem"])
            if self.chance(0.07):
                v["spec"]["volumeAttributesClassName"] = self.pick(["gold", "silver", ""])
            if self.chance(0.2):
                c = (
                    self.pick(self.pvcs)
                    if self.pvcs and self.chance(0.7)
                    else {"metadata": {"namespace": "apps", "name": "other", "uid": "zz"}}
                )
                v["spec"]["claimRef"] = {"namespace": c["metadata"]["namespace"], "name": c["metadata"]["name"]}
                if self.chance(0.5):
                    v["spec"]["claimRef"]["uid"] = c["metadata"]["uid"]
            if self.chance(0.04):
                v["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["x/y"])
            self.pvs.append(v)

    def volumes(self, pod, n):
        ns, name = pod["metadata"].get("namespace", "default"), pod["metadata"]["name"]
        uid = pod["metadata"].get("uid", "uid-%s-%s" % (ns, name))
        out = pod["spec"].setdefault("volumes", [])
        for _ in range(n):
            self.n += 1
            v = "v%d" % self.n
            k = self.r.random()
            if k < 0.5:
                mine = [c for c in self.pvcs if c["metadata"]["namespace"] == ns]
                if mine and self.chance(0.25):
                    c = self.pick(mine)
                elif self.chance(0.02):
                    c = {"metadata": {"name": "missing"}}
                else:
                    c = self.claim(ns, "c%d" % self.n, modes=["ReadWriteOncePod"] if self.chance(0.2) else None)
                if any(
                    x.get("persistentVolumeClaim", {}).get("claimName") == c["metadata"]["name"] for x in out
                ) and self.chance(0.7):
                    continue
                out.append(
                    {
                        "name": v,
                        "persistentVolumeClaim": {
                            "claimName": c["metadata"]["name"],
                            **({"readOnly": True} if self.chance(0.2) else {}),
                        },
                    }
                )
            elif k < 0.65:
                q = self.r.random()
                if q < 0.85:
                    self.claim(ns, name + "-" + v, owner=(name, uid))
                elif q < 0.95:
                    self.claim(ns, name + "-" + v)
                out.append(
                    {
                        "name": v,
                        "ephemeral": {
                            "volumeClaimTemplate": {
                                "spec": {
                                    "accessModes": ["ReadWriteOnce"],
                                    "resources": {"requests": {"storage": "1Gi"}},
                                }
                            }
                        },
                    }
                )
            elif k < 0.85:
                ro = {"readOnly": True} if self.chance(0.5) else {}
                out.append(
                    {
                        "name": v,
                        **self.pick(
                            [
                                {"gcePersistentDisk": {"pdName": self.pick(["d1", "d2"]), **ro}},
                                {"awsElasticBlockStore": {"volumeID": self.pick(["e1", "e2"]), **ro}},
                                {"iscsi": {"targetPortal": "1.1.1.1", "iqn": self.pick(["i1", "i2"]), "lun": 0, **ro}},
                                {
                                    "rbd": {
                                        "monitors": self.sample(["m1", "m2", "m3"], 1, 3),
                                        "image": self.pick(["i", "j"]),
                                        **({"pool": self.pick(["rbd", "p2"])} if self.chance(0.5) else {}),
                                        **ro,
                                    }
                                },
                                {"azureDisk": {"diskName": "d", "diskURI": "u1"}},
                                {"cinder": {"volumeID": "cc1"}},
                                {"portworxVolume": {"volumeID": "pp1"}},
                            ]
                        ),
                    }
                )
            else:
                out.append(
                    {
                        "name": v,
                        **self.pick(
                            [
                                {"emptyDir": {}},
                                {"hostPath": {"path": "/"}},
                                {"configMap": {"name": "x"}},
                                {"csi": {"driver": "ebs.csi.aws.com"}},
                                {"nfs": {"server": "s", "path": "/"}},
                                {"image": {"reference": "plain"}},
                                {"secret": {"secretName": "s"}},
                            ]
                        ),
                    }
                )

    def drivers(self):
        for n in self.names:
            if self.chance(0.8):
                ds = [
                    {
                        "name": d,
                        "nodeID": n,
                        **({"topologyKeys": []} if self.chance(0.5) else {}),
                        **(
                            {"allocatable": ({"count": self.pick([0, 1, 2, 4])} if self.chance(0.9) else {})}
                            if self.chance(0.8)
                            else {}
                        ),
                    }
                    for d in self.sample(
                        [
                            "ebs.csi.aws.com",
                            "pd.csi.storage.gke.io",
                            "topo.example.org",
                            "disk.csi.azure.com",
                            "cinder.csi.openstack.org",
                            "pxd.portworx.com",
                        ],
                        0,
                        6,
                    )
                ]
                o = {"metadata": {"name": n}, "spec": {"drivers": ds}}
                if self.migrated and self.chance(0.5):
                    o["metadata"]["annotations"] = {
                        "storage.alpha.kubernetes.io/migrated-plugins": ",".join(
                            self.sample(
                                [
                                    "kubernetes.io/aws-ebs",
                                    "kubernetes.io/gce-pd",
                                    "kubernetes.io/azure-disk",
                                    "kubernetes.io/cinder",
                                    "kubernetes.io/portworx-volume",
                                ],
                                1,
                                5,
                            )
                        )
                    }
                self.put("csiNodes", o)
        for i in range(self.r.randint(0, 6)):
            src = (
                {"persistentVolumeName": self.pick(self.pvs)["metadata"]["name"]}
                if self.pvs and self.chance(0.8)
                else self.pick(
                    [
                        {"persistentVolumeName": "nopv"},
                        {
                            "inlineVolumeSpec": {
                                "capacity": {"storage": "1Gi"},
                                "accessModes": ["ReadWriteOnce"],
                                "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "inl"},
                            }
                        },
                    ]
                )
            )
            self.put(
                "volumeAttachments",
                {
                    "metadata": {"name": "va%d" % i},
                    "spec": {
                        "attacher": self.pick(["ebs.csi.aws.com", "topo.example.org", "pd.csi.storage.gke.io"]),
                        "nodeName": self.host(),
                        "source": src,
                    },
                    "status": {"attached": self.chance(0.7)},
                },
            )
        for d in ["ebs.csi.aws.com", "topo.example.org"]:
            if self.chance(0.5):
                self.put(
                    "csiDrivers",
                    {
                        "metadata": {"name": d},
                        "spec": {**({"storageCapacity": self.chance(0.7)} if self.chance(0.9) else {})},
                    },
                )
        for i in range(self.r.randint(0, 6)):
            o = {
                "metadata": {"name": "cap%d" % i, "namespace": self.pick(["kube-system", "apps"])},
                "storageClassName": self.pick(["ebs", "topo", "local", "imm"]),
            }
            if self.chance(0.9):
                o["nodeTopology"] = self.pick(
                    [
                        {"matchLabels": {ZONE: self.pick(["z1", "z2"])}},
                        {},
                        {"matchExpressions": [{"key": "pool", "operator": self.pick(["Exists", "DoesNotExist"])}]},
                        {"matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": ["z1"]}]},
                    ]
                )
            if self.chance(0.85):
                o["capacity"] = self.pick(["0", "1Gi", "4Gi", "1e10", "1073741823"])
            if self.chance(0.3):
                o["maximumVolumeSize"] = self.pick(["1Gi", "600Mi", "9Gi", "0"])
            self.put("csiStorageCapacities", o)

    def placed(self, i, ns=None):
        name = "%s-%d" % (self.pick(["p", "q", "zz", "a"]), i)
        m = {"name": name, "namespace": ns or self.pick(NS), "labels": self.some_labels()}
        if self.chance(0.1):
            del m["labels"]
        if self.chance(0.2):
            m["uid"] = "U%d" % i
        sp = self.pod_spec(False)
        sp["nodeName"] = self.host() if self.chance(0.97) else "gone"
        p = {
            "metadata": m,
            "spec": sp,
            "status": {"phase": self.pick(["Running"] * 9 + ["Pending", "Succeeded", "Failed", "Unknown"])},
        }
        if self.chance(0.75):
            p["status"]["startTime"] = "2026-02-%02dT%02d:00:00Z" % (self.pick([1, 1, 2]), self.pick([0, 0, 5]))
        if self.chance(0.07):
            m.update(deletionTimestamp="2026-03-01T00:00:00Z", finalizers=["a/b"])
            if self.chance(0.5):
                p["status"]["conditions"] = [
                    {
                        "type": "DisruptionTarget",
                        "status": self.pick(["True", "False"]),
                        "reason": self.pick(["PreemptionByScheduler", "Other"]),
                    }
                ]
        if self.theme == "res" and self.chance(0.3):
            self.resize(p)
        if self.chance(0.5 if self.theme == "inter" else 0.04):
            a = {}
            if self.chance(0.5):
                a["podAffinity"] = self.pod_affinity(0.5)
            if self.chance(0.7) or not a:
                a["podAntiAffinity"] = self.pod_affinity(0.5)
            sp["affinity"] = a
        return p

    def resize(self, p):
        cs = []
        ics = []

        def one(c):
            o = {"name": c["name"], "image": "", "imageID": "", "ready": True, "restartCount": 0}
            k = self.r.random()
            have = {x: self.pick(self.quantity(x)) for x in self.sample(["cpu", "memory"], 0, 2)}
            act = {x: self.pick(self.quantity(x)) for x in self.sample(["cpu", "memory"], 0, 2)}
            if k < 0.8:
                o["resources"] = {"requests": act} if self.chance(0.9) else {}
            if k < 0.9 and self.chance(0.8):
                o["allocatedResources"] = have
            return o

        for c in p["spec"]["containers"]:
            if self.chance(0.8):
                cs.append(one(c))
        for c in p["spec"].get("initContainers", []):
            if self.chance(0.6):
                ics.append(one(c))
        if cs:
            p["status"]["containerStatuses"] = cs
        if ics:
            p["status"]["initContainerStatuses"] = ics
        if "resources" in p["spec"] and self.chance(0.6):
            p["status"]["resources"] = {
                "requests": {x: self.pick(self.quantity(x)) for x in self.sample(["cpu", "memory"], 0, 2)}
            }
            if self.chance(0.7):
                p["status"]["allocatedResources"] = {
                    x: self.pick(self.quantity(x)) for x in self.sample(["cpu", "memory"], 1, 2)
                }
        if self.chance(0.5):
            p["status"].setdefault("conditions", []).append(
                {
                    "type": self.pick(["PodResizePending", "PodResizeInProgress"]),
                    "status": self.pick(["True", "False"]),
                    "reason": self.pick(["Infeasible", "Deferred"]),
                }
            )


def num(q):
    q = str(q)
    for a, f in (("Ki", 1024), ("Mi", Mi), ("Gi", 1024 * Mi), ("m", 0.001), ("u", 1e-6), ("G", 1e9)):
        if q.endswith(a):
            return float(q[: -len(a)]) * f
    return float(q)


def tidy(sp):
    seen = set()
    for c in sp["containers"] + sp.get("initContainers", []):
        keep = []
        for p in c.get("ports", []):
            if sp.get("hostNetwork"):
                p["hostPort"] = p["containerPort"]
            k = (p.get("protocol", "TCP"), p.get("hostIP"), p.get("hostPort"))
            if k[2] is not None:
                if k in seen:
                    continue
                seen.add(k)
            keep.append(p)
        if "ports" in c:
            c["ports"] = keep


THEMES = [
    "spread",
    "inter",
    "vol",
    "vol",
    "vol",
    "attach",
    "attach",
    "res",
    "res",
    "port",
    "taint",
    "naff",
    "owner",
    "preempt",
    "preempt",
    "preempt",
    "nom",
    "feat",
    "img",
    "all",
]


def case(seed, cid, migrated=False):
    r = random.Random(seed)
    self = Cluster(r)
    self.theme = r.choice(THEMES)
    self.migrated = migrated
    th = self.theme
    self.names = []
    self.labels = {}
    self.pvs = []
    self.pvcs = []
    n = (
        r.choice([0] + [1, 2, 3, 4, 5, 6, 8, 10] * 3 + [25])
        if th not in ("preempt", "res", "nom")
        else r.choice([1, 1, 2, 3, 4])
    )
    nodes = [self.node(i) for i in range(n)]
    m = {"name": "it"}
    if r.random() < 0.9:
        m["namespace"] = r.choice(NS[:4])
    if r.random() < 0.95:
        m["labels"] = self.some_labels()
    if r.random() < 0.2:
        m["uid"] = "it-uid"
    ns = m.get("namespace", "default")
    pod = {"metadata": m, "spec": self.pod_spec(True)}
    if r.random() < 0.7:
        pod["status"] = {"phase": "Pending"}
    if r.random() < 0.1:
        pod["spec"]["preemptionPolicy"] = r.choice(["Never", "PreemptLowerPriority"])
    count = r.choice([0, 0, 3, 8, 20, 40])
    if th in ("preempt",):
        count = r.choice([5, 10, 20, 40, 60])
    if th == "res":
        count = r.choice([2, 5, 10])
    pods = [self.placed(i, ns if r.random() < 0.4 else None) for i in range(count)]
    if th == "spread" or th == "all" or r.random() < 0.03:
        pod["spec"]["topologySpreadConstraints"] = self.spread(m.get("labels", {}))
        for p in pods:
            if r.random() < 0.6:
                p["metadata"]["namespace"] = ns
                p["metadata"]["labels"] = dict(m.get("labels", {}))
    if th in ("inter", "all") or r.random() < 0.03:
        a = pod["spec"].setdefault("affinity", {})
        if r.random() < 0.7:
            a["podAffinity"] = self.pod_affinity(0.7)
        if r.random() < 0.6:
            a["podAntiAffinity"] = self.pod_affinity(0.6)
    if th in ("naff", "all") or r.random() < 0.05:
        if r.random() < 0.8 and self.names:
            pod["spec"].setdefault("affinity", {})["nodeAffinity"] = self.node_affinity()
        if r.random() < 0.4:
            pod["spec"]["nodeSelector"] = r.choice([{"pool": "gold"}, {ZONE: "z1"}, {"pool": "", "rack": "k1"}, {}])
    if th in ("vol", "attach") or (th == "all" and r.random() < 0.5):
        self.volumes(pod, r.randint(1, 4))
        for p in pods:
            if r.random() < (0.6 if th == "attach" else 0.2):
                self.volumes(p, r.randint(1, 3))
        self.free_volumes()
        if th == "attach" or r.random() < 0.5:
            self.drivers()
    if th in ("owner", "all") or r.random() < 0.03:
        L = m.get("labels", {})
        for i in range(r.randint(0, 3)):
            sel = r.choice([dict(list(L.items())[:1]), dict(L), {"app": "a"}, {}])
            o = {"metadata": {"name": "s%d" % i, "namespace": r.choice([ns, ns, "apps"])}, "spec": {}}
            if r.random() < 0.9:
                o["spec"]["selector"] = sel
            self.put("services", o)
        k = r.choice(["ReplicaSet", "StatefulSet", "ReplicationController", "DaemonSet", None])
        if k:
            m["ownerReferences"] = [
                {
                    "apiVersion": (
                        "v1" if k == "ReplicationController" else r.choice(["apps/v1", "apps/v1", "apps/v1beta1"])
                    ),
                    "kind": k,
                    "name": "own",
                    "uid": "ou",
                    **({"controller": True} if r.random() < 0.9 else {}),
                }
            ]
            key = {
                "ReplicaSet": "replicaSets",
                "StatefulSet": "statefulSets",
                "ReplicationController": "replicationControllers",
            }.get(k)
            if key:
                sel = dict(list(L.items())[:2])
                tpl = {"metadata": {"labels": L}, "spec": {"containers": [{"name": "c"}]}}
                self.put(
                    key,
                    {
                        "metadata": {"name": "own", "namespace": ns},
                        "spec": {
                            "selector": (
                                sel
                                if k == "ReplicationController"
                                else (
                                    {
                                        "matchLabels": sel,
                                        **(
                                            {
                                                "matchExpressions": [
                                                    {
                                                        "key": r.choice(K),
                                                        "operator": r.choice(["Exists", "NotIn"]),
                                                        "values": [],
                                                    }
                                                ]
                                            }
                                            if False
                                            else {}
                                        ),
                                    }
                                    if sel or r.random() < 0.5
                                    else {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
                                )
                            ),
                            "template": tpl,
                        },
                    },
                )
        for p in pods:
            if r.random() < 0.5:
                p["metadata"].update(namespace=ns, labels=dict(L))
    if th == "feat":
        if r.random() < 0.7:
            r.choice(pod["spec"]["containers"] + pod["spec"].get("initContainers", [])).update(
                restartPolicy=r.choice(["Never", "Always"]),
                restartPolicyRules=[
                    {
                        "action": r.choice(["RestartAllContainers", "Restart"]),
                        "exitCodes": {"operator": "In", "values": [1]},
                    }
                ],
            )
        if r.random() < 0.4:
            pod["spec"].update(hostNetwork=True, hostUsers=r.choice([True, False]))
            tidy(pod["spec"])
    if th in ("preempt", "nom"):
        pod["spec"]["priority"] = r.choice([1000, 500, 10, 0])
        for p in pods:
            if r.random() < 0.8:
                p["spec"]["priority"] = r.choice([0, 0, 0, 10, -5, 500])
            if r.random() < 0.5:
                p["spec"].pop("resources", None)
                p["spec"]["containers"][0]["resources"] = {
                    "requests": {"cpu": r.choice(["100m", "200m", "500m", "1"]), "memory": r.choice(["64Mi", "512Mi"])}
                }
        pod["spec"].pop("resources", None)
        pod["spec"]["containers"][0]["resources"] = {
            "requests": {"cpu": r.choice(["500m", "1", "2", "3"]), "memory": r.choice(["100Mi", "1Gi"])}
        }
        if r.random() < 0.2:
            self.volumes(pod, 1)
            self.free_volumes()
        if r.random() < 0.3:
            pod["spec"]["topologySpreadConstraints"] = self.spread(m.get("labels", {}))
        if r.random() < 0.3:
            pod["spec"].setdefault("affinity", {})["podAntiAffinity"] = self.pod_affinity(0.9)
        if r.random() < 0.15:
            pod["spec"].setdefault("affinity", {})["podAffinity"] = self.pod_affinity(0.9)
        for i in range(r.randint(0, 4)):
            b = {
                "metadata": {"name": "b%d" % i, "namespace": r.choice([ns, "apps", "db"])},
                "spec": {"minAvailable": 1},
                "status": {
                    "disruptionsAllowed": r.choice([0, 0, 1, 2, 5]),
                    "currentHealthy": 1,
                    "desiredHealthy": 1,
                    "expectedPods": 2,
                },
            }
            x = self.selector()
            if x is not None:
                b["spec"]["selector"] = x
            if pods and r.random() < 0.3:
                b["status"]["disruptedPods"] = {r.choice(pods)["metadata"]["name"]: "2026-01-01T00:00:00Z"}
            self.put("podDisruptionBudgets", b)
    if th == "nom" or r.random() < 0.05:
        for i in range(r.randint(1, 4)):
            p = self.placed(1000 + i)
            p["spec"].pop("nodeName")
            p["status"] = {"phase": "Pending", "nominatedNodeName": self.host()}
            p["metadata"].pop("deletionTimestamp", None)
            p["metadata"].pop("finalizers", None)
            if r.random() < 0.3 and th == "nom":
                p["spec"]["affinity"] = {"podAntiAffinity": self.pod_affinity(0.9)}
            if r.random() < 0.3:
                p["metadata"]["namespace"] = ns
                p["metadata"]["labels"] = dict(m.get("labels", {}))
            pods.append(p)
        if r.random() < 0.5:
            pod.setdefault("status", {})["nominatedNodeName"] = self.host()
    names = set()
    out = []
    for p in pods:
        k = (p["metadata"]["namespace"], p["metadata"]["name"])
        if k in names:
            continue
        names.add(k)
        out.append(p)
    r.shuffle(out)
    c = {
        "id": cid,
        "nodes": nodes,
        "pods": out,
        "namespaces": [{"metadata": {"name": k, "labels": v}} for k, v in NSL.items()],
        "storageClasses": self.classes(),
        "pod": pod,
    }
    if self.pvs:
        c["persistentVolumes"] = self.pvs
    if self.pvcs:
        c["persistentVolumeClaims"] = self.pvcs
    c.update(self.more)
    return c


if __name__ == "__main__":
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    for i in range(count):
        print(json.dumps(case(seed * 1000003 + i, "o%d-%d" % (seed, i)), separators=(",", ":")))
