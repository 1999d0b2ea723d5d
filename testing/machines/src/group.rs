//! Control groups (cgroup v2), to freeze, kill and measure processes as a whole.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::requirements::control_groups;

/// A control group, with those below it.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    path: PathBuf,
}

/// What a container has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// CPU time of all its processes since it began.
    pub cpu: Duration,
    /// Resident memory of all its processes now, in bytes.
    pub rss: u64,
}

impl Group {
    /// A new one for a whole cluster.
    pub(crate) fn root() -> Result<Group> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("stead-machines-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Group { path: control_groups().context("no cgroup v2 hierarchy is mounted")? }.child(&name)
    }

    /// One within this one, made if it is not there.
    pub(crate) fn child(&self, name: &str) -> Result<Group> {
        let path = self.path.join(name);
        std::fs::create_dir_all(&path).with_context(|| format!("making the control group {}", path.display()))?;
        Ok(Group { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A file to which a process writes `0` to be in this group.
    pub(crate) fn door(&self) -> Result<File> {
        let path = self.path.join("cgroup.procs");
        OpenOptions::new().write(true).open(&path).with_context(|| format!("opening {}", path.display()))
    }

    /// Stops all that is in it, or lets it go on. Returns when that has happened, or has had its time.
    pub(crate) fn freeze(&self, frozen: bool) -> Result<()> {
        self.write("cgroup.freeze", if frozen { "1" } else { "0" })?;
        self.wait_for(&format!("frozen {}", u8::from(frozen)), Duration::from_secs(5));
        Ok(())
    }

    /// Kills all that is in it, and waits until it is empty.
    pub(crate) fn kill(&self) -> Result<()> {
        self.write("cgroup.kill", "1")?;
        self.wait_for("populated 0", Duration::from_secs(20));
        Ok(())
    }

    /// Kills all that is in it and removes it with all below, on a thread where that may take its time.
    pub(crate) async fn clear(&self) {
        let this = self.clone();
        // What fails here is tried again when the whole cluster goes.
        let _ = tokio::task::spawn_blocking(move || this.remove()).await;
    }

    /// The same, here and now.
    pub(crate) fn remove(&self) {
        let _ = self.kill();
        remove_all(&self.path);
    }

    /// What those in it, and those that were, have used.
    pub(crate) fn usage(&self) -> Result<Usage> {
        let path = self.path.join("cpu.stat");
        let stat = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let cpu = stat.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok()).unwrap_or_default();
        let rss = self.processes()?.iter().map(|pid| resident(*pid)).sum();
        Ok(Usage { cpu: Duration::from_micros(cpu), rss })
    }

    fn processes(&self) -> Result<Vec<i32>> {
        let path = self.path.join("cgroup.procs");
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Whether the kernel says this of the group, as a line of its events.
    pub(crate) fn is(&self, line: &str) -> bool {
        let events = std::fs::read_to_string(self.path.join("cgroup.events")).unwrap_or_default();
        events.lines().any(|l| l == line)
    }

    fn write(&self, file: &str, word: &str) -> Result<()> {
        let path = self.path.join(file);
        std::fs::write(&path, word).with_context(|| format!("writing {}", path.display()))
    }

    /// Waits for a line of the group's events. The kernel tells of them by inotify too, but they come at once.
    fn wait_for(&self, line: &str, limit: Duration) {
        let end = Instant::now() + limit;
        while Instant::now() < end {
            let events = std::fs::read_to_string(self.path.join("cgroup.events")).unwrap_or_default();
            // A group that is gone has nothing to wait for.
            if events.is_empty() || events.lines().any(|l| l == line) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn remove_all(path: &Path) {
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_all(&entry.path());
        }
    }
    let _ = std::fs::remove_dir(path);
}

/// What the process has in memory, as the kernel counts it for the process.
fn resident(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()).unwrap_or_default() * 1024
}
