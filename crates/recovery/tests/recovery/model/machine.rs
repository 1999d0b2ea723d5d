//! A machine with its kubelet and its processes.

use super::world::{Ready, World};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Power {
    On,
    Suspended,
    Off,
}

#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) power: Power,
    /// Whether it reaches the API server.
    pub(crate) net: bool,
    /// Whether its kubelet reports that it is not ready.
    pub(crate) not_ready: bool,
    /// How many seconds its clock is behind.
    pub(crate) behind: i64,
    pub(crate) boot: u32,
    /// Whether its kubelet has reported anything since the start or resume.
    pub(crate) reported: bool,
    /// Whether its status was posted, in addition to the Lease.
    posted: bool,
    pub(crate) processes: Vec<Process>,
    /// Volumes of ended processes that are still mounted.
    pub(crate) mounted: Vec<Mount>,
}

/// A volume of an ended process.
#[derive(Debug, Clone)]
pub(crate) struct Mount {
    pub(crate) uid: String,
    pub(crate) volume: usize,
    /// When it is unmounted.
    until: u32,
}

/// The process of a pod.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) uid: String,
    pub(crate) volume: Option<usize>,
    /// The boot of the machine in which it was started.
    pub(crate) boot: u32,
    /// When it ends.
    ends: Option<u32>,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine {
            power: Power::On,
            net: true,
            not_ready: false,
            behind: 0,
            boot: 1,
            reported: true,
            posted: true,
            processes: Vec::new(),
            mounted: Vec::new(),
        }
    }
}

impl Machine {
    pub(crate) fn is_up(&self) -> bool {
        self.power == Power::On && self.net
    }

    pub(crate) fn runs(&self, uid: &str) -> bool {
        self.processes.iter().any(|p| p.uid == uid)
    }

    /// Whether it has been running there since this boot.
    pub(crate) fn runs_since(&self, uid: &str, boot: u32) -> bool {
        self.processes.iter().any(|p| p.uid == uid && p.boot == boot)
    }

    /// The mounted volumes.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = usize> {
        self.processes.iter().filter_map(|p| p.volume).chain(self.mounted.iter().map(|m| m.volume))
    }

    pub(crate) fn set_power(&mut self, power: Power) {
        if power == Power::On && self.power != Power::On {
            (self.reported, self.posted) = (false, false);
            if self.power == Power::Off {
                self.boot += 1;
            }
        }
        if power == Power::Off {
            self.processes.clear();
            self.mounted.clear();
        }
        self.power = power;
    }
}

impl World {
    pub(crate) fn kubelet(&mut self, n: usize) {
        let tick = self.tick;
        let machine = &mut self.machines[n];
        match machine.power {
            Power::Off => return,
            Power::Suspended => {
                machine.behind += 10;
                return;
            }
            Power::On => {
                machine.mounted.retain(|mount| mount.until > tick);
                let ended = |p: &mut Process| p.ends.is_some_and(|ends| ends <= tick);
                for process in machine.processes.extract_if(.., ended).collect::<Vec<_>>() {
                    let until = tick + self.chance.below(4) as u32;
                    let Some(volume) = process.volume.filter(|_| until > tick) else { continue };
                    machine.mounted.push(Mount { uid: process.uid, volume, until });
                }
            }
        }
        if machine.behind > 0 && (self.faults_over || self.chance.percent(15)) {
            machine.behind = 0;
        }
        if machine.net {
            self.report_status(n);
            if self.machines[n].posted {
                self.sync_pods(n);
            }
        }
    }

    /// Renews the Lease first, then posts the status: these are separate writes.
    fn report_status(&mut self, n: usize) {
        let version = self.version();
        let (machine, node) = (&mut self.machines[n], &mut self.nodes[n]);
        node.register(self.tick, version);
        let clock = i64::from(self.tick) * 10 - machine.behind;
        node.lease = clock;
        node.lease_written = self.tick;
        machine.reported = true;
        if !machine.posted && !self.chance.percent(50) {
            return;
        }
        machine.posted = true;
        let ready = if machine.not_ready { Ready::False } else { Ready::True };
        if node.ready != ready {
            (node.ready, node.since) = (ready, self.tick);
        }
        node.heartbeat = clock;
        node.boot = machine.boot;
        node.in_use = machine.volumes().collect();
        node.version = version;
    }

    fn sync_pods(&mut self, n: usize) {
        let tick = self.tick;
        // Processes whose pods were deleted, or are Terminating.
        for process in &mut self.machines[n].processes {
            let wanted = self.pods.iter().any(|p| p.uid == process.uid && p.is_active());
            if !wanted && process.ends.is_none() && self.chance.percent(60) {
                process.ends = Some(tick + 1 + self.chance.below(3) as u32);
            }
        }
        let mut gone = Vec::new();
        let machine = &mut self.machines[n];
        for pod in self.pods.iter_mut().filter(|p| p.node == Some(n)) {
            // A slow kubelet skips some pods.
            if !self.faults_over && self.chance.percent(self.setting.sluggish) {
                continue;
            }
            let runs = machine.runs(&pod.uid);
            if pod.is_active() {
                let attached = pod.volume.is_none_or(|v| self.volumes[v].is_at(n));
                // A kubelet that is not ready starts no pods.
                let starts = !runs && attached && !machine.not_ready;
                if starts {
                    let (uid, volume, boot) = (pod.uid.clone(), pod.volume, machine.boot);
                    machine.processes.push(Process { uid, volume, boot, ends: None });
                }
                // Pods that were just started become ready in the next sync.
                (pod.running, pod.ready) = (runs || starts, runs && !machine.not_ready);
            } else {
                (pod.running, pod.ready) = (runs, false);
                if !runs && !pod.finalizer {
                    gone.push(pod.uid.clone());
                }
            }
        }
        self.nodes[n].in_use.extend(self.machines[n].volumes());
        self.pods.retain(|p| !gone.contains(&p.uid));
        gone.iter().for_each(|uid| self.trace(|| format!("kubelet n{n} has removed {uid}")));
    }
}
