//! The finalizers that protect volumes and claims, and the default storage class.

use std::sync::Arc;

use k8s_openapi::api::storage::v1::StorageClass;

use crate::store::Store;
use crate::volumes::annotation;

/// The finalizer of a claim that pods may use.
pub(crate) const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// The finalizer of a volume that a claim may use.
pub(crate) const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

/// The class of claims that ask for none: the newest that is marked as default, and by name (`GetDefaultClass`).
pub(crate) fn default_class(store: &Store) -> Option<&Arc<StorageClass>> {
    let is_default = |class: &&Arc<StorageClass>| {
        let marks = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
        marks.into_iter().any(|mark| annotation(&class.metadata, mark) == Some("true"))
    };
    let created = |class: &StorageClass| class.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let defaults = store.all::<StorageClass>().filter(is_default);
    defaults.min_by(|a, b| created(b).cmp(&created(a)).then_with(|| a.metadata.name.cmp(&b.metadata.name)))
}
