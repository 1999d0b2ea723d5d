//! What goes wrong in a run, by its seed.

use super::cluster::{Cluster, MOST, WrongKey};
use super::glusterd::{Definition, Disk};

/// How long things go wrong, in ticks.
const TROUBLED: u64 = 120;

/// How long the agents have to make the pool whole again before somebody looks at what they ask for, in ticks.
const UNAIDED: u64 = 300;

/// How long they have after that, until somebody looks again.
const AIDED: u64 = 100;

/// How often somebody looks.
const LOOKS: u64 = 4;

/// How long it has to stay so.
const STAYS: u64 = 20;

/// What is said of a run in which nothing was broken, and that did not end well.
pub(crate) const NOT_WHOLE: &str = "the pool is not whole again";

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
        let mut whole = self.settles(UNAIDED);
        for _ in 0..LOOKS {
            if whole {
                break;
            }
            self.help_where_asked();
            whole = self.settles(AIDED);
        }
        self.describe();
        if let Some(first) = self.truth.broken.first() {
            return Err(first.clone());
        }
        if whole { Ok(()) } else { Err(NOT_WHOLE.to_owned()) }
    }

    /// Whether the pool is whole within so many ticks, and stays so.
    fn settles(&mut self, within: u64) -> bool {
        let mut whole = 0;
        for _ in 0..within {
            self.turn();
            whole = if self.is_whole() { whole + 1 } else { 0 };
            if whole > STAYS {
                return true;
            }
        }
        false
    }

    /// Nothing goes wrong any more.
    fn calm_down(&mut self) {
        self.truth.trouble = 0;
        self.offline.clear();
        self.wrong_keys.clear();
        self.glusterds.far.clear();
        self.glusterds.all.values_mut().for_each(|g| g.frozen = false);
        self.say("calm".to_owned());
    }

    fn some_pod(&mut self) -> Option<u32> {
        let pods: Vec<u32> = self.pods.keys().copied().collect();
        self.chance.one_of(&pods)
    }

    fn fault(&mut self) {
        match self.chance.below(16) {
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
            14 => self.delete_volume(),
            _ => self.change_key(),
        }
    }

    fn scale(&mut self) {
        let replicas = 1 + self.chance.below(MOST as u64) as u32;
        let strands =
            self.record.joined().any(|(o, m)| o >= replicas && self.wanted.includes(o) && !m.bricks.is_empty());
        if self.policy && strands {
            return self.say(format!("not scaled to {replicas}: bricks would be left without their peers"));
        }
        self.wanted.replicas = replicas;
        self.say(format!("scaled to {replicas}"));
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
            let bits = self.chance.next_number();
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
        if !self.careless && self.record.joined_as(by).is_none_or(|m| m.uuid.to_string() != self.glusterds.uuid(by)) {
            return;
        }
        let mut able = self.glusterds.connected_friends(by);
        able.push(by);
        let count = 1 + self.chance.below(3.min(able.len() as u64)) as usize;
        let bricks: Vec<u32> = self.chance.shuffled(able).into_iter().take(count).collect();
        let name = format!("v{}", self.truth.checksums.len());
        let checksum = self.chance.next_number();
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
        definition.checksum = self.chance.next_number();
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

    pub(crate) fn has_wrong_definition(&self, n: u32) -> bool {
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

    /// An agent loses the key of the pool, keeps an old one when the key is replaced, or gets the current one.
    fn change_key(&mut self) {
        let Some(n) = self.some_pod() else { return };
        if self.wrong_keys.remove(&n).is_none() {
            let wrong = if self.chance.percent(50) { WrongKey::Missing } else { WrongKey::Old };
            self.wrong_keys.insert(n, wrong);
        }
        self.say(format!("agents without the current key: {:?}", self.wrong_keys));
    }
}
