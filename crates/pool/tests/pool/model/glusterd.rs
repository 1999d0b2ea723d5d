//! A model of connected glusterds: their state, their handshakes, and their answers. It behaves like the recorded real
//! ones.

use std::collections::{BTreeMap, BTreeSet};

/// `state=` of a befriended peer, and of a rejected one.
pub(crate) const FRIEND: u32 = 3;
pub(crate) const REJECTED: u32 = 6;

/// `state=` of a peer whose request was accepted and never answered: a stuck handshake.
pub(crate) const ACCEPTED: u32 = 4;

/// A glusterd with its state directory, which survives it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Glusterd {
    pub(crate) running: bool,
    /// Suspended: it neither exits nor answers.
    pub(crate) frozen: bool,
    pub(crate) host: String,
    pub(crate) address: String,
    pub(crate) disk: Disk,
}

/// The content of `/var/lib/glusterd`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) uuid: Option<String>,
    pub(crate) friends: BTreeMap<String, Friend>,
    pub(crate) volumes: BTreeMap<String, Definition>,
    /// The last order that the agent carried out; stored here by the agent.
    pub(crate) done: Option<u64>,
}

/// A peer as one glusterd knows it; the connection is not stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Friend {
    pub(crate) state: u32,
    /// Its names; glusterd connects to the first.
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

/// The definition of a volume.
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
    /// The glusterds on one side of a network partition.
    pub(crate) far: BTreeSet<u32>,
    /// Whether an address resolves to its pod's name, as in a cluster with DNS records for pods.
    pub(crate) reverse: bool,
    identities: u64,
}

impl Glusterds {
    pub(crate) fn add(&mut self, number: u32, host: &str, address: &str) {
        let new = Glusterd { host: host.to_owned(), address: address.to_owned(), ..Glusterd::default() };
        self.all.insert(number, new);
    }

    pub(crate) fn disk(&mut self, number: u32) -> &mut Disk {
        &mut self.all.get_mut(&number).expect("the glusterd exists").disk
    }

    pub(crate) fn uuid(&self, number: u32) -> String {
        self.all.get(&number).and_then(|g| g.disk.uuid.clone()).unwrap_or_default()
    }

    pub(crate) fn start(&mut self, number: u32) {
        self.identities += 1;
        let fresh = format!("00000000-0000-4000-8000-{:012x}", self.identities);
        let glusterd = self.all.get_mut(&number).expect("the glusterd exists");
        glusterd.running = true;
        glusterd.disk.uuid.get_or_insert(fresh);
        glusterd.disk.friends.values_mut().for_each(|f| f.connected = false);
    }

    pub(crate) fn stop(&mut self, number: u32) {
        self.all.get_mut(&number).expect("the glusterd exists").running = false;
        self.close_broken_connections();
    }

    pub(crate) fn running(&self, number: u32) -> bool {
        self.all.get(&number).is_some_and(|g| g.running)
    }

    /// Whether two pods can communicate.
    pub(crate) fn linked(&self, a: u32, b: u32) -> bool {
        let awake = |n: u32| self.all.get(&n).is_some_and(|g| !g.frozen);
        a == b || (awake(a) && awake(b) && self.far.contains(&a) == self.far.contains(&b))
    }

    /// Whether two running glusterds can communicate.
    pub(crate) fn reach(&self, a: u32, b: u32) -> bool {
        a != b && self.running(a) && self.running(b) && self.linked(a, b)
    }

    /// The glusterd that a peer's first name resolves to.
    fn resolve(&self, friend: &Friend) -> Option<u32> {
        let named = |g: &Glusterd| friend.hosts.first().is_some_and(|h| *h == g.host || *h == g.address);
        self.all.iter().find(|(_, g)| named(g)).map(|(n, _)| *n)
    }

    /// Closes connections to glusterds that cannot be reached.
    pub(crate) fn close_broken_connections(&mut self) {
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
            gone.iter().for_each(|u| friends.get_mut(u).expect("it is listed").connected = false);
        }
    }

    /// Runs handshakes until nothing changes.
    pub(crate) fn run_handshakes(&mut self) {
        self.close_broken_connections();
        let pairs: Vec<(u32, u32)> =
            self.all.keys().flat_map(|a| self.all.keys().map(|b| (*a, *b)).collect::<Vec<_>>()).collect();
        loop {
            let before = self.all.clone();
            for (a, b) in &pairs {
                self.connect(*a, *b);
            }
            if self.all == before {
                return;
            }
        }
    }

    /// Connects a glusterd to another one, if it lists it under any name.
    pub(crate) fn connect(&mut self, a: u32, b: u32) {
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
            self.handshake(a, b, &uuid);
        }
    }

    fn handshake(&mut self, a: u32, b: u32, uuid: &str) {
        let caller = self.uuid(a);
        let called = &self.all[&b];
        let host = &self.all[&a].host;
        let knows = called.disk.friends.contains_key(&caller);
        // A glusterd with peers or volumes refuses unknown callers; one without accepts all.
        let by_name = called.disk.friends.values().any(|f| f.hosts.contains(host));
        let blank = called.disk.friends.is_empty() && called.disk.volumes.is_empty();
        let right = called.disk.uuid.as_deref() == Some(uuid);
        let copy = called.disk.uuid.as_ref().is_some_and(|u| self.all[&a].disk.friends.contains_key(u));
        let entry = self.disk(a).friends.get_mut(uuid).expect("it is listed");
        if entry.connected {
            // Handshakes happen on connect. Afterwards peers only exchange their peer lists.
            return self.exchange_peers(a, b, uuid);
        }
        entry.connected = knows || by_name || blank;
        if !entry.connected {
            return;
        }
        // A copy of another peer's state is taken for the called peer.
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
        self.disk(a).friends.get_mut(uuid).expect("it is listed").state = state;
        let back = self.disk(b).friends.get_mut(&caller).expect("it knows the caller");
        back.state = state;
        if agreed {
            self.introduce(a, b);
            self.introduce(b, a);
        }
    }

    fn exchange_peers(&mut self, a: u32, b: u32, uuid: &str) {
        let caller = self.uuid(a);
        let friend = |disk: &Disk, uuid: &str| disk.friends.get(uuid).is_some_and(|f| f.state == FRIEND && f.connected);
        if friend(&self.all[&a].disk, uuid) && friend(&self.all[&b].disk, &caller) && self.uuid(b) == uuid {
            self.introduce(a, b);
            self.introduce(b, a);
        }
    }

    /// The newer definition wins; two different definitions of the same version prevent a friendship.
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

    /// A glusterd tells a peer of its own peers, with all their names.
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
            // Known by its address only: the name is added, and the others are told.
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
            // The asking glusterd has its identity back and lists no peers: both wait for each other forever.
            self.disk(a).friends.insert(asked, Friend { state: ACCEPTED, hosts: [host].into(), connected: true });
            self.disk(b).friends.get_mut(&asker).expect("it is listed").state = ACCEPTED;
            return Ok(());
        }
        let address = if self.reverse { self.all[&a].host.clone() } else { self.all[&a].address.clone() };
        self.disk(a).friends.insert(asked, Friend { state: FRIEND, hosts: [host].into(), connected: false });
        let back = self.disk(b).friends.entry(asker).or_default();
        back.add_name(address);
        (back.state, back.connected) = (FRIEND, false);
        self.connect(a, b);
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
        self.close_broken_connections();
        Ok(())
    }

    /// `gluster volume create` on one glusterd; all connected peers get the definition.
    pub(crate) fn define(&mut self, by: u32, name: &str, definition: Definition) {
        self.disk(by).volumes.insert(name.to_owned(), definition.clone());
        for n in self.connected_friends(by) {
            self.disk(n).volumes.insert(name.to_owned(), definition.clone());
        }
    }

    /// The connected peers of a glusterd.
    pub(crate) fn connected_friends(&self, of: u32) -> Vec<u32> {
        let friends = self.all[&of].disk.friends.values();
        friends.filter(|f| f.connected && f.state == FRIEND).filter_map(|f| self.resolve(f)).collect()
    }
}
