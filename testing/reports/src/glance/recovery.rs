//! The failure of the report with `stead explain` and `stead recover`, on machines that run pods as processes, with
//! volumes that can move within a zone, so that data could be lost.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stead_machines::{Image, Images, Machines, Setup};
use stead_stage::{IMAGE, Stage};
use stead_testbed::{Binaries, ClusterSpec, Options};

use super::zones::{LABELS, SEVEN};
use super::{folder, nodes};
use crate::Terminal;
use crate::demo_app::DemoApp;
use crate::pods::{self, NAMESPACE, Pod, TIMEOUT};

const NODE: &str = "worker-0";

/// The other machines of zone A.
const OTHERS: &str = "master-0 worker-3";

const ZONE_A: &str = "kubectl get pods -l service=glance -o wide | egrep \"master-0|worker-0|worker-3\"";

/// The flags of `stead explain` for the timeouts of this control plane.
const TIMERS: &str = "--node-monitor-grace-period 8s --node-monitor-period 500ms --force-detach-after 36s";

/// Replays the failure with this `stead`, and with the demo application in place of Glance, and prints it to `out`.
pub async fn play(binaries: &Binaries, stead: &Path, demo: &Path, out: &mut (dyn Write + Send)) -> Result<()> {
    let options = Options { fast: true, egress: true, ..Options::default() };
    // The machines are the nodes.
    let stage = Stage::open(binaries, stead, options, ClusterSpec::default()).await?;
    stage.install_definitions().await?;
    let stand_in = |name: &str| folder().join("stand-in").join(name);
    let image = Image::default()
        .file("/usr/bin/glance-api", demo)
        .file("/usr/bin/glance-manage", stand_in("glance-manage"))
        .file("/usr/bin/dumb-init", stand_in("dumb-init"))
        .file("/usr/local/bin/kolla_start", stand_in("kolla_start"));
    let mut cluster = nodes(&SEVEN);
    for driver in cluster.drivers.iter_mut().filter(|driver| driver.attach) {
        driver.disk = true;
    }
    let setup = Setup { cluster, images: Images::default().with(IMAGE, image), ..Setup::default() };
    let machines = Machines::start(&stage.plane, setup).await?;
    machines.ready().await?;
    let operator = stage.start_operator(&stage.plane.kubeconfig(), &[]).await?;
    let terminal = Terminal::open(&stage.plane, &binaries.program("kubectl"), stead, folder(), out)?;
    Outage { stage, machines, terminal }.all().await?;
    operator.stop().await
}

struct Outage<'a> {
    stage: Stage,
    machines: Machines,
    terminal: Terminal<'a>,
}

/// By claim: uid and volume. They must not change.
type Claims = BTreeMap<String, (String, String)>;

impl Outage<'_> {
    async fn all(mut self) -> Result<()> {
        self.glance().await?;
        for pod in pods::glance(&self.stage, "").await? {
            self.demo_app(&pod.name).add(&row(&pod.name)).await?;
        }
        let claims = self.claims().await?;
        ensure!(claims.len() == 15, "{} claims, not 15: {claims:?}", claims.len());
        let stuck = self.suspend().await?;
        self.explain(&stuck).await?;
        self.recover(&stuck).await?;
        self.check_nothing_lost(&claims).await?;
        self.resume().await?;
        self.check_nothing_lost(&claims).await
    }

    /// Deploys Glance as it was in the report before the failure, with volumes that can move.
    async fn glance(&mut self) -> Result<()> {
        let terminal = &mut self.terminal;
        terminal.heading("Glance in three zones, with volumes that can move")?;
        for (node, number, zone) in LABELS {
            terminal.run_quietly(&format!("kubectl label nodes {node} node=node{number} zone=zone{zone}")).await?;
        }
        terminal.run("kubectl get nodes -L zone").await?;
        terminal.run("kubectl create namespace openstack").await?;
        terminal.run("kubectl config set-context --current --namespace=openstack").await?;
        terminal.run("kubectl apply -f movable.yaml -f neighbours.yaml -f glance-default-spread-pods.yaml").await?;
        let line = "for F in $(echo glance-{a,b,c}zone-node-affinity.yaml); do kubectl apply -f $F; done";
        terminal.run(line).await?;
        // The default API's pods are created last, and with their spread constraint: a volume created without it may be
        // where the constraint allows no pod, and without the edge pods it would put them all into one zone.
        let line =
            "sed 's/lvms-local-storage/cinder/; s/replicas: 1/replicas: 0/' control-plane.yaml | kubectl apply -f -";
        terminal.run(line).await?;
        terminal.edit("oscp", "edits/edge-apis.yaml").await?;
        pods::wait_until_settled(&self.stage, 9).await?;
        for edit in ["spread", "three-replicas"] {
            self.terminal.edit("oscp", &format!("edits/{edit}.yaml")).await?;
        }
        pods::wait_until_settled(&self.stage, 15).await.map(drop)
    }

    /// Moves two azone pods and one pod of the default API to the machine, suspends it, and returns these pods.
    async fn suspend(&mut self) -> Result<Vec<Pod>> {
        self.terminal.heading("The machine with three of its pods is suspended")?;
        let default = pods::glance(&self.stage, "glance-default-").await?;
        let bound = default.iter().find(|pod| pod.node().is_ok_and(|node| pods::zone(node).is_ok_and(|z| z == 'A')));
        let third = &bound.context("no pod of the default API is in zone A")?.name;
        let three = ["glance-azone-edge-api-0", "glance-azone-edge-api-1", third];
        self.move_pods(NODE, OTHERS, |pod| pod.node.as_deref() == Some(NODE) && !three.contains(&&*pod.name)).await?;
        self.move_pods(OTHERS, NODE, |pod| pod.node.as_deref() != Some(NODE) && three.contains(&&*pod.name)).await?;
        self.terminal.run(ZONE_A).await?;
        self.terminal.remark(&format!("virsh suspend cifmw-ocp-{NODE}"))?;
        self.machines.suspend(NODE).await?;
        let on_it = async || {
            let pods = pods::glance(&self.stage, "").await?;
            Ok::<_, anyhow::Error>(pods.into_iter().filter(|pod| pod.node.as_deref() == Some(NODE)).collect::<Vec<_>>())
        };
        self.stage
            .wait_until("three pods are Terminating", TIMEOUT, || async {
                let pods = on_it().await?;
                Ok(pods.len() == 3 && pods.iter().all(|pod| pod.deleting))
            })
            .await?;
        let stuck = on_it().await?;
        self.terminal.run("kubectl get nodes").await?;
        self.terminal.run(ZONE_A).await?;
        Ok(stuck)
    }

    /// Moves pods from some machines of the zone to others.
    async fn move_pods(&mut self, from: &str, to: &str, which: impl Fn(&Pod) -> bool) -> Result<()> {
        let all = pods::glance(&self.stage, "").await?;
        let some: Vec<&str> = all.iter().filter(|pod| which(pod)).map(|pod| pod.name.as_str()).collect();
        if some.is_empty() {
            return Ok(());
        }
        self.terminal.remark(&format!("{} from {from} to {to}, as in the report", some.join(", ")))?;
        self.terminal.run_quietly(&format!("kubectl cordon {from}")).await?;
        self.terminal.run_quietly(&format!("kubectl delete pod {}", some.join(" "))).await?;
        pods::wait_until_settled(&self.stage, 15).await?;
        self.terminal.run_quietly(&format!("kubectl uncordon {from}")).await.map(drop)
    }

    async fn explain(&mut self, stuck: &[Pod]) -> Result<()> {
        self.terminal.heading("Why they are stuck, and all options")?;
        for pod in stuck {
            let line = format!("stead explain pod/{} {TIMERS}", pod.name);
            let answer = self.terminal.run(&line).await?;
            ensure!(
                answer.contains("Terminating") && answer.contains(NODE),
                "{}: the reason is missing: {answer}",
                pod.name
            );
            let answer: Value = serde_json::from_str(&self.terminal.run_quietly(&format!("{line} -o json")).await?)?;
            let option = |name: &str| answer["forecast"].as_array()?.iter().find(|option| option["way"] == name);
            let never = option("do-nothing").is_some_and(|option| option["readyAt"].is_null());
            ensure!(never, "the forecast says that it recovers by itself: {answer}");
            ensure!(
                option("out-of-service").is_some_and(|o| o["readyAt"].is_string()),
                "no forecast of a fix: {answer}"
            );
        }
        self.terminal.run(&format!("stead explain node/{NODE} {TIMERS}")).await.map(drop)
    }

    async fn recover(&mut self, stuck: &[Pod]) -> Result<()> {
        self.terminal.heading("Recovery")?;
        let confirmation = format!("virsh list: cifmw-ocp-{NODE} paused");
        self.terminal.run(&format!("stead recover node/{NODE} --confirm-off '{confirmation}' --yes")).await?;
        let pods = pods::wait_until_settled(&self.stage, 15).await?;
        self.terminal.run(ZONE_A).await?;
        for old in stuck {
            let new = pods.iter().find(|pod| pod.name == old.name).with_context(|| format!("{} is gone", old.name))?;
            let node = new.node()?;
            ensure!(new.uid != old.uid && node != NODE && pods::zone(node)? == 'A', "{} is on {node}", new.name);
        }
        self.terminal.run("stead recover --list").await?;
        ensure!(
            self.recovery_marks().await? == 2,
            "the taint or the annotation is missing while the machine is suspended"
        );
        Ok(())
    }

    async fn resume(&mut self) -> Result<()> {
        self.terminal.heading("The machine is resumed")?;
        self.terminal.remark(&format!("virsh resume cifmw-ocp-{NODE}"))?;
        self.machines.resume(NODE).await?;
        self.terminal.run(&format!("stead recover node/{NODE} --yes --wait-return")).await?;
        self.machines.ready().await?;
        ensure!(self.recovery_marks().await? == 0, "the taint or the annotation was not removed");
        let line =
            format!("kubectl get node {NODE} -o jsonpath='{{.spec.taints}} {{.metadata.annotations}}{{\"\\n\"}}'");
        self.terminal.run(&line).await?;
        self.terminal.run("stead recover --list").await.map(drop)
    }

    /// Counts the taint and the annotation on the node: 0, 1 or 2.
    async fn recovery_marks(&self) -> Result<usize> {
        let node = self.stage.kubectl(&["get", "node", NODE, "-o", "json"]).await?;
        let marks = ["node.kubernetes.io/out-of-service", "stead.dev/recovery"];
        Ok(marks.into_iter().filter(|mark| node.contains(mark)).count())
    }

    /// Checks that all pods are ready, every claim has its volume, every row is there and another can be added.
    async fn check_nothing_lost(&mut self, claims: &Claims) -> Result<()> {
        let pods = pods::wait_until_settled(&self.stage, 15).await?;
        pods::check_edge_zones(&pods)?;
        ensure!(self.claims().await? == *claims, "the claims changed from {claims:?} to {:?}", self.claims().await?);
        for pod in &pods {
            let page = self.demo_app(&pod.name).page().await?;
            ensure!(page.contains(&row(&pod.name)), "{}: row is lost: {page}", pod.name);
            self.demo_app(&pod.name).add("another|another@example.com").await?;
        }
        let violations = self.machines.violations();
        ensure!(violations.is_empty(), "violations: {violations:#?}");
        let count = pods.len();
        self.terminal.remark(&format!(
            "{count} pods are ready, {} claims have their volumes, the row of each pod is there; there were never two \
             writers",
            claims.len()
        ))
    }

    async fn claims(&self) -> Result<Claims> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = self.stage.list(NAMESPACE, "pvc", "").await?;
        let claim = |c: &Value| {
            let (meta, spec) = (&c["metadata"], &c["spec"]);
            (text(&meta["name"]), (text(&meta["uid"]), text(&spec["volumeName"])))
        };
        Ok(all.iter().map(claim).collect())
    }

    fn demo_app<'a>(&'a self, pod: &'a str) -> DemoApp<'a> {
        DemoApp { machines: &self.machines, namespace: NAMESPACE, pod, port: 9292 }
    }
}

/// The row that a pod has on its volume.
fn row(pod: &str) -> String {
    format!("{pod}|{pod}@example.com")
}
