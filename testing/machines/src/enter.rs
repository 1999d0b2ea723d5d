//! Runs code in namespaces, on a thread that enters them.
//!
//! A namespace is a property of a thread. Processes start in the namespaces of the thread that starts them, so no code
//! is needed between fork and exec.

use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace. It exists as long as this value, or a process in it.
#[derive(Debug, Clone)]
pub(crate) struct Network(Arc<File>);

impl Network {
    /// Creates a namespace with only a loopback device, which is down.
    pub(crate) fn new() -> Result<Network> {
        let file = on_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).context("creating a network namespace")?;
            File::open("/proc/thread-self/ns/net").context("a network namespace")
        })?;
        Ok(Network(Arc::new(file)))
    }

    /// Moves this thread into the namespace.
    pub(crate) fn enter(&self) -> Result<()> {
        setns(self.0.as_ref(), CloneFlags::CLONE_NEWNET).context("entering a network namespace")
    }

    /// Runs a function in the namespace.
    pub(crate) fn within<T: Send>(&self, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        on_thread(|| {
            self.enter()?;
            act()
        })
    }

    /// Returns a path to the namespace for other programs, valid while this process lives.
    pub(crate) fn path(&self) -> String {
        use std::os::fd::AsRawFd;
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Runs `ip` commands in the namespace, one per line.
    pub(crate) fn ip(&self, commands: &str) -> Result<()> {
        self.within(|| {
            let mut ip = Command::new("ip")
                .args(["-batch", "-"])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .context("running ip")?;
            let mut input = ip.stdin.take().context("ip has no input")?;
            input.write_all(commands.as_bytes()).context("writing to ip")?;
            drop(input);
            let output = ip.wait_with_output().context("waiting for ip")?;
            ensure!(output.status.success(), "ip: {} of\n{commands}", String::from_utf8_lossy(&output.stderr).trim());
            Ok(())
        })
    }
}

/// Runs a function on a new thread, so that its namespaces can be changed.
pub(crate) fn on_thread<T: Send>(act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| scope.spawn(act).join().map_err(|_| anyhow!("a thread in a namespace panicked"))?)
}
