//! Programs that end with the chore, and containers as programs in a root of their own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::glance::kubelet::Container;
use crate::glance::needed::Glance;

/// A program that runs until this is dropped, and no longer than the chore in any case.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts a program whose output goes to a file.
    pub(crate) fn start(command: &Command, log: &Path) -> Result<Running> {
        let file = File::create(log).with_context(|| format!("writing {}", log.display()))?;
        let program = command.get_program().to_string_lossy().into_owned();
        let mut bound = Command::new("setpriv");
        bound.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
        if let Some(folder) = command.get_current_dir() {
            bound.current_dir(folder);
        }
        let child = bound.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn();
        Ok(Running { child: child.with_context(|| format!("running {program}"))?, log: log.to_owned() })
    }

    /// Waits until something holds. A program that ends before that has failed.
    pub(crate) fn wait_until(&mut self, what: &str, limit: Duration, holds: &dyn Fn() -> bool) -> Result<()> {
        let start = Instant::now();
        while !holds() {
            let ended = self.child.try_wait()?;
            ensure!(
                ended.is_none() && start.elapsed() < limit,
                "{what}: not reached; the program said\n{}",
                self.said()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// The last lines of what it said.
    pub(crate) fn said(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A place for the root of a container.
pub(crate) struct Stage {
    folder: PathBuf,
    hostname: String,
}

impl Stage {
    /// Makes one in a folder of its own.
    pub(crate) fn new(folder: &Path, hostname: &str) -> Result<Stage> {
        for part in ["files", "own"] {
            let part = folder.join(part);
            std::fs::create_dir_all(&part).with_context(|| format!("making {}", part.display()))?;
        }
        Ok(Stage { folder: folder.to_owned(), hostname: hostname.to_owned() })
    }

    /// Where the files are that lie over the machine's own.
    pub(crate) fn files(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// The program that runs a container. When it is killed, all that runs in the container is: its processes are a
    /// namespace of their own.
    pub(crate) fn command(&self, glance: &Glance, container: &Container) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--uts", "--pid", "--fork", "--kill-child=KILL", "--"]);
        command.args(["/bin/bash", "-c", include_str!("enter.sh"), "enter"]).arg(&self.folder).arg(&self.hostname);
        command.args([container.user.to_string(), container.group.to_string()]);
        command.args([&glance.environment, &glance.python]);
        let mut mounts: Vec<_> = container.mounts.iter().collect();
        mounts.sort_by_key(|(_, target)| target);
        command.args(mounts.iter().map(|(source, target)| format!("{}={target}", source.display())));
        command.args(["--", "/usr/bin/env", "-i", "HOME=/tmp"]);
        command.arg("PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        command.args(container.environment.iter().map(|(name, value)| format!("{name}={value}")));
        command.args(&container.command);
        command
    }
}
