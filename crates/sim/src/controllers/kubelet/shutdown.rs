//! The orderly shutdown of a machine, if the kubelet delays it for the pods (`pkg/kubelet/nodeshutdown`).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::{Kubelet, Out, PodId};
use crate::event_log::EventNote;
use crate::machines::lease_key;
use crate::object::SimKey;
use crate::settings::ShutdownGrace;
use crate::step::{Context, Item, Write};
use crate::world::{Machine, MachineState};

/// The priority from which on pods are critical.
const CRITICAL: i32 = 2_000_000_000;

/// A shutdown that waits for pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shutdown {
    /// It was requested.
    Requested,
    /// It waits for the pods that are not critical, until a time.
    Regular(Timestamp),
    /// It waits for critical pods, until a time.
    Critical(Timestamp),
}

impl Kubelet {
    pub(super) fn begin_shutdown(&mut self, cx: &Context<'_>, name: &Arc<str>, out: &mut Out) {
        if self.node_run(name).is_none_or(|run| run.shutdown.is_some()) {
            return;
        }
        self.change_node(name, |run| run.shutdown = Some(Shutdown::Requested));
        let message = "Shutdown manager detected shutdown event";
        out.event(cx, EventNote::normal(&SimKey::node(name), "Shutdown", message));
        self.wake(SimKey::node(name), SignedDuration::ZERO);
    }

    /// Goes on when the pods of a group have ended or their time is over. After the last group the machine is off.
    pub(super) fn continue_shutdown(&mut self, cx: &mut Context<'_>, name: &Arc<str>, out: &mut Out) {
        let Some(grace) = cx.settings.kubelet.shutdown_grace else { return };
        loop {
            let Some(shutdown) = self.node_run(name).and_then(|run| run.shutdown) else { return };
            let (critical, until) = match shutdown {
                Shutdown::Requested => {
                    let next = self.end_group(cx, name, grace, false);
                    self.change_node(name, |run| run.shutdown = Some(Shutdown::Regular(next)));
                    continue;
                }
                Shutdown::Regular(until) => (false, until),
                Shutdown::Critical(until) => (true, until),
            };
            let waits = self.group(name, critical).next().is_some();
            if waits && until > cx.now {
                return out.look_at(until);
            }
            if critical {
                return self.power_off(cx, name, out);
            }
            let next = self.end_group(cx, name, grace, true);
            self.change_node(name, |run| run.shutdown = Some(Shutdown::Critical(next)));
        }
    }

    /// The pods of a node that are critical, or that are not.
    fn group<'a>(&'a self, name: &str, critical: bool) -> impl Iterator<Item = &'a PodId> {
        let pods = self.node_run(name).into_iter().flat_map(|run| run.pods.iter());
        pods.filter(move |id| {
            let spec = self.pods.get(id).and_then(|run| run.pod.spec.as_ref());
            spec.is_some_and(|spec| (spec.priority.unwrap_or_default() >= CRITICAL) == critical)
        })
    }

    /// Tells the pods of a group to end. Gives until when they may take.
    fn end_group(&mut self, cx: &Context<'_>, name: &str, grace: ShutdownGrace, critical: bool) -> Timestamp {
        let time = if critical { grace.critical } else { grace.total - grace.critical };
        let pods: Vec<PodId> = self.group(name, critical).cloned().collect();
        for id in pods {
            self.change_pod(&id, |run| run.shutdown = Some(time.as_secs()));
            self.wake(id.0, SignedDuration::ZERO);
        }
        cx.now + time
    }

    fn power_off(&mut self, cx: &mut Context<'_>, name: &Arc<str>, out: &mut Out) {
        let Some(machine) = cx.world.machine(name).cloned() else { return };
        let renewed = cx.world.last_renewal(cx.store, cx.settings, name, cx.now);
        let machine = Machine { state: MachineState::Off, since: cx.now, ..machine };
        cx.world.set_machine(name, machine);
        if let (Some(renewed), Some(found)) = (renewed, cx.store.at::<Lease>(&lease_key(name))) {
            let mut lease = Lease::clone(found);
            let spec = lease.spec.get_or_insert_default();
            // The Lease changes in any case: it tells the node controller that no more renewals come.
            let shown = spec.renew_time.as_ref().map(|time| time.0);
            let tick = SignedDuration::from_micros(1);
            spec.renew_time = Some(MicroTime(if shown == Some(renewed) { renewed + tick } else { renewed }));
            lease.metadata.resource_version = None;
            out.writes.push(Write::Replace(lease.into()));
        }
        out.next = None;
        self.wake(Item::Pass, SignedDuration::ZERO);
    }
}
