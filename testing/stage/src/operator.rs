//! The operator as a process.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// The timeout for a response or the exit of a running operator: far longer than it takes on a busy machine.
const OPERATOR_TIMEOUT: Duration = Duration::from_secs(900);

/// A running operator. It is killed when this value is dropped.
pub struct Operator {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Operator {
    pub(crate) fn spawn(stead: &Path, kubeconfig: &Path, folder: &Path, flags: &[&str]) -> Result<Operator> {
        let named = flags.iter().any(|flag| flag.starts_with("--namespace"));
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let log = folder.join(format!("operator-{port}.log"));
        let file = std::fs::File::create(&log).with_context(|| format!("writing {}", log.display()))?;
        let listen = format!("127.0.0.1:{port}");
        let child = Command::new(stead)
            .args(["operator", "--listen", &listen, "--glance-image", crate::IMAGE])
            .args(if named { None } else { Some("--namespace=default") })
            .args(flags)
            .env("KUBECONFIG", kubeconfig)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("running {}", stead.display()))?;
        Ok(Operator { child, port, log })
    }

    /// Waits until the operator is ready and the leader.
    pub async fn wait_until_ready(&mut self) -> Result<()> {
        let end = Instant::now() + OPERATOR_TIMEOUT;
        loop {
            if self.page("/readyz").await.is_ok_and(|page| page.contains("200 OK") && page.contains("leads")) {
                return Ok(());
            }
            self.check_running()?;
            ensure!(Instant::now() < end, "the operator is not ready after {OPERATOR_TIMEOUT:?}: {}", self.log()?);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Fails with the operator's log if it has exited.
    pub fn check_running(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the operator exited with {status}: {}", self.log()?);
        }
        Ok(())
    }

    /// Returns an HTTP response of the operator, such as of `/metrics`, including the headers.
    pub async fn page(&self, path: &str) -> Result<String> {
        let page = tokio::time::timeout(OPERATOR_TIMEOUT, self.request(path)).await;
        page.with_context(|| format!("the operator does not answer for {path} within {OPERATOR_TIMEOUT:?}"))?
    }

    async fn request(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: operator\r\n\r\n").as_bytes()).await?;
        let mut page = String::new();
        stream.read_to_string(&mut page).await?;
        Ok(page)
    }

    /// Returns the operator's peak memory so far, in bytes (VmHWM of its process).
    pub fn peak_memory(&self) -> Result<u64> {
        let id = self.child.id().context("the operator has already exited")?;
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).context("reading the operator's memory")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM in its status")?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().context("VmHWM is not a number")?;
        Ok(kib * 1024)
    }

    /// Returns the operator's log.
    pub fn log(&self) -> Result<String> {
        std::fs::read_to_string(&self.log).with_context(|| format!("reading {}", self.log.display()))
    }

    /// Kills the operator, as a power loss would.
    pub async fn kill(mut self) -> Result<()> {
        self.child.kill().await.context("killing the operator")
    }

    /// Sends SIGTERM to the operator, and waits until it exits.
    pub async fn stop(mut self) -> Result<()> {
        let id = self.child.id().context("the operator has already exited")?;
        let sent = Command::new("kill").args(["-TERM", &id.to_string()]).status().await?;
        ensure!(sent.success(), "kill: {sent}");
        let Ok(status) = tokio::time::timeout(OPERATOR_TIMEOUT, self.child.wait()).await else {
            bail!("the operator does not exit within {OPERATOR_TIMEOUT:?}: {}", self.log()?);
        };
        let status = status?;
        ensure!(status.success(), "the operator exited with {status}: {}", self.log()?);
        Ok(())
    }
}
