//! The cluster of the situations: a node for each, other nodes of its zone, and some for all.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use stead_machines::{Machines, Setup};
use stead_testbed::{Binaries, ClusterSpec, ControlPlane, DriverSpec, NodeSpec, Options};
use tokio::process::Command;
use tokio::sync::Mutex;

use super::lateness::Lateness;
use super::objects::{ALL, FOR, ZONE, class, nodes, silent_before};
use super::sight::Sight;
use super::situation::{Situation, Storage};
use super::waits::Waits;

/// A quarter of an hour: how far apart clocks of different places are, or a multiple of it.
const QUARTER: SignedDuration = SignedDuration::from_mins(15);

/// A control plane with machines for situations.
pub(super) struct Ground {
    pub(super) machines: Machines,
    pub(super) sight: Sight,
    pub(super) lateness: Lateness,
    pub(super) waits: Waits,
    /// One question at a time, and what is done about it: an answer is about the moment at which it is given.
    pub(super) turn: Mutex<()>,
    plane: ControlPlane,
    stead: PathBuf,
    path: String,
    /// From the controller manager's log to UTC.
    log_is_behind: SignedDuration,
}

impl Ground {
    /// Starts a control plane and machines for these situations, of which so many happen at once.
    pub(super) async fn open(
        binaries: &Binaries,
        stead: &Path,
        waits: Waits,
        situations: &[Situation],
        at_once: usize,
    ) -> Result<Ground> {
        let options = Options { fast: waits.fast, ..Options::default() };
        let plane = ControlPlane::start(binaries, options).await?;
        let kubectl = binaries.program("kubectl");
        let folders = [kubectl.parent(), stead.parent()].into_iter().flatten().map(|f| f.display().to_string());
        let path = folders.chain(std::env::var("PATH")).collect::<Vec<_>>().join(":");
        let own: Vec<_> = situations.iter().flat_map(nodes).collect();
        // No recovery is begun while more than half of the nodes are silent.
        let mut silent: Vec<usize> = situations.iter().map(|s| 1 + silent_before(s).len()).collect();
        silent.sort_unstable_by(|a, b| b.cmp(a));
        let common = (2 * silent.iter().take(at_once).sum::<usize>() + 1).saturating_sub(own.len()).max(6);
        let common = (0..common).map(|n| (format!("all-{n}"), format!("zone-{}", n % 3), ALL.to_owned()));
        let node = |(name, zone, whose): (String, String, String)| NodeSpec {
            name,
            labels: [(ZONE.to_owned(), zone), (FOR.to_owned(), whose)].into(),
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
            nodes: own.into_iter().chain(common).map(node).collect(),
            drivers: drivers.collect(),
            heartbeat_seconds: waits.heartbeat as f64,
            ..ClusterSpec::default()
        };
        let classes: Vec<Value> = cluster.drivers.iter().map(|driver| storage_class(&driver.name)).collect();
        let machines = Machines::start(&plane, Setup { cluster, ..Setup::default() }).await?;
        machines.ready().await?;
        let (sight, lateness) = (Sight::new(plane.client()), Lateness::new(plane.client()));
        let (turn, stead) = (Mutex::new(()), stead.to_owned());
        let mut ground =
            Ground { machines, sight, lateness, waits, turn, plane, stead, path, log_is_behind: SignedDuration::ZERO };
        let quarters = Timestamp::now().duration_since(ground.collector_seen()?).as_secs_f64() / QUARTER.as_secs_f64();
        ground.log_is_behind = QUARTER.mul_f64(quarters.round());
        ground.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": classes })).await?;
        Ok(ground)
    }

    /// Makes objects, or changes them.
    pub(super) async fn apply(&self, objects: &Value) -> Result<()> {
        let ran = self.plane.kubectl_with(&["apply", "-f", "-"], &objects.to_string()).await?;
        ran.ok().map(drop)
    }

    /// Runs kubectl.
    pub(super) async fn kubectl(&self, args: &[&str]) -> Result<()> {
        let ran = self.plane.kubectl(args).await?;
        ran.ok().map(drop).with_context(|| format!("kubectl {}", args.join(" ")))
    }

    /// Types a line, as a person would who was told to; what it prints.
    pub(super) async fn types(&self, line: &str) -> Result<String> {
        let mut command = Command::new("sh");
        command.args(["-c", line]).env("PATH", &self.path).env("KUBECONFIG", self.plane.kubeconfig());
        command.env("KUBECACHEDIR", self.plane.folder().join("kubectl-cache"));
        let output = command.kill_on_drop(true).output().await.with_context(|| line.to_owned())?;
        ensure!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Writes a file that a command can name.
    pub(super) fn file(&self, name: &str, content: &str) -> Result<PathBuf> {
        let path = self.plane.folder().join(name);
        std::fs::write(&path, content).with_context(|| format!("writing {name}"))?;
        Ok(path)
    }

    /// What `stead explain` says of a pod.
    pub(super) async fn explain(&self, namespace: &str, pod: &str) -> Result<Value> {
        let (target, seen) = (format!("pod/{pod}"), self.collector_seen()?.to_string());
        let flags = self.waits.flags();
        let mut args = vec!["explain", &target, "-n", namespace, "-o", "json", "--pod-gc-seen", &seen];
        args.extend(flags.iter().map(String::as_str));
        let answer = crate::stead(&self.stead, &self.plane, &args).await?;
        serde_json::from_str(&answer).with_context(|| format!("stead {}", args.join(" ")))
    }

    /// When the pod collector looked last, as far as its log tells: it speaks only of what it does.
    fn collector_seen(&self) -> Result<Timestamp> {
        let name = if self.waits.fast { "kcm-fast.log" } else { "kube-controller-manager.log" };
        let log = std::fs::read_to_string(self.plane.folder().join(name)).with_context(|| format!("reading {name}"))?;
        let line = log.lines().rev().find(|line| line.contains(" gc_controller.go:") && !line.contains("Shutting"));
        let line = line.with_context(|| format!("nothing of the pod collector in {name}"))?;
        let seen = klog_time(line, Timestamp::now()).with_context(|| format!("no time in {line}"))?;
        Ok(seen + self.log_is_behind)
    }
}

fn storage_class(driver: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": driver },
        "provisioner": driver, "volumeBindingMode": "WaitForFirstConsumer",
    })
}

/// The time of a line such as `I1116 09:13:07.186033   12 file.go:7] …`, taken for UTC. The year is that of `now`.
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
    fn a_line_of_the_log_has_a_time() {
        let now = "2026-11-16T10:00:00Z".parse().expect("a time");
        let line = r#"I1116 09:13:07.186033   12 gc_controller.go:96] "Starting GC controller""#;
        assert_eq!(klog_time(line, now), "2026-11-16T09:13:07.186033Z".parse().ok());
        assert_eq!(klog_time("no such line", now), None);
    }
}
