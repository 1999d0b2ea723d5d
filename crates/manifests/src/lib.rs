//! What Stead installs: definitions, policies, rights, the operator's own workload.
//!
//! [`manifests`] gives the objects in the order in which they are made. [`plan`] says what an installation would do to
//! a cluster that was looked at, [`removal`] what has to be let go of before they are taken away. This crate computes;
//! it knows no client and no files: the texts it is made of are part of it.
//!
//! The schemas of the definitions are put together from pieces (`schemas/`, `rules/`), so that a Glance's spec is the
//! same in a Glance and in a control plane.
//!
//! [`gluster`] has the objects of a Gluster pool, which are nobody's but its own.

mod definitions;
pub mod gluster;
mod manifest;
pub mod plan;
mod policies;
mod recover;
pub mod removal;
pub mod rights;
mod schema;
mod workload;

pub use definitions::recovery;
pub use manifest::{Manifest, Part, is_ours};
pub use recover::{RECOVER_ROLE, RETURN_ROLE, recover_manifests};
pub use workload::{AntiAffinity, DEPLOYMENT, Options};

/// All that is installed, in the order in which it is made.
pub fn manifests(options: &Options) -> Vec<Manifest> {
    let mut all = vec![workload::namespace(options)];
    all.extend(definitions::definitions());
    all.extend(policies::policies());
    all.extend(rights::objects(options));
    all.extend(workload::objects(options));
    all
}

/// All that installations with any options may have left in a cluster, in the order in which it is created. `scoped` are
/// the namespaces that the operator has Roles in ([`rights::scoped_namespaces`]).
pub fn all_manifests(namespace: &str, scoped: Vec<String>) -> Vec<Manifest> {
    let options = Options { namespace: namespace.to_owned(), ..Options::default() };
    let mut all = manifests(&options);
    if !scoped.is_empty() {
        let known: Vec<String> = all.iter().map(Manifest::path).collect();
        let more = rights::objects(&Options { namespaces: scoped, ..options });
        all.extend(more.into_iter().filter(|manifest| !known.contains(&manifest.path())));
    }
    all
}

/// Reads a text that is part of this crate.
fn read(text: &str) -> serde_json::Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("a manifest of our own cannot be read: {error}"))
}
