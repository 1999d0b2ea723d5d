//! Volumes, the attach-detach controller, and who can write.

use super::machine::Power;
use super::world::{NODES, World};

/// Six minutes.
const FORCE: u32 = 36;

/// A volume of one writer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Volume {
    /// The machine that the storage serves, and that the VolumeAttachment names.
    pub(crate) at: Option<usize>,
    /// Since when the attach-detach controller wants it away; kept in its memory only.
    unwanted: Option<u32>,
    /// When it will be detached.
    pub(crate) leaves: Option<u32>,
    /// What the driver says.
    pub(crate) error: bool,
    /// Until when it is being attached.
    arrives: Option<u32>,
}

impl Volume {
    /// Whether a kubelet may mount it there.
    pub(crate) fn is_at(&self, n: usize) -> bool {
        self.at == Some(n) && self.leaves.is_none() && self.arrives.is_none()
    }
}

impl World {
    pub(crate) fn attach_detach(&mut self) {
        if self.chance.percent(1) {
            // It was restarted: what it had in mind is forgotten.
            self.volumes.iter_mut().for_each(|v| v.unwanted = None);
        }
        for v in 0..self.volumes.len() {
            self.settle(v);
            match self.volumes[v].at {
                Some(n) if !self.wants(v, n) => self.detach(v, n),
                Some(_) => self.volumes[v].unwanted = None,
                None => self.attach(v),
            }
        }
    }

    /// What the driver was told to do gets done.
    fn settle(&mut self, v: usize) {
        let tick = self.tick;
        if self.volumes[v].arrives.is_some_and(|t| t <= tick) {
            self.volumes[v].arrives = None;
        }
        if self.volumes[v].leaves.is_none_or(|t| t > tick) {
            return;
        }
        if !self.calm && self.chance.percent(15) {
            self.volumes[v].error = true;
            return;
        }
        if let Some(n) = self.volumes[v].at {
            self.check_taken(v, n);
            self.say(|| format!("volume v{v} is detached from n{n}"));
        }
        self.volumes[v] = Volume::default();
    }

    /// Whether a pod's object says that the volume has to be there: until it is gone, has failed, or is being deleted and
    /// none of its containers runs.
    fn wants(&self, v: usize, n: usize) -> bool {
        let mine = |p: &&super::world::Pod| p.volume == Some(v) && p.node == Some(n);
        self.pods.iter().filter(mine).any(|p| !p.failed && (p.deleted.is_none() || p.running))
    }

    fn detach(&mut self, v: usize, n: usize) {
        let tick = self.tick;
        let cached = self.cached(n);
        let slow = self.chance.below(if self.calm { 1 } else { 3 }) as u32;
        let volume = &mut self.volumes[v];
        if volume.leaves.is_some() {
            return;
        }
        let since = *volume.unwanted.get_or_insert(tick);
        let forced = !cached.ready && tick - since > FORCE;
        // The taint is enough, be the node Ready or not: nobody looks whether it is still mounted.
        let out_of_service = cached.no_execute & 1 != 0;
        if forced || out_of_service || !self.nodes[n].in_use.contains(&v) {
            volume.leaves = Some(tick + 1 + slow);
        }
    }

    fn attach(&mut self, v: usize) {
        let to = (0..NODES).find(|n| self.wants(v, *n));
        if let Some(n) = to {
            self.volumes[v] = Volume { at: Some(n), arrives: Some(self.tick + 1), ..Volume::default() };
        }
    }

    /// Who can write a volume now: a process that runs, on a machine that runs, that the storage serves.
    pub(crate) fn writers(&self, v: usize) -> Vec<(usize, &str)> {
        let mut writers = Vec::new();
        for (n, machine) in self.machines.iter().enumerate().filter(|(_, m)| m.power == Power::On) {
            let served = self.setting.loose || self.volumes[v].at == Some(n);
            let here = machine.processes.iter().filter(|p| served && p.volume == Some(v));
            writers.extend(here.map(|p| (n, p.uid.as_str())));
        }
        writers
    }
}
