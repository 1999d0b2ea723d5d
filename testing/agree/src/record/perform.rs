//! Does what a situation asks for, and notes what was done exactly and when.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::core::Request;
use serde_json::{Value, json};
use stead_testbed::{ControlPlane, Nodes};
use tokio::time::{Instant, sleep};

use super::pods;
use super::validity::Outages;
use super::watch::Watches;
use crate::recording::{Deed, Downtime};
use crate::situation::{ActionKind, NAMESPACE, PlannedAction, Target};

/// How long kubectl waits before it tries a refused eviction again.
const RETRY: Duration = Duration::from_secs(5);

/// How long kubectl takes to end after its last request.
const KUBECTL_END: SignedDuration = SignedDuration::from_millis(20);

/// Something that was done.
#[derive(Debug, Clone)]
pub(super) struct Done {
    pub(super) began: Timestamp,
    pub(super) at: Timestamp,
    pub(super) action: String,
    pub(super) deed: Deed,
    pub(super) refused: Option<String>,
}

/// Does things to a cluster.
pub(super) struct Performer<'a> {
    plane: &'a ControlPlane,
    nodes: &'a Nodes,
    watches: &'a Watches,
    until: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    done: Vec<Done>,
    failed_node: Option<String>,
    /// What was chosen for an action that may be taken back.
    chosen: Vec<(ActionKind, Vec<String>)>,
}

impl<'a> Performer<'a> {
    pub(super) fn new(
        plane: &'a ControlPlane,
        nodes: &'a Nodes,
        watches: &'a Watches,
        until: Instant,
    ) -> Performer<'a> {
        Performer { plane, nodes, watches, until, state: Mutex::default() }
    }

    /// What was done, in the order of time.
    pub(super) fn into_done(self) -> Vec<Done> {
        let mut done = self.state.into_inner().unwrap_or_else(PoisonError::into_inner).done;
        done.sort_by_key(|done| done.at);
        done
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what an action asks for. An action without a target does nothing.
    pub(super) async fn perform(&self, action: &PlannedAction) -> Result<()> {
        let names = self.names(action);
        match action.kind {
            ActionKind::Evict => self.evict_all(action, &names, false).await?,
            ActionKind::Drain => {
                self.kubectl(action, &names).await?;
                let evicted = names.iter().flat_map(|node| self.pods_on(node)).collect::<Vec<_>>();
                self.evict_all(action, &evicted, true).await?;
            }
            ActionKind::NodeUnreachable | ActionKind::NodeShutDown => {
                let how = if action.kind == ActionKind::NodeShutDown { Downtime::Off } else { Downtime::Suspended };
                for node in names {
                    self.nodes.make_unreachable(&node)?;
                    self.state().failed_node = Some(node.clone());
                    self.note(action, Timestamp::now(), Deed::Fail { node, how }, None);
                }
            }
            ActionKind::NodeReturns => {
                for node in names {
                    if self.is_off(&node) {
                        self.nodes.world().boot(&node);
                    }
                    self.nodes.resume(&node)?;
                    self.note(action, Timestamp::now(), Deed::Heal { node }, None);
                }
            }
            ActionKind::DetachFails => {
                let message = (!action.undo).then_some("the hypervisor does not answer");
                for volume in names {
                    self.nodes.disks().fail_detach(&volume, message);
                    let message = message.map(str::to_owned);
                    self.note(action, Timestamp::now(), Deed::DetachError { volume, message }, None);
                }
            }
            ActionKind::DriverFails => {
                let message = (!action.undo).then_some("the storage does not answer");
                for driver in names {
                    self.nodes.disks().fail_driver(&driver, message);
                    let message = message.map(str::to_owned);
                    self.note(action, Timestamp::now(), Deed::DriverError { driver, message }, None);
                }
            }
            _ => self.kubectl(action, &names).await?,
        }
        Ok(())
    }

    fn note(&self, action: &PlannedAction, began: Timestamp, deed: Deed, refused: Option<String>) {
        let done = Done { began, at: Timestamp::now(), action: action.kind.name().to_owned(), deed, refused };
        self.state().done.push(done);
    }

    async fn kubectl(&self, action: &PlannedAction, names: &[String]) -> Result<()> {
        for line in action.lines(&|_| names.to_vec()) {
            let input = action.input();
            let list = json!({ "apiVersion": "v1", "kind": "List", "items": input });
            let args: Vec<&str> = line.split_whitespace().skip(1).collect();
            let began = Timestamp::now();
            let ran = self.plane.kubectl_with(&args, &list.to_string()).await?;
            let refused = (ran.code != Some(0)).then(|| ran.stderr.trim().to_owned());
            self.note(action, began, Deed::Kubectl { line, input }, refused);
            let last = &mut self.state().done;
            if let Some(done) = last.last_mut() {
                done.at = (done.at - KUBECTL_END).max(began);
            }
        }
        Ok(())
    }

    /// Evicts pods, each until it is evicted or gone; a drain tries again as kubectl does.
    async fn evict_all(&self, action: &PlannedAction, pods: &[String], tries_again: bool) -> Result<()> {
        let mut waiting = pods.to_vec();
        loop {
            let mut refused = Vec::new();
            for pod in waiting {
                let began = Timestamp::now();
                let answer = evict(&self.plane.client(), &pod).await?;
                let deed = Deed::Evict { namespace: NAMESPACE.to_owned(), pod: pod.clone() };
                let code = answer.as_ref().map(|status| status["code"].as_u64().unwrap_or_default());
                let message = answer.map(|status| status["message"].as_str().unwrap_or_default().to_owned());
                self.note(action, began, deed, message);
                if code == Some(429) {
                    refused.push(pod);
                }
            }
            waiting = refused;
            if waiting.is_empty() || !tries_again || Instant::now() + RETRY > self.until {
                return Ok(());
            }
            sleep(RETRY).await;
        }
    }

    /// The names of what an action is done to.
    fn names(&self, action: &PlannedAction) -> Vec<String> {
        if action.undo {
            let state = self.state();
            let chosen = state.chosen.iter().find(|(kind, _)| *kind == action.kind);
            return chosen.map(|(_, names)| names.clone()).unwrap_or_default();
        }
        let names: Vec<String> = self.find(&action.target).into_iter().collect();
        let names = match action.kind {
            ActionKind::DetachFails => names.iter().filter_map(|claim| self.volume_of(claim)).collect(),
            _ => names,
        };
        self.state().chosen.push((action.kind, names.clone()));
        names
    }

    fn find(&self, target: &Target) -> Option<String> {
        let log = self.watches.log();
        let objects = || log.objects.values();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let nth = |workload: &str, nth: usize| {
            let pods = pods(objects(), workload);
            pods.get(nth % pods.len().max(1)).copied().cloned()
        };
        match target {
            Target::Workload { name, .. } => Some(name.clone()),
            Target::Pod { workload, nth: place } => text(&nth(workload, *place)?["metadata"]["name"]),
            Target::NodeOf { workload, nth: place } => {
                nth(workload, *place).and_then(|pod| text(&pod["spec"]["nodeName"])).or_else(|| {
                    let node = objects().find(|object| object["kind"] == "Node")?;
                    text(&node["metadata"]["name"])
                })
            }
            Target::Node(name) => Some(name.clone()),
            Target::FailedNode => self.state().failed_node.clone(),
            Target::Claim { workload, nth: place } => {
                let is_of = |name: &str| name == workload || name.starts_with(&format!("data-{workload}-"));
                let claims: Vec<String> = objects()
                    .filter(|object| object["kind"] == "PersistentVolumeClaim")
                    .filter_map(|claim| text(&claim["metadata"]["name"]))
                    .filter(|name| is_of(name))
                    .collect();
                claims.get(place % claims.len().max(1)).cloned()
            }
            Target::Driver(name) => Some(name.clone()),
            Target::Namespace => Some(NAMESPACE.to_owned()),
        }
    }

    fn volume_of(&self, claim: &str) -> Option<String> {
        let log = self.watches.log();
        let claim = log.objects.get(&format!("PersistentVolumeClaim/{NAMESPACE}/{claim}"))?;
        claim["spec"]["volumeName"].as_str().map(str::to_owned)
    }

    /// The pods that a drain evicts: all but those of DaemonSets.
    fn pods_on(&self, node: &str) -> Vec<String> {
        let log = self.watches.log();
        let pods = log.objects.values().filter(|object| object["kind"] == "Pod" && object["spec"]["nodeName"] == node);
        let pods = pods.filter(|pod| pod["metadata"]["ownerReferences"][0]["kind"] != "DaemonSet");
        pods.filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect()
    }

    fn is_off(&self, node: &str) -> bool {
        let state = self.state();
        let last = state.done.iter().rev().find_map(|done| match &done.deed {
            Deed::Fail { node: failed, how } if failed == node => Some(*how),
            _ => None,
        });
        last == Some(Downtime::Off)
    }
}

/// Requests an eviction. Gives the Status of a refusal.
async fn evict(client: &Client, pod: &str) -> Result<Option<Value>> {
    let body = json!({ "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": { "name": pod, "namespace": NAMESPACE } });
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let request =
        Request::new(path).create_subresource("eviction", pod, &Default::default(), body.to_string().into_bytes());
    match client.request::<Value>(request.context("an eviction")?).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) => Ok(Some(json!({ "code": status.code, "message": status.message }))),
        Err(error) => Err(error).context("evicting a pod"),
    }
}

/// When each machine did not report.
pub(super) fn outages(done: &[Done]) -> Outages {
    let mut outages = Outages::new();
    for done in done {
        match &done.deed {
            Deed::Fail { node, .. } => outages.entry(node.clone()).or_default().push((done.began, None)),
            Deed::Heal { node } => {
                if let Some((_, up)) = outages.entry(node.clone()).or_default().last_mut() {
                    *up = Some(done.at);
                }
            }
            // The Lease of a Node that is deleted goes with it.
            Deed::Kubectl { line, .. } if line.starts_with("kubectl delete node ") => {
                let node = line.split_whitespace().nth(3).unwrap_or_default();
                outages.entry(node.to_owned()).or_default().push((done.began, None));
            }
            _ => {}
        }
    }
    outages
}
