//! Node selectors and node affinity.
//!
//! Mirrors `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`, including when an invalid term
//! is reported:
//!
//! | here | in Kubernetes | an invalid term |
//! |---|---|---|
//! | [`NodeSelector`] | `NewNodeSelector` | fails the compilation, even if another term would match |
//! | [`LazyNodeSelector`] | `NewLazyErrorNodeSelector` | never matches; is reported only for a node that no other term matches |
//! | [`RequiredNodeAffinity`] | `GetRequiredNodeAffinity` | as the lazy one; kube-scheduler's filter ignores the error |
//! | [`PreferredNodeAffinity`] | `NewPreferredSchedulingTerms` | fails the compilation, unless its weight is 0 |
//!
//! Field paths in errors start inside the value compiled (`nodeSelectorTerms[0]…`, or `[0]…` for
//! preferred terms), as kube-scheduler's do.

mod validation;

use k8s_openapi::api::core::v1 as core;
pub use validation::{validate, validate_preferred};

use crate::field_error::{FieldError, FieldErrors, child, json_list};
use crate::labels::{Labels, Operator, Requirement, Selector, SelectorError};

/// The only node field that a term can use.
const NAME_FIELD: &str = "metadata.name";

/// Terms of which one must match (`nodeaffinity.NodeSelector`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeSelector {
    terms: Vec<NodeSelectorTerm>,
}

impl NodeSelector {
    /// Compiles all terms. Empty terms match nothing and are dropped.
    ///
    /// # Errors
    ///
    /// All errors of all terms.
    pub fn compile(selector: &core::NodeSelector) -> Result<Self, SelectorError> {
        let mut terms = Vec::new();
        let mut errors = Vec::new();
        for compiled in LazyNodeSelector::compile(selector).terms {
            match compiled {
                Ok(term) => terms.push(term),
                Err(faults) => errors.extend(faults.into_errors()),
            }
        }
        FieldErrors::check(errors)?;
        Ok(Self { terms })
    }

    /// Whether any term matches the node.
    #[must_use]
    pub fn matches(&self, node_name: &str, labels: &Labels) -> bool {
        self.terms.iter().any(|t| t.matches(node_name, labels))
    }

    /// The terms that can match.
    #[must_use]
    pub fn terms(&self) -> &[NodeSelectorTerm] {
        &self.terms
    }
}

/// Terms of which one must match, where invalid terms are reported only if no other term matches
/// (`nodeaffinity.LazyErrorNodeSelector`). Kubernetes treats a pod's required node affinity and a
/// volume's node affinity this way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LazyNodeSelector {
    terms: Vec<Result<NodeSelectorTerm, FieldErrors>>,
}

impl LazyNodeSelector {
    /// Compiles all terms and keeps the errors. Empty terms match nothing and are dropped.
    #[must_use]
    pub fn compile(selector: &core::NodeSelector) -> Self {
        let terms = selector.node_selector_terms.iter().enumerate();
        Self {
            terms: terms
                .filter(|(_, term)| !is_empty(term))
                .map(|(index, term)| NodeSelectorTerm::compile_at(term, &format!("nodeSelectorTerms[{index}]")))
                .collect(),
        }
    }

    /// Whether any term matches the node.
    ///
    /// # Errors
    ///
    /// The errors of the invalid terms, if no other term matches.
    pub fn matches(&self, node_name: &str, labels: &Labels) -> Result<bool, SelectorError> {
        let mut errors = Vec::new();
        for term in &self.terms {
            match term {
                Ok(term) if term.matches(node_name, labels) => return Ok(true),
                Ok(_) => {}
                Err(faults) => errors.extend(faults.errors().iter().cloned()),
            }
        }
        FieldErrors::check(errors)?;
        Ok(false)
    }

    /// The terms that can match: neither empty nor invalid.
    pub fn terms(&self) -> impl Iterator<Item = &NodeSelectorTerm> {
        self.terms.iter().flatten()
    }
}

/// Conditions on a node's labels and fields that must all hold (`nodeaffinity.nodeSelectorTerm`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeSelectorTerm {
    /// `None` if the term has no expressions.
    labels: Option<Selector>,
    fields: Vec<FieldRequirement>,
}

/// A condition on a field of the node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldRequirement {
    /// The field's path.
    pub field: String,
    /// The value to compare with.
    pub value: String,
    /// Whether the field must have the value, or must not.
    pub equal: bool,
}

impl NodeSelectorTerm {
    /// Compiles one term. An empty term compiles, and matches nothing.
    ///
    /// # Errors
    ///
    /// All errors of the term.
    pub fn compile(term: &core::NodeSelectorTerm) -> Result<Self, SelectorError> {
        Ok(Self::compile_at(term, "")?)
    }

    fn compile_at(term: &core::NodeSelectorTerm, path: &str) -> Result<Self, FieldErrors> {
        let mut errors = Vec::new();
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        let path_of_labels = child(path, "matchExpressions");
        let labels = label_selector(expressions, &path_of_labels, &mut errors);
        let fields = term.match_fields.as_deref().unwrap_or_default();
        let fields = field_requirements(fields, &child(path, "matchFields"), &mut errors);
        FieldErrors::check(errors)?;
        Ok(Self { labels: (!expressions.is_empty()).then_some(labels), fields })
    }

    /// Whether the node satisfies the term. A node without a name has no fields, and Kubernetes then
    /// skips the conditions on them.
    #[must_use]
    pub fn matches(&self, node_name: &str, labels: &Labels) -> bool {
        !self.is_empty()
            && self.labels.as_ref().is_none_or(|s| s.matches(labels))
            && (node_name.is_empty() || self.fields.iter().all(|f| f.matches(node_name)))
    }

    /// Whether the term has no conditions, and so matches nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_none() && self.fields.is_empty()
    }

    /// The conditions on labels, if there are any.
    #[must_use]
    pub fn labels(&self) -> Option<&Selector> {
        self.labels.as_ref()
    }

    /// The conditions on fields, in their order.
    #[must_use]
    pub fn fields(&self) -> &[FieldRequirement] {
        &self.fields
    }
}

impl FieldRequirement {
    /// Whether the node of this name satisfies the condition. Fields other than the name count as
    /// empty.
    #[must_use]
    pub fn matches(&self, node_name: &str) -> bool {
        let actual = if self.field == NAME_FIELD { node_name } else { "" };
        (actual == self.value) == self.equal
    }
}

/// `nodeSelectorRequirementsAsSelector`.
fn label_selector(expressions: &[core::NodeSelectorRequirement], path: &str, errors: &mut Vec<FieldError>) -> Selector {
    let mut selector = Selector::everything();
    for (index, expression) in expressions.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let operator = match expression.operator.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::Gt,
            "Lt" => Operator::Lt,
            unknown => {
                let supported = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
                let path = child(&path, "operator");
                errors.push(FieldError::unsupported(path, unknown, &supported));
                continue;
            }
        };
        let values = expression.values.as_deref();
        match Requirement::checked_at(&path, &expression.key, operator, values) {
            Ok(requirement) => selector.add(requirement),
            Err(faults) => errors.extend(faults.into_errors()),
        }
    }
    selector
}

/// `nodeSelectorRequirementsAsFieldSelector`: only `In` and `NotIn`, each with one value. The
/// field's name is not checked here, but by API validation.
fn field_requirements(
    conditions: &[core::NodeSelectorRequirement],
    path: &str,
    errors: &mut Vec<FieldError>,
) -> Vec<FieldRequirement> {
    let mut requirements = Vec::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let equal = match condition.operator.as_str() {
            "In" => true,
            "NotIn" => false,
            unknown => {
                let path = child(&path, "operator");
                errors.push(FieldError::unsupported(path, unknown, &["In", "NotIn"]));
                continue;
            }
        };
        let values = condition.values.as_deref();
        match values.unwrap_or_default() {
            [value] => {
                requirements.push(FieldRequirement { field: condition.key.clone(), value: value.clone(), equal })
            }
            _ => errors.push(FieldError::invalid(child(&path, "values"), json_list(values), "must have one element")),
        }
    }
    requirements
}

fn is_empty(term: &core::NodeSelectorTerm) -> bool {
    let none = |list: &Option<Vec<_>>| list.as_ref().is_none_or(Vec::is_empty);
    none(&term.match_expressions) && none(&term.match_fields)
}

/// Where a pod may run: its `nodeSelector` and its required node affinity, both of which must hold
/// (`nodeaffinity.RequiredNodeAffinity`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequiredNodeAffinity {
    node_labels: Option<Selector>,
    affinity: Option<LazyNodeSelector>,
}

impl RequiredNodeAffinity {
    /// Compiles a pod's requirements.
    ///
    /// # Errors
    ///
    /// None in Kubernetes 1.36: `GetRequiredNodeAffinity` cannot fail, an invalid term never
    /// matches. [`RequiredNodeAffinity::try_matches`] returns the errors.
    pub fn of(spec: &core::PodSpec) -> Result<Self, SelectorError> {
        let node_labels = spec.node_selector.as_ref().filter(|labels| !labels.is_empty()).map(Selector::from_set);
        let affinity = spec
            .affinity
            .as_ref()
            .and_then(|a| a.node_affinity.as_ref())
            .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())
            .map(LazyNodeSelector::compile);
        Ok(Self { node_labels, affinity })
    }

    /// Whether the pod may run on the node. Invalid terms match nothing and are not reported, as in
    /// kube-scheduler's `NodeAffinity` filter.
    #[must_use]
    pub fn matches(&self, node_name: &str, labels: &Labels) -> bool {
        self.try_matches(node_name, labels).unwrap_or(false)
    }

    /// Whether the pod may run on the node (`RequiredNodeAffinity.Match`).
    ///
    /// # Errors
    ///
    /// The errors of the invalid terms, if `nodeSelector` matches and no other term does.
    pub fn try_matches(&self, node_name: &str, labels: &Labels) -> Result<bool, SelectorError> {
        if let Some(selector) = &self.node_labels
            && !selector.matches(labels)
        {
            return Ok(false);
        }
        match &self.affinity {
            Some(affinity) => affinity.matches(node_name, labels),
            None => Ok(true),
        }
    }

    /// Whether the pod has no requirements.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.node_labels.is_none() && self.affinity.is_none()
    }

    /// The pod's `nodeSelector`, if it has one.
    #[must_use]
    pub fn node_labels(&self) -> Option<&Selector> {
        self.node_labels.as_ref()
    }

    /// The pod's required node affinity, if it has one.
    #[must_use]
    pub fn affinity(&self) -> Option<&LazyNodeSelector> {
        self.affinity.as_ref()
    }
}

/// Terms that each add their weight to a node's score (`nodeaffinity.PreferredSchedulingTerms`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PreferredNodeAffinity {
    terms: Vec<(NodeSelectorTerm, i32)>,
}

impl PreferredNodeAffinity {
    /// Compiles the terms. Empty terms and terms of weight 0 are skipped, even if they are invalid.
    ///
    /// # Errors
    ///
    /// All errors of all other terms.
    pub fn of(terms: &[core::PreferredSchedulingTerm]) -> Result<Self, SelectorError> {
        let mut compiled = Vec::new();
        let mut errors = Vec::new();
        for (index, term) in terms.iter().enumerate() {
            if term.weight == 0 || is_empty(&term.preference) {
                continue;
            }
            match NodeSelectorTerm::compile_at(&term.preference, &format!("[{index}]")) {
                Ok(preference) => compiled.push((preference, term.weight)),
                Err(faults) => errors.extend(faults.into_errors()),
            }
        }
        FieldErrors::check(errors)?;
        Ok(Self { terms: compiled })
    }

    /// The sum of the weights of the terms that match the node.
    #[must_use]
    pub fn score(&self, node_name: &str, labels: &Labels) -> i64 {
        self.terms
            .iter()
            .filter(|(term, _)| term.matches(node_name, labels))
            .map(|(_, weight)| i64::from(*weight))
            .sum()
    }
}
