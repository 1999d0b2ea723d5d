//! What a person may do about an outage.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Taint};
use serde_json::json;
use stead_model::{OUT_OF_SERVICE, ObjectKey};
use stead_sim::{ApiError, DeleteOptions, ObjectKind, ObjectPart, Patch, SimKey, Simulation, Write};

/// A change of a cluster by a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intervention {
    /// None.
    Nothing,
    /// The machine of a node is back, as it was.
    ReturnNode(String),
    /// Pods are deleted without waiting for their kubelets.
    ForceDelete(BTreeSet<ObjectKey>),
    /// A Node object is deleted.
    DeleteNode(String),
    /// A node is tainted as out of service.
    OutOfService(String),
    /// A Deployment ends its old pods before it starts new ones: namespace and name.
    Recreate(String, String),
}

impl Intervention {
    /// Makes the change.
    pub(crate) fn apply(&self, simulation: &mut Simulation) -> Result<(), ApiError> {
        match self {
            Intervention::Nothing => {}
            // A node that has no machine is left as it is.
            Intervention::ReturnNode(node) => drop(simulation.heal(node)),
            Intervention::ForceDelete(pods) => {
                for pod in pods {
                    let options = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
                    simulation.request(Write::Delete(SimKey::pod(&pod.namespace, &pod.name), options))?;
                }
            }
            Intervention::DeleteNode(node) => {
                simulation.request(Write::Delete(SimKey::node(node), DeleteOptions::default()))?;
            }
            Intervention::OutOfService(node) => taint(simulation, node)?,
            Intervention::Recreate(namespace, name) => {
                let patch = json!({ "spec": { "strategy": { "type": "Recreate", "rollingUpdate": null } } });
                simulation.request(Write::Patch {
                    key: SimKey::new(ObjectKind::Deployment, namespace, name),
                    patch: Patch::Merge(patch),
                    part: ObjectPart::Spec,
                })?;
            }
        }
        Ok(())
    }
}

fn taint(simulation: &mut Simulation, node: &str) -> Result<(), ApiError> {
    let Some(found) = simulation.store().get::<Node>("", node) else { return Ok(()) };
    let mut node = Node::clone(found);
    let taints = node.spec.get_or_insert_default().taints.get_or_insert_default();
    if taints.iter().any(|taint| taint.key == OUT_OF_SERVICE) {
        return Ok(());
    }
    let (key, effect) = (OUT_OF_SERVICE.to_owned(), "NoExecute".to_owned());
    taints.push(Taint { key, effect, value: Some("nodeshutdown".into()), time_added: None });
    simulation.request(Write::Replace(node.into()))?;
    Ok(())
}
