//! Texts that name objects, and what a `wait` waits for.

use stead_kubectl::kind_named;
use stead_sim::{ObjectKind, SimKey};

/// What a `wait` with a text waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WaitedFor {
    /// Nothing happens any more.
    Rest,
    /// An object is Ready, or a workload has all its pods ready.
    Ready(String),
    /// An object does not exist any more.
    Gone(String),
}

/// Reads the text of a `wait`.
pub(crate) fn waited_for(text: &str) -> Result<WaitedFor, String> {
    let object = |name: &str| reference(name, "default").map(|_| name.to_owned());
    match text.split_whitespace().collect::<Vec<_>>().as_slice() {
        ["rest"] => Ok(WaitedFor::Rest),
        ["ready", name] => object(name).map(WaitedFor::Ready),
        ["gone", name] => object(name).map(WaitedFor::Gone),
        _ => Err(format!("{text:?} is neither rest, ready KIND/NAME, gone KIND/NAME nor an expectation")),
    }
}

/// The key of `KIND/NAME` or `KIND/NAMESPACE/NAME`.
pub(crate) fn reference(text: &str, namespace: &str) -> Result<SimKey, String> {
    let parts: Vec<&str> = text.split('/').collect();
    let (kind, namespace, name) = match parts.as_slice() {
        [kind, name] => (kind, namespace, name),
        [kind, namespace, name] => (kind, *namespace, name),
        _ => return Err(format!("{text:?} is not KIND/NAME")),
    };
    let kind = kind_named(kind).ok_or_else(|| format!("{text:?}: there is no kind {kind:?} that Stead knows"))?;
    let namespace = if kind.namespaced { namespace } else { "" };
    Ok(SimKey::new(ObjectKind::of(kind), namespace, name))
}
