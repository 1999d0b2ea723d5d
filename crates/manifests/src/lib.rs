//! The objects that Stead installs: CRDs, policies, permissions and the operator's workload.
//!
//! [`manifests`] returns the objects in the order in which they are created. [`plan`] computes what an installation
//! would do to a cluster, [`removal`] which finalizers have to be removed before an uninstallation. This crate only
//! computes: it has no client and reads no files; its templates are compiled in.
//!
//! The CRD schemas are assembled from fragments (`schemas/`, `rules/`), so that the spec of a Glance is the same in a
//! Glance and in a control plane.
//!
//! [`gluster`] has the objects of a Gluster pool, which are independent of the operator.

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

pub use definitions::{definitions, recovery};
pub use manifest::{HelmRelease, Manifest, Part, VERSION_ANNOTATION, helm_release, is_ours};
pub use policies::UNCHECKED;
pub use recover::{RECOVER_ROLE, RETURN_ROLE, recover_manifests};
pub use workload::{AntiAffinity, DEPLOYMENT, Options};

/// Returns all objects that are installed, in the order in which they are created.
pub fn manifests(options: &Options) -> Vec<Manifest> {
    let mut all = vec![workload::namespace(options)];
    all.extend(definitions::definitions());
    if options.admission_policies {
        all.extend(policies::policies());
    }
    all.extend(rights::objects(options));
    all.extend(workload::objects(options));
    all
}

/// Returns all objects that installations with any options may have left in a cluster, in the order in which they are
/// created. `scoped` are the namespaces in which the operator has Roles ([`rights::scoped_namespaces`]).
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

/// Parses a template of this crate.
fn read(text: &str) -> serde_json::Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("invalid built-in manifest: {error}"))
}
