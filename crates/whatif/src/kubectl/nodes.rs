//! `cordon`, `uncordon` and `taint`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};
use stead_kubectl::TaintChange;
use stead_sim::{ApiError, SimKey, SimObject};

use super::{Command, CommandError};

impl Command<'_> {
    fn node(&self, key: &SimKey) -> Result<Node, CommandError> {
        let node = self.simulation.store().at::<Node>(key);
        node.map(|node| Node::clone(node)).ok_or_else(|| ApiError::NotFound(key.clone()).into())
    }

    pub(super) fn cordon(&mut self, key: &SimKey, unschedulable: bool) -> Result<(), CommandError> {
        let mut node = self.node(key)?;
        let spec = node.spec.get_or_insert_default();
        let done = match (unschedulable, spec.unschedulable == Some(true)) {
            (true, true) => "already cordoned",
            (false, false) => "already uncordoned",
            (true, false) => "cordoned",
            (false, true) => "uncordoned",
        };
        spec.unschedulable = unschedulable.then_some(true);
        self.write(SimObject::Node(Arc::new(node)))?;
        self.print(key, done);
        Ok(())
    }

    pub(super) fn taint(&mut self, key: &SimKey, changes: &[TaintChange], overwrite: bool) -> Result<(), CommandError> {
        let mut node = self.node(key)?;
        let mut taints = node.spec.get_or_insert_default().taints.take().unwrap_or_default();
        let (mut added, mut removed) = (false, false);
        for change in changes {
            match change {
                TaintChange::Set { key: taint, value, effect } => {
                    let same = |other: &Taint| other.key == *taint && other.effect == *effect;
                    if !overwrite && taints.iter().any(same) {
                        let name = &key.name;
                        return Err(CommandError::Client(format!(
                            "node {name} already has {taint} taint(s) with same effect(s) and --overwrite is false"
                        )));
                    }
                    taints.retain(|other| !same(other));
                    let new =
                        Taint { key: taint.clone(), value: value.clone(), effect: effect.clone(), time_added: None };
                    taints.insert(0, new);
                    added = true;
                }
                TaintChange::Remove { key: taint, effect } => {
                    let before = taints.len();
                    taints.retain(|other| other.key != *taint || effect.as_ref().is_some_and(|e| *e != other.effect));
                    if taints.len() == before {
                        let effect = effect.as_ref().map(|effect| format!(":{effect}")).unwrap_or_default();
                        return Err(CommandError::Client(format!("taint \"{taint}{effect}\" not found")));
                    }
                    removed = true;
                }
            }
        }
        node.spec.get_or_insert_default().taints = (!taints.is_empty()).then_some(taints);
        self.write(SimObject::Node(Arc::new(node)))?;
        let done = match (added, removed) {
            (true, true) => "modified",
            (false, true) => "untainted",
            _ => "tainted",
        };
        self.print(key, done);
        Ok(())
    }
}
