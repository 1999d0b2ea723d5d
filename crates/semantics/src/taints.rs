//! Taints and tolerations.
//!
//! Mirrors `Toleration.ToleratesTaint` (`k8s.io/api/core/v1`), `FindMatchingUntoleratedTaint`
//! (`k8s.io/component-helpers/scheduling/corev1`) and API validation (`pkg/apis/core/validation`).
//!
//! Kubernetes 1.36 has the comparison operators `Lt` and `Gt` behind the alpha feature gate
//! `TaintTolerationComparisonOperators`, which is off by default. This module implements the default:
//! such a toleration matches no taint, and validation rejects it.

use k8s_openapi::api::core::v1::{Taint, Toleration};
use thiserror::Error;

use crate::field_error::{FieldError, FieldErrors, json_string, quoted};
use crate::validation::{check_label_key, check_label_value};

const OPERATOR_EQUAL: &str = "Equal";
const OPERATOR_EXISTS: &str = "Exists";
const OPERATOR_LT: &str = "Lt";
const OPERATOR_GT: &str = "Gt";

const NO_EXECUTE: &str = "NoExecute";
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", NO_EXECUTE];

/// The errors of API validation for a toleration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(transparent)]
pub struct TolerationError(#[from] FieldErrors);

impl TolerationError {
    /// The errors, in the order of API validation.
    #[must_use]
    pub fn fields(&self) -> &FieldErrors {
        &self.0
    }
}

/// The errors of API validation for a taint.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(transparent)]
pub struct TaintError(#[from] FieldErrors);

impl TaintError {
    /// The errors, in the order of API validation.
    #[must_use]
    pub fn fields(&self) -> &FieldErrors {
        &self.0
    }
}

/// Whether the toleration tolerates the taint.
///
/// An empty effect matches every effect, an empty key every key. An empty operator means `Equal`.
/// Validation allows an empty key only with `Exists`; here an empty key with `Equal` matches the
/// taints with the same value, whatever their key. An unknown operator matches nothing.
#[must_use]
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = or_empty(&toleration.effect);
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    let key = or_empty(&toleration.key);
    if !key.is_empty() && key != taint.key {
        return false;
    }
    match or_empty(&toleration.operator) {
        "" | OPERATOR_EQUAL => or_empty(&toleration.value) == or_empty(&taint.value),
        OPERATOR_EXISTS => true,
        _ => false,
    }
}

/// The first of the taints selected by `effects` that no toleration tolerates.
pub fn find_untolerated<'a>(
    taints: &'a [Taint],
    tolerations: &[Toleration],
    effects: impl Fn(&Taint) -> bool,
) -> Option<&'a Taint> {
    taints.iter().filter(|taint| effects(taint)).find(|taint| !tolerations.iter().any(|t| tolerates(t, taint)))
}

/// Checks a toleration as API validation does (`ValidateTolerations`).
///
/// # Errors
///
/// All errors, with field paths relative to the toleration.
pub fn validate_toleration(toleration: &Toleration) -> Result<(), TolerationError> {
    let key = or_empty(&toleration.key);
    let operator = or_empty(&toleration.operator);
    let value = or_empty(&toleration.value);
    let effect = or_empty(&toleration.effect);
    let mut errors = Vec::new();

    if key.is_empty() {
        if operator != OPERATOR_EXISTS {
            errors.push(FieldError::invalid(
                "operator".to_owned(),
                json_string(operator),
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            ));
        }
    } else {
        errors.extend(key_errors(key));
    }
    if toleration.toleration_seconds.is_some() && effect != NO_EXECUTE {
        errors.push(FieldError::invalid(
            "effect".to_owned(),
            json_string(effect),
            "effect must be 'NoExecute' when `tolerationSeconds` is set",
        ));
    }
    errors.extend(operator_error(operator, value));
    if !effect.is_empty() {
        errors.extend(effect_error(effect));
    }
    Ok(FieldErrors::check(errors)?)
}

/// Checks a taint as API validation does (`validateNodeTaints`, without its check that the taints of
/// a node are unique by key and effect).
///
/// # Errors
///
/// All errors, with field paths relative to the taint.
pub fn validate_taint(taint: &Taint) -> Result<(), TaintError> {
    let mut errors = key_errors(&taint.key);
    let value = or_empty(&taint.value);
    errors.extend(value_error("value", value));
    if taint.effect.is_empty() {
        errors.push(FieldError::required("effect".to_owned()));
    } else {
        errors.extend(effect_error(&taint.effect));
    }
    Ok(FieldErrors::check(errors)?)
}

fn operator_error(operator: &str, value: &str) -> Option<FieldError> {
    let unsupported = |supported: &[&str]| FieldError::unsupported("operator".to_owned(), operator, supported);
    match operator {
        // Kubernetes reports an invalid value under `operator`, not under `value`.
        "" | OPERATOR_EQUAL => value_error("operator", value),
        OPERATOR_EXISTS if value.is_empty() => None,
        OPERATOR_EXISTS => Some(FieldError::invalid(
            "operator".to_owned(),
            quoted(value),
            "value must be empty when `operator` is 'Exists'",
        )),
        // With the gate off, the error still lists the rejected operators as supported.
        OPERATOR_LT | OPERATOR_GT => Some(unsupported(&[OPERATOR_EQUAL, OPERATOR_EXISTS, OPERATOR_LT, OPERATOR_GT])),
        _ => Some(unsupported(&[OPERATOR_EQUAL, OPERATOR_EXISTS])),
    }
}

fn key_errors(key: &str) -> Vec<FieldError> {
    check_label_key(key)
        .into_iter()
        .map(|problem| FieldError::invalid("key".to_owned(), quoted(key), problem))
        .collect()
}

fn value_error(field: &str, value: &str) -> Option<FieldError> {
    let problems = check_label_value(value);
    (!problems.is_empty()).then(|| FieldError::invalid(field.to_owned(), quoted(value), problems.join(";")))
}

fn effect_error(effect: &str) -> Option<FieldError> {
    (!EFFECTS.contains(&effect)).then(|| FieldError::unsupported("effect".to_owned(), effect, &EFFECTS))
}

fn or_empty(field: &Option<String>) -> &str {
    field.as_deref().unwrap_or_default()
}
