//! One situation, from its start to its result.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::ground::Ground;
use super::objects::{CONTAINER, Rather, objects, silent_before};
use super::sight::{is_ready, node_of};
use super::situation::{Fault, Meddling, Situation};
use super::verdict::Seen;
use crate::{took, until};

/// So long pods may take to be ready in the beginning, when many are made at once.
const BEGINNING: Duration = Duration::from_secs(120);

/// How often to look whether something has come.
const LOOK: Duration = Duration::from_millis(200);

/// A forecast that is off is watched so much longer, to see by how much.
const LONGER: Duration = Duration::from_secs(30);

/// What a person lets `stead recover` do: other nodes are being recovered, too.
const POLICY: &str = "accept: [Person]\natOnce: 1000\natOncePerZone: 1000\ndetachRevokes: [shared, disk, zone-disk]\n";

/// Plays a situation. The node is back afterwards.
pub(super) async fn play(ground: &Ground, situation: &Situation) -> Result<Seen> {
    let case = Case::begin(ground, situation).await?;
    case.strike().await?;
    let struck = Instant::now();
    case.wait(struck).await?;
    let after = struck.elapsed();
    let turn = ground.turn.lock().await;
    let subject = case.subject()?;
    let answer = ground.explain(&case.name, &subject).await?;
    let forecast = case.forecast(&answer)?;
    let time = |value: &Value| value.as_str().map(str::parse::<Timestamp>).transpose();
    let (as_of, foreseen) = (time(&answer["asOf"])?.context("no asOf")?, time(&forecast["readyAt"])?);
    let recovery = case.act(&subject, forecast, foreseen.is_some()).await?;
    let acted = Instant::now();
    let typing = Timestamp::now().duration_since(as_of);
    drop(turn);
    let nodes = forecast["nodes"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    let nodes: BTreeSet<String> = nodes.collect();
    let watch = case.watch(&subject, as_of, foreseen, &nodes, acted);
    let (came, own) = match recovery {
        // It goes on until the pod is ready, or until there is nothing left to do.
        Some(line) => {
            let (came, recovered) = tokio::join!(watch, timeout(ground.waits.horizon(), ground.types(&line)));
            let said = recovered.context("a recovery that does not end")??;
            let own = took(&said, "tainted by Stead");
            ensure!(own.is_some() || !said.contains("replacement pods Ready"), "no time of Stead's own writes: {said}");
            (came, own.unwrap_or_default())
        }
        None => (watch.await, 0.0),
    };
    let said = serde_json::to_string_pretty(forecast)?;
    let typing =
        if situation.way == "do-nothing" { Duration::ZERO } else { Duration::try_from(typing).unwrap_or_default() };
    let (typing, late) = (typing + Duration::from_secs_f64(own), ground.lateness.since(as_of));
    let seen = Seen { situation: situation.clone(), as_of, after, foreseen, nodes, came, typing, late, said };
    if situation.way != "node-returns" {
        case.bring_back().await?;
    }
    Ok(seen)
}

struct Case<'a> {
    ground: &'a Ground,
    situation: &'a Situation,
    /// The node, and the namespace.
    name: String,
    /// The pods that there were before.
    old: BTreeSet<String>,
}

impl<'a> Case<'a> {
    /// Makes the workload, and waits until its pods are ready, one of them on the node.
    async fn begin(ground: &'a Ground, situation: &'a Situation) -> Result<Case<'a>> {
        let name = situation.name();
        ground.kubectl(&["create", "namespace", &name]).await?;
        // Without one, no pod may be made.
        until("a service account", BEGINNING, async || {
            Ok(ground.kubectl(&["-n", &name, "get", "serviceaccount", "default"]).await.is_ok())
        })
        .await?;
        let turn = ground.turn.lock().await;
        ground.apply(&objects(situation, Rather::There, ground.waits.tolerance / 3)).await?;
        drop(turn);
        let count = situation.workload.replicas() as usize;
        until(&format!("the pods of {situation} are ready"), BEGINNING, async || {
            Ok(ground.sight.pods(&name).iter().filter(|pod| is_ready(pod)).count() == count)
        })
        .await?;
        let pods = ground.sight.pods(&name);
        ensure!(pods.iter().any(|pod| node_of(pod) == name), "no pod of {situation} is on {name}");
        let old = pods.iter().filter_map(|pod| pod.uid()).collect();
        Ok(Case { ground, situation, name, old })
    }

    /// What happens to the node, and what comes just before.
    async fn strike(&self) -> Result<()> {
        let (machines, name) = (&self.ground.machines, &self.name);
        for mate in silent_before(self.situation) {
            machines.nodes().silence(&mate)?;
        }
        if !silent_before(self.situation).is_empty() {
            // They are found silent first.
            sleep(self.ground.waits.apart()).await;
        }
        if self.situation.meddling == Meddling::DeletedBefore {
            self.delete_pods(&["--wait=false"]).await?;
        }
        match self.situation.fault {
            Fault::Frozen => machines.silence(name).await?,
            Fault::CutOff => machines.nodes().silence(name)?,
            Fault::Killed => machines.kill(name).await?,
            Fault::Updated => {
                self.ground.apply(&objects(self.situation, Rather::Elsewhere, self.ground.waits.tolerance / 3)).await?;
            }
        }
        if self.situation.meddling == Meddling::EndedBefore {
            self.delete_pods(&["--wait=false"]).await?;
            self.say_ended().await?;
        }
        Ok(())
    }

    /// What a kubelet says of the pods that were on the node and have ended, before it lets their objects go.
    async fn say_ended(&self) -> Result<()> {
        let of_old = |pod: &Pod| node_of(pod) == self.name && pod.uid().is_some_and(|uid| self.old.contains(&uid));
        for pod in self.ground.sight.pods(&self.name).iter().filter(|pod| of_old(pod)) {
            let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
            let running = containers.unwrap_or_default().iter().find_map(|c| c.state.as_ref()?.running.as_ref());
            let (began, now) = (running.and_then(|running| running.started_at.clone()), Timestamp::now());
            let ended =
                json!({ "exitCode": 0, "reason": "Completed", "startedAt": began, "finishedAt": now.to_string() });
            let container =
                json!({ "name": CONTAINER, "ready": false, "state": { "running": null, "terminated": ended } });
            let status = json!({ "status": { "phase": "Succeeded", "containerStatuses": [container] } });
            let patch = ["patch", "pod", &pod.name_any(), "--subresource=status", "-p", &status.to_string()];
            let args = ["-n", self.name.as_str()].into_iter().chain(patch);
            self.ground.kubectl(&args.collect::<Vec<_>>()).await?;
        }
        Ok(())
    }

    /// The machine is back.
    async fn bring_back(&self) -> Result<()> {
        let machines = &self.ground.machines;
        for mate in silent_before(self.situation) {
            machines.nodes().resume(&mate)?;
        }
        match self.situation.fault {
            Fault::Frozen => machines.resume(&self.name).await,
            Fault::CutOff => machines.nodes().resume(&self.name),
            Fault::Killed => machines.boot(&self.name).await,
            Fault::Updated => Ok(()),
        }
    }

    /// Waits until the question is asked; meanwhile somebody may meddle.
    async fn wait(&self, struck: Instant) -> Result<()> {
        let (waits, situation) = (&self.ground.waits, self.situation);
        let asked = waits.moment(situation.asked);
        match situation.meddling {
            _ if situation.fault == Fault::Updated => sleep_until(struck + waits.silent() + asked / 4).await,
            Meddling::Nothing | Meddling::DeletedBefore | Meddling::EndedBefore => sleep_until(struck + asked).await,
            Meddling::Deleted => {
                sleep_until(struck + asked.mul_f64(situation.meddles)).await;
                self.delete_pods(&["--wait=false"]).await?;
                sleep_until(struck + asked).await;
            }
            Meddling::Forced => {
                sleep_until(struck + waits.moment(situation.meddles)).await;
                self.delete_pods(&["--force", "--grace-period=0"]).await?;
                sleep(waits.held(situation.asked)).await;
            }
            Meddling::NodeDeleted => {
                sleep_until(struck + waits.moment(situation.meddles)).await;
                self.ground.kubectl(&["delete", "node", &self.name]).await?;
                sleep(waits.orphaned(situation.asked)).await;
            }
        }
        Ok(())
    }

    /// Deletes the pods on the node.
    async fn delete_pods(&self, flags: &[&str]) -> Result<()> {
        let pods = self.ground.sight.pods(&self.name);
        let there: Vec<String> = pods.iter().filter(|p| node_of(p) == self.name).map(|p| p.name_any()).collect();
        let args = ["-n", &self.name, "delete", "pod"].into_iter().chain(there.iter().map(String::as_str));
        self.ground.kubectl(&args.chain(flags.iter().copied()).collect::<Vec<_>>()).await
    }

    /// The pod that is asked about: one that is in the way, or one that waits.
    fn subject(&self) -> Result<String> {
        let pods = self.ground.sight.pods(&self.name);
        let updated = self.situation.fault == Fault::Updated;
        let stuck = pods.iter().find(|pod| node_of(pod) == self.name && !updated);
        let waiting = pods.iter().find(|pod| node_of(pod) != self.name && !is_ready(pod));
        let found = if self.situation.about_new { waiting.or(stuck) } else { stuck.or(waiting) };
        found.map(|pod| pod.name_any()).with_context(|| format!("all pods of {} are well", self.situation))
    }

    /// The forecast of the way that is taken.
    fn forecast<'v>(&self, answer: &'v Value) -> Result<&'v Value> {
        let ways = answer["forecast"].as_array().map(Vec::as_slice).unwrap_or_default();
        let found = ways.iter().find(|forecast| forecast["way"] == self.situation.way);
        found.with_context(|| {
            let offered: Vec<&str> = ways.iter().filter_map(|forecast| forecast["way"].as_str()).collect();
            format!("{} is not foreseen, only {offered:?}: {answer}", self.situation.way)
        })
    }

    /// Takes the way; a command that goes on until the pod is ready is returned instead.
    async fn act(&self, subject: &str, forecast: &Value, comes: bool) -> Result<Option<String>> {
        let offered = forecast["commands"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let commands = if comes { offered.map(str::to_owned).collect() } else { self.against_advice(subject) };
        if self.situation.way == "node-returns" {
            self.bring_back().await?;
        }
        // One who is refused, because Kubernetes takes the node for well, does it by hand.
        let by_hand = !(self.situation.recovers && comes && !self.ground.machines.nodes().is_ready(&self.name));
        for line in &commands {
            let typed = line.strip_prefix("# or by hand: ").filter(|_| by_hand);
            match typed {
                Some(typed) => drop(self.ground.types(typed).await?),
                None if line.starts_with('#') => {}
                None if line.starts_with("stead recover") => {
                    if !by_hand {
                        let policy = self.ground.file("policy.yaml", POLICY)?;
                        return Ok(Some(format!("{line} --yes --policy {}", policy.display())));
                    }
                }
                None => drop(self.ground.types(line).await?),
            }
        }
        Ok(None)
    }

    /// What one types for a way of which it is said that it does not bring the pod back, and which is not offered: that it
    /// does not is to be seen.
    fn against_advice(&self, subject: &str) -> Vec<String> {
        let name = &self.name;
        match self.situation.way {
            "force-delete-pod" => {
                let there = self.ground.sight.pods(name).into_iter().filter(|p| node_of(p) == *name);
                let there: Vec<String> = there.map(|p| p.name_any()).collect();
                let own = there.iter().any(|pod| pod == subject).then(|| vec![subject.to_owned()]);
                let force = |pod: &String| format!("kubectl -n {name} delete pod {pod} --force --grace-period=0");
                own.unwrap_or(there).iter().map(force).collect()
            }
            "delete-node" => vec![format!("kubectl delete node {name}")],
            "out-of-service" => {
                vec![format!("kubectl taint node {name} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")]
            }
            _ => Vec::new(),
        }
    }

    /// Looks until the pod is ready on one of the nodes that were named, or until it would have been long ago. Where several
    /// pods were replaced, each of their successors is one in its place.
    async fn watch(
        &self,
        subject: &str,
        as_of: Timestamp,
        foreseen: Option<Timestamp>,
        named: &BTreeSet<String>,
        acted: Instant,
    ) -> Option<(Timestamp, String)> {
        let waits = &self.ground.waits;
        let end = acted
            + match foreseen {
                Some(at) => Duration::try_from(at.duration_since(as_of)).unwrap_or_default() + waits.limit + LONGER,
                None => waits.horizon(),
            };
        let then = Timestamp::now();
        loop {
            let came = self.came(subject, then);
            let first = came.iter().find(|(_, node)| foreseen.is_none() || named.contains(node));
            if first.is_some() || Instant::now() > end {
                return first.or(came.first()).cloned();
            }
            sleep(LOOK).await;
        }
    }

    /// When the pod, and those in its place, were ready, and where, the first one first. One on the node counts if the node
    /// came back.
    fn came(&self, subject: &str, acted: Timestamp) -> Vec<(Timestamp, String)> {
        let (back, updated) = (self.situation.way == "node-returns", self.situation.fault == Fault::Updated);
        let spells = self.ground.sight.spells(&self.name);
        let ours = spells.into_iter().filter(|s| !self.situation.workload.keeps_names() || s.pod == subject);
        let counts = ours.filter_map(|spell| {
            let from = if spell.node == self.name && !updated {
                (back && spell.until.is_none_or(|until| until > acted)).then(|| spell.from.max(acted))
            } else {
                (!self.old.contains(&spell.uid)).then_some(spell.from)
            };
            Some((from?, spell.node))
        });
        let mut came: Vec<_> = counts.collect();
        came.sort();
        came
    }
}
