//! The pods of a workload or namespace by the cause that triage assigns them to.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde::Serialize;
use stead_model::{ObjectKey, Objects};

use super::pods::pods_of_workload;
use crate::outage::Clock;
use crate::triage::{Severity, StuckCause, Thresholds, TriageAction, TriageScope, reference, triage};
use crate::wrap::{bullet, hanging};

/// A cause and the pods that are stuck because of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CauseOfPods {
    /// The cause.
    pub cause: StuckCause,
    /// The object that it is about.
    pub about: String,
    /// How severe it is.
    pub severity: Severity,
    /// What is wrong.
    pub summary: String,
    /// What to do.
    pub action: TriageAction,
    /// The pods; none where the object itself is stuck without them.
    pub pods: Vec<String>,
}

/// The causes that concern an object or its pods.
pub(super) fn causes(objects: &Objects, key: &ObjectKey, kinds: &BTreeSet<String>, clock: &Clock) -> Vec<CauseOfPods> {
    let (namespace, pods): (&str, BTreeSet<String>) = match key.kind.as_str() {
        "Namespace" => {
            (&key.name, objects.keys("Pod").filter(|pod| pod.namespace == key.name).map(reference).collect())
        }
        "StatefulSet" | "Deployment" | "DaemonSet" | "Job" => {
            (&key.namespace, pods_of_workload(objects, key).into_iter().map(|pod| reference(pod.key())).collect())
        }
        _ => return Vec::new(),
    };
    let scope = TriageScope { namespace: Some(namespace.to_owned()), ..TriageScope::default() };
    let found = triage(objects, kinds, clock, &Thresholds::default(), &scope).causes.into_iter();
    let own = reference(key);
    let concerns = found.filter_map(|cause| {
        let of_it: Vec<String> = cause.objects.iter().filter(|object| pods.contains(*object)).cloned().collect();
        let concerns = !of_it.is_empty() || cause.objects.contains(&own);
        concerns.then(|| CauseOfPods {
            cause: cause.cause,
            about: cause.about,
            severity: cause.severity,
            summary: cause.summary,
            action: cause.action,
            pods: of_it.iter().map(|pod| pod.rsplit('/').next().unwrap_or(pod).to_owned()).collect(),
        })
    });
    concerns.collect()
}

/// The verdict with the names of the causes.
pub(super) fn verdict(summary: String, causes: &[CauseOfPods]) -> String {
    let mut names: Vec<String> = causes.iter().map(|cause| format!("{:?}", cause.cause)).collect();
    names.dedup();
    match causes {
        [] => summary,
        [one] => format!("{summary}; stuck: {:?} ({})", one.cause, one.about),
        _ => format!("{summary}; stuck: {}", names.join(", ")),
    }
}

pub(super) fn render(out: &mut String, causes: &[CauseOfPods]) {
    if !causes.is_empty() {
        let _ = writeln!(out, "\nCauses");
    }
    for cause in causes {
        bullet(out, &format!("{} {:?}: {}", cause.severity.as_str(), cause.cause, cause.summary));
        if !cause.pods.is_empty() {
            hanging(out, "    ", "      ", &format!("pods: {}", cause.pods.join(", ")));
        }
        let _ = writeln!(out, "    {}", cause.action);
    }
}
