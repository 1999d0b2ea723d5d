//! The operator as a process.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// How long to wait for an operator that runs, but does not answer or end: far longer than it takes on a busy machine.
const MOST: Duration = Duration::from_secs(900);

/// A running operator. It is killed when this value goes.
pub struct Operator {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Operator {
    pub(crate) fn begin(stead: &Path, kubeconfig: &Path, folder: &Path, flags: &[&str]) -> Result<Operator> {
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

    /// Waits until it says that it is ready and leads.
    pub async fn ready(&mut self) -> Result<()> {
        let end = Instant::now() + MOST;
        loop {
            if self.page("/readyz").await.is_ok_and(|page| page.contains("200 OK") && page.contains("leads")) {
                return Ok(());
            }
            self.runs()?;
            ensure!(Instant::now() < end, "the operator is not ready after {MOST:?}: {}", self.log()?);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Fails if it has ended, with its log.
    pub fn runs(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the operator ended with {status}: {}", self.log()?);
        }
        Ok(())
    }

    /// A page of its own, such as `/metrics`, with the head of the answer.
    pub async fn page(&self, path: &str) -> Result<String> {
        let page = tokio::time::timeout(MOST, self.asked(path)).await;
        page.with_context(|| format!("the operator does not answer for {path} within {MOST:?}"))?
    }

    async fn asked(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: operator\r\n\r\n").as_bytes()).await?;
        let mut page = String::new();
        stream.read_to_string(&mut page).await?;
        Ok(page)
    }

    /// The most memory that it has had so far, in bytes: VmHWM of its process.
    pub fn peak_memory(&self) -> Result<u64> {
        let id = self.child.id().context("the operator has ended before")?;
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).context("the operator's memory")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("a process without VmHWM")?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().context("VmHWM is no number")?;
        Ok(kib * 1024)
    }

    /// What it has logged.
    pub fn log(&self) -> Result<String> {
        std::fs::read_to_string(&self.log).with_context(|| format!("reading {}", self.log.display()))
    }

    /// Kills it, as a machine that loses its power would.
    pub async fn kill(mut self) -> Result<()> {
        self.child.kill().await.context("killing the operator")
    }

    /// Tells it to end, and waits until it has.
    pub async fn end(mut self) -> Result<()> {
        let id = self.child.id().context("the operator has ended before")?;
        let told = Command::new("kill").args(["-TERM", &id.to_string()]).status().await?;
        ensure!(told.success(), "kill: {told}");
        let Ok(status) = tokio::time::timeout(MOST, self.child.wait()).await else {
            bail!("the operator does not end within {MOST:?}: {}", self.log()?);
        };
        let status = status?;
        ensure!(status.success(), "the operator ended with {status}: {}", self.log()?);
        Ok(())
    }
}
