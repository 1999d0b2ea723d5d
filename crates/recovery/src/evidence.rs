//! Evidence that a machine is off.

use std::collections::BTreeSet;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use stead_model::{NodeHealth, SHUTDOWN, UNREACHABLE};

use crate::guard::Guard;
use crate::policy::RecoveryPolicy;
use crate::record::{Evidence, EvidenceKind, NodeRecovery, Statement};
use crate::records::records;
use crate::view::{ClusterView, RecoveryRequest};

/// Maximum age of evidence when the taint is applied. The machine may have been switched on since without being heard from.
pub(crate) const MAX_EVIDENCE_AGE: SignedDuration = SignedDuration::from_mins(10);

/// Clouds that report a machine as shut down only if it is powered off, by the scheme of `spec.providerID`. Elsewhere it can
/// be a hibernated machine, which continues where it was when it is started.
const CLOUDS_WITHOUT_HIBERNATION: [&str; 1] = ["openstack://"];

/// There is no evidence that the policy accepts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("node {node}: no evidence that its machine is off{}", self.details())]
pub struct NoEvidence {
    node: String,
    gaps: Vec<EvidenceGap>,
    accepted: BTreeSet<EvidenceKind>,
    /// Whether a confirmation would be accepted and there is none.
    can_confirm: bool,
}

impl NoEvidence {
    fn details(&self) -> String {
        let mut out: String = self.gaps.iter().map(|gap| format!("; {gap}")).collect();
        let accepted: Vec<String> = self.accepted.iter().map(|kind| format!("{kind:?}")).collect();
        out.push_str(&match accepted.as_slice() {
            [] => "; the policy accepts no evidence: its accept is empty".into(),
            kinds => format!("; the policy accepts: {}", kinds.join(", ")),
        });
        if self.can_confirm {
            out.push_str("; if you made sure that the machine is off, confirm it with --confirm-off \"REASON\"");
        }
        out
    }
}

/// Why something that looks like evidence does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EvidenceGap {
    /// The policy does not accept its kind.
    NotAccepted(EvidenceKind),
    /// The confirmation has no reason.
    ConfirmationWithoutReason,
    /// The confirmation is older than the last sign of life.
    ConfirmationBeforeContact { by: String, at: Timestamp, contact: Timestamp },
    /// The node has the shutdown taint, but no machine of a cloud.
    NoProviderId,
    /// The shutdown taint is of an earlier outage.
    ShutdownOfEarlierOutage,
    /// It is unknown when the shutdown taint was set.
    ShutdownTimeUnknown,
    /// The shutdown taint was set too long ago.
    ShutdownExpired(Timestamp),
}

impl fmt::Display for EvidenceGap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EvidenceGap::NotAccepted(kind) => {
                write!(f, "there is evidence of kind {kind:?}, which the policy does not accept")
            }
            EvidenceGap::ConfirmationWithoutReason => {
                write!(f, "--confirm-off has no reason: say how you know that the machine is off")
            }
            EvidenceGap::ConfirmationBeforeContact { by, at, contact } => write!(
                f,
                "{by} confirmed at {at} that the machine is off, but the node's last heartbeat, or the start of the outage, was \
                 later, at {contact}: confirm again"
            ),
            EvidenceGap::NoProviderId => write!(f, "it has the taint {SHUTDOWN}, but no spec.providerID"),
            EvidenceGap::ShutdownOfEarlierOutage => write!(
                f,
                "its taint {SHUTDOWN} is older than this outage: the cloud removes it only when the node is Ready again, and \
                 the machine may have been started since"
            ),
            EvidenceGap::ShutdownTimeUnknown => write!(
                f,
                "it has the taint {SHUTDOWN}, but neither metadata.managedFields nor the taints before it say when it was set"
            ),
            EvidenceGap::ShutdownExpired(at) => write!(
                f,
                "its taint {SHUTDOWN} was set at {at}, more than {} minutes ago: the machine may have been started since",
                MAX_EVIDENCE_AGE.as_mins()
            ),
        }
    }
}

/// Evidence of one kind; none if there is none, with the reason if it may surprise.
type Found = Result<Evidence, Option<EvidenceGap>>;

/// A person has confirmed that the machine is off.
fn from_person(view: &ClusterView<'_>, node: &NodeHealth<'_>, request: &RecoveryRequest) -> Found {
    let statement = request.confirm_off.clone().ok_or(None)?;
    if statement.words.trim().is_empty() {
        return Err(Some(EvidenceGap::ConfirmationWithoutReason));
    }
    // The machine may have come back and become unreachable again since.
    let contact = last_renewal(node).max(node.since).filter(|contact| statement.at < *contact);
    if let Some(contact) = contact.filter(|_| view.guards.hold(Guard::ConfirmationAge)) {
        let Statement { by, at, .. } = statement;
        return Err(Some(EvidenceGap::ConfirmationBeforeContact { by, at, contact }));
    }
    Ok(Evidence { kind: EvidenceKind::Person, statement, powered_off: request.powered_off, pods: None })
}

/// The cloud's node controller reports that the machine is shut down.
pub(crate) fn from_cloud(view: &ClusterView<'_>, node: &NodeHealth<'_>) -> Found {
    node.taint(SHUTDOWN).ok_or(None)?;
    let machine = node.provider_id().ok_or(Some(EvidenceGap::NoProviderId))?;
    if view.guards.hold(Guard::CloudAge) && !is_of_this_outage(node) {
        return Err(Some(EvidenceGap::ShutdownOfEarlierOutage));
    }
    let at = shutdown_since(node).ok_or(Some(EvidenceGap::ShutdownTimeUnknown))?;
    if view.guards.hold(Guard::CloudAge) && view.now.duration_since(at) > MAX_EVIDENCE_AGE {
        return Err(Some(EvidenceGap::ShutdownExpired(at)));
    }
    let words = format!("taint {SHUTDOWN} on node {}, machine {machine}", node.name());
    let statement = Statement { by: "the cloud's node controller".into(), at, words };
    let powered_off = CLOUDS_WITHOUT_HIBERNATION.iter().any(|cloud| machine.starts_with(cloud));
    Ok(Evidence { kind: EvidenceKind::CloudShutdown, statement, powered_off, pods: None })
}

/// When the cloud's node controller set its taint; if that is unknown, the earliest possible time.
fn shutdown_since(node: &NodeHealth<'_>) -> Option<Timestamp> {
    let by_cloud = node.taints_changed().filter(|(manager, _)| manager.contains("cloud-controller"));
    // Everybody appends to the list: the taint was set after those before it.
    let before = node.taints().iter().take_while(|taint| taint.key != SHUTDOWN);
    let earliest = || before.filter_map(|taint| Some(taint.time_added.as_ref()?.0)).max();
    by_cloud.map(|(_, at)| at).or_else(earliest)
}

/// When the node's kubelet last renewed its Lease: by the API server's clock, if that is known.
fn last_renewal(node: &NodeHealth<'_>) -> Option<Timestamp> {
    node.lease.map(|lease| lease.written.unwrap_or(lease.renewed))
}

/// Whether the cloud has reported the shutdown after the node became unreachable, with no heartbeat since. The taint has no
/// time, but everybody appends to the list of taints, and the node controller adds its own when the outage begins.
fn is_of_this_outage(node: &NodeHealth<'_>) -> bool {
    let position = |key: &str| node.taints().iter().position(|taint| taint.key == key);
    let heartbeat = last_renewal(node).is_some_and(|renewal| node.since.is_none_or(|since| renewal >= since));
    position(UNREACHABLE).is_some_and(|unreachable| Some(unreachable) < position(SHUTDOWN)) && !heartbeat
}

/// The machine was restarted. Nothing that ran before that runs any more; but the new kubelet starts the node's pods again,
/// with the same UIDs. Only a pod that was being deleted before the restart is not started again: a kubelet never starts a
/// pod that is being deleted. So this is proof for the pods that a record of an earlier boot saw Terminating, and for no
/// others.
fn from_boot_id(view: &ClusterView<'_>, node: &NodeHealth<'_>) -> Found {
    let boot_id = node.boot_id().ok_or(None)?;
    let earlier: Vec<NodeRecovery> = records(view.objects)
        .filter(|record| record.is_for(node) && record.spec.node.is_other_boot(Some(boot_id)))
        .collect();
    let planned = earlier.iter().flat_map(|record| &record.spec.plan.pods);
    let terminating: BTreeSet<&str> = planned.filter(|pod| pod.terminating).map(|pod| pod.uid.as_str()).collect();
    let here = view.objects.pods_on(node.name()).filter_map(|pod| pod.uid());
    let pods: BTreeSet<String> = here.filter(|uid| terminating.contains(uid)).map(str::to_owned).collect();
    let record = earlier.first().filter(|_| !pods.is_empty()).ok_or(None)?;
    let words = format!(
        "boot ID {} became {boot_id}; {} of its pods were Terminating before that, by {}",
        record.spec.node.boot_id,
        pods.len(),
        record.name()
    );
    let statement = Statement { by: format!("node {}", node.name()), at: view.now, words };
    let pods = Some(pods.into_iter().collect());
    Ok(Evidence { kind: EvidenceKind::BootIdChanged, statement, powered_off: true, pods })
}

/// All evidence, by kind: evidence for the whole machine comes before evidence for some pods.
fn all(view: &ClusterView<'_>, node: &NodeHealth<'_>, request: &RecoveryRequest) -> [(EvidenceKind, Found); 3] {
    [
        (EvidenceKind::Person, from_person(view, node, request)),
        (EvidenceKind::CloudShutdown, from_cloud(view, node)),
        (EvidenceKind::BootIdChanged, from_boot_id(view, node)),
    ]
}

/// Evidence that the policy accepts and that proves that the machine is powered off.
pub(crate) fn find_powered_off(
    view: &ClusterView<'_>,
    node: &NodeHealth<'_>,
    request: &RecoveryRequest,
    policy: &RecoveryPolicy,
) -> Option<Evidence> {
    let accepted = all(view, node, request).into_iter().filter(|(kind, _)| policy.accept.contains(kind));
    accepted.filter_map(|(_, found)| found.ok()).find(|evidence| evidence.powered_off)
}

/// The first evidence that the policy accepts, or why there is none.
pub(crate) fn find(
    view: &ClusterView<'_>,
    node: &NodeHealth<'_>,
    request: &RecoveryRequest,
    policy: &RecoveryPolicy,
) -> Result<Evidence, NoEvidence> {
    let mut gaps = Vec::new();
    for (kind, found) in all(view, node, request) {
        match found {
            Ok(evidence) if policy.accept.contains(&kind) => return Ok(evidence),
            Ok(_) => gaps.push(EvidenceGap::NotAccepted(kind)),
            Err(gap) => gaps.extend(gap),
        }
    }
    if !view.guards.hold(Guard::Evidence) {
        let statement = Statement { by: "nobody".into(), at: view.now, words: String::new() };
        return Ok(Evidence { kind: EvidenceKind::Person, statement, powered_off: true, pods: None });
    }
    Err(NoEvidence {
        node: node.name().to_owned(),
        gaps,
        accepted: policy.accept.clone(),
        can_confirm: policy.accept.contains(&EvidenceKind::Person) && request.confirm_off.is_none(),
    })
}
