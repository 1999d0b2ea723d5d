//! Label selectors.
//!
//! Mirrors `k8s.io/apimachinery/pkg/labels` and `metav1.LabelSelectorAsSelector`.

mod parse;
mod requirement;
mod selector;

use std::collections::BTreeMap;

use thiserror::Error;

pub use parse::SyntaxError;
pub use requirement::{Operator, Requirement};
pub use selector::Selector;

use crate::field_error::{FieldErrors, quoted};

/// The labels of an object (`labels.Set`).
pub type Labels = BTreeMap<String, String>;

/// Why a selector cannot be used.
///
/// `Display` includes the path of the invalid requirement inside the selector, which Kubernetes'
/// own message sometimes lacks; [`SelectorError::kubernetes_message`] gives that message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum SelectorError {
    /// Keys, operators or values that `labels.NewRequirement` rejects.
    #[error(transparent)]
    Fields(#[from] FieldErrors),
    /// An unknown operator.
    #[error("matchExpressions[{index}].operator: {}", unknown_operator(.operator))]
    UnknownOperator {
        /// The index in `matchExpressions`.
        index: usize,
        /// The operator as written.
        operator: String,
    },
    /// Text that is not a selector.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
}

impl SelectorError {
    /// The exact message of the Kubernetes function.
    #[must_use]
    pub fn kubernetes_message(&self) -> String {
        match self {
            Self::Fields(errors) => errors.kubernetes_message(),
            Self::UnknownOperator { operator, .. } => unknown_operator(operator),
            Self::Syntax(error) => error.to_string(),
        }
    }
}

fn unknown_operator(operator: &str) -> String {
    format!("{} is not a valid label selector operator", quoted(operator))
}
