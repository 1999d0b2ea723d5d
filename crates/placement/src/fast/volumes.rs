//! Volume filters, as in the reference path: they run on every node that has passed the filters before them.

use crate::cluster::Cluster;
use crate::node::NodeInfo;
use crate::plugins::{in_tree_limits, volume_binding, volume_limits, volume_restrictions, volume_zone};
use crate::pod::Pod;
use crate::status::{AttemptFault, Filtered, SchedulingError};

struct Filters<'a> {
    cluster: &'a Cluster,
    pod: &'a Pod,
    restrictions: Option<volume_restrictions::State>,
    limits: bool,
    binding: Option<volume_binding::State<'a>>,
    zone: Option<volume_zone::State>,
}

impl<'a> Filters<'a> {
    fn new(cluster: &'a Cluster, pod: &'a Pod) -> Result<Filters<'a>, AttemptFault> {
        Ok(Filters {
            cluster,
            pod,
            restrictions: volume_restrictions::State::new(cluster, &pod.spec).map_err(AttemptFault::Rejected)?,
            limits: volume_limits::applies(pod),
            binding: volume_binding::State::new(cluster, pod)?,
            zone: volume_zone::State::new(cluster, &pod.spec)?,
        })
    }

    fn ask(&self, info: &NodeInfo) -> Filtered {
        if let Some(s) = &self.restrictions {
            s.filter(&self.pod.spec, info, self.cluster.rules())?;
        }
        if self.limits {
            in_tree_limits::filter(&in_tree_limits::BEFORE_CSI, self.cluster, self.pod, info)?;
            volume_limits::filter(self.cluster, self.pod, info)?;
            in_tree_limits::filter(&in_tree_limits::AFTER_CSI, self.cluster, self.pod, info)?;
        }
        if let Some(s) = &self.binding {
            s.filter(self.cluster, &info.node)?;
        }
        match &self.zone {
            Some(s) => s.filter(&info.node),
            None => Ok(()),
        }
    }
}

/// Excludes the nodes that the pod's volumes reject. An error ends the attempt for all nodes.
pub(super) fn filter(cluster: &Cluster, pod: &Pod, fits: &mut [u8]) -> Result<(), SchedulingError> {
    let filters = match Filters::new(cluster, pod) {
        Ok(filters) => filters,
        Err(AttemptFault::Error(error)) => return Err(error),
        Err(AttemptFault::Rejected(_)) => {
            fits.fill(0);
            return Ok(());
        }
    };
    for (slot, fits) in fits.iter_mut().enumerate().filter(|(_, fits)| **fits != 0) {
        match filters.ask(cluster.slot(slot as u32)) {
            Ok(()) => {}
            Err(AttemptFault::Rejected(_)) => *fits = 0,
            Err(AttemptFault::Error(error)) => return Err(error),
        }
    }
    Ok(())
}
