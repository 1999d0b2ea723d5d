//! A person who runs `stead recover` through a faulty API server. The process can be killed after any write.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use stead_testbed::{ControlPlane, FaultProxy, Faults};
use tokio::process::Command;

use super::run_log::RunLog;

/// The timeout of a call: longer than its own `--timeout`.
const CALL_TIMEOUT: Duration = Duration::from_secs(100);

/// A person, with a separate proxy to the API server.
pub(super) struct Person<'a> {
    pub(super) name: &'static str,
    pub(super) proxy: FaultProxy,
    kubeconfig: PathBuf,
    log: PathBuf,
    stead: &'a Path,
    run_log: &'a RunLog,
}

/// What to do with a call when the proxy holds it after a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeldCall {
    Continue,
    Kill,
}

impl<'a> Person<'a> {
    pub(super) async fn new(
        name: &'static str,
        token: &str,
        plane: &ControlPlane,
        seed: u64,
        faults: Faults,
        stead: &'a Path,
        run_log: &'a RunLog,
    ) -> Result<Person<'a>> {
        let proxy = FaultProxy::start(plane, seed).await?;
        proxy.set(faults);
        let kubeconfig = proxy.kubeconfig(plane.folder(), name, token)?;
        let log = kubeconfig.with_extension("log");
        Ok(Person { name, proxy, kubeconfig, log, stead, run_log })
    }

    /// Returns the number of writes so far.
    pub(super) fn write_count(&self) -> u64 {
        self.proxy.written().iter().filter(|write| write.succeeded()).count() as u64
    }

    /// Runs `stead recover`. Returns the exit code; none if it was killed. When the proxy holds the call, `held`
    /// decides what happens.
    pub(super) async fn call(
        &self,
        args: &[&str],
        mut held: impl AsyncFnMut() -> Result<HeldCall>,
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
        self.run_log.add(format!("{name} runs: stead recover {}", args.join(" ")));
        let timeout = tokio::time::sleep(CALL_TIMEOUT);
        tokio::pin!(timeout);
        let code = loop {
            tokio::select! {
                status = child.wait() => break status?.code(),
                () = self.proxy.wait_until_held() => if held().await? == HeldCall::Kill {
                    child.kill().await.context("killing `stead recover`")?;
                    break None;
                },
                () = &mut timeout => anyhow::bail!("{name}: `stead recover` has not exited after {CALL_TIMEOUT:?}"),
            }
        };
        let output = std::fs::read_to_string(&self.log).with_context(|| format!("reading {}", self.log.display()))?;
        let how = code.map_or("was killed".to_owned(), |code| format!("exited with {code}"));
        self.run_log.add(format!("{name}'s call {how}; {} writes so far\n{output}", self.write_count()));
        Ok(code)
    }
}
