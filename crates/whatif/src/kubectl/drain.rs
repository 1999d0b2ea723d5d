//! `drain` (`k8s.io/kubectl/pkg/drain`).

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use stead_kubectl::DrainOptions;
use stead_model::controller_of;
use stead_sim::{ApiError, DeleteOptions, SimKey, SimObject, Write};

use super::{Command, CommandError};

/// How long kubectl waits before it tries a refused eviction again.
const RETRY: SignedDuration = SignedDuration::from_secs(5);
/// How often kubectl looks whether a pod is gone.
const POLL: SignedDuration = SignedDuration::from_secs(1);
/// kubectl would try for ever; a rehearsal goes on after this time.
const LIMIT: SignedDuration = SignedDuration::from_mins(10);

/// The annotation of a mirror pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

impl Command<'_> {
    /// Evicts the pods of a node and waits until they are gone.
    pub(super) fn drain(&mut self, node: &SimKey, options: &DrainOptions) -> Result<(), CommandError> {
        let pods = self.pods_to_evict(node, options)?;
        let limit = options.timeout.and_then(|limit| SignedDuration::try_from(limit).ok()).unwrap_or(LIMIT);
        let end = self.simulation.now() + limit;
        let mut waiting: Vec<(SimKey, String)> = pods;
        let mut evicted: Vec<(SimKey, String)> = Vec::new();
        loop {
            let mut refused = Vec::new();
            for (key, uid) in waiting {
                match self.evict(&key, &uid, options) {
                    Ok(()) => {
                        self.printed.push(format!("evicting pod {}/{}", key.namespace, key.name));
                        evicted.push((key, uid));
                    }
                    Err(ApiError::NotFound(_) | ApiError::Conflict { .. }) => {}
                    Err(error @ ApiError::TooManyRequests { .. }) => {
                        let line = format!(
                            "error when evicting pods/\"{}\" -n \"{}\" (will retry after 5s): {error}",
                            key.name, key.namespace
                        );
                        if self.printed.last() != Some(&line) {
                            self.printed.push(line);
                        }
                        refused.push((key, uid));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            waiting = refused;
            evicted.retain(|(key, uid)| self.simulation.store().object(key).is_some_and(|pod| pod.uid() == uid));
            if waiting.is_empty() && evicted.is_empty() {
                self.print(node, "drained");
                return Ok(());
            }
            if self.simulation.now() >= end {
                let names = waiting.iter().chain(&evicted).map(|(key, _)| format!("{}/{}", key.namespace, key.name));
                let names = names.collect::<Vec<_>>().join(", ");
                let name = &node.name;
                return Err(CommandError::Client(format!(
                    "unable to drain node \"{name}\": global timeout reached: {limit:#}; pods left: {names}"
                )));
            }
            let pause = if waiting.is_empty() { POLL } else { RETRY };
            let next = (self.simulation.now() + pause).min(end);
            self.simulation.run_until(next)?;
        }
    }

    fn evict(&mut self, key: &SimKey, uid: &str, options: &DrainOptions) -> Result<(), ApiError> {
        let delete = DeleteOptions { grace: options.grace, uid: Some(uid.to_owned()), ..DeleteOptions::default() };
        let write = match options.disable_eviction {
            true => Write::Delete(key.clone(), delete),
            false => Write::Evict(key.clone(), delete),
        };
        self.simulation.request(write).map(drop)
    }

    /// The pods that a drain deletes; an error if there are some that it must not.
    fn pods_to_evict(&mut self, node: &SimKey, options: &DrainOptions) -> Result<Vec<(SimKey, String)>, CommandError> {
        self.must_exist(node)?;
        let store = self.simulation.store();
        let (mut pods, mut daemons, mut unmanaged, mut local) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for key in store.pods_on(&node.name) {
            let Some(pod) = store.at::<Pod>(key) else { continue };
            let labels = pod.metadata.labels.clone().unwrap_or_default();
            if options.pod_selector.as_ref().is_some_and(|selector| !selector.matches(&labels)) {
                continue;
            }
            if pod.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(MIRROR)) {
                continue;
            }
            let name = format!("{}/{}", key.namespace, key.name);
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let finished = matches!(phase, Some("Succeeded" | "Failed"));
            let controller = controller_of(&pod.metadata);
            if let Some(set) = controller.filter(|owner| owner.kind == "DaemonSet") {
                // A pod whose DaemonSet is gone is like any other.
                if store.get::<DaemonSet>(&key.namespace, &set.name).is_some() {
                    daemons.push(name);
                    continue;
                }
                if !options.force {
                    unmanaged.push(name);
                    continue;
                }
            }
            let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
            if !finished && controller.is_none() && !options.force {
                unmanaged.push(name.clone());
            }
            if !finished && volumes.iter().any(|volume| volume.empty_dir.is_some()) && !options.delete_emptydir_data {
                local.push(name);
            }
            let object = SimObject::Pod(std::sync::Arc::clone(pod));
            pods.push((key.clone(), object.uid().to_owned()));
        }
        let mut faults = Vec::new();
        let mut refuse = |names: &[String], what: &str| {
            if !names.is_empty() {
                faults.push(format!("cannot delete {what}: {}", names.join(", ")));
            }
        };
        refuse(&unmanaged, "Pods that declare no controller (use --force to override)");
        if !options.ignore_daemonsets {
            refuse(&daemons, "DaemonSet-managed Pods (use --ignore-daemonsets to ignore)");
        }
        refuse(&local, "Pods with local storage (use --delete-emptydir-data to override)");
        if faults.is_empty() {
            return Ok(pods);
        }
        let name = &node.name;
        Err(CommandError::Client(format!("unable to drain node \"{name}\" due to error: [{}]", faults.join(", "))))
    }
}
