//! The cluster of the situations: a node for each, the other nodes of its zone, and nodes for all situations.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use stead_machines::{Machines, Setup};
use stead_testbed::{Binaries, ClusterSpec, ControlPlane, DriverSpec, NodeSpec, Options};
use tokio::process::Command;
use tokio::sync::Mutex;

use super::machine_delay::MachineDelay;
use super::objects::{ALL_SITUATIONS, SITUATION_LABEL, ZONE, class, nodes, unreachable_before};
use super::readiness::ReadinessWatch;
use super::situation::{Situation, Storage};
use super::timeouts::Timeouts;

/// The offsets of time zones are multiples of 15 minutes.
const QUARTER_HOUR: SignedDuration = SignedDuration::from_mins(15);

/// A control plane with machines for the situations.
pub(super) struct ForecastCluster {
    pub(super) machines: Machines,
    pub(super) readiness: ReadinessWatch,
    pub(super) machine_delay: MachineDelay,
    pub(super) timeouts: Timeouts,
    /// Held while a person calls `stead explain` and acts: a forecast is valid only for the moment when it is made.
    pub(super) turn: Mutex<()>,
    plane: ControlPlane,
    stead: PathBuf,
    path: String,
    /// The difference between UTC and the times in kube-controller-manager's log.
    log_offset: SignedDuration,
}

impl ForecastCluster {
    /// Starts a control plane and machines for these situations, `at_once` of which are played at the same time.
    pub(super) async fn open(
        binaries: &Binaries,
        stead: &Path,
        timeouts: Timeouts,
        situations: &[Situation],
        at_once: usize,
    ) -> Result<ForecastCluster> {
        let options = Options { fast: timeouts.fast, ..Options::default() };
        let plane = ControlPlane::start(binaries, options).await?;
        let kubectl = binaries.program("kubectl");
        let folders = [kubectl.parent(), stead.parent()].into_iter().flatten().map(|f| f.display().to_string());
        let path = folders.chain(std::env::var("PATH")).collect::<Vec<_>>().join(":");
        let separate: Vec<_> = situations.iter().flat_map(nodes).collect();
        // Add nodes: no recovery starts while more than half of the nodes are unreachable.
        let mut unreachable: Vec<usize> = situations.iter().map(|s| 1 + unreachable_before(s).len()).collect();
        unreachable.sort_unstable_by(|a, b| b.cmp(a));
        let common = (2 * unreachable.iter().take(at_once).sum::<usize>() + 1).saturating_sub(separate.len()).max(6);
        let common = (0..common).map(|n| (format!("all-{n}"), format!("zone-{}", n % 3), ALL_SITUATIONS.to_owned()));
        let node = |(name, zone, situation): (String, String, String)| NodeSpec {
            name,
            labels: [(ZONE.to_owned(), zone), (SITUATION_LABEL.to_owned(), situation)].into(),
            ..NodeSpec::default()
        };
        let storages = [Storage::Shared, Storage::Disk, Storage::ZoneDisk, Storage::Local];
        let drivers = storages.into_iter().filter_map(|storage| {
            let topology = match storage {
                Storage::ZoneDisk => Some(ZONE.to_owned()),
                Storage::Local => Some("kubernetes.io/hostname".to_owned()),
                _ => None,
            };
            let disk = matches!(storage, Storage::Disk | Storage::ZoneDisk);
            Some(DriverSpec { name: class(storage)?.to_owned(), topology, attach: disk, disk })
        });
        let cluster = ClusterSpec {
            nodes: separate.into_iter().chain(common).map(node).collect(),
            drivers: drivers.collect(),
            heartbeat_seconds: timeouts.heartbeat as f64,
            ..ClusterSpec::default()
        };
        let classes: Vec<Value> = cluster.drivers.iter().map(|driver| storage_class(&driver.name)).collect();
        let machines = Machines::start(&plane, Setup { cluster, ..Setup::default() }).await?;
        machines.ready().await?;
        let (readiness, machine_delay) = (ReadinessWatch::new(plane.client()), MachineDelay::new(plane.client()));
        let (turn, stead) = (Mutex::new(()), stead.to_owned());
        let mut opened = ForecastCluster {
            machines,
            readiness,
            machine_delay,
            timeouts,
            turn,
            plane,
            stead,
            path,
            log_offset: SignedDuration::ZERO,
        };
        let quarters =
            Timestamp::now().duration_since(opened.last_pod_gc()?).as_secs_f64() / QUARTER_HOUR.as_secs_f64();
        opened.log_offset = QUARTER_HOUR.mul_f64(quarters.round());
        opened.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": classes })).await?;
        Ok(opened)
    }

    /// Applies objects.
    pub(super) async fn apply(&self, objects: &Value) -> Result<()> {
        let ran = self.plane.kubectl_with(&["apply", "-f", "-"], &objects.to_string()).await?;
        ran.ok().map(drop)
    }

    /// Runs kubectl; fails if kubectl fails.
    pub(super) async fn kubectl(&self, args: &[&str]) -> Result<()> {
        let ran = self.plane.kubectl(args).await?;
        ran.ok().map(drop).with_context(|| format!("kubectl {}", args.join(" ")))
    }

    /// Runs a line in a shell, as a person would. Returns standard output.
    pub(super) async fn run_line(&self, line: &str) -> Result<String> {
        let mut command = Command::new("sh");
        command.args(["-c", line]).env("PATH", &self.path).env("KUBECONFIG", self.plane.kubeconfig());
        command.env("KUBECACHEDIR", self.plane.folder().join("kubectl-cache"));
        let output = command.kill_on_drop(true).output().await.with_context(|| line.to_owned())?;
        ensure!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Writes a file for a command. Returns its path.
    pub(super) fn write_file(&self, name: &str, content: &str) -> Result<PathBuf> {
        let path = self.plane.folder().join(name);
        std::fs::write(&path, content).with_context(|| format!("writing {name}"))?;
        Ok(path)
    }

    /// Returns the JSON output of `stead explain` for a pod.
    pub(super) async fn explain(&self, namespace: &str, pod: &str) -> Result<Value> {
        let (target, seen) = (format!("pod/{pod}"), self.last_pod_gc()?.to_string());
        let flags = self.timeouts.flags();
        let mut args = vec!["explain", &target, "-n", namespace, "-o", "json", "--pod-gc-seen", &seen];
        args.extend(flags.iter().map(String::as_str));
        let output = crate::stead(&self.stead, &self.plane, &args).await?;
        serde_json::from_str(&output).with_context(|| format!("stead {}", args.join(" ")))
    }

    /// Returns when the pod garbage collector last ran, according to its log. It logs only when it does something.
    fn last_pod_gc(&self) -> Result<Timestamp> {
        let name = if self.timeouts.fast { "kcm-fast.log" } else { "kube-controller-manager.log" };
        let log = std::fs::read_to_string(self.plane.folder().join(name)).with_context(|| format!("reading {name}"))?;
        let line = log.lines().rev().find(|line| line.contains(" gc_controller.go:") && !line.contains("Shutting"));
        let line = line.with_context(|| format!("no entry of the pod garbage collector in {name}"))?;
        let seen = klog_time(line, Timestamp::now()).with_context(|| format!("no time in {line}"))?;
        Ok(seen + self.log_offset)
    }
}

fn storage_class(driver: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": driver },
        "provisioner": driver, "volumeBindingMode": "WaitForFirstConsumer",
    })
}

/// Parses the time of a line such as `I1116 09:13:07.186033   12 file.go:7] …` as UTC, in the year of `now`.
fn klog_time(line: &str, now: Timestamp) -> Option<Timestamp> {
    let mut words = line.split_whitespace();
    let (date, time) = (words.next()?.get(1..)?, words.next()?);
    let (month, day) = (date.get(..2)?, date.get(2..)?);
    let year = now.to_string().get(..4)?.to_owned();
    format!("{year}-{month}-{day}T{time}Z").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn klog_times_are_parsed() {
        let now = "2026-11-16T10:00:00Z".parse().expect("a valid time");
        let line = r#"I1116 09:13:07.186033   12 gc_controller.go:96] "Starting GC controller""#;
        assert_eq!(klog_time(line, now), "2026-11-16T09:13:07.186033Z".parse().ok());
        assert_eq!(klog_time("no such line", now), None);
    }
}
