//! Interventions of a person after the faults, where the agents' notes ask for them.

use stead_pool::{Note, NoteReason};

use super::cluster::{Cluster, MAX_PODS};

/// An intervention that agents must not make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Intervention {
    /// Scale up to include members that were scaled away: without them there is no majority.
    Scale,
    /// Delete a volume that only one pod knows, which is not a member.
    Delete,
    /// Correct a volume definition when the majority does not tell which one is right.
    Define,
    /// Restart one of two peers that reject each other, or the only member of a pool after it lost its identity.
    Restart,
}

impl Cluster {
    /// Reads the leader's notes and does what they ask for.
    pub(crate) fn intervene_where_asked(&mut self) {
        for Note { ordinal, reason, .. } in std::mem::take(&mut self.truth.notes) {
            match (reason, ordinal) {
                (NoteReason::NoMajority | NoteReason::BricksKept, _) => self.scale_back(),
                // Each leader steps down for the same reason: a person reads the notes of all.
                (NoteReason::StepsDown, _) => {
                    self.scale_back();
                    (0..MAX_PODS).for_each(|n| self.restart_if_identity_lost(n));
                }
                (NoteReason::OtherPool | NoteReason::OnlyCopy | NoteReason::Waiting, Some(n)) => {
                    self.delete_own_volumes(n)
                }
                (NoteReason::Rejected, Some(n)) if (0..MAX_PODS).all(|m| !self.has_wrong_definition(m)) => {
                    self.restart(n)
                }
                (NoteReason::Rejected, Some(_)) => self.correct_definitions(),
                (NoteReason::Quarrel, Some(n)) => self.restart(n),
                _ => {}
            }
        }
    }

    fn help(&mut self, how: Intervention, text: String) {
        self.truth.helped.insert(how);
        self.trace(format!("a person {text}"));
    }

    fn scale_back(&mut self) {
        let enough = self.record.joined().map(|(o, _)| o + 1).max().unwrap_or_default();
        if enough > self.wanted.replicas {
            self.wanted.replicas = enough;
            self.help(Intervention::Scale, format!("scales to {enough}"));
        }
    }

    /// A pool of one pod gets its lost state back when the pod starts.
    fn restart_if_identity_lost(&mut self, n: u32) {
        let identity_lost = self.record.joined_as(n).is_some_and(|m| m.uuid.to_string() != self.glusterds.uuid(n));
        if identity_lost && self.glusterds.running(n) {
            self.restart(n);
        }
    }

    fn delete_own_volumes(&mut self, n: u32) {
        let another = |v: &String| (0..MAX_PODS).any(|m| m != n && self.glusterds.all[&m].disk.volumes.contains_key(v));
        for name in self.volumes(n).into_iter().filter(|v| !another(v)).collect::<Vec<_>>() {
            self.glusterds.disk(n).volumes.remove(&name);
            self.truth.volumes.remove(&name);
            self.help(Intervention::Delete, format!("deletes {name} at {n}"));
        }
    }

    fn correct_definitions(&mut self) {
        for n in (0..MAX_PODS).filter(|n| self.has_wrong_definition(*n)).collect::<Vec<_>>() {
            for (name, definition) in
                &mut self.glusterds.all.get_mut(&n).expect("all pods have a glusterd").disk.volumes
            {
                if let Some(right) = self.truth.checksums.get(&(name.clone(), definition.version)) {
                    definition.checksum = *right;
                }
            }
            self.kill_agent(n);
            self.help(Intervention::Define, format!("corrects the definitions of {n}"));
        }
    }

    fn restart(&mut self, n: u32) {
        self.kill_agent(n);
        self.help(Intervention::Restart, format!("restarts {n}"));
    }

    /// The agent starts again in its next turn.
    fn kill_agent(&mut self, n: u32) {
        self.glusterds.stop(n);
        if let Some(pod) = self.pods.get_mut(&n) {
            pod.agent = Default::default();
        }
    }

    /// The volumes that a pod knows.
    pub(crate) fn volumes(&self, n: u32) -> Vec<String> {
        self.glusterds.all[&n].disk.volumes.keys().cloned().collect()
    }
}
