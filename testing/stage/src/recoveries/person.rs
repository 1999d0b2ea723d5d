//! A person who calls `stead recover` through a faulty API server, and is killed.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use stead_testbed::{ControlPlane, FaultProxy, Faults};
use tokio::process::Command;

use super::story::Story;

/// Longer than any call may take by its own `--timeout`.
const LONGEST: Duration = Duration::from_secs(100);

/// Somebody, with a way of their own to the API server.
pub(super) struct Person<'a> {
    pub(super) name: &'static str,
    pub(super) proxy: FaultProxy,
    kubeconfig: PathBuf,
    log: PathBuf,
    stead: &'a Path,
    story: &'a Story,
}

/// What becomes of a call at a write after which all wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    GoesOn,
    Killed,
}

impl<'a> Person<'a> {
    pub(super) async fn new(
        name: &'static str,
        token: &str,
        plane: &ControlPlane,
        seed: u64,
        faults: Faults,
        stead: &'a Path,
        story: &'a Story,
    ) -> Result<Person<'a>> {
        let proxy = FaultProxy::start(plane, seed).await?;
        proxy.set(faults);
        let kubeconfig = proxy.kubeconfig(plane.folder(), name, token)?;
        let log = kubeconfig.with_extension("log");
        Ok(Person { name, proxy, kubeconfig, log, stead, story })
    }

    /// So many writes were made by now.
    pub(super) fn made(&self) -> u64 {
        self.proxy.written().iter().filter(|write| write.was_made()).count() as u64
    }

    /// Calls `stead recover`; the exit code, none if it was killed. Where the proxy holds everybody, it is asked what
    /// becomes of the call.
    pub(super) async fn calls(
        &self,
        args: &[&str],
        mut held: impl AsyncFnMut() -> Result<Fate>,
    ) -> Result<Option<i32>> {
        let file = std::fs::File::create(&self.log).with_context(|| format!("writing {}", self.log.display()))?;
        let name = self.name;
        let mut child = Command::new(self.stead)
            .arg("recover")
            .args(args)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("running {}", self.stead.display()))?;
        self.story.tell(format!("{name} calls: recover {}", args.join(" ")));
        let late = tokio::time::sleep(LONGEST);
        tokio::pin!(late);
        let code = loop {
            tokio::select! {
                status = child.wait() => break status?.code(),
                () = self.proxy.held() => if held().await? == Fate::Killed {
                    child.kill().await.context("killing a call")?;
                    break None;
                },
                () = &mut late => anyhow::bail!("{name}: a call has not ended after {LONGEST:?}"),
            }
        };
        let said = std::fs::read_to_string(&self.log).with_context(|| format!("reading {}", self.log.display()))?;
        let how = code.map_or("was killed".to_owned(), |code| format!("ended with {code}"));
        self.story.tell(format!("{name}'s call {how}; {} writes by now\n{said}", self.made()));
        Ok(code)
    }
}
