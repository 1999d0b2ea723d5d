//! Processes that are killed with the scenario, and containers as processes with a separate root directory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::glance::kubelet::Container;
use crate::glance::prerequisites::Glance;

/// A process that is killed when this value is dropped, or when the scenario exits.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts a program, with its output in a file.
    pub(crate) fn start(command: &Command, log: &Path) -> Result<Running> {
        let file = File::create(log).with_context(|| format!("writing {}", log.display()))?;
        let program = command.get_program().to_string_lossy().into_owned();
        let mut wrapped = Command::new("setpriv");
        wrapped.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
        if let Some(folder) = command.get_current_dir() {
            wrapped.current_dir(folder);
        }
        let child = wrapped.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn();
        Ok(Running { child: child.with_context(|| format!("running {program}"))?, log: log.to_owned() })
    }

    /// Waits until `holds` returns true. Fails if the process exits before that.
    pub(crate) fn wait_until(&mut self, what: &str, limit: Duration, holds: &dyn Fn() -> bool) -> Result<()> {
        let start = Instant::now();
        while !holds() {
            let exited = self.child.try_wait()?;
            ensure!(
                exited.is_none() && start.elapsed() < limit,
                "timed out waiting until {what}; the end of the log:\n{}",
                self.log_tail()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// Returns the last lines of the output.
    pub(crate) fn log_tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may already have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The root directory of a container.
pub(crate) struct ContainerRoot {
    folder: PathBuf,
    hostname: String,
}

impl ContainerRoot {
    /// Creates a root directory in this folder.
    pub(crate) fn new(folder: &Path, hostname: &str) -> Result<ContainerRoot> {
        for part in ["files", "own"] {
            let part = folder.join(part);
            std::fs::create_dir_all(&part).with_context(|| format!("creating {}", part.display()))?;
        }
        Ok(ContainerRoot { folder: folder.to_owned(), hostname: hostname.to_owned() })
    }

    /// Returns the folder with the files that overlay those of the machine.
    pub(crate) fn files(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// Returns the command that runs a container. If it is killed, all processes of the container are killed, because
    /// they have a separate PID namespace.
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
