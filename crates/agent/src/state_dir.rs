//! glusterd's state directory: what it holds, and what is changed in it while glusterd does not run.
//!
//! Nothing is deleted. What is taken away is moved into a folder in `.stead/`, of which the last few are kept, and all
//! that hold definitions of volumes. What cannot be read is not taken for what is not there. The directory is on a disk
//! that may hang: [`StateDisk`] waits for it without blocking anybody.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use stead_pool::{HostName, Identity, PeerFile, StateDir, Volume, VolumeName, parse};
use tracing::warn;

use crate::disk::{Disks, NotAnswering};

/// The folder of what was taken away, and of what the agent remembers.
const ASIDE: &str = ".stead";

/// How many times what was taken away is kept.
const KEPT: usize = 5;

/// How long it may take to read the directory, and to change something in it.
const READ: Duration = Duration::from_secs(5);
const CHANGE: Duration = Duration::from_secs(60);

/// glusterd's state directory, on a disk that may hang.
#[derive(Debug, Clone)]
pub(crate) struct StateDisk {
    state: State,
    disks: Disks,
}

impl StateDisk {
    /// A state directory, which may not be there yet.
    pub(crate) fn new(folder: PathBuf, disks: Disks) -> StateDisk {
        StateDisk { state: State::new(folder), disks }
    }

    /// What it holds. `host` is the name by which the others know this pod.
    pub(crate) async fn read(&self, host: &HostName) -> Result<Held, NotAnswering> {
        let (state, host) = (self.state.clone(), host.clone());
        self.disks.in_turn(&self.state.folder, READ, move || state.read(&host)).await
    }

    /// Changes something in it.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&State) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let state = self.state.clone();
        self.disks.in_turn(&self.state.folder, CHANGE, move || change(&state)).await?
    }
}

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
    pub(crate) sets: BTreeMap<VolumeName, usize>,
    /// The last order that was carried out, and the pod that did it.
    done: Option<(u64, String)>,
    /// What is there and could not be read, and why.
    unreadable: Option<String>,
}

impl Held {
    /// An error if there is something that could not be read: what holds it is not to be changed then.
    pub(crate) fn readable(&self) -> Result<()> {
        match &self.unreadable {
            None => Ok(()),
            Some(why) => bail!("the state directory cannot be read as a whole, so it is left as it is: {why}"),
        }
    }

    /// The last order that this pod carried out.
    pub(crate) fn done(&self, pod: &str) -> Option<u64> {
        self.done.as_ref().filter(|(_, by)| by == pod).map(|(id, _)| *id)
    }
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
    pub(crate) fn read(&self, host: &HostName) -> Held {
        let mut held = Held { done: self.done(), ..Held::default() };
        if let Err(error) = self.read_into(&mut held, host) {
            held.unreadable = Some(format!("{error:#}"));
        }
        held
    }

    fn read_into(&self, held: &mut Held, host: &HostName) -> Result<()> {
        let info = text(&self.at("glusterd.info"))?.unwrap_or_default();
        (held.state.uuid, held.state.operating_version) = parse::glusterd_info(&info);
        for (path, text) in texts(&self.at("peers"))? {
            match parse::peer_file(&text) {
                Ok(peer) => held.state.peers.push(peer),
                // glusterd leaves such a file behind if it was ended while it got to know somebody.
                Err(error) => warn!("{}: {error}", path.display()),
            }
        }
        let mut first_error = Ok(());
        for folder in entries(&self.at("vols"))? {
            // One that cannot be read is no reason to say nothing of the others.
            if let Err(error) = self.read_volume(held, &folder, host) {
                warn!("{error:#}");
                first_error = first_error.and(Err(error));
            }
        }
        first_error
    }

    fn read_volume(&self, held: &mut Held, folder: &Path, host: &HostName) -> Result<()> {
        let Some(info) = text(&folder.join("info"))? else { return Ok(()) };
        let name = folder
            .file_name()
            .and_then(|n| n.to_str())
            .with_context(|| format!("{}: a volume whose name is no text", folder.display()))?;
        let cksum = text(&folder.join("cksum"))?;
        let bricks = texts(&folder.join("bricks"))?;
        let volume = parse::volume_files(name, &info, cksum.as_deref(), bricks.iter().map(|(_, text)| text.as_str()))
            .with_context(|| format!("reading {}", folder.display()))?;
        let own = volume.bricks.iter().filter(|b| b.host == *host || (b.uuid.is_some() && b.uuid == held.state.uuid));
        held.state.volumes.insert(volume.name.clone(), own.map(|b| b.path.clone()).collect());
        held.sets.insert(volume.name.clone(), set(&info));
        held.volumes.push(volume);
        Ok(())
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

    /// Takes the definitions of these volumes away.
    pub(crate) fn forget_volumes(&self, volumes: &[VolumeName], time: &str) -> Result<()> {
        let there = entries(&self.at("vols"))?;
        let names = there.iter().filter_map(|path| path.file_name()?.to_str());
        let names: Vec<String> =
            names.filter(|name| volumes.iter().any(|v| *v == **name)).map(|name| format!("vols/{name}")).collect();
        self.take_away(&names.iter().map(String::as_str).collect::<Vec<_>>(), time)
    }

    /// The last order that was carried out, and the pod that did it.
    fn done(&self) -> Option<(u64, String)> {
        let text = fs::read_to_string(self.at(ASIDE).join("done")).ok()?;
        let (id, by) = text.trim().split_once(' ')?;
        Some((id.parse().ok()?, by.to_owned()))
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
            write(&new.join(peer.uuid.to_string()), &parse::write_peer_file(peer))?;
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
        let mut there = Vec::new();
        for name in names {
            let path = self.at(name);
            if path.try_exists().with_context(|| format!("reading {}", path.display()))? {
                there.push(name);
            }
        }
        if there.is_empty() {
            return Ok(());
        }
        let aside = self.at(ASIDE);
        let folder = aside.join(format!("taken-{time}"));
        make(&folder)?;
        for name in there {
            let (from, to) = (self.at(name), folder.join(name));
            make(to.parent().unwrap_or(&folder))?;
            fs::rename(&from, &to).with_context(|| format!("moving {name} to {}", folder.display()))?;
            sync(to.parent().unwrap_or(&folder))?;
            sync(from.parent().unwrap_or(&self.folder))?;
        }
        sync(&folder)?;
        // Definitions of volumes are small, and may be the only ones.
        let of_volumes = |folder: &Path| folder.join("vols").try_exists().unwrap_or(true);
        let kept: Vec<PathBuf> = entries(&aside)?
            .into_iter()
            .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("taken-")) && !of_volumes(p))
            .collect();
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
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = fs::read_dir(folder).and_then(|dir| dir.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>());
    let mut found = there(read).with_context(|| format!("reading {}", folder.display()))?.unwrap_or_default();
    found.sort();
    Ok(found)
}

/// The texts of the files of a folder. One that glusterd was still writing is not one of them: it writes into `NAME.tmp`,
/// renames that, and does not read what a crash left of it.
fn texts(folder: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    for path in entries(folder)?.into_iter().filter(|path| path.extension().is_none_or(|end| end != "tmp")) {
        // What is gone by now was not meant to stay.
        if let Some(text) = text(&path)? {
            found.push((path, text));
        }
    }
    Ok(found)
}

/// The text of a file; none if there is no such file.
fn text(path: &Path) -> Result<Option<String>> {
    there(fs::read_to_string(path)).with_context(|| format!("reading {}", path.display()))
}

/// Tells what is not there from what cannot be read. A folder is no file, and a file no folder.
fn there<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
    match read {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory | IsADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::test_agent::{A, B, name};

    use super::*;

    fn state(name: &str) -> State {
        let folder = std::env::temp_dir().join(format!("stead-agent-state-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        State::new(folder)
    }

    fn identity() -> Identity {
        let peer = PeerFile { uuid: name(B), state: 3, hosts: vec![name("g-1.g.n.svc.cluster.local")] };
        Identity { uuid: name(A), operating_version: 100_000, peers: vec![peer] }
    }

    fn taken(state: &State) -> Vec<String> {
        let folders = entries(&state.at(ASIDE)).unwrap();
        let files = folders.iter().flat_map(|folder| entries(folder).unwrap());
        files.map(|p| p.strip_prefix(state.at(ASIDE)).unwrap().display().to_string()).collect()
    }

    #[test]
    fn an_identity_is_restored_and_what_was_there_is_kept() {
        let state = state("restore");
        assert_eq!(state.read(&name("g-0")), Held::default());
        state.restore(&identity(), "1").unwrap();
        let held = state.read(&name("g-0")).state;
        assert_eq!((held.uuid, held.operating_version, &held.peers), (Some(name(A)), Some(100_000), &identity().peers));
        assert!(taken(&state).is_empty());
        state.restore(&Identity { uuid: name(B), peers: Vec::new(), ..identity() }, "2").unwrap();
        let held = state.read(&name("g-0")).state;
        assert_eq!((held.uuid, held.peers.len()), (Some(name(B)), 0));
        assert_eq!(taken(&state), ["taken-2/glusterd.info", "taken-2/peers"]);
        for time in 3..12 {
            state.restore(&identity(), &format!("{time:02}")).unwrap();
        }
        assert_eq!(entries(&state.at(ASIDE)).unwrap().len(), KEPT);
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
        let held = state.read(&name("g-0"));
        assert_eq!(held.state.volumes, BTreeMap::from([(name("gv0"), vec![name("/data/b")])]));
        assert_eq!((held.volumes[0].version, held.volumes[0].bricks.len(), held.sets["gv0"]), (Some(7), 2, 2));
        state.forget("2").unwrap();
        let held = state.read(&name("g-0")).state;
        assert_eq!((held.uuid, held.peers.len(), held.volumes.len()), (Some(name(A)), 0, 0));
        assert_eq!(taken(&state), ["taken-2/peers", "taken-2/vols"]);
        make(&state.at("vols/gv1")).unwrap();
        make(&state.at("vols/gv2")).unwrap();
        state.forget_volumes(&[name("gv1")], "21").unwrap();
        assert!(!state.at("vols/gv1").exists() && state.at("vols/gv2").exists() && state.at("glusterd.info").exists());
        assert!(state.at(ASIDE).join("taken-21/vols/gv1").exists());
        for time in 3..12 {
            state.restore(&identity(), &format!("{time:02}")).unwrap();
        }
        // Definitions of volumes are kept, however old.
        assert!(state.at(ASIDE).join("taken-2/vols/gv0/info").exists());
        assert_eq!(entries(&state.at(ASIDE)).unwrap().len(), KEPT + 2);
        fs::remove_dir_all(&state.folder).unwrap();
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_nothing() {
        type Spoil = fn(&State);
        let cases: [(&str, Spoil, Option<&str>); 7] = [
            ("nothing", |_| {}, None),
            ("a file half written", |state| write(&state.at("vols/gv0/bricks/b.tmp"), "").unwrap(), None),
            ("a folder among files", |state| make(&state.at("peers/folder")).unwrap(), None),
            ("a volume that is being made", |state| make(&state.at("vols/gv1")).unwrap(), None),
            ("no text", |state| fs::write(state.at("glusterd.info"), [0xff]).unwrap(), Some("glusterd.info")),
            ("a peer", |state| fs::write(state.at(&format!("peers/{B}")), [0xff]).unwrap(), Some("peers")),
            ("a volume", |state| write(&state.at("vols/gv0/info"), "type=2\n").unwrap(), Some("gv0 has no version")),
        ];
        for (what, spoil, why) in cases {
            let state = state("unreadable");
            state.restore(&identity(), "1").unwrap();
            make(&state.at("vols/gv0/bricks")).unwrap();
            write(&state.at("vols/gv0/info"), "version=7\n").unwrap();
            spoil(&state);
            let found = state.read(&name("g-0")).unreadable;
            match why {
                None => assert_eq!(found, None, "{what}"),
                Some(why) => assert!(found.as_ref().is_some_and(|found| found.contains(why)), "{what}: {found:?}"),
            }
            fs::remove_dir_all(&state.folder).unwrap();
        }
    }

    #[test]
    fn an_order_is_done_by_one_pod() {
        let state = state("done");
        let done = |pod: &str| state.read(&name("g-0")).done(pod);
        assert_eq!(done("uid"), None);
        state.set_done(7, "uid").unwrap();
        assert_eq!((done("uid"), done("other")), (Some(7), None));
        fs::remove_dir_all(&state.folder).unwrap();
    }
}
