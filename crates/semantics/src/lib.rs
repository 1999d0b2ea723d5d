//! Kubernetes' small languages: quantities, selectors, taints and tolerations.
//!
//! Every module handles one kind of value inside an object: quantities, label selectors, node
//! selectors, taints and tolerations, names. Results, rounding and the wording of every error are
//! those of Kubernetes 1.36.4, including its quirks, because a decision that only resembles the
//! scheduler's is wrong.
//!
//! The crate knows neither clusters nor clocks. Errors name the invalid field inside the value that
//! was passed; the caller adds the object and the path to it.

pub mod field_error;
pub mod labels;
pub mod node_selector;
pub mod quantity;
pub mod taints;
pub mod validation;

pub use field_error::{FieldError, FieldErrors};
pub use labels::{Labels, Operator, Requirement, Selector, SelectorError};
pub use node_selector::{
    LazyNodeSelector, NodeSelector, NodeSelectorTerm, PreferredNodeAffinity, RequiredNodeAffinity,
};
pub use quantity::{Format, Quantity, QuantityError};
pub use taints::{TaintError, TolerationError, find_untolerated, tolerates, validate_taint, validate_toleration};
