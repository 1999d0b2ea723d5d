//! Seven nodes in three zones: pods bound to a zone, pods spread over zones, and volumes that prevent it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stead_testbed::Nodes;

use super::{Replay, nodes};
use crate::pods::{self, NAMESPACE, Pod, TIMEOUT, condition};

/// The nodes of the report, and whether each is a control plane node.
pub(super) const SEVEN: [(&str, bool); 7] = [
    ("master-0", true),
    ("master-1", true),
    ("master-2", true),
    ("worker-0", false),
    ("worker-1", false),
    ("worker-2", false),
    ("worker-3", false),
];

/// The labels of the nodes: name, number, zone.
pub(super) const LABELS: [(&str, u8, char); 7] = [
    ("master-0", 1, 'A'),
    ("worker-0", 2, 'A'),
    ("worker-3", 3, 'A'),
    ("master-1", 4, 'B'),
    ("worker-1", 5, 'B'),
    ("master-2", 6, 'C'),
    ("worker-2", 7, 'C'),
];

/// The pods that cannot be scheduled with the spread constraint.
const STUCK: [&str; 2] = ["glance-default-external-api-2", "glance-default-internal-api-1"];

/// The scheduler's message about them. (Kubernetes 1.29 said "had volume node affinity conflict".)
const REASON: &str = "0/7 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing \
                      required label), 6 node(s) didn't match PersistentVolume's node affinity.";

const ALL: &str = "kubectl get pods -l service=glance -o wide";
const DEFAULT: &str = "kubectl get pods -l service=glance -o wide | grep default";

impl Replay<'_> {
    /// Starts the seven nodes, and deploys a control plane.
    pub(super) async fn seven_nodes(&mut self) -> Result<()> {
        self.stage.nodes = Nodes::start(&self.stage.plane, nodes(&SEVEN)).await?;
        self.stage.nodes.ready().await?;
        let terminal = &mut self.terminal;
        terminal.heading("Seven nodes in three zones")?;
        terminal.run("kubectl delete node crc").await?;
        terminal.run("kubectl get nodes").await?;
        terminal.run("kubectl get sc").await?;
        for (node, number, zone) in LABELS {
            let line = format!("kubectl label nodes {node} node=node{number} zone=zone{zone} --overwrite");
            terminal.run(&line).await?;
        }
        terminal.remark("worker-3 loses its label again, as happened unnoticed in the report")?;
        terminal.run("kubectl label nodes worker-3 zone-").await?;
        terminal.run("kubectl create namespace openstack").await?;
        terminal.run("kubectl apply -f neighbours.yaml").await?;
        terminal.remark("claims are placed as in the report: the scheduler chooses randomly among equal nodes")?;
        terminal.run("kubectl apply -f claims.yaml").await?;
        terminal.run("kubectl apply -f control-plane.yaml").await?;
        pods::wait_until_settled(&self.stage, 2).await.map(drop)
    }

    pub(super) async fn zones(&mut self) -> Result<()> {
        self.edges().await?;
        self.three_replicas().await?;
        self.spread().await?;
        self.why_pending().await?;
        self.external().await
    }

    async fn edges(&mut self) -> Result<()> {
        self.terminal.heading("An edge API in each zone, bound by node affinity")?;
        let line = "for F in $(echo glance-{a,b,c}zone-node-affinity.yaml); do kubectl apply -f $F; done";
        self.terminal.run(line).await?;
        self.terminal.edit("oscp", "edits/edge-apis.yaml").await?;
        let pods = pods::wait_until_settled(&self.stage, 11).await?;
        self.terminal.run(ALL).await?;
        pods::check_edge_zones(&pods)?;
        self.terminal.run("kubectl get topo").await.map(drop)
    }

    async fn three_replicas(&mut self) -> Result<()> {
        self.terminal.heading("The default API, scaled to three and then spread over the zones")?;
        self.terminal.edit("oscp", "edits/three-replicas.yaml").await?;
        let pods = pods::wait_until_settled(&self.stage, 15).await?;
        self.terminal.run(DEFAULT).await?;
        for name in STUCK {
            let pod = pods.iter().find(|pod| pod.name == name).context("a pod is missing")?;
            ensure!(pod.node()? == "worker-3", "{name} is on {}", pod.node()?);
        }
        self.terminal.run("kubectl get pod glance-default-internal-api-0 -o yaml | grep affinity -A 11").await?;
        let affinity =
            pods::one(&self.stage, "glance-default-internal-api-0").await?.map(|p| p.spec["affinity"].clone());
        ensure!(affinity == Some(default_anti_affinity()), "the default anti-affinity is {affinity:?}");
        Ok(())
    }

    async fn spread(&mut self) -> Result<()> {
        let created = self.terminal.run("kubectl create -f draft/glance-default-spread-pods.yaml").await?;
        ensure!(created.contains("Warning: "), "no warning about the draft spelling");
        self.terminal.edit("oscp", "edits/spread.yaml").await?;
        self.stage
            .wait_until("two pods are Pending and four run", TIMEOUT, || async {
                let pods = pods::glance(&self.stage, "glance-default-").await?;
                let stuck = pods.iter().filter(|pod| STUCK.contains(&pod.name.as_str()));
                let others = pods.iter().filter(|pod| !STUCK.contains(&pod.name.as_str()));
                let moved = |pod: &Pod| !pod.spec["topologySpreadConstraints"].is_null();
                Ok(stuck.into_iter().all(|p| p.unschedulable.is_some() && moved(p))
                    && others.clone().count() == 4
                    && others.clone().all(|pod| pod.ready && !pod.deleting)
                    && others.into_iter().any(|pod| pod.name == "glance-default-internal-api-2" && moved(pod)))
            })
            .await?;
        self.terminal.run(DEFAULT).await.map(drop)
    }

    async fn why_pending(&mut self) -> Result<()> {
        let pod = pods::one(&self.stage, STUCK[0]).await?.context("the pod is gone")?;
        let spread = json!([{
            "labelSelector": {"matchLabels": {"service": "glance"}},
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
        }]);
        ensure!(pod.spec["topologySpreadConstraints"] == spread, "spread {}", pod.spec["topologySpreadConstraints"]);
        ensure!(
            pod.spec["affinity"] == default_anti_affinity(),
            "the anti-affinity with the spread is {}",
            pod.spec["affinity"]
        );
        for name in STUCK {
            let why = pods::one(&self.stage, name).await?.and_then(|pod| pod.unschedulable).unwrap_or_default();
            ensure!(why.starts_with(REASON), "{name}: unexpected scheduler message: {why}");
        }
        let line = format!("kubectl get pod {} -o yaml | grep -A 8 'message:.*nodes are available'", STUCK[0]);
        self.terminal.run(&line).await?;
        for claim in ["internal-api-1", "external-api-2"] {
            let volume = self.terminal.run(&format!("kubectl get pv | grep {claim} | awk {{'print $1'}}")).await?;
            let node = self.terminal.run(&format!("kubectl get pv {} -o yaml | grep worker", volume.trim())).await?;
            ensure!(node.trim() == "- worker-3", "the volume of {claim} is on {node}");
        }
        self.terminal.remark("what the author of the report did not know")?;
        let answer = self.terminal.run(&format!("stead explain pod/{}", STUCK[0])).await?;
        // Long lines are wrapped.
        let answer = answer.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            REASON,
            "which can be used only on worker-3",
            "spread by node label zone (from Topology glance-default-spread-pods): it has no label zone",
            "zoneA 5, zoneB 4, zoneC 4; with this pod zoneA would have 6",
            "external storage, or none",
        ] {
            ensure!(answer.contains(part), "the explanation does not say: {part}");
        }
        self.check_condition().await?;
        self.terminal.run("stead explain topology/glance-default-spread-pods").await?;
        self.terminal.run("kubectl replace -f glance-default-spread-pods.yaml").await.map(drop)
    }

    /// The GlanceAPI reports the scheduler's reason, and a possible fix.
    async fn check_condition(&mut self) -> Result<()> {
        let message =
            |api: Value| condition(&api, "PodsScheduled").map(|c| c["message"].to_string()).unwrap_or_default();
        for (api, pod) in [("glance-default-external", STUCK[0]), ("glance-default-internal", STUCK[1])] {
            self.stage
                .wait_until(&format!("{api} reports why {pod} is Pending"), TIMEOUT, || async {
                    let object = self.stage.get(NAMESPACE, &format!("glanceapi/{api}")).await?;
                    let message = object.map(message).unwrap_or_default();
                    Ok(message.contains(pod) && message.contains(REASON) && message.contains("Possible fix: "))
                })
                .await?;
        }
        let line = "kubectl get glanceapi glance-default-external \
                    -o jsonpath='{.status.conditions[?(@.type==\"PodsScheduled\")].message}{\"\\n\"}'";
        self.terminal.run(line).await.map(drop)
    }

    async fn external(&mut self) -> Result<()> {
        self.terminal.heading("External storage: the volumes are no longer in the way")?;
        self.terminal.edit("oscp", "edits/default-external.yaml").await?;
        let pods = pods::wait_until_settled(&self.stage, 15).await?;
        self.terminal.run(DEFAULT).await?;
        let default: Vec<&Pod> = pods.iter().filter(|pod| pod.name.starts_with("glance-default-")).collect();
        let zones = pods::by_zone(default.iter().copied())?;
        ensure!(zones == BTreeMap::from([('A', 2), ('B', 2), ('C', 2)]), "the default pods are in {zones:?}");
        ensure!(!default.iter().any(|pod| pod.has_claim()), "a default pod still has a claim");
        self.terminal.remark("azone-0 and azone-1 on worker-0, azone-2 on master-0, as in the report")?;
        self.terminal.run("kubectl cordon master-0").await?;
        self.terminal.edit("oscp", "edits/all-external.yaml").await?;
        self.stage
            .wait_until("no Glance pod has a claim", TIMEOUT, || async {
                Ok(!pods::glance(&self.stage, "").await?.iter().any(Pod::has_claim))
            })
            .await?;
        pods::wait_until_settled(&self.stage, 15).await?;
        self.terminal.run("kubectl uncordon master-0").await?;
        // The taint is removed a moment later.
        self.stage.nodes.ready().await?;
        self.terminal.run("kubectl delete pod glance-azone-edge-api-2").await?;
        let pods = pods::wait_until_settled(&self.stage, 15).await?;
        let line = "for P in $(kubectl get pods | grep glance | grep -v purge | awk {'print $1'}); do \
                    echo $P; kubectl get pod $P -o yaml | grep -i persistentVolumeClaim ; done; true";
        let seen = self.terminal.run(line).await?;
        ensure!(!seen.contains("persistentVolumeClaim"), "a pod still has a claim");
        for (name, node) in [("azone-edge-api-0", "worker-0"), ("azone-edge-api-2", "master-0")] {
            let pod = pods.iter().find(|pod| pod.name.ends_with(name)).context("a pod is missing")?;
            ensure!(pod.node()? == node, "{name} is on {}", pod.node()?);
        }
        pods::check_edge_zones(&pods)
    }
}

/// The default anti-affinity of Glance pods without a Topology affinity.
fn default_anti_affinity() -> Value {
    json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
        "podAffinityTerm": {
            "labelSelector": {"matchExpressions": [{"key": "service", "operator": "In", "values": ["glance"]}]},
            "topologyKey": "kubernetes.io/hostname",
        },
        "weight": 100,
    }]}})
}
