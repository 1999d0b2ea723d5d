//! Services, owners and disruption budgets of pods.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use stead_semantics::labels::{Labels, Selector};

use crate::error::{InField, InputError, ObjectName};
use crate::pod::{Pod, PodSpec};

/// A disruption budget, compiled.
#[derive(Debug, Clone)]
pub struct Budget {
    /// The namespace.
    pub namespace: Box<str>,
    /// The name.
    pub name: Box<str>,
    /// The selector of pods.
    pub selector: Selector,
    /// The number of disruptions that are still allowed.
    pub allowed: i32,
    /// The pods whose disruption was already granted.
    pub disrupted: BTreeSet<Box<str>>,
}

impl Budget {
    pub(crate) fn compile(b: &PodDisruptionBudget) -> Result<Budget, InputError> {
        let name = b.metadata.name.as_deref().unwrap_or_default();
        let namespace = b.metadata.namespace.as_deref().filter(|n| !n.is_empty()).unwrap_or("default");
        let selector = Selector::from_label_selector(b.spec.as_ref().and_then(|s| s.selector.as_ref()))
            .in_field("spec.selector")
            .map_err(|e| e.of(ObjectName("poddisruptionbudget", namespace, name)))?;
        let status = b.status.as_ref();
        Ok(Budget {
            namespace: namespace.into(),
            name: name.into(),
            selector,
            allowed: status.and_then(|s| s.disruptions_allowed).unwrap_or(0),
            disrupted: status
                .and_then(|s| s.disrupted_pods.as_ref())
                .into_iter()
                .flatten()
                .map(|(pod, _)| pod.as_str().into())
                .collect(),
        })
    }

    /// Whether disrupting the pod counts against the budget.
    pub fn covers(&self, pod: &Pod) -> bool {
        !pod.labels().is_empty()
            && *self.namespace == *pod.key.namespace
            && !self.selector.is_empty()
            && self.selector.matches(pod.labels())
            && !self.disrupted.contains(&*pod.key.name)
    }
}

/// A namespace and a name.
pub(crate) type Key = (Box<str>, Box<str>);

/// Services and owners, from which default spreading derives its selector.
#[derive(Debug, Clone, Default)]
pub struct Workloads {
    pub(crate) services: BTreeMap<Key, Labels>,
    pub(crate) replication_controllers: BTreeMap<Key, Labels>,
    pub(crate) replica_sets: BTreeMap<Key, Selector>,
    pub(crate) stateful_sets: BTreeMap<Key, Selector>,
}

impl Workloads {
    /// The selector of a pod's services and owner (kube-scheduler's `DefaultSelector`).
    pub(crate) fn default_selector(&self, pod: &PodSpec) -> Selector {
        let from = (Box::from(&*pod.namespace), Box::from(""));
        let mut set = Labels::new();
        for ((namespace, _), selector) in self.services.range(from..) {
            if **namespace != *pod.namespace {
                break;
            }
            if selector.iter().all(|(k, v)| pod.labels.get(k) == Some(v)) {
                set.extend(selector.iter().map(|(k, v)| (k.clone(), v.clone())));
            }
        }
        let Some(owner) = &pod.controller else { return Selector::from_set(&set) };
        let key = (Box::from(&*pod.namespace), owner.name.clone());
        let sets = match (&*owner.api_version, &*owner.kind) {
            ("v1", "ReplicationController") => {
                set.extend(self.replication_controllers.get(&key).cloned().unwrap_or_default());
                return Selector::from_set(&set);
            }
            ("apps/v1", "ReplicaSet") => &self.replica_sets,
            ("apps/v1", "StatefulSet") => &self.stateful_sets,
            _ => return Selector::from_set(&set),
        };
        let mut out = Selector::from_set(&set);
        for r in sets.get(&key).into_iter().flat_map(Selector::requirements) {
            out.add(r.clone());
        }
        out
    }
}
