//! glusterd's state directory: what it holds, and what is changed in it while glusterd does not run.
//!
//! Nothing is deleted. What is taken away is moved into a folder in `.stead/`, of which the last few are kept.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use stead_pool::{Identity, PeerFile, StateDir, Volume, parse};
use tracing::warn;

/// The folder of what was taken away, and of what the agent remembers.
const ASIDE: &str = ".stead";

/// How many times what was taken away is kept.
const KEPT: usize = 5;

/// glusterd's state directory.
#[derive(Debug, Clone)]
pub(crate) struct State {
    folder: PathBuf,
}

/// What the directory holds, with all that is known of the volumes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// As the decision wants it.
    pub(crate) state: StateDir,
    /// The volumes.
    pub(crate) volumes: Vec<Volume>,
    /// How many bricks in a row hold the same data, by volume.
    pub(crate) sets: BTreeMap<String, usize>,
}

impl State {
    /// A state directory, which may not be there yet.
    pub(crate) fn new(folder: PathBuf) -> State {
        State { folder }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// What it holds. `host` is the name by which the others know this pod.
    pub(crate) fn read(&self, host: &str) -> Held {
        let info = fs::read_to_string(self.at("glusterd.info")).unwrap_or_default();
        let (uuid, operating_version) = parse::glusterd_info(&info);
        let mut peers = Vec::new();
        for (path, text) in texts(&self.at("peers")) {
            match parse::peer_file(&text) {
                Ok(peer) => peers.push(peer),
                Err(error) => warn!("{}: {error}", path.display()),
            }
        }
        let mut held =
            Held { state: StateDir { uuid, operating_version, peers, ..StateDir::default() }, ..Held::default() };
        for folder in entries(&self.at("vols")) {
            let Some(name) = folder.file_name().and_then(|n| n.to_str()) else { continue };
            let Ok(info) = fs::read_to_string(folder.join("info")) else { continue };
            let cksum = fs::read_to_string(folder.join("cksum")).ok();
            let bricks = texts(&folder.join("bricks"));
            match parse::volume_files(name, &info, cksum.as_deref(), bricks.iter().map(|(_, text)| text.as_str())) {
                Ok(volume) => {
                    let own = volume
                        .bricks
                        .iter()
                        .filter(|b| b.host == host || (b.uuid.is_some() && b.uuid == held.state.uuid));
                    held.state.volumes.insert(name.to_owned(), own.map(|b| b.path.clone()).collect());
                    held.sets.insert(name.to_owned(), set(&info));
                    held.volumes.push(volume);
                }
                Err(error) => warn!("{}: {error}", folder.display()),
            }
        }
        held
    }

    /// Writes an identity in place of what is there. A crash at any point leaves either what was there, or no identity,
    /// which is restored at the next start, or the new one as a whole.
    pub(crate) fn restore(&self, identity: &Identity, time: &str) -> Result<()> {
        self.take_away(&["glusterd.info", "peers"], time)?;
        self.write_peers(&identity.peers)?;
        self.write("glusterd.info", &parse::write_glusterd_info(identity))
    }

    /// Takes peers and volumes away; the identity stays.
    pub(crate) fn forget(&self, time: &str) -> Result<()> {
        self.take_away(&["peers", "vols"], time)
    }

    /// Takes the definitions of volumes away.
    pub(crate) fn forget_volumes(&self, time: &str) -> Result<()> {
        self.take_away(&["vols"], time)
    }

    /// The last order that was carried out, by which pod.
    pub(crate) fn done(&self, pod: &str) -> Option<u64> {
        let text = fs::read_to_string(self.at(ASIDE).join("done")).ok()?;
        let (id, by) = text.trim().split_once(' ')?;
        (by == pod).then(|| id.parse().ok())?
    }

    /// Remembers the last order that was carried out: it must not be carried out again after a restart.
    pub(crate) fn set_done(&self, id: u64, pod: &str) -> Result<()> {
        make(&self.at(ASIDE))?;
        self.write(&format!("{ASIDE}/done"), &format!("{id} {pod}\n"))
    }

    fn write_peers(&self, peers: &[PeerFile]) -> Result<()> {
        let (new, folder) = (self.at("peers.stead"), self.at("peers"));
        // One that was left half done by a crash.
        let _ = fs::remove_dir_all(&new);
        make(&new)?;
        for peer in peers {
            write(&new.join(&peer.uuid), &parse::write_peer_file(peer))?;
        }
        sync(&new)?;
        fs::rename(&new, &folder).with_context(|| format!("renaming {}", new.display()))?;
        sync(&self.folder)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let (path, new) = (self.at(name), self.at(&format!("{name}.stead")));
        write(&new, text)?;
        fs::rename(&new, &path).with_context(|| format!("renaming {}", new.display()))?;
        sync(path.parent().unwrap_or(&self.folder))
    }

    fn take_away(&self, names: &[&str], time: &str) -> Result<()> {
        make(&self.folder)?;
        let there: Vec<&&str> = names.iter().filter(|name| self.at(name).exists()).collect();
        if there.is_empty() {
            return Ok(());
        }
        let aside = self.at(ASIDE);
        let folder = aside.join(format!("taken-{time}"));
        make(&folder)?;
        for name in there {
            let to = folder.join(name);
            fs::rename(self.at(name), &to).with_context(|| format!("moving {name} to {}", folder.display()))?;
        }
        sync(&folder)?;
        sync(&self.folder)?;
        let mut kept: Vec<PathBuf> = entries(&aside)
            .into_iter()
            .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("taken-")))
            .collect();
        kept.sort();
        for old in kept.iter().take(kept.len().saturating_sub(KEPT)) {
            if let Err(error) = fs::remove_dir_all(old) {
                warn!("removing {}: {error}", old.display());
            }
        }
        Ok(())
    }
}

/// How many bricks in a row hold the same data.
fn set(info: &str) -> usize {
    let number =
        |key: &str| info.lines().filter_map(|l| l.split_once('=')).find(|(k, _)| *k == key)?.1.trim().parse().ok();
    number("sub_count").filter(|n: &usize| *n > 0).unwrap_or(1)
}

fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    let written = File::create(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.with_context(|| format!("writing {}", path.display()))
}

fn sync(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|f| f.sync_all()).with_context(|| format!("writing {}", folder.display()))
}

/// What a folder holds, sorted; nothing if it is not there.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(folder).and_then(|dir| dir.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>());
    let mut found = read.unwrap_or_default();
    found.sort();
    found
}

/// The texts of the files of a folder.
fn texts(folder: &Path) -> Vec<(PathBuf, String)> {
    entries(folder).into_iter().filter_map(|path| fs::read_to_string(&path).ok().map(|text| (path, text))).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const A: &str = "edb18957-b7f5-468d-baf8-19e0e02d20c7";
    const B: &str = "d77f225f-14f9-4028-9ed1-02eff28cbc4c";

    fn state(name: &str) -> State {
        let folder = std::env::temp_dir().join(format!("stead-agent-state-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        State::new(folder)
    }

    fn identity() -> Identity {
        let peer = PeerFile { uuid: B.into(), state: 3, hosts: vec!["g-1.g.n.svc.cluster.local".into()] };
        Identity { uuid: A.into(), operating_version: 100_000, peers: vec![peer] }
    }

    fn taken(state: &State) -> Vec<String> {
        let folders = entries(&state.at(ASIDE));
        let files = folders.iter().flat_map(|folder| entries(folder));
        files.map(|p| p.strip_prefix(state.at(ASIDE)).unwrap().display().to_string()).collect()
    }

    #[test]
    fn an_identity_is_restored_and_what_was_there_is_kept() {
        let state = state("restore");
        assert_eq!(state.read("g-0"), Held::default());
        state.restore(&identity(), "1").unwrap();
        let held = state.read("g-0").state;
        assert_eq!(
            (held.uuid.as_deref(), held.operating_version, &held.peers),
            (Some(A), Some(100_000), &identity().peers)
        );
        assert!(taken(&state).is_empty());
        state.restore(&Identity { uuid: B.into(), peers: Vec::new(), ..identity() }, "2").unwrap();
        let held = state.read("g-0").state;
        assert_eq!((held.uuid.as_deref(), held.peers.len()), (Some(B), 0));
        assert_eq!(taken(&state), ["taken-2/glusterd.info", "taken-2/peers"]);
        for time in 3..12 {
            state.restore(&identity(), &format!("{time:02}")).unwrap();
        }
        assert_eq!(entries(&state.at(ASIDE)).len(), KEPT);
        fs::remove_dir_all(&state.folder).unwrap();
    }

    #[test]
    fn volumes_are_read_and_taken_away() {
        let state = state("volumes");
        state.restore(&identity(), "1").unwrap();
        let bricks = state.at("vols/gv0/bricks");
        make(&bricks).unwrap();
        write(&state.at("vols/gv0/info"), "type=2\ncount=2\nstatus=1\nsub_count=2\nversion=7\n").unwrap();
        write(&state.at("vols/gv0/cksum"), "info=12\n").unwrap();
        write(&bricks.join("g-0:-data-b"), &format!("uuid={A}\nhostname=g-0\npath=/data/b\n")).unwrap();
        write(&bricks.join("g-1:-data-b"), &format!("uuid={B}\nhostname=g-1\npath=/data/b\n")).unwrap();
        let held = state.read("g-0");
        assert_eq!(held.state.volumes, BTreeMap::from([("gv0".to_owned(), vec!["/data/b".to_owned()])]));
        assert_eq!((held.volumes[0].version, held.volumes[0].bricks.len(), held.sets["gv0"]), (Some(7), 2, 2));
        state.forget("2").unwrap();
        let held = state.read("g-0").state;
        assert_eq!((held.uuid.as_deref(), held.peers.len(), held.volumes.len()), (Some(A), 0, 0));
        assert_eq!(taken(&state), ["taken-2/peers", "taken-2/vols"]);
        fs::remove_dir_all(&state.folder).unwrap();
    }

    #[test]
    fn an_order_is_done_by_one_pod() {
        let state = state("done");
        assert_eq!(state.done("uid"), None);
        state.set_done(7, "uid").unwrap();
        assert_eq!((state.done("uid"), state.done("other")), (Some(7), None));
        fs::remove_dir_all(&state.folder).unwrap();
    }
}
