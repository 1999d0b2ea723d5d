//! A model of glusterds that know each other: what they keep, how they greet, and what they answer. It says what the
//! recordings of real ones say.

use std::collections::{BTreeMap, BTreeSet};

/// `state=` of a friend, and of one that was rejected.
pub(crate) const FRIEND: u32 = 3;
pub(crate) const REJECTED: u32 = 6;

/// `state=` of one whose request was accepted, and who is never answered: a handshake that is stuck.
pub(crate) const ACCEPTED: u32 = 4;

/// A glusterd with its state directory, which outlives it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Glusterd {
    pub(crate) running: bool,
    /// Stopped as a suspended machine is: nothing ends, nothing answers.
    pub(crate) frozen: bool,
    pub(crate) host: String,
    pub(crate) address: String,
    pub(crate) disk: Disk,
}

/// What is in `/var/lib/glusterd`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) uuid: Option<String>,
    pub(crate) friends: BTreeMap<String, Friend>,
    pub(crate) volumes: BTreeMap<String, Definition>,
    /// The last order that the agent carried out: it keeps that here.
    pub(crate) done: Option<u64>,
}

/// Another one, as one knows it; the connection is not kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Friend {
    pub(crate) state: u32,
    /// Its names; it is called by the first.
    pub(crate) hosts: Vec<String>,
    pub(crate) connected: bool,
}

impl Friend {
    fn add_name(&mut self, name: String) {
        if !self.hosts.contains(&name) {
            self.hosts.push(name);
        }
    }
}

/// A volume's definition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) version: u64,
    pub(crate) checksum: u64,
    /// The pods that hold its bricks.
    pub(crate) bricks: Vec<u32>,
}

/// All glusterds of a run, and the network between them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Glusterds {
    pub(crate) all: BTreeMap<u32, Glusterd>,
    /// Those that are on the other side of a cut.
    pub(crate) far: BTreeSet<u32>,
    /// Whether an address leads back to its pod's name, as in a cluster whose DNS knows the pods.
    pub(crate) reverse: bool,
    identities: u64,
}

impl Glusterds {
    pub(crate) fn add(&mut self, number: u32, host: &str, address: &str) {
        let new = Glusterd { host: host.to_owned(), address: address.to_owned(), ..Glusterd::default() };
        self.all.insert(number, new);
    }

    pub(crate) fn disk(&mut self, number: u32) -> &mut Disk {
        &mut self.all.get_mut(&number).expect("it is there").disk
    }

    pub(crate) fn uuid(&self, number: u32) -> String {
        self.all.get(&number).and_then(|g| g.disk.uuid.clone()).unwrap_or_default()
    }

    pub(crate) fn start(&mut self, number: u32) {
        self.identities += 1;
        let fresh = format!("00000000-0000-4000-8000-{:012x}", self.identities);
        let glusterd = self.all.get_mut(&number).expect("it is there");
        glusterd.running = true;
        glusterd.disk.uuid.get_or_insert(fresh);
        glusterd.disk.friends.values_mut().for_each(|f| f.connected = false);
    }

    pub(crate) fn stop(&mut self, number: u32) {
        self.all.get_mut(&number).expect("it is there").running = false;
        self.hang_up();
    }

    pub(crate) fn running(&self, number: u32) -> bool {
        self.all.get(&number).is_some_and(|g| g.running)
    }

    /// Whether two can talk.
    pub(crate) fn linked(&self, a: u32, b: u32) -> bool {
        let awake = |n: u32| self.all.get(&n).is_some_and(|g| !g.frozen);
        a == b || (awake(a) && awake(b) && self.far.contains(&a) == self.far.contains(&b))
    }

    /// Whether two glusterds can talk.
    pub(crate) fn reach(&self, a: u32, b: u32) -> bool {
        a != b && self.running(a) && self.running(b) && self.linked(a, b)
    }

    /// Whom a friend's names lead to.
    fn resolve(&self, friend: &Friend) -> Option<u32> {
        let named = |g: &Glusterd| friend.hosts.first().is_some_and(|h| *h == g.host || *h == g.address);
        self.all.iter().find(|(_, g)| named(g)).map(|(n, _)| *n)
    }

    /// Connections to those that cannot be reached end.
    pub(crate) fn hang_up(&mut self) {
        let numbers: Vec<u32> = self.all.keys().copied().collect();
        for a in numbers {
            let gone: Vec<String> = self.all[&a]
                .disk
                .friends
                .iter()
                .filter(|(_, f)| f.connected && self.resolve(f).is_none_or(|b| !self.reach(a, b)))
                .map(|(u, _)| u.clone())
                .collect();
            let friends = &mut self.disk(a).friends;
            gone.iter().for_each(|u| friends.get_mut(u).expect("just seen").connected = false);
        }
    }

    /// All greet until nothing changes.
    pub(crate) fn settle(&mut self) {
        self.hang_up();
        let pairs: Vec<(u32, u32)> =
            self.all.keys().flat_map(|a| self.all.keys().map(|b| (*a, *b)).collect::<Vec<_>>()).collect();
        loop {
            let before = self.all.clone();
            for (a, b) in &pairs {
                self.meet(*a, *b);
            }
            if self.all == before {
                return;
            }
        }
    }

    /// One calls another, if it has it among its friends under any name.
    pub(crate) fn meet(&mut self, a: u32, b: u32) {
        if !self.reach(a, b) {
            return;
        }
        let entries: Vec<String> = self.all[&a]
            .disk
            .friends
            .iter()
            .filter(|(_, f)| self.resolve(f) == Some(b))
            .map(|(u, _)| u.clone())
            .collect();
        for uuid in entries {
            self.greet(a, b, &uuid);
        }
    }

    fn greet(&mut self, a: u32, b: u32, uuid: &str) {
        let caller = self.uuid(a);
        let called = &self.all[&b];
        let host = &self.all[&a].host;
        let knows = called.disk.friends.contains_key(&caller);
        // One that has friends or volumes hangs up on strangers; one that has nothing listens to everybody.
        let by_name = called.disk.friends.values().any(|f| f.hosts.contains(host));
        let blank = called.disk.friends.is_empty() && called.disk.volumes.is_empty();
        let right = called.disk.uuid.as_deref() == Some(uuid);
        let copy = called.disk.uuid.as_ref().is_some_and(|u| self.all[&a].disk.friends.contains_key(u));
        let entry = self.disk(a).friends.get_mut(uuid).expect("it was listed");
        if entry.connected {
            // They greet when they connect. Afterwards friends only tell each other of their friends.
            return self.gossip(a, b, uuid);
        }
        entry.connected = knows || by_name || blank;
        if !entry.connected {
            return;
        }
        // A copy of another friend's state passes for the one that was called.
        if !right && knows && copy {
            return;
        }
        if !(right && knows) {
            entry.state = REJECTED;
            return;
        }
        let stuck =
            self.all[&a].disk.friends[uuid].state == ACCEPTED && self.all[&b].disk.friends[&caller].state == ACCEPTED;
        if stuck {
            return;
        }
        let agreed = self.compare_volumes(a, b);
        let state = if agreed { FRIEND } else { REJECTED };
        self.disk(a).friends.get_mut(uuid).expect("it was listed").state = state;
        let back = self.disk(b).friends.get_mut(&caller).expect("it knows the caller");
        back.state = state;
        if agreed {
            self.introduce(a, b);
            self.introduce(b, a);
        }
    }

    fn gossip(&mut self, a: u32, b: u32, uuid: &str) {
        let caller = self.uuid(a);
        let friend = |disk: &Disk, uuid: &str| disk.friends.get(uuid).is_some_and(|f| f.state == FRIEND && f.connected);
        if friend(&self.all[&a].disk, uuid) && friend(&self.all[&b].disk, &caller) && self.uuid(b) == uuid {
            self.introduce(a, b);
            self.introduce(b, a);
        }
    }

    /// The newer definition wins; two of the same version that differ cannot be friends.
    fn compare_volumes(&mut self, a: u32, b: u32) -> bool {
        let (left, right) = (self.all[&a].disk.volumes.clone(), self.all[&b].disk.volumes.clone());
        let differ = |(name, v): (&String, &Definition)| {
            right.get(name).is_some_and(|w| w.version == v.version && w.checksum != v.checksum)
        };
        if left.iter().any(differ) {
            return false;
        }
        for (from, to) in [(left, b), (right, a)] {
            for (name, definition) in from {
                let own = self.disk(to).volumes.entry(name).or_default();
                if own.version < definition.version {
                    *own = definition;
                }
            }
        }
        true
    }

    /// One tells a friend of its friends, by all their names.
    fn introduce(&mut self, from: u32, to: u32) {
        let own = self.uuid(to);
        let known = &self.all[&to].disk.friends;
        let is_news = |uuid: &String, friend: &Friend| {
            known.get(uuid).is_none_or(|k| friend.hosts.iter().any(|h| !k.hosts.contains(h)))
        };
        let friends = self.all[&from].disk.friends.iter();
        let told: Vec<(String, Friend)> = friends
            .filter(|(u, f)| **u != own && f.state == FRIEND && is_news(u, f))
            .map(|(u, f)| (u.clone(), f.clone()))
            .collect();
        for (uuid, friend) in told {
            let known =
                self.disk(to).friends.entry(uuid).or_insert_with(|| Friend { state: FRIEND, ..Friend::default() });
            friend.hosts.into_iter().for_each(|h| known.add_name(h));
        }
    }

    /// `gluster peer probe`.
    pub(crate) fn probe(&mut self, a: u32, b: u32) -> Result<(), &'static str> {
        if a == b {
            return Ok(());
        }
        if !self.running(a) {
            return Err("glusterd does not run");
        }
        let host = self.all[&b].host.clone();
        if self.all[&a].disk.friends.values().any(|f| f.hosts.contains(&host)) {
            return Ok(());
        }
        if !self.reach(a, b) {
            return Err("Transport endpoint is not connected");
        }
        let (asker, asked) = (self.uuid(a), self.uuid(b));
        if let Some(friend) = self.disk(a).friends.get_mut(&asked) {
            // Known by its address only: it has its name now, and the others hear of it.
            friend.add_name(host);
            let others: Vec<u32> =
                self.all.keys().copied().filter(|n| *n != a && *n != b && self.reach(a, *n)).collect();
            others.iter().for_each(|n| self.introduce(a, *n));
            return Ok(());
        }
        let known = self.all[&b].disk.friends.contains_key(&asker);
        let blank = self.all[&b].disk.friends.is_empty() && self.all[&b].disk.volumes.is_empty();
        if !known && !blank {
            return Err("is either already part of another cluster or having volumes configured");
        }
        if self.all[&b].disk.friends.get(&asker).is_some_and(|f| f.state != FRIEND) {
            // The asker has its identity back and knows nobody: both wait for the other, for good.
            self.disk(a).friends.insert(asked, Friend { state: ACCEPTED, hosts: [host].into(), connected: true });
            self.disk(b).friends.get_mut(&asker).expect("just seen").state = ACCEPTED;
            return Ok(());
        }
        let address = if self.reverse { self.all[&a].host.clone() } else { self.all[&a].address.clone() };
        self.disk(a).friends.insert(asked, Friend { state: FRIEND, hosts: [host].into(), connected: false });
        let back = self.disk(b).friends.entry(asker).or_default();
        back.add_name(address);
        (back.state, back.connected) = (FRIEND, false);
        self.meet(a, b);
        Ok(())
    }

    /// `gluster peer detach`.
    pub(crate) fn detach(&mut self, a: u32, b: u32, host: &str) -> Result<(), &'static str> {
        if !self.running(a) {
            return Err("glusterd does not run");
        }
        if a == b {
            return Err("it is localhost");
        }
        let found = self.all[&a]
            .disk
            .friends
            .iter()
            .find(|(_, f)| f.hosts.iter().any(|h| h == host) || self.resolve(f) == Some(b))
            .map(|(u, _)| u.clone());
        let Some(uuid) = found else { return Err("is not part of cluster") };
        if self.all[&a].disk.volumes.values().any(|v| v.bricks.contains(&b)) {
            return Err("Peer hosts one or more bricks");
        }
        let away = |(u, f): (&String, &Friend)| *u != uuid && !(f.connected && f.state == FRIEND);
        if self.all[&a].disk.friends.iter().any(away) {
            return Err("One of the peers is probably down");
        }
        let numbers: Vec<u32> = self.all.keys().copied().filter(|n| *n == a || self.reach(a, *n)).collect();
        let (asker, told) = (self.uuid(a), self.reach(a, b) && self.uuid(b) == uuid);
        for n in numbers.iter().filter(|n| **n != b) {
            let of_the_pool = *n == a || self.all[n].disk.friends.contains_key(&asker);
            if of_the_pool {
                self.disk(*n).friends.remove(&uuid);
            }
        }
        if told {
            let disk = self.disk(b);
            disk.friends.clear();
            disk.volumes.clear();
        }
        self.hang_up();
        Ok(())
    }

    /// `gluster volume create`, by one, with bricks at these; all whom it reaches among its friends get it.
    pub(crate) fn define(&mut self, by: u32, name: &str, definition: Definition) {
        self.disk(by).volumes.insert(name.to_owned(), definition.clone());
        for n in self.connected_friends(by) {
            self.disk(n).volumes.insert(name.to_owned(), definition.clone());
        }
    }

    /// Friends of one that it is connected to.
    pub(crate) fn connected_friends(&self, of: u32) -> Vec<u32> {
        let friends = self.all[&of].disk.friends.values();
        friends.filter(|f| f.connected && f.state == FRIEND).filter_map(|f| self.resolve(f)).collect()
    }
}
