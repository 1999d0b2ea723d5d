//! Why a machine is known to be off.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use stead_explain::outage::{NodeStanding, SHUTDOWN, UNREACHABLE};
use stead_model::{ObjectKey, Objects};

use crate::guard::Guard;
use crate::pods::PodSeen;
use crate::policy::Policy;
use crate::record::{Evidence, EvidenceKind, NodeRecovery, Said};
use crate::view::{Request, View, records};

/// Maximum age of evidence when the taint is applied. A machine that was off may have been switched on since without being
/// heard of, and nobody would say the same again.
pub(crate) const MAX_EVIDENCE_AGE: SignedDuration = SignedDuration::from_mins(10);

/// Clouds that report a machine as shut down only if it is powered off: elsewhere that can be a hibernated machine, which
/// goes on where it was when it is started. By the scheme of `spec.providerID`.
const CLOUDS_WITHOUT_HIBERNATION: [&str; 1] = ["openstack://"];

/// Somebody or something that can tell that a machine is off. A power controller, a cloud or a storage that fences gets
/// its answer into the view, and a witness here that reads it.
pub trait Witness {
    /// The kind of its evidence, which a policy accepts or does not.
    fn kind(&self) -> EvidenceKind;

    /// Its evidence about the view's node; none where it has none, with the reason where that is worth a word.
    fn evidence(&self, view: &View<'_>, node: &NodeStanding, request: &Request) -> Result<Evidence, Option<String>>;
}

/// All witnesses there are.
pub const WITNESSES: [&dyn Witness; 3] = [&Person, &CloudShutdown, &BootIdChanged];

/// A person who has made sure.
pub struct Person;

impl Witness for Person {
    fn kind(&self) -> EvidenceKind {
        EvidenceKind::Person
    }

    fn evidence(&self, view: &View<'_>, node: &NodeStanding, request: &Request) -> Result<Evidence, Option<String>> {
        let said = request.confirm_off.clone().ok_or(None)?;
        if said.words.trim().is_empty() {
            return Err(Some("--confirm-off has no reason: say how it is known that the machine is off".into()));
        }
        // Words outlive what they were true of: the machine may have come back and gone silent again since.
        let after = spoke(node).max(node.since).filter(|heard| said.at < *heard && view.guards.hold(Guard::Words));
        if let Some(heard) = after {
            return Err(Some(format!(
                "{} said at {} that the machine is off, and node {} was heard of, or went silent, at {heard}, after that: \
                 say it again",
                said.by, said.at, node.name
            )));
        }
        Ok(Evidence { kind: self.kind(), said, powered_off: request.powered_off, pods: None })
    }
}

/// The cloud's controller, which has asked the cloud.
pub struct CloudShutdown;

impl Witness for CloudShutdown {
    fn kind(&self) -> EvidenceKind {
        EvidenceKind::CloudShutdown
    }

    fn evidence(&self, view: &View<'_>, node: &NodeStanding, _: &Request) -> Result<Evidence, Option<String>> {
        node.taint(SHUTDOWN).ok_or(None)?;
        let Some(machine) = &node.provider_id else {
            return Err(Some(format!("node {} has the taint {SHUTDOWN} and no spec.providerID", node.name)));
        };
        if view.guards.hold(Guard::Cloud) && !is_of_this_silence(node) {
            return Err(Some(format!(
                "node {} has the taint {SHUTDOWN}, which is older than its silence: its cloud takes it away only when the \
                 node is Ready again, and the machine may have been started since",
                node.name
            )));
        }
        let Some(at) = shutdown_since(view.objects, node) else {
            return Err(Some(format!(
                "node {} has the taint {SHUTDOWN}, and neither metadata.managedFields nor the taints before it say when it \
                 was set",
                node.name
            )));
        };
        if view.guards.hold(Guard::Cloud) && view.now.duration_since(at) > MAX_EVIDENCE_AGE {
            return Err(Some(format!(
                "node {} has the taint {SHUTDOWN} since {at}, which is more than {} minutes ago: the machine may have been \
                 started since",
                node.name,
                MAX_EVIDENCE_AGE.as_mins()
            )));
        }
        let words = format!("taint {SHUTDOWN} on node {}, machine {machine}", node.name);
        let said = Said { by: "the cloud's node controller".into(), at, words };
        let powered_off = CLOUDS_WITHOUT_HIBERNATION.iter().any(|cloud| machine.starts_with(cloud));
        Ok(Evidence { kind: self.kind(), said, powered_off, pods: None })
    }
}

/// When the cloud's controller set its taint; where that is not known, the earliest time at which it can have.
fn shutdown_since(objects: &Objects, node: &NodeStanding) -> Option<Timestamp> {
    let time = |value: &Value| value.as_str().and_then(|time| time.parse::<Timestamp>().ok());
    let found = objects.raw(&ObjectKey::new("Node", "", &node.name))?;
    let entries = found["metadata"]["managedFields"].as_array().into_iter().flatten();
    // The list of taints is atomic: it belongs to whoever changed it last.
    let owners = entries.filter(|entry| entry["fieldsV1"]["f:spec"].get("f:taints").is_some());
    let last = owners.max_by_key(|entry| time(&entry["time"]));
    let cloud = last.filter(|entry| entry["manager"].as_str().is_some_and(|m| m.contains("cloud-controller")));
    // Everybody appends to the list: the taint was set after those that stand before it.
    let before = node.taints.iter().take_while(|taint| taint["key"] != SHUTDOWN);
    let earliest = || before.filter_map(|taint| time(&taint["timeAdded"])).max();
    cloud.and_then(|entry| time(&entry["time"])).or_else(earliest)
}

/// When the node's kubelet last spoke by its Lease: by the API server's clock, where that is known.
fn spoke(node: &NodeStanding) -> Option<Timestamp> {
    node.lease.map(|lease| lease.written.unwrap_or(lease.renewed))
}

/// Whether the cloud has said that the machine is off after the node went silent, and nothing was heard since. A taint
/// does not say when it was put there; but everybody adds theirs behind those that are there, and the node controller's
/// is put there when the silence begins.
fn is_of_this_silence(node: &NodeStanding) -> bool {
    let place = |key: &str| node.taints.iter().position(|taint| taint["key"] == key);
    let heard = spoke(node).is_some_and(|spoke| node.since.is_none_or(|since| spoke >= since));
    place(UNREACHABLE).is_some_and(|silent| Some(silent) < place(SHUTDOWN)) && !heard
}

/// The machine itself, which has been started anew. What ran before that does not run any more; but its new kubelet
/// starts the node's pods again, with the uids that they had. Only a pod that was being deleted already in the former life
/// is not started again: a kubelet never starts a pod that is being deleted. So this is proof for the pods that a record
/// of a former life saw Terminating, and for no others.
pub struct BootIdChanged;

impl Witness for BootIdChanged {
    fn kind(&self) -> EvidenceKind {
        EvidenceKind::BootIdChanged
    }

    fn evidence(&self, view: &View<'_>, node: &NodeStanding, _: &Request) -> Result<Evidence, Option<String>> {
        let boot_id = node.boot_id.as_deref().ok_or(None)?;
        let read = records(view.objects).filter_map(|r| serde_json::from_value::<NodeRecovery>(r.clone()).ok());
        let former: Vec<NodeRecovery> = read
            .filter(|r| r.spec.node.uid == node.uid)
            .filter(|r| !r.spec.node.boot_id.is_empty() && r.spec.node.boot_id != boot_id)
            .collect();
        let seen = former.iter().flat_map(|r| &r.spec.plan.pods).filter(|p| p.terminating).map(|p| p.uid.as_str());
        let seen: BTreeSet<&str> = seen.collect();
        let here = PodSeen::on(view.objects, &node.name).map(|p| p.uid()).filter(|uid| seen.contains(uid));
        let pods: BTreeSet<String> = here.map(str::to_owned).collect();
        let Some(record) = former.first().filter(|_| !pods.is_empty()) else { return Err(None) };
        let words = format!(
            "boot ID {} became {boot_id}; {} of its pods were Terminating before that, by {}",
            record.spec.node.boot_id,
            pods.len(),
            record.name()
        );
        let said = Said { by: format!("node {}", node.name), at: view.now, words };
        Ok(Evidence { kind: self.kind(), said, powered_off: true, pods: Some(pods.into_iter().collect()) })
    }
}

/// Evidence that the policy accepts and that proves that the machine is powered off; none where there is no such evidence.
pub(crate) fn find_powered_off(
    view: &View<'_>,
    node: &NodeStanding,
    request: &Request,
    policy: &Policy,
) -> Option<Evidence> {
    let all = WITNESSES.iter().filter(|witness| policy.accept.contains(&witness.kind()));
    all.filter_map(|witness| witness.evidence(view, node, request).ok()).find(|evidence| evidence.powered_off)
}

/// The first evidence that the policy accepts, the whole machine's before some pods'; or why there is none.
pub(crate) fn find(
    view: &View<'_>,
    node: &NodeStanding,
    request: &Request,
    policy: &Policy,
) -> Result<Evidence, String> {
    let mut words = Vec::new();
    for witness in WITNESSES {
        let kind = witness.kind();
        match witness.evidence(view, node, request) {
            Ok(evidence) if policy.accept.contains(&kind) => return Ok(evidence),
            Ok(_) => words.push(format!("there is evidence of kind {kind:?}, which the policy's accept does not list")),
            Err(why) => words.extend(why),
        }
    }
    if !view.guards.hold(Guard::Evidence) {
        let said = Said { by: "nobody".into(), at: view.now, words: String::new() };
        return Ok(Evidence { kind: EvidenceKind::Person, said, powered_off: true, pods: None });
    }
    let accepted: Vec<String> = policy.accept.iter().map(|kind| format!("{kind:?}")).collect();
    words.push(match accepted.as_slice() {
        [] => "the policy accepts no kind of evidence: its accept is empty".into(),
        kinds => format!("the policy accepts: {}", kinds.join(", ")),
    });
    if policy.accept.contains(&EvidenceKind::Person) && request.confirm_off.is_none() {
        words.push("where you have made sure that the machine is off, say so with --confirm-off \"REASON\"".into());
    }
    Err(format!("node {}: nothing proves that its machine is off; {}", node.name, words.join("; ")))
}
