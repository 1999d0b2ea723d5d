//! The failure of the report again, with `stead explain` and `stead recover`, on machines whose pods are processes,
//! with volumes that can move within a zone: data could be lost.

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
use crate::pods::{self, PATIENCE, Pod, SPACE};
use crate::served::Served;

const SILENT: &str = "worker-0";

/// The machines of zone A that stay.
const OTHERS: &str = "master-0 worker-3";

const ZONE_A: &str = "kubectl get pods -l service=glance -o wide | egrep \"master-0|worker-0|worker-3\"";

/// What `stead explain` has to be told of this control plane's waiting times.
const TIMERS: &str = "--node-monitor-grace-period 8s --node-monitor-period 500ms --force-detach-after 36s";

/// Plays it with this `stead`, and with the demo application where the image would have Glance; prints it to `out`.
pub async fn play(binaries: &Binaries, stead: &Path, demo: &Path, out: &mut (dyn Write + Send)) -> Result<()> {
    let options = Options { fast: true, egress: true, ..Options::default() };
    // The nodes are the machines'.
    let stage = Stage::open(binaries, stead, options, ClusterSpec::default()).await?;
    stage.define().await?;
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
    let operator = stage.operate(&stage.plane.kubeconfig(), &[]).await?;
    let terminal = Terminal::open(&stage.plane, &binaries.program("kubectl"), stead, folder(), out)?;
    Outage { stage, machines, terminal }.all().await?;
    operator.end().await
}

struct Outage<'a> {
    stage: Stage,
    machines: Machines,
    terminal: Terminal<'a>,
}

/// What must not get lost: each claim's uid and volume.
type Claims = BTreeMap<String, (String, String)>;

impl Outage<'_> {
    async fn all(mut self) -> Result<()> {
        self.glance().await?;
        for pod in pods::glance(&self.stage, "").await? {
            self.served(&pod.name).add(&row(&pod.name)).await?;
        }
        let claims = self.claims().await?;
        ensure!(claims.len() == 15, "{} claims, not 15: {claims:?}", claims.len());
        let stuck = self.stuck().await?;
        self.explained(&stuck).await?;
        self.recovered(&stuck).await?;
        self.nothing_is_lost(&claims).await?;
        self.resumed().await?;
        self.nothing_is_lost(&claims).await
    }

    /// Glance as the report has it when the machine falls silent, with volumes that can move.
    async fn glance(&mut self) -> Result<()> {
        let terminal = &mut self.terminal;
        terminal.heading("Glance in three zones, with volumes that can move")?;
        for (node, number, zone) in LABELS {
            terminal.quietly(&format!("kubectl label nodes {node} node=node{number} zone=zone{zone}")).await?;
        }
        terminal.types("kubectl get nodes -L zone").await?;
        terminal.types("kubectl create namespace openstack").await?;
        terminal.types("kubectl config set-context --current --namespace=openstack").await?;
        terminal.types("kubectl apply -f movable.yaml -f neighbours.yaml -f glance-default-spread-pods.yaml").await?;
        let line = "for F in $(echo glance-{a,b,c}zone-node-affinity.yaml); do kubectl apply -f $F; done";
        terminal.types(line).await?;
        // The default API's pods come last, and with their spread: a volume that was made without it may be where the spread
        // allows no pod, and one that counts edge pods which are not placed yet would send them all to one zone.
        let line =
            "sed 's/lvms-local-storage/cinder/; s/replicas: 1/replicas: 0/' control-plane.yaml | kubectl apply -f -";
        terminal.types(line).await?;
        terminal.edits("oscp", "edits/edge-apis.yaml").await?;
        pods::settled(&self.stage, 9).await?;
        for edit in ["spread", "three-replicas"] {
            self.terminal.edits("oscp", &format!("edits/{edit}.yaml")).await?;
        }
        pods::settled(&self.stage, 15).await.map(drop)
    }

    /// Two pods of azone and one of the default API are on the machine, which is then suspended.
    async fn stuck(&mut self) -> Result<Vec<Pod>> {
        self.terminal.heading("The machine with three of its pods is suspended")?;
        let default = pods::glance(&self.stage, "glance-default-").await?;
        let bound = default.iter().find(|pod| pod.node().is_ok_and(|node| pods::zone(node).is_ok_and(|z| z == 'A')));
        let third = &bound.context("no pod of the default API is in zone A")?.name;
        let three = ["glance-azone-edge-api-0", "glance-azone-edge-api-1", third];
        self.moves(SILENT, OTHERS, |pod| pod.node.as_deref() == Some(SILENT) && !three.contains(&&*pod.name)).await?;
        self.moves(OTHERS, SILENT, |pod| pod.node.as_deref() != Some(SILENT) && three.contains(&&*pod.name)).await?;
        self.terminal.types(ZONE_A).await?;
        self.terminal.remark(&format!("virsh suspend cifmw-ocp-{SILENT}"))?;
        self.machines.silence(SILENT).await?;
        let on_it = async || {
            let pods = pods::glance(&self.stage, "").await?;
            Ok::<_, anyhow::Error>(
                pods.into_iter().filter(|pod| pod.node.as_deref() == Some(SILENT)).collect::<Vec<_>>(),
            )
        };
        self.stage
            .until("three pods are Terminating", PATIENCE, || async {
                let pods = on_it().await?;
                Ok(pods.len() == 3 && pods.iter().all(|pod| pod.deleting))
            })
            .await?;
        let stuck = on_it().await?;
        self.terminal.types("kubectl get nodes").await?;
        self.terminal.types(ZONE_A).await?;
        Ok(stuck)
    }

    /// Moves pods from some machines of the zone to others.
    async fn moves(&mut self, from: &str, to: &str, which: impl Fn(&Pod) -> bool) -> Result<()> {
        let all = pods::glance(&self.stage, "").await?;
        let some: Vec<&str> = all.iter().filter(|pod| which(pod)).map(|pod| pod.name.as_str()).collect();
        if some.is_empty() {
            return Ok(());
        }
        self.terminal.remark(&format!("{} from {from} to {to}, as the report had them", some.join(", ")))?;
        self.terminal.quietly(&format!("kubectl cordon {from}")).await?;
        self.terminal.quietly(&format!("kubectl delete pod {}", some.join(" "))).await?;
        pods::settled(&self.stage, 15).await?;
        self.terminal.quietly(&format!("kubectl uncordon {from}")).await.map(drop)
    }

    async fn explained(&mut self, stuck: &[Pod]) -> Result<()> {
        self.terminal.heading("Why they are stuck, and every way out")?;
        for pod in stuck {
            let line = format!("stead explain pod/{} {TIMERS}", pod.name);
            let answer = self.terminal.types(&line).await?;
            ensure!(answer.contains("Terminating") && answer.contains(SILENT), "{}: not why: {answer}", pod.name);
            let answer: Value = serde_json::from_str(&self.terminal.quietly(&format!("{line} -o json")).await?)?;
            let way = |name: &str| answer["forecast"].as_array()?.iter().find(|way| way["way"] == name);
            ensure!(way("do-nothing").is_some_and(|way| way["readyAt"].is_null()), "it ends by itself: {answer}");
            ensure!(way("out-of-service").is_some_and(|way| way["readyAt"].is_string()), "no way out: {answer}");
        }
        self.terminal.types(&format!("stead explain node/{SILENT} {TIMERS}")).await.map(drop)
    }

    async fn recovered(&mut self, stuck: &[Pod]) -> Result<()> {
        self.terminal.heading("Recovered")?;
        let words = format!("virsh list: cifmw-ocp-{SILENT} paused");
        self.terminal.types(&format!("stead recover node/{SILENT} --confirm-off '{words}' --yes")).await?;
        let pods = pods::settled(&self.stage, 15).await?;
        self.terminal.types(ZONE_A).await?;
        for old in stuck {
            let new = pods.iter().find(|pod| pod.name == old.name).with_context(|| format!("{} is gone", old.name))?;
            let node = new.node()?;
            ensure!(new.uid != old.uid && node != SILENT && pods::zone(node)? == 'A', "{} is on {node}", new.name);
        }
        self.terminal.types("stead recover --list").await?;
        ensure!(self.marks().await? == 2, "no taint, or no mark, while the machine is away");
        Ok(())
    }

    async fn resumed(&mut self) -> Result<()> {
        self.terminal.heading("The machine is resumed")?;
        self.terminal.remark(&format!("virsh resume cifmw-ocp-{SILENT}"))?;
        self.machines.resume(SILENT).await?;
        self.terminal.types(&format!("stead recover node/{SILENT} --yes --wait-return")).await?;
        self.machines.ready().await?;
        ensure!(self.marks().await? == 0, "the taint or the mark is left");
        let line =
            format!("kubectl get node {SILENT} -o jsonpath='{{.spec.taints}} {{.metadata.annotations}}{{\"\\n\"}}'");
        self.terminal.types(&line).await?;
        self.terminal.types("stead recover --list").await.map(drop)
    }

    /// How many of the taint and the mark the node has.
    async fn marks(&self) -> Result<usize> {
        let node = self.stage.kubectl(&["get", "node", SILENT, "-o", "json"]).await?;
        let marks = ["node.kubernetes.io/out-of-service", "stead.dev/recovery"];
        Ok(marks.into_iter().filter(|mark| node.contains(mark)).count())
    }

    /// All pods are ready, every claim has the volume that it had, every row is there and another can be added.
    async fn nothing_is_lost(&mut self, claims: &Claims) -> Result<()> {
        let pods = pods::settled(&self.stage, 15).await?;
        pods::edges_in_their_zones(&pods)?;
        ensure!(self.claims().await? == *claims, "the claims were {claims:?}, and are {:?}", self.claims().await?);
        for pod in &pods {
            let page = self.served(&pod.name).page().await?;
            ensure!(page.contains(&row(&pod.name)), "{}: its row is lost: {page}", pod.name);
            self.served(&pod.name).add("another|another@example.com").await?;
        }
        let violations = self.machines.violations();
        ensure!(violations.is_empty(), "the witness has seen: {violations:#?}");
        let count = pods.len();
        self.terminal.remark(&format!(
            "{count} pods are ready, {} claims have their volumes, the row of each pod is there; nobody ever wrote beside \
             another",
            claims.len()
        ))
    }

    async fn claims(&self) -> Result<Claims> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = self.stage.list(SPACE, "pvc", "").await?;
        let claim = |c: &Value| {
            let (meta, spec) = (&c["metadata"], &c["spec"]);
            (text(&meta["name"]), (text(&meta["uid"]), text(&spec["volumeName"])))
        };
        Ok(all.iter().map(claim).collect())
    }

    fn served<'a>(&'a self, pod: &'a str) -> Served<'a> {
        Served { machines: &self.machines, namespace: SPACE, pod, port: 9292 }
    }
}

/// What a pod has on its volume.
fn row(pod: &str) -> String {
    format!("{pod}|{pod}@example.com")
}
