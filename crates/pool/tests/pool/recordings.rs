//! Compares recordings of real glusterds with the model after the same actions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::Value;
use stead_pool::{Peer, PeerState, parse};

use crate::model::glusterd::{Definition, Disk, FRIEND, Friend, Glusterds};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/gluster")
}

fn recordings() -> Vec<(String, Value)> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder()).unwrap().map(|e| e.unwrap().path()).collect();
    found.retain(|p| p.extension().is_some_and(|e| e == "json"));
    found.sort();
    assert!(found.len() >= 20, "recordings are missing: {found:?}");
    let read = |p: PathBuf| {
        let value = serde_json::from_str(&std::fs::read_to_string(&p).unwrap()).unwrap();
        (p.file_stem().unwrap().to_string_lossy().into_owned(), value)
    };
    found.into_iter().map(read).collect()
}

/// The peers of a glusterd, from its output or, if it does not run, from its files: UUID → state and connection.
type PeerStates = BTreeMap<String, (u32, bool)>;

/// A recording replayed on the model.
struct Replay {
    glusterds: Glusterds,
    domain: String,
    /// The first UUID of each pod.
    first: BTreeMap<u32, String>,
    /// Real UUIDs by the model's UUIDs.
    names: BTreeMap<String, String>,
}

impl Replay {
    fn new(recording: &Value) -> Replay {
        let domain = recording["domain"].as_str().unwrap().to_owned();
        let mut glusterds = Glusterds::default();
        for n in 0..recording["pods"].as_u64().unwrap() as u32 {
            glusterds.add(n, &format!("pool-{n}.{domain}"), &format!("address-{n}"));
        }
        Replay { glusterds, domain, first: BTreeMap::new(), names: BTreeMap::new() }
    }

    fn apply(&mut self, step: &Value) {
        let words = step["deed"].as_array().unwrap();
        let numbers: Vec<u32> = words[1..].iter().filter_map(|w| w.as_u64().map(|n| n as u32)).collect();
        let success = step["answer"].as_str().is_none_or(|a| a.contains("success"));
        let all: Vec<u32> = self.glusterds.all.keys().copied().collect();
        let g = &mut self.glusterds;
        match words[0].as_str().unwrap() {
            "start" if numbers.is_empty() => all.iter().for_each(|n| g.start(*n)),
            "start" => numbers.iter().for_each(|n| g.start(*n)),
            "stop" => numbers.iter().for_each(|n| g.stop(*n)),
            "wipe" => {
                g.stop(numbers[0]);
                *g.disk(numbers[0]) = Disk::default();
            }
            "form" => {
                all[1..].iter().for_each(|n| g.probe(0, *n).unwrap());
                g.run_handshakes();
                g.probe(1, 0).unwrap();
            }
            "probe" => {
                let answer = g.probe(numbers[0], numbers[1]);
                let known = step["answer"].as_str().is_some_and(|a| a.contains("already in peer list"));
                assert_eq!(answer.is_ok(), success || known, "{step:?}");
            }
            "detach" => {
                let host = g.all[&numbers[1]].host.clone();
                let answer = g.detach(numbers[0], numbers[1], &host);
                assert_eq!(answer.is_ok(), success, "{answer:?} {}", step["answer"]);
                if let Err(why) = answer {
                    let real = step["answer"].as_str().unwrap();
                    assert!(
                        real.to_lowercase().contains(&why.to_lowercase().replace("peer hosts", "hosts")),
                        "{why}: {real}"
                    );
                }
            }
            "restore" => {
                g.stop(numbers[0]);
                let friends = numbers[2..].iter().map(|n| {
                    let hosts = vec![format!("pool-{n}.{}", self.domain)];
                    (g.uuid(*n), Friend { state: FRIEND, hosts, connected: false })
                });
                let friends = friends.collect();
                let uuid = Some(self.first[&numbers[1]].clone());
                *g.disk(numbers[0]) = Disk { uuid, friends, volumes: BTreeMap::new(), done: None };
            }
            "name" => {
                g.stop(numbers[0]);
                let friend = |n: &u32| {
                    let hosts = vec![format!("pool-{n}.{}", self.domain)];
                    (g.uuid(*n), Friend { state: FRIEND, hosts, connected: false })
                };
                let friends = numbers[1..].iter().map(friend).collect();
                g.disk(numbers[0]).friends = friends;
            }
            "volume" => {
                let definition = Definition { version: 1, checksum: 1, bricks: numbers.clone() };
                g.define(numbers[0], words[1].as_str().unwrap(), definition);
            }
            "gluster" => {
                let name = words[4].as_str().unwrap();
                let mut definition = g.all[&numbers[0]].disk.volumes[name].clone();
                definition.version += 1;
                definition.checksum += 1;
                g.define(numbers[0], name, definition);
            }
            "spoil" => {
                g.stop(numbers[0]);
                g.disk(numbers[0]).volumes.get_mut(words[2].as_str().unwrap()).unwrap().checksum += 1000;
            }
            "forget-volumes" => {
                g.stop(numbers[0]);
                let named = &words[2..];
                g.disk(numbers[0]).volumes.retain(|v, _| !named.is_empty() && !named.contains(&v.as_str().into()));
            }
            "move" => {
                g.stop(numbers[0]);
                g.all.get_mut(&numbers[0]).unwrap().address = "elsewhere".to_owned();
            }
            "clone" => {
                g.stop(numbers[1]);
                let copy = g.all[&numbers[0]].disk.clone();
                *g.disk(numbers[1]) = copy;
            }
            "cut" => g.far = numbers.iter().copied().collect(),
            "heal" => g.far = BTreeSet::new(),
            other => panic!("an action that the model does not know: {other}"),
        }
        g.run_handshakes();
    }

    fn model_states(&self, n: u32) -> PeerStates {
        let glusterd = &self.glusterds.all[&n];
        let real = |u: &String| self.names.get(u).cloned().unwrap_or_else(|| format!("model's {u}"));
        let friends = glusterd.disk.friends.iter();
        friends.map(|(u, f)| (real(u), (f.state, f.connected && glusterd.running))).collect()
    }

    /// The recorded peers; checks that its files agree.
    fn recorded_states(seen: &Value) -> PeerStates {
        let files = seen["files"].as_object().unwrap();
        let kept: BTreeMap<String, u32> = files
            .iter()
            .map(|(name, text)| {
                let file = parse::peer_file(text.as_str().unwrap()).unwrap();
                assert_eq!(*name, file.uuid.to_string());
                assert_eq!(parse::peer_file(&parse::write_peer_file(&file)), Ok(file.clone()));
                (file.uuid.to_string(), file.state)
            })
            .collect();
        let Some(status) = seen["status"].as_str() else {
            return kept.into_iter().map(|(u, s)| (u, (s, false))).collect();
        };
        let peers = parse::peer_status(status).unwrap();
        let uuid = |peer: &Peer| peer.uuid.unwrap().to_string();
        for peer in &peers {
            assert_eq!(kept.get(&uuid(peer)).map(|s| PeerState::of(*s)), Some(peer.state), "{status}");
            assert!(status.contains(&format!("<stateStr>{}</stateStr>", peer.state.words())), "{status}");
        }
        peers.into_iter().map(|p| (uuid(&p), (kept[&uuid(&p)], p.connected))).collect()
    }

    /// Volumes with their versions, and which pods have the same definition.
    fn volumes(&self, step: &Value) -> (Vec<String>, Vec<String>) {
        let (mut model, mut real) = (Vec::new(), Vec::new());
        let (mut sums, mut real_sums) = (Vec::new(), Vec::new());
        // The checksum of a stopped glusterd is from its last start: it is recomputed at the next one.
        for (n, glusterd) in self.glusterds.all.iter().filter(|(_, g)| g.running) {
            for (name, d) in &glusterd.disk.volumes {
                let sum = (name.clone(), d.checksum);
                let class = sums.iter().position(|s| *s == sum).unwrap_or_else(|| {
                    sums.push(sum);
                    sums.len() - 1
                });
                model.push(format!("pool-{n} {name} version {} like {class}", d.version));
            }
            for (name, v) in step["seen"][format!("pool-{n}")]["volumes"].as_object().unwrap() {
                let bricks = v["bricks"].as_object().unwrap().values().map(|t| t.as_str().unwrap());
                let volume =
                    parse::volume_files(name, v["info"].as_str().unwrap(), v["cksum"].as_str(), bricks).unwrap();
                let sum = (name.clone(), volume.checksum.clone().unwrap());
                let class = real_sums.iter().position(|s| *s == sum).unwrap_or_else(|| {
                    real_sums.push(sum);
                    real_sums.len() - 1
                });
                real.push(format!("pool-{n} {name} version {} like {class}", volume.version.unwrap()));
            }
        }
        (model, real)
    }
}

#[test]
fn the_model_behaves_like_recorded_glusterds() {
    let mut wrong = Vec::new();
    for (name, recording) in recordings() {
        let mut replay = Replay::new(&recording);
        for (i, step) in recording["steps"].as_array().unwrap().iter().enumerate() {
            replay.apply(step);
            for n in replay.glusterds.all.keys() {
                let seen = &step["seen"][format!("pool-{n}")];
                if let (Some(uuid), _) = parse::glusterd_info(seen["info"].as_str().unwrap_or_default()) {
                    replay.names.insert(replay.glusterds.uuid(*n), uuid.to_string());
                    replay.first.entry(*n).or_insert(replay.glusterds.uuid(*n));
                }
            }
            for n in replay.glusterds.all.keys() {
                let (model, real) =
                    (replay.model_states(*n), Replay::recorded_states(&step["seen"][format!("pool-{n}")]));
                if model != real {
                    wrong.push(format!(
                        "{name} step {i} {}: pool-{n}\n  model {model:?}\n  real  {real:?}",
                        step["deed"]
                    ));
                }
            }
            let (model, real) = replay.volumes(step);
            if model != real {
                wrong.push(format!("{name} step {i} {}: volumes\n  model {model:?}\n  real  {real:?}", step["deed"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
