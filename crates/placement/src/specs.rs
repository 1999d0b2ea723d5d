//! One spec for all pods that are equal but for their identity.

use std::sync::Arc;

use crate::fork::Sorted;
use crate::pod::PodSpec;

/// The specs of a cluster's pods. Most pods are copies of others, and a spec is most of what a pod takes up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Specs {
    known: Sorted<Arc<PodSpec>, ()>,
}

impl Specs {
    /// The spec by which this one is known.
    pub(crate) fn shared(&mut self, spec: Arc<PodSpec>) -> Arc<PodSpec> {
        if let Some(known) = self.known.key(|k| k.cmp(&spec)) {
            return Arc::clone(known);
        }
        self.known.insert(Arc::clone(&spec), ());
        spec
    }

    /// Forgets the specs that no pod has any more, once they may be the greater part.
    pub(crate) fn tidy<'a>(&mut self, pods: usize, specs: impl Iterator<Item = &'a Arc<PodSpec>>) {
        if self.known.len() > 2 * pods + 1024 {
            self.known = Sorted::default();
            for spec in specs {
                self.known.insert(Arc::clone(spec), ());
            }
        }
    }
}
