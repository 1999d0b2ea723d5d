//! The components of the cluster, one file each.

#[cfg(test)]
mod alone;
#[cfg(test)]
mod bench;
mod delayed;
mod job_end;
mod ownership;
mod pod_control;
mod revisions;

use jiff::{SignedDuration, Timestamp};
use stead_placement::Cluster;

use crate::error::ApiError;
use crate::step::{Context, Controller, Item, Operator, Step, Wakes, Write};
use crate::store::Change;

macro_rules! controllers {
    ($($module:ident::$controller:ident)*) => {
        $(mod $module;)*

        /// A component.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ControllerId {
            $(#[doc = concat!("`", stringify!($module), ".rs`.")] $controller,)*
            /// The operator that was added ([`crate::Simulation::add_operator`]).
            Operator,
        }

        /// What all components have in memory.
        #[derive(Debug, Clone, Default)]
        pub(crate) struct Controllers {
            $($module: $module::$controller,)*
            operator: Option<Box<dyn Operator>>,
        }

        impl ControllerId {
            /// All components of Kubernetes.
            pub const ALL: &[ControllerId] = &[$(ControllerId::$controller,)*];

            /// The name of the component in events.
            pub fn component(self) -> &'static str {
                match self {
                    $(ControllerId::$controller => <$module::$controller as Controller>::COMPONENT,)*
                    ControllerId::Operator => "operator",
                }
            }
        }

        impl Controllers {
            pub(crate) fn affected(&mut self, id: ControllerId, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
                match id {
                    $(ControllerId::$controller => self.$module.affected(cx, change, wakes),)*
                    ControllerId::Operator => {
                        self.operator.iter_mut().for_each(|operator| operator.affected(cx, change, wakes));
                    }
                }
            }

            pub(crate) fn step(&mut self, id: ControllerId, cx: &mut Context<'_>, item: &Item) -> Step {
                match id {
                    $(ControllerId::$controller => self.$module.step(cx, item),)*
                    ControllerId::Operator => {
                        self.operator.as_mut().map(|operator| operator.step(cx, item)).unwrap_or_default()
                    }
                }
            }

            pub(crate) fn refused(
                &mut self,
                id: ControllerId,
                cx: &mut Context<'_>,
                item: &Item,
                write: &Write,
                error: &ApiError,
            ) -> Vec<Write> {
                match id {
                    $(ControllerId::$controller => self.$module.refused(cx, item, write, error),)*
                    ControllerId::Operator => {
                        let operator = self.operator.as_mut();
                        operator.map(|operator| operator.refused(cx, item, write, error)).unwrap_or_default()
                    }
                }
            }

            pub(crate) fn follow_up(&mut self, id: ControllerId) -> Vec<(Item, Option<SignedDuration>)> {
                match id {
                    $(ControllerId::$controller => self.$module.follow_up(),)*
                    ControllerId::Operator => Vec::new(),
                }
            }

            pub(crate) fn resume(&mut self, id: ControllerId, cx: &mut Context<'_>, wakes: &mut Wakes) {
                match id {
                    $(ControllerId::$controller => self.$module.resume(cx, wakes),)*
                    ControllerId::Operator => {
                        for (key, object) in cx.store.iter() {
                            let change = Change { key: key.clone(), before: None, after: Some(object.clone()) };
                            self.affected(id, cx, &change, wakes);
                        }
                    }
                }
            }

            pub(crate) fn add_operator(&mut self, operator: Box<dyn Operator>) {
                self.operator = Some(operator);
            }
        }
    };
}

impl Controllers {
    /// The cluster as the scheduler knows it.
    pub(crate) fn placement(&self) -> &Cluster {
        self.scheduler.placement()
    }

    /// The scheduler starts with what it knows of a cluster.
    pub(crate) fn set_placement(&mut self, cluster: Cluster, now: Timestamp) {
        self.scheduler.set_placement(cluster, now);
    }
}

controllers! {
    scheduler::Scheduler
    deployment::Deployments
    replica_set::ReplicaSets
    stateful_set::StatefulSets
    daemon_set::DaemonSets
    job::Jobs
    cron_job::CronJobs
    job_ttl::JobTtl
    node_lifecycle::NodeLifecycle
    taint_eviction::TaintEviction
    pod_gc::PodGc
    garbage_collector::GarbageCollector
    namespace::Namespaces
    disruption::Disruption
    endpoint_slice::EndpointSlices
    volume_binder::VolumeBinder
    claim_protection::ClaimProtection
    volume_protection::VolumeProtection
    ephemeral_volume::EphemeralVolumes
    attach_detach::AttachDetach
    provisioner::Provisioner
    attacher::Attacher
    kubelet::Kubelet
}
