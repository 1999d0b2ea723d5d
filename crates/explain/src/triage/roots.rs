//! The assignment of each stuck object to one cause.

use std::collections::{BTreeMap, BTreeSet};

use stead_model::ObjectKey;

use super::evidence::Evidence;
use super::scope::TriageScope;
use super::{RootCause, Severity, StuckCause, action, summary};

/// A cause and the object that it is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Root {
    pub(super) cause: StuckCause,
    pub(super) about: ObjectKey,
}

impl Root {
    pub(super) fn new(cause: StuckCause, about: ObjectKey) -> Root {
        Root { cause, about }
    }
}

/// What is known about a root.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// What was reported, in one line.
    pub(super) detail: String,
    pub(super) objects: BTreeSet<ObjectKey>,
    /// A cordoned node that could run the pods.
    pub(super) cordoned: Option<String>,
    /// Whether no scheduler has tried to place the pods.
    pub(super) untried: bool,
    /// Whether Kubernetes does what it was asked to do, and waits for a person.
    as_configured: bool,
}

#[derive(Debug, Default)]
pub(super) struct Roots {
    groups: BTreeMap<Root, Group>,
    assigned: BTreeMap<ObjectKey, Root>,
}

impl Roots {
    /// Assigns a stuck object to a root, unless it has one. The first detail of a root is kept.
    pub(super) fn assign(&mut self, object: &ObjectKey, root: Root, detail: &str) {
        if self.assigned.contains_key(object) {
            return;
        }
        let group = self.groups.entry(root.clone()).or_default();
        if group.detail.is_empty() {
            group.detail = one_line(detail);
        }
        group.objects.insert(object.clone());
        self.assigned.insert(object.clone(), root);
    }

    /// Notes a cordoned node that could run the pods of a root.
    pub(super) fn set_cordoned(&mut self, root: &Root, node: String) {
        if let Some(group) = self.groups.get_mut(root) {
            group.cordoned.get_or_insert(node);
        }
    }

    /// Notes that no scheduler has tried to place the pods of a root.
    pub(super) fn set_untried(&mut self, root: &Root) {
        if let Some(group) = self.groups.get_mut(root) {
            group.untried = true;
        }
    }

    /// Notes that a root is as configured: somebody has to know, and nothing has failed.
    pub(super) fn set_as_configured(&mut self, root: &Root) {
        if let Some(group) = self.groups.get_mut(root) {
            group.as_configured = true;
        }
    }

    /// Whether an object was assigned to a root.
    pub(super) fn contains(&self, root: &Root) -> bool {
        self.groups.contains_key(root)
    }

    /// The root of an object.
    pub(super) fn of(&self, object: &ObjectKey) -> Option<&Root> {
        self.assigned.get(object)
    }

    /// The objects that were assigned so far.
    pub(super) fn assigned(&self) -> impl Iterator<Item = (&ObjectKey, &Root)> {
        self.assigned.iter()
    }

    /// The causes with an object in scope, the most severe first, then those with the most objects.
    pub(super) fn finish(self, evidence: &Evidence<'_>, scope: &TriageScope) -> Vec<RootCause> {
        let mut out = Vec::new();
        for (root, mut group) in self.groups {
            scope.restrict(evidence, &root, &mut group.objects);
            if group.objects.is_empty() {
                continue;
            }
            let root = about_one_pod(root, &group);
            let headline = summary::headline(evidence, &root, &group);
            out.push(RootCause {
                cause: root.cause,
                about: reference(&root.about),
                severity: if group.as_configured { Severity::Info } else { root.cause.severity() },
                summary: summary::summary(&root, &headline, &group),
                action: action::action(evidence, &root, &group),
                objects: group.objects.iter().map(reference).collect(),
                headline,
            });
        }
        out.sort_by_key(|cause| {
            (cause.severity, std::cmp::Reverse(cause.objects.len()), cause.cause, cause.about.clone())
        });
        out
    }
}

/// A cause with one pod of a workload is about this pod.
fn about_one_pod(root: Root, group: &Group) -> Root {
    let mut pods = group.objects.iter().filter(|key| key.kind == "Pod");
    match (pods.next(), pods.next()) {
        (Some(pod), None) if root.cause.is_of_pods() => Root::new(root.cause, pod.clone()),
        _ => root,
    }
}

/// `pod/NAMESPACE/NAME`, `node/NAME`.
pub(crate) fn reference(key: &ObjectKey) -> String {
    let kind = key.kind.to_lowercase();
    match key.namespace.as_str() {
        "" => format!("{kind}/{}", key.name),
        namespace => format!("{kind}/{namespace}/{}", key.name),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
