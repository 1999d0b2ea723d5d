//! Runs code in namespaces: on a thread that enters them, and ends.
//!
//! A namespace is a property of a thread. What a thread starts is in the thread's namespaces, so programs start in the
//! right place without any code of ours between fork and exec.

use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace. It is there as long as this value, or a process in it.
#[derive(Debug, Clone)]
pub(crate) struct Network(Arc<File>);

impl Network {
    /// A new one, with nothing in it but a loopback that is down.
    pub(crate) fn new() -> Result<Network> {
        let file = on_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).context("making a network namespace")?;
            File::open("/proc/thread-self/ns/net").context("a network namespace")
        })?;
        Ok(Network(Arc::new(file)))
    }

    /// Moves this thread into it.
    pub(crate) fn enter(&self) -> Result<()> {
        setns(self.0.as_ref(), CloneFlags::CLONE_NEWNET).context("entering a network namespace")
    }

    /// Does something in it, and waits for the result.
    pub(crate) fn within<T: Send>(&self, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        on_thread(|| {
            self.enter()?;
            act()
        })
    }

    /// A path by which other programs can name it while this process lives.
    pub(crate) fn path(&self) -> String {
        use std::os::fd::AsRawFd;
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Runs commands of `ip` in it, a line each.
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

/// Does something on a thread of its own, whose namespaces nobody else has.
pub(crate) fn on_thread<T: Send>(act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| scope.spawn(act).join().map_err(|_| anyhow!("a thread in a namespace panicked"))?)
}
