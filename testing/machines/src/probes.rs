//! Runs probes and lifecycle hooks.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Container, ExecAction, HTTPGetAction, LifecycleHandler, Probe, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::sync::Notify;

use crate::container::RunningContainer;
use crate::enter::Network;
use crate::run::Run;

/// Probes a container from its node's network, like a kubelet.
pub(crate) struct Prober<'a> {
    pub(crate) container: &'a Container,
    pub(crate) running: &'a RunningContainer,
    pub(crate) node: Network,
    pub(crate) address: String,
}

impl Prober<'_> {
    /// Runs the postStart hook and the container's probes for as long as it is polled, records the results, and
    /// notifies `unhealthy` when the container has to be restarted.
    pub(crate) async fn run_all(&self, run: &Run, unhealthy: &Notify) -> Infallible {
        let name = &self.container.name;
        if let Some(hook) = self.container.lifecycle.as_ref().and_then(|l| l.post_start.as_ref())
            && self.run_hook(hook).await.is_err()
        {
            unhealthy.notify_one();
        }
        if let Some(probe) = &self.container.startup_probe
            && !self.wait_until_started(run, probe).await
        {
            unhealthy.notify_one();
            return std::future::pending().await;
        }
        run.update_container(name, |state| state.started = true);
        let liveness = async {
            if let Some(probe) = &self.container.liveness_probe {
                self.wait_until_unhealthy(run, probe).await;
                unhealthy.notify_one();
            }
        };
        let readiness = async {
            match &self.container.readiness_probe {
                Some(probe) => self.track_readiness(run, probe).await,
                None => run.update_container(name, |state| state.ready = true),
            }
        };
        tokio::join!(liveness, readiness);
        std::future::pending().await
    }

    /// Returns whether the startup probe succeeds before it reaches its failure threshold.
    async fn wait_until_started(&self, run: &Run, probe: &Probe) -> bool {
        let (mut failures, threshold) = (0, probe.failure_threshold.unwrap_or(3));
        tokio::time::sleep(seconds(probe.initial_delay_seconds, 0)).await;
        while failures < threshold {
            match self.attempt(run, probe).await {
                Some(true) => return true,
                Some(false) => failures += 1,
                None => continue,
            }
            tokio::time::sleep(seconds(probe.period_seconds, 10)).await;
        }
        false
    }

    /// Waits until the liveness probe reaches its failure threshold.
    async fn wait_until_unhealthy(&self, run: &Run, probe: &Probe) {
        let (mut failures, threshold) = (0, probe.failure_threshold.unwrap_or(3));
        tokio::time::sleep(seconds(probe.initial_delay_seconds, 0)).await;
        loop {
            let Some(healthy) = self.attempt(run, probe).await else { continue };
            failures = if healthy { 0 } else { failures + 1 };
            if failures >= threshold {
                return;
            }
            tokio::time::sleep(seconds(probe.period_seconds, 10)).await;
        }
    }

    /// Records the results of the readiness probe for as long as it is polled.
    async fn track_readiness(&self, run: &Run, probe: &Probe) {
        let (mut successes, mut failures) = (0, 0);
        tokio::time::sleep(seconds(probe.initial_delay_seconds, 0)).await;
        loop {
            let Some(healthy) = self.attempt(run, probe).await else { continue };
            (successes, failures) = if healthy { (successes + 1, 0) } else { (0, failures + 1) };
            if successes >= probe.success_threshold.unwrap_or(1) {
                run.update_container(&self.container.name, |state| state.ready = true);
            } else if failures >= probe.failure_threshold.unwrap_or(3) {
                run.update_container(&self.container.name, |state| state.ready = false);
            }
            tokio::time::sleep(seconds(probe.period_seconds, 10)).await;
        }
    }

    /// Returns whether a probe succeeds; none if the node was stopped meanwhile.
    async fn attempt(&self, run: &Run, probe: &Probe) -> Option<bool> {
        run.wait_for_node().await;
        let healthy = self.run_probe(probe).await.is_ok();
        run.is_node_running().then_some(healthy)
    }

    async fn run_probe(&self, probe: &Probe) -> Result<()> {
        let time = seconds(probe.timeout_seconds, 1);
        if let Some(exec) = &probe.exec {
            return tokio::time::timeout(time, self.exec(exec)).await.context("the probe took too long")?;
        }
        if let Some(get) = &probe.http_get {
            return self.http(get, time).await;
        }
        match &probe.tcp_socket {
            Some(tcp) => self.tcp(tcp, time).await,
            None => bail!("this kind of probe is not supported"),
        }
    }

    /// Runs a lifecycle hook.
    pub(crate) async fn run_hook(&self, hook: &LifecycleHandler) -> Result<()> {
        if let Some(exec) = &hook.exec {
            self.exec(exec).await
        } else if let Some(get) = &hook.http_get {
            // A hook has no timeout except the pod's grace period, which the caller enforces.
            self.http(get, Duration::from_secs(3600)).await
        } else if let Some(sleep) = &hook.sleep {
            tokio::time::sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or_default())).await;
            Ok(())
        } else {
            bail!("this kind of hook is not supported")
        }
    }

    async fn exec(&self, exec: &ExecAction) -> Result<()> {
        let output = self.running.exec(exec.command.as_deref().unwrap_or_default()).await?;
        ensure!(output.status.success(), "the command ended with {}", output.status);
        Ok(())
    }

    async fn tcp(&self, tcp: &TCPSocketAction, time: Duration) -> Result<()> {
        let address = self.socket(tcp.host.as_deref(), &tcp.port)?;
        self.on_node(move || {
            TcpStream::connect_timeout(&address, time).with_context(|| format!("connecting to {address}"))?;
            Ok(())
        })
        .await
    }

    async fn http(&self, get: &HTTPGetAction, time: Duration) -> Result<()> {
        ensure!(get.scheme.as_deref().unwrap_or("HTTP") == "HTTP", "HTTPS probes are not supported");
        let address = self.socket(get.host.as_deref(), &get.port)?;
        let mut request = format!("GET {} HTTP/1.1\r\n", get.path.as_deref().unwrap_or("/"));
        let headers = get.http_headers.as_deref().unwrap_or_default();
        if !headers.iter().any(|h| h.name.eq_ignore_ascii_case("host")) {
            request += &format!("Host: {address}\r\n");
        }
        for header in headers {
            request += &format!("{}: {}\r\n", header.name, header.value);
        }
        request += "User-Agent: kube-probe/1.36\r\nAccept: */*\r\nConnection: close\r\n\r\n";
        self.on_node(move || {
            let action = || format!("HTTP request to {address}");
            let mut stream = TcpStream::connect_timeout(&address, time).with_context(action)?;
            stream.set_read_timeout(Some(time)).with_context(action)?;
            stream.write_all(request.as_bytes()).with_context(action)?;
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).with_context(action)?;
            let code = std::str::from_utf8(&answer[9..12]).ok().and_then(|text| text.parse::<u16>().ok());
            match code {
                Some(200..400) => Ok(()),
                _ => bail!("HTTP probe failed with statuscode: {}", code.unwrap_or_default()),
            }
        })
        .await
    }

    /// Runs a blocking function in the node's network.
    async fn on_node(&self, act: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        let node = self.node.clone();
        tokio::task::spawn_blocking(move || node.within(act)).await.context("the thread that runs a probe")?
    }

    fn socket(&self, host: Option<&str>, port: &IntOrString) -> Result<SocketAddr> {
        let number = match port {
            IntOrString::Int(number) => Some(*number),
            IntOrString::String(name) => {
                let ports = self.container.ports.as_deref().unwrap_or_default();
                let named = ports.iter().find(|p| p.name.as_ref() == Some(name)).map(|p| p.container_port);
                named.or_else(|| name.parse().ok())
            }
        };
        let number = number.with_context(|| format!("container {} has no port {port:?}", self.container.name))?;
        let host = host.filter(|host| !host.is_empty()).unwrap_or(&self.address);
        format!("{host}:{number}").parse().with_context(|| format!("{host}:{number} is not a valid address"))
    }
}

fn seconds(given: Option<i32>, default: u64) -> Duration {
    Duration::from_secs(given.and_then(|s| u64::try_from(s).ok()).unwrap_or(default))
}
