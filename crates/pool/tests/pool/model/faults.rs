//! What goes wrong in a run, by its seed.

use super::checks::Help;
use super::cluster::{Cluster, MOST};
use super::glusterd::{Definition, Disk, FRIEND};

/// How long things go wrong, in ticks.
const TROUBLED: u64 = 120;

/// How long the pool has to be whole again, in ticks.
const CALM: u64 = 400;

/// When somebody looks at the notes, and restarts those that reject each other and are healthy otherwise.
const QUARREL: u64 = 200;

/// How long it has to stay so.
const STAYS: u64 = 20;

impl Cluster {
    /// A whole run: things go wrong for a while, then they do not, and the pool has to be whole again.
    pub(crate) fn play(&mut self) -> Result<(), String> {
        self.truth.trouble = self.chance.below(20);
        let often = 2 + self.chance.below(25);
        for _ in 0..TROUBLED {
            self.turn();
            while self.chance.percent(often) {
                self.fault();
            }
        }
        self.calm_down();
        let mut whole = 0;
        for t in 0..CALM {
            self.turn();
            if t == QUARREL || t == QUARREL + 60 {
                self.end_quarrels();
            }
            whole = if self.is_whole() { whole + 1 } else { 0 };
            if whole > STAYS {
                break;
            }
        }
        self.describe();
        if let Some(first) = self.truth.broken.first() {
            return Err(first.clone());
        }
        if whole <= STAYS { Err("the pool is not whole again".to_owned()) } else { Ok(()) }
    }

    fn some_pod(&mut self) -> Option<u32> {
        let pods: Vec<u32> = self.pods.keys().copied().collect();
        self.chance.one_of(&pods)
    }

    fn fault(&mut self) {
        match self.chance.below(15) {
            0 => self.scale(),
            1 => self.kill(false),
            2 => self.kill(true),
            3 => self.restart_agent(),
            4 => self.freeze(),
            5 => self.cut(),
            6 => self.move_lease(),
            7 => self.lose_the_old_way(),
            8 | 9 => self.create_volume(),
            10 => self.change_volume(),
            11 | 12 => self.spoil(),
            13 => self.go_offline(),
            _ => self.delete_volume(),
        }
    }

    fn scale(&mut self) {
        self.wanted.replicas = 1 + self.chance.below(MOST as u64) as u32;
        self.say(format!("scaled to {}", self.wanted.replicas));
    }

    /// A pod ends and is made again; its claim is kept, or is lost with it.
    fn kill(&mut self, lose: bool) {
        let Some(n) = self.some_pod() else { return };
        self.end(n);
        // The last one that has a state is not robbed of it: there would be no pool left.
        let another = (0..MOST).any(|m| m != n && !self.glusterds.all[&m].disk.friends.is_empty());
        let last_copy = self.glusterds.all[&n]
            .disk
            .volumes
            .keys()
            .any(|v| !(0..MOST).any(|m| m != n && self.glusterds.all[&m].disk.volumes.contains_key(v)));
        if lose && another && !last_copy {
            *self.glusterds.disk(n) = Disk::default();
            self.say(format!("the state of {n} is lost"));
        }
    }

    fn restart_agent(&mut self) {
        let Some(n) = self.some_pod() else { return };
        if self.glusterds.all[&n].frozen {
            return;
        }
        self.glusterds.stop(n);
        self.pods.get_mut(&n).expect("just seen").agent = Default::default();
        self.say(format!("agent {n} is restarted"));
    }

    fn freeze(&mut self) {
        let Some(n) = self.some_pod() else { return };
        let glusterd = self.glusterds.all.get_mut(&n).expect("all are there");
        glusterd.frozen = !glusterd.frozen;
        let frozen = glusterd.frozen;
        self.say(format!("{n} {}", if frozen { "is silent" } else { "goes on" }));
    }

    fn cut(&mut self) {
        if self.glusterds.far.is_empty() {
            let bits = self.chance.next();
            self.glusterds.far = (0..MOST).filter(|n| bits >> n & 1 == 1).collect();
        } else {
            self.glusterds.far.clear();
        }
        self.say(format!("cut off: {:?}", self.glusterds.far));
    }

    fn move_lease(&mut self) {
        self.leader = self.some_pod();
        self.say(format!("{:?} leads now", self.leader));
    }

    /// A state is lost and glusterd is started without asking anybody, as it would be without an agent.
    fn lose_the_old_way(&mut self) {
        let Some(n) = self.some_pod() else { return };
        let kept = |c: &Cluster| (0..MOST).filter(|m| *m != n && c.glusterds.all[m].disk.friends.len() > 1).count();
        if self.glusterds.all[&n].frozen || kept(self) * 2 <= self.record.joined().count() || !self.glusterds.running(n)
        {
            return;
        }
        let volumes = self.glusterds.all[&n].disk.volumes.keys();
        if volumes.clone().any(|v| !(0..MOST).any(|m| m != n && self.glusterds.all[&m].disk.volumes.contains_key(v))) {
            return;
        }
        self.glusterds.stop(n);
        *self.glusterds.disk(n) = Disk::default();
        self.glusterds.start(n);
        self.say(format!("{n} is somebody else now"));
    }

    fn create_volume(&mut self) {
        let Some(by) = self.some_pod().filter(|n| self.glusterds.running(*n) && !self.glusterds.all[n].frozen) else {
            return;
        };
        let mut able = self.glusterds.connected_friends(by);
        able.push(by);
        let count = 1 + self.chance.below(3.min(able.len() as u64)) as usize;
        let bricks: Vec<u32> = self.chance.shuffled(able).into_iter().take(count).collect();
        let name = format!("v{}", self.truth.checksums.len());
        let checksum = self.chance.next();
        self.truth.checksums.insert((name.clone(), 1), checksum);
        self.truth.volumes.insert(name.clone(), bricks.iter().copied().collect());
        self.say(format!("{by} makes {name} on {bricks:?}"));
        self.glusterds.define(by, &name, Definition { version: 1, checksum, bricks });
    }

    /// A volume is changed by one that reaches most of the pool; who is away hears of it later.
    fn change_volume(&mut self) {
        let Some(by) = self.some_pod().filter(|n| self.glusterds.running(*n) && !self.glusterds.all[n].frozen) else {
            return;
        };
        let names: Vec<String> = self.glusterds.all[&by].disk.volumes.keys().cloned().collect();
        let Some(i) = self.chance.one_of(&(0..names.len()).collect::<Vec<_>>()) else { return };
        let mut definition = self.glusterds.all[&by].disk.volumes[&names[i]].clone();
        let most = (self.glusterds.connected_friends(by).len() + 1) * 2 > self.record.joined().count();
        let right = self.truth.checksums.get(&(names[i].clone(), definition.version)) == Some(&definition.checksum);
        if !most || !right || self.truth.checksums.contains_key(&(names[i].clone(), definition.version + 1)) {
            return;
        }
        definition.version += 1;
        definition.checksum = self.chance.next();
        self.truth.checksums.insert((names[i].clone(), definition.version), definition.checksum);
        self.say(format!("{by} changes {}", names[i]));
        self.glusterds.define(by, &names[i], definition);
    }

    /// A volume is deleted by one that reaches all the others.
    fn delete_volume(&mut self) {
        let Some(by) = self.some_pod().filter(|n| self.glusterds.running(*n)) else { return };
        let everybody = (0..MOST).all(|m| {
            m == by
                || self.glusterds.all[&m].disk.volumes.is_empty()
                || self.glusterds.connected_friends(by).contains(&m)
        });
        let Some(name) = self.glusterds.all[&by].disk.volumes.keys().next().cloned().filter(|_| everybody) else {
            return;
        };
        for m in 0..MOST {
            self.glusterds.disk(m).volumes.remove(&name);
        }
        self.truth.volumes.remove(&name);
        self.say(format!("{by} deletes {name}"));
    }

    /// A definition is damaged, of one at a time, and the pod is restarted.
    fn spoil(&mut self) {
        let Some(n) = self.some_pod() else { return };
        let wrong = (0..MOST).any(|m| self.has_wrong_definition(m));
        let shared = |c: &Cluster, v: &String| {
            (0..MOST)
                .filter(|m| c.glusterds.all[m].disk.volumes.get(v) == c.glusterds.all[&n].disk.volumes.get(v))
                .count()
        };
        let joined = self.record.joined().count();
        let Some(name) = self.glusterds.all[&n].disk.volumes.keys().find(|v| shared(self, v) * 2 > joined + 1).cloned()
        else {
            return;
        };
        if wrong || joined < 3 || self.glusterds.all[&n].frozen {
            return;
        }
        let version = self.glusterds.all[&n].disk.volumes[&name].version;
        if self.truth.checksums.contains_key(&(name.clone(), version + 1)) {
            return;
        }
        self.glusterds.disk(n).volumes.get_mut(&name).expect("just seen").checksum += 1;
        self.glusterds.stop(n);
        self.pods.get_mut(&n).expect("just seen").agent = Default::default();
        self.say(format!("{name} is damaged at {n}"));
    }

    fn has_wrong_definition(&self, n: u32) -> bool {
        let mut volumes = self.glusterds.all[&n].disk.volumes.iter();
        volumes.any(|(v, d)| self.truth.checksums.get(&(v.clone(), d.version)).is_some_and(|c| *c != d.checksum))
    }

    fn go_offline(&mut self) {
        let Some(n) = self.some_pod() else { return };
        if !self.offline.remove(&n) {
            self.offline.insert(n);
        }
        self.say(format!("without Kubernetes: {:?}", self.offline));
    }

    /// A person does what only a person may.
    fn help(&mut self, how: Help, text: String) {
        self.truth.helped.insert(how);
        self.say(format!("somebody {text}"));
    }

    /// Somebody reads the notes, and does what only a person may.
    fn end_quarrels(&mut self) {
        if self.truth.notes.iter().any(|t| t.starts_with("nothing is changed while")) {
            self.wanted.replicas = MOST;
            self.help(Help::Scale, "scales up".to_owned());
        }
        for n in 0..MOST {
            let pod = self.wanted.pod(n);
            let told = |t: &String| {
                t.starts_with(&format!("{pod} and")) && t.contains("reject each other")
                    || t.contains(&format!("restart {pod},"))
            };
            let alone = |t: &String| t.starts_with(&format!("{pod} ")) && t.contains("it alone knows volume");
            let noted = self.truth.notes.iter().any(alone);
            for name in self.volumes_of_its_own(n).into_iter().filter(|_| noted) {
                self.glusterds.disk(n).volumes.remove(&name);
                self.truth.volumes.remove(&name);
                self.help(Help::Delete, format!("deletes {name} at {n}"));
            }
            if self.truth.notes.iter().any(told) {
                self.glusterds.stop(n);
                self.pods.get_mut(&n).expect("it is noted").agent = Default::default();
                self.help(Help::Restart, format!("restarts {n}"));
            }
        }
    }

    /// Volumes that no other has.
    fn volumes_of_its_own(&self, n: u32) -> Vec<String> {
        let another = |v: &String| (0..MOST).any(|m| m != n && self.glusterds.all[&m].disk.volumes.contains_key(v));
        self.glusterds.all[&n].disk.volumes.keys().filter(|v| !another(v)).cloned().collect()
    }

    /// Nothing goes wrong any more, and somebody sets right what only a person can.
    fn calm_down(&mut self) {
        self.truth.trouble = 0;
        self.offline.clear();
        self.glusterds.far.clear();
        self.glusterds.all.values_mut().for_each(|g| g.frozen = false);
        self.say("calm".to_owned());
        // More than half of the pool has to be there.
        let joined: Vec<u32> = self.record.joined().map(|(o, _)| o).collect();
        let damaged = (0..MOST).any(|n| self.has_wrong_definition(n));
        if damaged || joined.iter().filter(|o| self.wanted.wants(**o)).count() * 2 <= joined.len() {
            let enough = joined.iter().max().map_or(1, |m| m + 1);
            if self.wanted.replicas < enough {
                self.wanted.replicas = enough;
                self.help(Help::Scale, format!("scales to {enough}"));
            }
        }
        // A volume that was made on one that is not of the pool is nothing that the agents may take away.
        for n in 0..MOST {
            let stranger = self.record.joined_as(n).is_none_or(|m| m.uuid != self.glusterds.uuid(n));
            let uuid = self.glusterds.uuid(n);
            let friend = |m: u32| self.glusterds.all[&m].disk.friends.get(&uuid).is_some_and(|f| f.state == FRIEND);
            let friendless = self.glusterds.all[&n].disk.friends.is_empty();
            let lonely = self.record.joined().count() > 1 && (friendless || !(0..MOST).any(|m| m != n && friend(m)));
            let own: Vec<String> = self.volumes_of_its_own(n).into_iter().filter(|_| stranger || lonely).collect();
            for name in own {
                self.glusterds.disk(n).volumes.remove(&name);
                self.truth.volumes.remove(&name);
                self.help(Help::Delete, format!("deletes {name} at {n}"));
            }
        }
        // Where not all but one have the right definition, nobody can tell which one it is.
        let members: Vec<u32> = self.record.joined().map(|(o, _)| o).collect();
        let wrong: Vec<u32> = (0..MOST).filter(|n| self.has_wrong_definition(*n)).collect();
        let same = |v: &String, version: u64| {
            members.iter().all(|m| self.glusterds.all[m].disk.volumes.get(v).is_some_and(|d| d.version == version))
        };
        let steady = |m: &u32| {
            self.wanted.wants(*m)
                && self.glusterds.running(*m)
                && self.glusterds.all[m].disk.friends.len() + 1 >= members.len()
        };
        let clear = wrong.len() == 1
            && members.len() > 2
            && members.iter().all(steady)
            && self.volumes_of_its_own(wrong[0]).is_empty()
            && self.glusterds.all[&wrong[0]].disk.volumes.iter().all(|(v, d)| same(v, d.version));
        for n in wrong.into_iter().filter(|_| !clear) {
            let checksums = &self.truth.checksums;
            for (name, definition) in &mut self.glusterds.all.get_mut(&n).expect("all are there").disk.volumes {
                if let Some(right) = checksums.get(&(name.clone(), definition.version)) {
                    definition.checksum = *right;
                }
            }
            self.help(Help::Define, format!("repairs the definitions of {n}"));
            self.glusterds.stop(n);
            if let Some(pod) = self.pods.get_mut(&n) {
                pod.agent = Default::default();
            }
        }
    }
}
