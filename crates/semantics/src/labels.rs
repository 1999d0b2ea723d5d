//! Label selectors.
//!
//! Mirrors `k8s.io/apimachinery/pkg/labels` and `metav1.LabelSelectorAsSelector`.

mod parse;
mod requirement;
mod selector;

use std::collections::BTreeMap;

use thiserror::Error;

pub use requirement::{Operator, Requirement};
pub use selector::Selector;

use crate::field_error::{FieldErrors, quoted};

/// The labels of an object (`labels.Set`).
pub type Labels = BTreeMap<String, String>;

/// Why a selector cannot be used.
///
/// `Display` names the faulty requirement by its path inside the selector. Where Kubernetes itself
/// leaves that out, [`SelectorError::kubernetes_message`] gives the message to the letter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum SelectorError {
    /// Keys, operators or values that break the rules of `labels.NewRequirement`.
    #[error(transparent)]
    Fields(#[from] FieldErrors),
    /// An operator that label selectors do not have.
    #[error("matchExpressions[{index}].operator: {}", unknown_operator(.operator))]
    UnknownOperator {
        /// Which of the `matchExpressions` it is.
        index: usize,
        /// The operator as written.
        operator: String,
    },
    /// Text that is not a selector.
    #[error("{0}")]
    Syntax(String),
}

impl SelectorError {
    /// The message to the letter as Kubernetes' own function returns it.
    #[must_use]
    pub fn kubernetes_message(&self) -> String {
        match self {
            Self::Fields(errors) => errors.kubernetes_message(),
            Self::UnknownOperator { operator, .. } => unknown_operator(operator),
            Self::Syntax(message) => message.clone(),
        }
    }
}

fn unknown_operator(operator: &str) -> String {
    format!("{} is not a valid label selector operator", quoted(operator))
}
