//! The step of an object that cannot be read: a condition says which field is wrong.

use serde_json::json;
use stead_model::{Condition, ModelError, ObjectRef, reported_conditions};

use crate::conditions::{Conditions, seconds};
use crate::owner::Owner;
use crate::step::{LoopStep, World};

/// Reports what is wrong with an object. Nothing else is written, and nothing that exists is changed, until it is
/// corrected.
pub(crate) fn step(world: &World<'_>, object: ObjectRef<'_>, error: &ModelError) -> LoopStep {
    // Without its metadata there is no object to write a status of. The API server does not store such an object.
    let Ok(metadata) = object.metadata() else { return LoopStep::default() };
    let owner = Owner::new(&object.key().kind, &metadata);
    let before = reported_conditions(object);
    let conditions = if object.key().kind == "Topology" {
        let same = |c: &&Condition| c.r#type == "Satisfiable" && c.status == "Unknown";
        let since = before.iter().find(same).and_then(|c| c.last_transition_time.as_ref());
        json!([{
            "type": "Satisfiable",
            "status": "Unknown",
            "reason": "Malformed",
            "message": error.to_string(),
            "lastTransitionTime": seconds(since.map_or(world.now, |time| time.0)),
        }])
    } else {
        let mut conditions = Conditions::default();
        conditions.failed("InputReady", format!("Input data error occurred {error}"));
        conditions.into_json(false, &before, world.now)
    };
    let status = json!({"observedGeneration": metadata.generation, "conditions": conditions});
    LoopStep { writes: vec![owner.status(status)], ..LoopStep::default() }
}
