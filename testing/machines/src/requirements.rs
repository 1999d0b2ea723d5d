//! Checks whether this machine can run pods as processes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns what is missing; none if nothing is.
pub(crate) fn missing() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("pods as processes need root".to_owned());
    }
    for program in ["ip", "mount", "sh"] {
        let mut command = Command::new(program);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Not all of them know the option; it is enough that they can be started.
        if command.status().is_err() {
            return Some(format!("pods as processes need the program {program}"));
        }
    }
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !known.lines().any(|line| line.trim_start_matches("nodev").trim() == "overlay") {
        return Some("pods as processes need overlayfs, which this kernel does not have".to_owned());
    }
    if File::options().read(true).write(true).open("/dev/fuse").is_err() {
        return Some("pods as processes need FUSE for their disks, and /dev/fuse cannot be opened".to_owned());
    }
    let Some(groups) = control_groups() else {
        return Some("pods as processes need a cgroup v2 hierarchy, and none is mounted".to_owned());
    };
    // Other tests in this process may check at the same time.
    static TRIALS: AtomicU32 = AtomicU32::new(0);
    let trial = format!("stead-trial-{}-{}", std::process::id(), TRIALS.fetch_add(1, Ordering::Relaxed));
    let trial = groups.join(trial);
    // The kernel creates this file in every group except the root.
    let created = std::fs::create_dir(&trial).is_ok() && trial.join("cgroup.freeze").exists();
    let _ = std::fs::remove_dir(&trial);
    (!created).then(|| format!("pods as processes need to create control groups in {}", groups.display()))
}

/// Returns where the cgroup v2 hierarchy is mounted.
pub(crate) fn control_groups() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let path = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (path, kind) = (fields.nth(1)?, fields.next()?);
        (kind == "cgroup2").then(|| Path::new(path).to_owned())
    });
    path.filter(|path| !path.as_os_str().to_string_lossy().contains([' ', '\\']))
}
