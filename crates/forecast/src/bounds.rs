//! Times and durations of objects, within bounds that the arithmetic of a simulation cannot leave.
//!
//! An API server accepts a toleration of 2^63 seconds, and a clock may report any year.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use stead_model::times::{CENTURY, is_near, near};
use stead_model::{ModelError, ObjectRef, Typed};

/// An object with bounded times; `kept` says whether it is read so that the objects keep it.
pub(crate) fn read<T: Typed>(object: ObjectRef<'_>, kept: bool) -> Result<T, ModelError> {
    let mut far = false;
    object.each_time(|_, text| far |= is_far(text));
    if !far {
        return match kept {
            true => object.typed::<T>().cloned(),
            false => object.read::<T>().map(std::borrow::Cow::into_owned),
        };
    }
    let mut raw = object.raw().clone();
    bound_times(&mut raw);
    T::from_raw(object.key(), &raw)
}

/// Whether a text is a time that no cluster can report.
fn is_far(text: &str) -> bool {
    // Times of this century need not be parsed.
    !text.starts_with("20") && text.parse::<Timestamp>().is_ok_and(|at| !is_near(at))
}

/// Leaves out times that are too far away. An object that is being deleted stays so.
fn bound_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| name == "deletionTimestamp" || !value.as_str().is_some_and(is_far));
            if let Some(text) = fields.get("deletionTimestamp").and_then(Value::as_str).filter(|text| is_far(text)) {
                let is_past = text.parse::<Timestamp>().is_ok_and(|at| at < Timestamp::UNIX_EPOCH);
                let bound = if is_past { "1970-01-01T00:00:00Z" } else { "2999-12-31T00:00:00Z" };
                fields.insert("deletionTimestamp".to_owned(), bound.into());
            }
            fields.values_mut().for_each(bound_times);
        }
        Value::Array(items) => items.iter_mut().for_each(bound_times),
        _ => {}
    }
}

/// Cuts the grace period of a deletion; where there is none of a deletion in the past, that was requested then.
pub(crate) fn bound_metadata(metadata: &mut ObjectMeta) {
    let Some(due) = metadata.deletion_timestamp.as_ref().and_then(|at| near(at.0)) else { return };
    let longest = due.duration_since(Timestamp::UNIX_EPOCH).as_secs();
    if let Some(grace) = &mut metadata.deletion_grace_period_seconds {
        *grace = (*grace).clamp(0, longest);
    }
}

/// Cuts the durations of a pod's spec.
pub(crate) fn bound_spec(spec: &mut PodSpec) {
    let cut = |seconds: &mut Option<i64>| {
        if let Some(seconds) = seconds {
            *seconds = (*seconds).clamp(-1, CENTURY.as_secs());
        }
    };
    cut(&mut spec.termination_grace_period_seconds);
    cut(&mut spec.active_deadline_seconds);
}
