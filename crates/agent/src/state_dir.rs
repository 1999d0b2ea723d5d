//! Reads glusterd's state directory, and changes it while glusterd does not run.
//!
//! Nothing is deleted at once: what is removed is moved into a folder in `.stead/`. Of these, the last few are kept,
//! and all that contain volume definitions. A file that cannot be read does not count as missing. The directory is on a
//! disk that may hang: [`StateDisk`] waits for it without blocking the runtime.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use stead_pool::{GlusterVolume, HostName, Identity, PeerFile, StateDir, VolumeName, parse};
use tracing::warn;

use crate::disk::{Disks, NotAnswering};

/// The folder for moved files and for the agent's own state.
const MOVED_DIR: &str = ".stead";

/// How many folders with moved files are kept.
const KEPT_FOLDERS: usize = 5;

/// The time limits for reading and for changing the directory.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
const CHANGE_TIMEOUT: Duration = Duration::from_secs(60);

/// glusterd's state directory, on a disk that may hang.
#[derive(Debug, Clone)]
pub(crate) struct StateDisk {
    state: State,
    disks: Disks,
}

impl StateDisk {
    /// A state directory, which may not exist yet.
    pub(crate) fn new(folder: PathBuf, disks: Disks) -> StateDisk {
        StateDisk { state: State::new(folder), disks }
    }

    /// Reads the directory. `host` is the name by which the other peers know this pod.
    pub(crate) async fn read(&self, host: &HostName) -> Result<StateContent, NotAnswering> {
        let (state, host) = (self.state.clone(), host.clone());
        self.disks.run_when_free(&self.state.folder, READ_TIMEOUT, move || state.read(&host)).await
    }

    /// Runs a change of the directory.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&State) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let state = self.state.clone();
        self.disks.run_when_free(&self.state.folder, CHANGE_TIMEOUT, move || change(&state)).await?
    }
}

/// glusterd's state directory.
#[derive(Debug, Clone)]
pub(crate) struct State {
    folder: PathBuf,
}

/// The content of the directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StateContent {
    /// The part that decisions need.
    pub(crate) state: StateDir,
    /// The volumes.
    pub(crate) volumes: Vec<GlusterVolume>,
    /// The number of consecutive bricks with the same data, by volume.
    pub(crate) sets: BTreeMap<VolumeName, usize>,
    /// The last order that was carried out, and the pod that carried it out.
    done: Option<(u64, String)>,
    /// What could not be read, and why.
    unreadable: Option<String>,
}

impl StateContent {
    /// Fails if something could not be read: then the directory must not be changed.
    pub(crate) fn readable(&self) -> Result<()> {
        match &self.unreadable {
            None => Ok(()),
            Some(why) => bail!("the state directory cannot be read completely, so it is not changed: {why}"),
        }
    }

    /// The last order that this pod carried out.
    pub(crate) fn done(&self, pod: &str) -> Option<u64> {
        self.done.as_ref().filter(|(_, by)| by == pod).map(|(id, _)| *id)
    }
}

impl State {
    /// A state directory, which may not exist yet.
    pub(crate) fn new(folder: PathBuf) -> State {
        State { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Reads the directory. `host` is the name by which the other peers know this pod.
    pub(crate) fn read(&self, host: &HostName) -> StateContent {
        let mut content = StateContent { done: self.done(), ..StateContent::default() };
        if let Err(error) = self.read_into(&mut content, host) {
            content.unreadable = Some(format!("{error:#}"));
        }
        content
    }

    fn read_into(&self, content: &mut StateContent, host: &HostName) -> Result<()> {
        let info = read_text(&self.path("glusterd.info"))?.unwrap_or_default();
        (content.state.uuid, content.state.operating_version) = parse::glusterd_info(&info);
        for (path, text) in read_files(&self.path("peers"))? {
            match parse::peer_file(&text) {
                Ok(peer) => content.state.peers.push(peer),
                // glusterd leaves such a file behind if it is killed during a handshake with a new peer.
                Err(error) => warn!("{}: {error}", path.display()),
            }
        }
        let mut first_error = Ok(());
        for folder in list(&self.path("vols"))? {
            // An unreadable volume does not hide the others.
            if let Err(error) = self.read_volume(content, &folder, host) {
                warn!("{error:#}");
                first_error = first_error.and(Err(error));
            }
        }
        first_error
    }

    fn read_volume(&self, content: &mut StateContent, folder: &Path, host: &HostName) -> Result<()> {
        let Some(info) = read_text(&folder.join("info"))? else { return Ok(()) };
        let name = folder
            .file_name()
            .and_then(|n| n.to_str())
            .with_context(|| format!("{}: the name of the volume is not UTF-8", folder.display()))?;
        let cksum = read_text(&folder.join("cksum"))?;
        let bricks = read_files(&folder.join("bricks"))?;
        let volume = parse::volume_files(name, &info, cksum.as_deref(), bricks.iter().map(|(_, text)| text.as_str()))
            .with_context(|| format!("reading {}", folder.display()))?;
        let own =
            volume.bricks.iter().filter(|b| b.host == *host || (b.uuid.is_some() && b.uuid == content.state.uuid));
        content.state.volumes.insert(volume.name.clone(), own.map(|b| b.path.clone()).collect());
        content.sets.insert(volume.name.clone(), bricks_per_set(&info));
        content.volumes.push(volume);
        Ok(())
    }

    /// Replaces the identity. After a crash at any point there is either the old identity, or none, which is restored
    /// at the next start, or the complete new one.
    pub(crate) fn restore(&self, identity: &Identity, time: &str) -> Result<()> {
        self.move_away(&["glusterd.info", "peers"], time)?;
        self.write_peers(&identity.peers)?;
        self.write("glusterd.info", &parse::write_glusterd_info(identity))
    }

    /// Removes peers and volumes; keeps the identity.
    pub(crate) fn forget(&self, time: &str) -> Result<()> {
        self.move_away(&["peers", "vols"], time)
    }

    /// Removes the definitions of these volumes.
    pub(crate) fn forget_volumes(&self, volumes: &[VolumeName], time: &str) -> Result<()> {
        let existing = list(&self.path("vols"))?;
        let names = existing.iter().filter_map(|path| path.file_name()?.to_str());
        let names: Vec<String> =
            names.filter(|name| volumes.iter().any(|v| *v == **name)).map(|name| format!("vols/{name}")).collect();
        self.move_away(&names.iter().map(String::as_str).collect::<Vec<_>>(), time)
    }

    /// The last order that was carried out, and the pod that carried it out.
    fn done(&self) -> Option<(u64, String)> {
        let text = fs::read_to_string(self.path(MOVED_DIR).join("done")).ok()?;
        let (id, by) = text.trim().split_once(' ')?;
        Some((id.parse().ok()?, by.to_owned()))
    }

    /// Stores the last order that was carried out: it must not be carried out again after a restart.
    pub(crate) fn set_done(&self, id: u64, pod: &str) -> Result<()> {
        create_dir(&self.path(MOVED_DIR))?;
        self.write(&format!("{MOVED_DIR}/done"), &format!("{id} {pod}\n"))
    }

    fn write_peers(&self, peers: &[PeerFile]) -> Result<()> {
        let (new, folder) = (self.path("peers.stead"), self.path("peers"));
        // Left behind by a crash.
        let _ = fs::remove_dir_all(&new);
        create_dir(&new)?;
        for peer in peers {
            write(&new.join(peer.uuid.to_string()), &parse::write_peer_file(peer))?;
        }
        sync(&new)?;
        fs::rename(&new, &folder).with_context(|| format!("renaming {}", new.display()))?;
        sync(&self.folder)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let (path, new) = (self.path(name), self.path(&format!("{name}.stead")));
        write(&new, text)?;
        fs::rename(&new, &path).with_context(|| format!("renaming {}", new.display()))?;
        sync(path.parent().unwrap_or(&self.folder))
    }

    fn move_away(&self, names: &[&str], time: &str) -> Result<()> {
        create_dir(&self.folder)?;
        let mut existing = Vec::new();
        for name in names {
            let path = self.path(name);
            if path.try_exists().with_context(|| format!("reading {}", path.display()))? {
                existing.push(name);
            }
        }
        if existing.is_empty() {
            return Ok(());
        }
        let aside = self.path(MOVED_DIR);
        let folder = aside.join(format!("taken-{time}"));
        create_dir(&folder)?;
        for name in existing {
            let (from, to) = (self.path(name), folder.join(name));
            create_dir(to.parent().unwrap_or(&folder))?;
            fs::rename(&from, &to).with_context(|| format!("moving {name} to {}", folder.display()))?;
            sync(to.parent().unwrap_or(&folder))?;
            sync(from.parent().unwrap_or(&self.folder))?;
        }
        sync(&folder)?;
        // Volume definitions are small, and these may be the only copies.
        let has_volumes = |folder: &Path| folder.join("vols").try_exists().unwrap_or(true);
        let kept: Vec<PathBuf> = list(&aside)?
            .into_iter()
            .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("taken-")) && !has_volumes(p))
            .collect();
        for old in kept.iter().take(kept.len().saturating_sub(KEPT_FOLDERS)) {
            if let Err(error) = fs::remove_dir_all(old) {
                warn!("removing {}: {error}", old.display());
            }
        }
        Ok(())
    }
}

/// Returns the number of consecutive bricks with the same data.
fn bricks_per_set(info: &str) -> usize {
    let number =
        |key: &str| info.lines().filter_map(|l| l.split_once('=')).find(|(k, _)| *k == key)?.1.trim().parse().ok();
    number("sub_count").filter(|n: &usize| *n > 0).unwrap_or(1)
}

fn create_dir(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))
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

/// Lists a folder, sorted; empty if it does not exist.
fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = fs::read_dir(folder).and_then(|dir| dir.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>());
    let mut found = if_exists(read).with_context(|| format!("reading {}", folder.display()))?.unwrap_or_default();
    found.sort();
    Ok(found)
}

/// Reads the files of a folder, without `NAME.tmp`: glusterd writes into such a file and then renames it, and ignores
/// what a crash left of it.
fn read_files(folder: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    for path in list(folder)?.into_iter().filter(|path| path.extension().is_none_or(|end| end != "tmp")) {
        // A file that was removed in the meantime is ignored.
        if let Some(text) = read_text(&path)? {
            found.push((path, text));
        }
    }
    Ok(found)
}

/// Reads a file; none if it does not exist.
fn read_text(path: &Path) -> Result<Option<String>> {
    if_exists(fs::read_to_string(path)).with_context(|| format!("reading {}", path.display()))
}

/// Tells a missing file from one that cannot be read. A folder instead of a file, or the reverse, counts as missing.
fn if_exists<T>(read: io::Result<T>) -> io::Result<Option<T>> {
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

    fn moved_files(state: &State) -> Vec<String> {
        let folders = list(&state.path(MOVED_DIR)).unwrap();
        let files = folders.iter().flat_map(|folder| list(folder).unwrap());
        files.map(|p| p.strip_prefix(state.path(MOVED_DIR)).unwrap().display().to_string()).collect()
    }

    #[test]
    fn an_identity_is_restored_and_the_old_files_are_kept() {
        let state = state("restore");
        assert_eq!(state.read(&name("g-0")), StateContent::default());
        state.restore(&identity(), "1").unwrap();
        let content = state.read(&name("g-0")).state;
        assert_eq!(
            (content.uuid, content.operating_version, &content.peers),
            (Some(name(A)), Some(100_000), &identity().peers)
        );
        assert!(moved_files(&state).is_empty());
        state.restore(&Identity { uuid: name(B), peers: Vec::new(), ..identity() }, "2").unwrap();
        let content = state.read(&name("g-0")).state;
        assert_eq!((content.uuid, content.peers.len()), (Some(name(B)), 0));
        assert_eq!(moved_files(&state), ["taken-2/glusterd.info", "taken-2/peers"]);
        for time in 3..12 {
            state.restore(&identity(), &format!("{time:02}")).unwrap();
        }
        assert_eq!(list(&state.path(MOVED_DIR)).unwrap().len(), KEPT_FOLDERS);
        fs::remove_dir_all(&state.folder).unwrap();
    }

    #[test]
    fn volumes_are_read_and_removed() {
        let state = state("volumes");
        state.restore(&identity(), "1").unwrap();
        let bricks = state.path("vols/gv0/bricks");
        create_dir(&bricks).unwrap();
        write(&state.path("vols/gv0/info"), "type=2\ncount=2\nstatus=1\nsub_count=2\nversion=7\n").unwrap();
        write(&state.path("vols/gv0/cksum"), "info=12\n").unwrap();
        write(&bricks.join("g-0:-data-b"), &format!("uuid={A}\nhostname=g-0\npath=/data/b\n")).unwrap();
        write(&bricks.join("g-1:-data-b"), &format!("uuid={B}\nhostname=g-1\npath=/data/b\n")).unwrap();
        let content = state.read(&name("g-0"));
        assert_eq!(content.state.volumes, BTreeMap::from([(name("gv0"), vec![name("/data/b")])]));
        assert_eq!((content.volumes[0].version, content.volumes[0].bricks.len(), content.sets["gv0"]), (Some(7), 2, 2));
        state.forget("2").unwrap();
        let content = state.read(&name("g-0")).state;
        assert_eq!((content.uuid, content.peers.len(), content.volumes.len()), (Some(name(A)), 0, 0));
        assert_eq!(moved_files(&state), ["taken-2/peers", "taken-2/vols"]);
        create_dir(&state.path("vols/gv1")).unwrap();
        create_dir(&state.path("vols/gv2")).unwrap();
        state.forget_volumes(&[name("gv1")], "21").unwrap();
        assert!(
            !state.path("vols/gv1").exists() && state.path("vols/gv2").exists() && state.path("glusterd.info").exists()
        );
        assert!(state.path(MOVED_DIR).join("taken-21/vols/gv1").exists());
        for time in 3..12 {
            state.restore(&identity(), &format!("{time:02}")).unwrap();
        }
        // Volume definitions are kept, however old.
        assert!(state.path(MOVED_DIR).join("taken-2/vols/gv0/info").exists());
        assert_eq!(list(&state.path(MOVED_DIR)).unwrap().len(), KEPT_FOLDERS + 2);
        fs::remove_dir_all(&state.folder).unwrap();
    }

    #[test]
    fn unreadable_files_do_not_count_as_missing() {
        type Spoil = fn(&State);
        let cases: [(&str, Spoil, Option<&str>); 7] = [
            ("nothing", |_| {}, None),
            ("an incomplete file", |state| write(&state.path("vols/gv0/bricks/b.tmp"), "").unwrap(), None),
            ("a folder among files", |state| create_dir(&state.path("peers/folder")).unwrap(), None),
            ("a volume that is being created", |state| create_dir(&state.path("vols/gv1")).unwrap(), None),
            ("not UTF-8", |state| fs::write(state.path("glusterd.info"), [0xff]).unwrap(), Some("glusterd.info")),
            ("a peer", |state| fs::write(state.path(&format!("peers/{B}")), [0xff]).unwrap(), Some("peers")),
            ("a volume", |state| write(&state.path("vols/gv0/info"), "type=2\n").unwrap(), Some("gv0 has no version")),
        ];
        for (what, spoil, why) in cases {
            let state = state("unreadable");
            state.restore(&identity(), "1").unwrap();
            create_dir(&state.path("vols/gv0/bricks")).unwrap();
            write(&state.path("vols/gv0/info"), "version=7\n").unwrap();
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
    fn an_order_counts_as_done_only_for_the_pod_that_did_it() {
        let state = state("done");
        let done = |pod: &str| state.read(&name("g-0")).done(pod);
        assert_eq!(done("uid"), None);
        state.set_done(7, "uid").unwrap();
        assert_eq!((done("uid"), done("other")), (Some(7), None));
        fs::remove_dir_all(&state.folder).unwrap();
    }
}
