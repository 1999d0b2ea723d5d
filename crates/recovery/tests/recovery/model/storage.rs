//! Volumes, the attach/detach controller, and who can write.

use super::machine::Power;
use super::world::{NODES, World};

/// The force-detach timeout: 6 min.
const FORCE_DETACH_TICKS: u32 = 36;

/// A volume for one writer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Volume {
    /// The machine that the VolumeAttachment names, and to which the storage grants access.
    pub(crate) at: Option<usize>,
    /// Since when no pod needs it there; in the memory of the controller only.
    unneeded_since: Option<u32>,
    /// When the detach completes.
    pub(crate) detached_at: Option<u32>,
    /// Whether the driver reports an error.
    pub(crate) error: bool,
    /// When the attach completes.
    attached_at: Option<u32>,
}

impl Volume {
    /// Whether a kubelet may mount it on this node.
    pub(crate) fn is_at(&self, n: usize) -> bool {
        self.at == Some(n) && self.detached_at.is_none() && self.attached_at.is_none()
    }
}

impl World {
    pub(crate) fn attach_detach(&mut self) {
        if self.chance.percent(1) {
            // A restart of the controller: its memory is lost.
            self.volumes.iter_mut().for_each(|v| v.unneeded_since = None);
        }
        for v in 0..self.volumes.len() {
            self.complete_operations(v);
            match self.volumes[v].at {
                Some(n) if !self.is_needed(v, n) => self.detach(v, n),
                Some(_) => self.volumes[v].unneeded_since = None,
                None => self.attach(v),
            }
        }
    }

    /// Completes the driver's operations.
    fn complete_operations(&mut self, v: usize) {
        let tick = self.tick;
        if self.volumes[v].attached_at.is_some_and(|t| t <= tick) {
            self.volumes[v].attached_at = None;
        }
        if self.volumes[v].detached_at.is_none_or(|t| t > tick) {
            return;
        }
        if !self.faults_over && self.chance.percent(15) {
            self.volumes[v].error = true;
            return;
        }
        if let Some(n) = self.volumes[v].at {
            self.check_detach(v, n);
            self.trace(|| format!("volume v{v} is detached from n{n}"));
        }
        self.volumes[v] = Volume::default();
    }

    /// Whether a pod's object requires the volume on this node: until it is deleted, has failed, or is Terminating
    /// without a running container.
    fn is_needed(&self, v: usize, n: usize) -> bool {
        let mine = |p: &&super::world::Pod| p.volume == Some(v) && p.node == Some(n);
        self.pods.iter().filter(mine).any(|p| !p.failed && (p.deleted.is_none() || p.running))
    }

    fn detach(&mut self, v: usize, n: usize) {
        let tick = self.tick;
        let cached = self.cached(n);
        let slow = self.chance.below(if self.faults_over { 1 } else { 3 }) as u32;
        let volume = &mut self.volumes[v];
        if volume.detached_at.is_some() {
            return;
        }
        let since = *volume.unneeded_since.get_or_insert(tick);
        let forced = !cached.ready && tick - since > FORCE_DETACH_TICKS;
        // The taint is enough, whether the node is Ready or not: mounts are not checked.
        let out_of_service = cached.no_execute & 1 != 0;
        if forced || out_of_service || !self.nodes[n].in_use.contains(&v) {
            volume.detached_at = Some(tick + 1 + slow);
        }
    }

    fn attach(&mut self, v: usize) {
        let to = (0..NODES).find(|n| self.is_needed(v, *n));
        if let Some(n) = to {
            self.volumes[v] = Volume { at: Some(n), attached_at: Some(self.tick + 1), ..Volume::default() };
        }
    }

    /// The processes that can write to a volume now: running, on a running machine, with access to the storage.
    pub(crate) fn writers(&self, v: usize) -> Vec<(usize, &str)> {
        let mut writers = Vec::new();
        for (n, machine) in self.machines.iter().enumerate().filter(|(_, m)| m.power == Power::On) {
            let served = self.setting.not_revoking || self.volumes[v].at == Some(n);
            let here = machine.processes.iter().filter(|p| served && p.volume == Some(v));
            writers.extend(here.map(|p| (n, p.uid.as_str())));
        }
        writers
    }
}
