//! The pod that a file asks for: the pod in the file, or the first pod of a workload in the file.
//!
//! Fills in what is filled in before kube-scheduler sees a pod, as far as placement depends on it. `create` does the part
//! of the controllers: names, owners, labels, claims. `admission` does the part of the API server: priority, tolerations,
//! limit ranges, runtime and storage classes.

use anyhow::{Context, bail};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, Resource};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stead_model::{Kind, ObjectKey, Objects, Typed};
use stead_placement::{Cluster, Pod};

mod admission;
mod create;

use admission::Defaults;
pub(crate) use admission::{DEFAULT_KINDS, NEEDED_KINDS};
use create::WORKLOAD_KINDS;

/// A pod to place.
#[derive(Debug)]
pub(crate) struct PlannedPod {
    pub(crate) pod: Value,
    /// Objects that exist before the pod is placed: the other objects of the file, its owners, its claims.
    pub(crate) before: Vec<Value>,
    /// What could not be looked up.
    pub(crate) warnings: Vec<String>,
}

/// The pod that the objects of a file ask for, in a cluster with these objects.
pub(crate) fn first_pod(file: Vec<Value>, namespace: Option<&str>, cluster: &[Value]) -> anyhow::Result<PlannedPod> {
    let file: Vec<Value> = file.iter().map(|o| with_namespace(o, namespace)).collect::<anyhow::Result<_>>()?;
    let (workloads, others): (Vec<Value>, Vec<Value>) =
        file.into_iter().partition(|o| WORKLOAD_KINDS.contains(&kind_of(o)));
    let workload = match workloads.as_slice() {
        [] => bail!("no pod to place in the file: it needs one of {}", WORKLOAD_KINDS.join(", ")),
        [workload] => workload,
        several => {
            let names: Vec<String> = several.iter().map(describe).collect();
            bail!("the file has several workloads, keep one of them: {}", names.join(", "))
        }
    };
    let mut created = create::first_pod(workload)?;
    let mut defaults = Defaults::read(cluster);
    defaults.apply_to_pod(&mut created.pod);

    let mut before = created.owners;
    let existing: Vec<ObjectKey> = cluster.iter().chain(&others).filter_map(ObjectKey::of).collect();
    let of_the_pod = created.claims.into_iter().chain(create::ephemeral_claims(&created.pod));
    let mut claims: Vec<_> = of_the_pod.filter(|claim| !existing.contains(&key_of(claim))).collect();
    for other in others {
        if kind_of(&other) == "PersistentVolumeClaim" {
            claims.push(parse(&other)?);
        } else {
            before.push(other);
        }
    }
    for claim in &mut claims {
        defaults.apply_to_claim(claim);
        before.push(to_value(claim)?);
    }
    let pod = to_value(&created.pod)?;
    check(&pod, &before)?;
    Ok(PlannedPod { pod, before, warnings: defaults.warnings })
}

/// An error if an object of the file is malformed. Malformed objects of the cluster are only ignored, with a warning.
fn check(pod: &Value, before: &[Value]) -> anyhow::Result<()> {
    let Some(key) = ObjectKey::of(pod) else { bail!("{}: metadata.name: missing", describe(pod)) };
    let objects = Objects::from_items(before.iter().chain([pod]).cloned());
    Pod::from_objects(&objects, &key)?;
    Cluster::from_objects(&objects, Some(&key));
    Ok(objects.check()?)
}

/// An object of any kind.
#[derive(Deserialize, Serialize)]
struct AnyObject {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

/// The object with its namespace: its own, the one of `-n`, or `default`.
fn with_namespace(object: &Value, given: Option<&str>) -> anyhow::Result<Value> {
    let mut parsed: AnyObject = stead_model::parse(describe(object), object)?;
    let is_cluster_scoped = Kind::named(kind_of(object)).is_some_and(|kind| !kind.namespaced);
    match (parsed.metadata.namespace.as_deref(), given) {
        _ if is_cluster_scoped => {}
        (Some(own), Some(given)) if own != given => {
            bail!(
                "{}: metadata.namespace: {own:?} differs from the namespace given with -n, {given:?}",
                describe(object)
            )
        }
        (Some(_), _) => {}
        (None, given) => parsed.metadata.namespace = Some(given.unwrap_or("default").to_owned()),
    }
    to_value(&parsed)
}

fn kind_of(object: &Value) -> &str {
    object.get("kind").and_then(Value::as_str).unwrap_or_default()
}

/// What to call an object in a message.
fn describe(object: &Value) -> String {
    ObjectKey::of(object).map_or_else(|| kind_of(object).to_lowercase(), |key| key.to_string())
}

fn key_of<T: Resource + Metadata<Ty = ObjectMeta>>(object: &T) -> ObjectKey {
    let ObjectMeta { namespace, name, .. } = object.metadata();
    ObjectKey::new(T::KIND, namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
}

/// Parses an object into its Kubernetes type. An error names the object and the field.
fn parse<T: Typed>(object: &Value) -> anyhow::Result<T> {
    let key = ObjectKey::of(object).unwrap_or_else(|| ObjectKey::new(kind_of(object), "", ""));
    Ok(T::from_raw(&key, object)?)
}

fn to_value(object: &impl Serialize) -> anyhow::Result<Value> {
    serde_json::to_value(object).context("cannot serialize an object")
}
