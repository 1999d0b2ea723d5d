//! How many pods a budget expects, and how many of them have to be healthy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use stead_model::{Kind, controller_of};

use crate::error::resource_of;
use crate::object::ObjectKind;
use crate::store::Store;

/// The numbers of a budget.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// How many pods there should be.
    pub(super) expected: i32,
    /// How many of them have to be healthy.
    pub(super) desired: i32,
    /// Whether some pods have no controller, though that has to be counted.
    pub(super) unmanaged: bool,
}

/// How many pods there should be, and how many of them have to be healthy (`getExpectedPodCount`).
pub(super) fn count(store: &Store, budget: &PodDisruptionBudget, covered: &[&Arc<Pod>]) -> Result<Counts, String> {
    let Some(spec) = &budget.spec else { return Ok(Counts::default()) };
    let number = i32::try_from(covered.len()).unwrap_or(i32::MAX);
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(max_unavailable), _) => {
            let (expected, unmanaged) = expected_scale(store, covered)?;
            let desired = (expected - scaled(max_unavailable, expected)?).max(0);
            Ok(Counts { expected, desired, unmanaged })
        }
        (None, Some(IntOrString::Int(desired))) => Ok(Counts { expected: number, desired: *desired, unmanaged: false }),
        (None, Some(percentage)) => {
            let (expected, unmanaged) = expected_scale(store, covered)?;
            Ok(Counts { expected, desired: scaled(percentage, expected)?, unmanaged })
        }
        (None, None) => Ok(Counts::default()),
    }
}

/// A number, or a percentage of a total, rounded up (`GetScaledValueFromIntOrPercent`).
fn scaled(value: &IntOrString, total: i32) -> Result<i32, String> {
    let text = match value {
        IntOrString::Int(number) => return Ok(*number),
        IntOrString::String(text) => text,
    };
    let Some(digits) = text.strip_suffix('%') else {
        return Err("invalid value for IntOrString: invalid type: string is not a percentage".into());
    };
    let percentage: i64 = digits.parse().map_err(|_| {
        format!("invalid value for IntOrString: invalid value {text:?}: strconv.Atoi: parsing {digits:?}: invalid syntax")
    })?;
    let share = (percentage * i64::from(total)).div_euclid(100) + i64::from((percentage * i64::from(total)) % 100 > 0);
    Ok(i32::try_from(share).unwrap_or(i32::MAX))
}

/// The sum of the scales of the controllers of all pods, and whether some pods have none (`getExpectedScale`).
fn expected_scale(store: &Store, covered: &[&Arc<Pod>]) -> Result<(i32, bool), String> {
    let mut scales: BTreeMap<String, i32> = BTreeMap::new();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    let mut unmanaged = false;
    for pod in covered {
        let Some(controller) = controller_of(&pod.metadata) else {
            unmanaged = true;
            continue;
        };
        if !known.insert(&controller.uid) {
            continue;
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let Some((uid, scale)) = scale_of(store, controller, namespace)? else {
            return Err(format!("found no controllers for pod {:?}", pod.metadata.name.as_deref().unwrap_or_default()));
        };
        scales.insert(uid, scale);
    }
    Ok((scales.values().sum(), unmanaged))
}

/// The controller that a pod is scaled by, and its scale; that of a ReplicaSet is its Deployment, if it has one.
fn scale_of(store: &Store, controller: &OwnerReference, namespace: &str) -> Result<Option<(String, i32)>, String> {
    let Some(kind) = Kind::find(&controller.api_version, &controller.kind) else {
        return Err(format!("no matches for kind {:?} in version {:?}", controller.kind, controller.api_version));
    };
    let name = controller.name.as_str();
    let found = |uid: &Option<String>, replicas: Option<i32>| {
        (uid.as_ref() == Some(&controller.uid)).then(|| (controller.uid.clone(), replicas.unwrap_or(1)))
    };
    Ok(match ObjectKind::of(kind) {
        ObjectKind::ReplicationController => store.get::<ReplicationController>(namespace, name).and_then(|controller| {
            found(&controller.metadata.uid, controller.spec.as_ref().and_then(|spec| spec.replicas))
        }),
        ObjectKind::StatefulSet => store.get::<StatefulSet>(namespace, name).and_then(|set| {
            found(&set.metadata.uid, set.spec.as_ref().and_then(|spec| spec.replicas))
        }),
        ObjectKind::Deployment => store.get::<Deployment>(namespace, name).and_then(|deployment| {
            found(&deployment.metadata.uid, deployment.spec.as_ref().and_then(|spec| spec.replicas))
        }),
        ObjectKind::ReplicaSet => store.get::<ReplicaSet>(namespace, name).and_then(|set| {
            let own = found(&set.metadata.uid, set.spec.as_ref().and_then(|spec| spec.replicas))?;
            Some(deployment_scale(store, set, namespace).unwrap_or(own))
        }),
        _ => {
            let resource = resource_of(kind);
            return Err(format!("{resource} does not implement the scale subresource"));
        }
    })
}

fn deployment_scale(store: &Store, set: &ReplicaSet, namespace: &str) -> Option<(String, i32)> {
    let owner = controller_of(&set.metadata).filter(|owner| owner.kind == "Deployment")?;
    let deployment = store.get::<Deployment>(namespace, &owner.name)?;
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    (deployment.metadata.uid.as_ref() == Some(&owner.uid)).then(|| (owner.uid.clone(), replicas))
}
