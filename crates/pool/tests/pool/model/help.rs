//! What a person does when all is calm and the agents ask for it, and never before.

use stead_pool::{Note, NoteReason};

use super::cluster::{Cluster, MOST};

/// What a person does that no agent may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Help {
    /// Members that were scaled away are wanted again: without them there is no majority.
    Scale,
    /// A volume is deleted that only one knows, which is not of the pool.
    Delete,
    /// A definition is set right where nobody can tell which one is.
    Define,
    /// One of two that reject each other is restarted, or one that is all of the pool and somebody else now.
    Restart,
}

impl Cluster {
    /// Somebody reads the notes of the one who decides, and does what they ask for.
    pub(crate) fn help_where_asked(&mut self) {
        for Note { ordinal, reason, .. } in std::mem::take(&mut self.truth.notes) {
            match (reason, ordinal) {
                (NoteReason::NoMajority | NoteReason::BricksKept, _) => self.scale_back(),
                // Whoever leads next says the same of itself: a person reads what all of them say.
                (NoteReason::StepsDown, _) => {
                    self.scale_back();
                    (0..MOST).for_each(|n| self.restart_stranger(n));
                }
                (NoteReason::OtherPool | NoteReason::OnlyCopy | NoteReason::Waiting, Some(n)) => {
                    self.delete_own_volumes(n)
                }
                (NoteReason::Rejected, Some(n)) if (0..MOST).all(|m| !self.has_wrong_definition(m)) => self.restart(n),
                (NoteReason::Rejected, Some(_)) => self.set_definitions_right(),
                (NoteReason::Quarrel, Some(n)) => self.restart(n),
                _ => {}
            }
        }
    }

    fn help(&mut self, how: Help, text: String) {
        self.truth.helped.insert(how);
        self.say(format!("somebody {text}"));
    }

    fn scale_back(&mut self) {
        let enough = self.record.joined().map(|(o, _)| o + 1).max().unwrap_or_default();
        if enough > self.wanted.replicas {
            self.wanted.replicas = enough;
            self.help(Help::Scale, format!("scales to {enough}"));
        }
    }

    /// A pool of one that lost its state gets it back when its pod starts.
    fn restart_stranger(&mut self, n: u32) {
        let is_stranger = self.record.joined_as(n).is_some_and(|m| m.uuid.to_string() != self.glusterds.uuid(n));
        if is_stranger && self.glusterds.running(n) {
            self.restart(n);
        }
    }

    fn delete_own_volumes(&mut self, n: u32) {
        let another = |v: &String| (0..MOST).any(|m| m != n && self.glusterds.all[&m].disk.volumes.contains_key(v));
        for name in self.volumes(n).into_iter().filter(|v| !another(v)).collect::<Vec<_>>() {
            self.glusterds.disk(n).volumes.remove(&name);
            self.truth.volumes.remove(&name);
            self.help(Help::Delete, format!("deletes {name} at {n}"));
        }
    }

    fn set_definitions_right(&mut self) {
        for n in (0..MOST).filter(|n| self.has_wrong_definition(*n)).collect::<Vec<_>>() {
            for (name, definition) in &mut self.glusterds.all.get_mut(&n).expect("all are there").disk.volumes {
                if let Some(right) = self.truth.checksums.get(&(name.clone(), definition.version)) {
                    definition.checksum = *right;
                }
            }
            self.end_agent(n);
            self.help(Help::Define, format!("sets the definitions of {n} right"));
        }
    }

    fn restart(&mut self, n: u32) {
        self.end_agent(n);
        self.help(Help::Restart, format!("restarts {n}"));
    }

    /// It is started again in its turn.
    fn end_agent(&mut self, n: u32) {
        self.glusterds.stop(n);
        if let Some(pod) = self.pods.get_mut(&n) {
            pod.agent = Default::default();
        }
    }

    /// The volumes that one knows.
    pub(crate) fn volumes(&self, n: u32) -> Vec<String> {
        self.glusterds.all[&n].disk.volumes.keys().cloned().collect()
    }
}
