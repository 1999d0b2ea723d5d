//! Kubernetes' small languages: quantities, selectors, taints and tolerations.
//!
//! Every module answers one question about a value that stands inside an object: what a quantity
//! amounts to, which labels a selector picks, which nodes a node selector admits, whether a
//! toleration covers a taint, whether a name is well formed. The answers, the rounding and the
//! words of every error are those of Kubernetes 1.36.4, its oddities included, because a decision
//! that is nearly the scheduler's is a wrong decision.
//!
//! The crate knows neither clusters nor clocks: API types go in, verdicts come out. Errors name the
//! faulty field inside the value they were given; the caller adds the object and the path to it.

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
