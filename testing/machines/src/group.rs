//! Control groups (cgroup v2), to freeze, kill and measure groups of processes.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::requirements::control_groups;

/// A control group with its children.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    path: PathBuf,
}

/// The resource usage of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// CPU time of all its processes since it started.
    pub cpu: Duration,
    /// Resident memory of all its processes now, in bytes.
    pub rss: u64,
}

impl Group {
    /// Creates the group of a cluster.
    pub(crate) fn root() -> Result<Group> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("stead-machines-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Group { path: control_groups().context("no cgroup v2 hierarchy is mounted")? }.child(&name)
    }

    /// Returns a child group, and creates it if it does not exist.
    pub(crate) fn child(&self, name: &str) -> Result<Group> {
        let path = self.path.join(name);
        std::fs::create_dir_all(&path).with_context(|| format!("creating the control group {}", path.display()))?;
        Ok(Group { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens `cgroup.procs`: a process that writes `0` to it joins the group.
    pub(crate) fn procs_file(&self) -> Result<File> {
        let path = self.path.join("cgroup.procs");
        OpenOptions::new().write(true).open(&path).with_context(|| format!("opening {}", path.display()))
    }

    /// Freezes or thaws all its processes. Returns when this has happened, or after a timeout.
    pub(crate) fn freeze(&self, frozen: bool) -> Result<()> {
        self.write("cgroup.freeze", if frozen { "1" } else { "0" })?;
        self.wait_for(&format!("frozen {}", u8::from(frozen)), Duration::from_secs(5));
        Ok(())
    }

    /// Kills all its processes, and waits until it is empty.
    pub(crate) fn kill(&self) -> Result<()> {
        self.write("cgroup.kill", "1")?;
        self.wait_for("populated 0", Duration::from_secs(20));
        Ok(())
    }

    /// Kills all its processes and removes it with its children, on a blocking thread.
    pub(crate) async fn remove_async(&self) {
        let this = self.clone();
        // A failure is retried when the whole cluster is removed.
        let _ = tokio::task::spawn_blocking(move || this.remove()).await;
    }

    /// Kills all its processes and removes it with its children.
    pub(crate) fn remove(&self) {
        let _ = self.kill();
        remove_all(&self.path);
    }

    /// Returns the usage of its processes, including CPU time of terminated ones.
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

    /// Whether `cgroup.events` contains this line.
    pub(crate) fn has_event(&self, line: &str) -> bool {
        let events = std::fs::read_to_string(self.path.join("cgroup.events")).unwrap_or_default();
        events.lines().any(|l| l == line)
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        let path = self.path.join(file);
        std::fs::write(&path, value).with_context(|| format!("writing {}", path.display()))
    }

    /// Waits for a line in `cgroup.events`. Polling is enough: the changes take effect quickly.
    fn wait_for(&self, line: &str, limit: Duration) {
        let end = Instant::now() + limit;
        while Instant::now() < end {
            let events = std::fs::read_to_string(self.path.join("cgroup.events")).unwrap_or_default();
            // A removed group has no events.
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

/// Returns the resident set size of a process in bytes.
fn resident(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()).unwrap_or_default() * 1024
}
