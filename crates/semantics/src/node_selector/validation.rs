//! kube-apiserver's validation of node selectors.
//!
//! It accepts values that kube-scheduler cannot use: a `Gt` with a value that is not an integer, and in preferred terms
//! values that no label can have. So validation and compilation reject different values.
//!
//! Mirrors `ValidateNodeSelectorTerm` and what it calls, from `k8s.io/kubernetes/pkg/apis/core/validation`.

use k8s_openapi::api::core::v1 as core;

use super::NAME_FIELD;
use crate::field_error::{FieldError, FieldErrors, child, quoted};
use crate::validation::{check_dns1123_subdomain, check_label_key, check_label_value};

/// Checks required node affinity, of a pod or a volume.
///
/// # Errors
///
/// All errors, with paths that start inside the selector.
pub fn validate(selector: &core::NodeSelector) -> Result<(), FieldErrors> {
    let mut errors = Vec::new();
    if selector.node_selector_terms.is_empty() {
        let detail = "must have at least one node selector term";
        errors.push(FieldError::required_because("nodeSelectorTerms".to_owned(), detail));
    }
    for (index, term) in selector.node_selector_terms.iter().enumerate() {
        validate_term(term, &format!("nodeSelectorTerms[{index}]"), true, &mut errors);
    }
    FieldErrors::check(errors)
}

/// Checks preferred node affinity.
///
/// # Errors
///
/// All errors, with paths that start inside the list.
pub fn validate_preferred(terms: &[core::PreferredSchedulingTerm]) -> Result<(), FieldErrors> {
    let mut errors = Vec::new();
    for (index, term) in terms.iter().enumerate() {
        if !(1..=100).contains(&term.weight) {
            let field = format!("[{index}].weight");
            errors.push(FieldError::invalid(field, term.weight.to_string(), "must be in the range 1-100"));
        }
        validate_term(&term.preference, &format!("[{index}].preference"), false, &mut errors);
    }
    FieldErrors::check(errors)
}

fn validate_term(term: &core::NodeSelectorTerm, path: &str, values_too: bool, errors: &mut Vec<FieldError>) {
    for (index, r) in term.match_expressions.iter().flatten().enumerate() {
        validate_expression(r, &format!("{path}.matchExpressions[{index}]"), values_too, errors);
    }
    for (index, r) in term.match_fields.iter().flatten().enumerate() {
        validate_field(r, &format!("{path}.matchFields[{index}]"), errors);
    }
}

/// `ValidateNodeSelectorRequirement`.
fn validate_expression(r: &core::NodeSelectorRequirement, path: &str, values_too: bool, errors: &mut Vec<FieldError>) {
    let values = r.values.as_deref().unwrap_or_default();
    let path_of_values = child(path, "values");
    match r.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required_because(path_of_values.clone(), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(path_of_values.clone(), detail));
        }
        "Gt" | "Lt" if values.len() != 1 => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.push(FieldError::required_because(path_of_values.clone(), detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        unknown => errors.push(unknown_operator(path, unknown)),
    }
    for problem in check_label_key(&r.key) {
        errors.push(FieldError::invalid(child(path, "key"), quoted(&r.key), problem));
    }
    for (index, value) in values.iter().enumerate().filter(|_| values_too) {
        for problem in check_label_value(value) {
            errors.push(FieldError::invalid(format!("{path_of_values}[{index}]"), quoted(value), problem));
        }
    }
}

/// `ValidateNodeFieldSelectorRequirement`.
fn validate_field(r: &core::NodeSelectorRequirement, path: &str, errors: &mut Vec<FieldError>) {
    let values = r.values.as_deref().unwrap_or_default();
    match r.operator.as_str() {
        "In" | "NotIn" if values.len() != 1 => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.push(FieldError::required_because(child(path, "values"), detail));
        }
        "In" | "NotIn" => {}
        unknown => errors.push(unknown_operator(path, unknown)),
    }
    if r.key != NAME_FIELD {
        errors.push(FieldError::invalid(child(path, "key"), quoted(&r.key), "not a valid field selector key"));
        return;
    }
    for (index, value) in values.iter().enumerate() {
        for problem in check_dns1123_subdomain(value) {
            errors.push(FieldError::invalid(format!("{path}.values[{index}]"), quoted(value), problem));
        }
    }
}

fn unknown_operator(path: &str, operator: &str) -> FieldError {
    FieldError::invalid(child(path, "operator"), quoted(operator), "not a valid selector operator")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn said(term: Value) -> (String, String) {
        let text = |r: Result<(), FieldErrors>| r.map_or_else(|e| e.to_string(), |()| String::new());
        let required = serde_json::from_value(json!({"nodeSelectorTerms": [term.clone()]})).expect("a selector");
        let preferred = serde_json::from_value(json!({"weight": 1, "preference": term})).expect("a term");
        (text(validate(&required)), text(validate_preferred(&[preferred])))
    }

    #[test]
    fn operators_and_their_number_of_values() {
        for (operator, values, fault) in [
            ("In", json!(["a"]), ""),
            ("In", json!([]), "values: Required value: must be specified when `operator` is 'In' or 'NotIn'"),
            ("Exists", json!([]), ""),
            (
                "Exists",
                json!(["a"]),
                "values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            ("Gt", json!(["1"]), ""),
            ("Gt", json!(["integer"]), ""),
            (
                "Lt",
                json!(["1", "2"]),
                "values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'",
            ),
            ("Near", json!([]), "operator: Invalid value: \"Near\": not a valid selector operator"),
        ] {
            let term = json!({"matchExpressions": [{"key": "zone", "operator": operator, "values": values}]});
            let (required, preferred) = said(term);
            let expected = |path: &str| if fault.is_empty() { String::new() } else { format!("{path}{fault}") };
            assert_eq!(required, expected("nodeSelectorTerms[0].matchExpressions[0]."), "{operator}");
            assert_eq!(preferred, expected("[0].preference.matchExpressions[0]."), "{operator}");
        }
    }

    #[test]
    fn values_are_validated_only_in_required_terms() {
        let term = json!({"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["-5"]}]});
        let (required, preferred) = said(term);
        assert!(required.starts_with("nodeSelectorTerms[0].matchExpressions[0].values[0]: Invalid value: \"-5\""));
        assert_eq!(preferred, "");
    }

    #[test]
    fn fields() {
        for (key, operator, values, fault) in [
            ("metadata.name", "In", json!(["n1"]), ""),
            (
                "metadata.name",
                "NotIn",
                json!(["n1", "n2"]),
                "values: Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
            ),
            (
                "metadata.name",
                "Exists",
                json!([]),
                "operator: Invalid value: \"Exists\": not a valid selector operator",
            ),
            (
                "metadata.uid",
                "In",
                json!(["x"]),
                "key: Invalid value: \"metadata.uid\": not a valid field selector key",
            ),
        ] {
            let (required, _) = said(json!({"matchFields": [{"key": key, "operator": operator, "values": values}]}));
            let path = if fault.is_empty() { "" } else { "nodeSelectorTerms[0].matchFields[0]." };
            assert_eq!(required, format!("{path}{fault}"));
        }
    }
}
