//! One shared spec for all pods that differ only in their identity.

use std::sync::Arc;

use crate::pod::PodSpec;
use stead_model::fork::Sorted;

/// The specs of a cluster's pods. Most pods are replicas, and the spec is most of a pod's memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Specs {
    known: Sorted<Arc<PodSpec>, ()>,
}

impl Specs {
    /// The shared spec that equals this one.
    pub(crate) fn shared(&mut self, spec: Arc<PodSpec>) -> Arc<PodSpec> {
        if let Some(known) = self.known.key(|k| k.cmp(&spec)) {
            return Arc::clone(known);
        }
        self.known.insert(Arc::clone(&spec), ());
        spec
    }

    /// Drops the specs that no pod uses, once they may be the majority.
    pub(crate) fn tidy<'a>(&mut self, pods: usize, specs: impl Iterator<Item = &'a Arc<PodSpec>>) {
        if self.known.len() > 2 * pods + 1024 {
            self.known = Sorted::default();
            for spec in specs {
                self.known.insert(Arc::clone(spec), ());
            }
        }
    }
}
