//! A cluster for one test: the real control plane, and nodes that run pods as processes.

use std::time::{Duration, Instant};

use serde_json::Value;
use stead_machines::{Images, Machines, Setup};
use stead_testbed::{Binaries, ClusterSpec, ControlPlane, Options};

pub(crate) const NS: &str = "default";
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
    pub(crate) machines: Machines,
}

/// Returns the control plane's binaries. Returns none, and reports the test as skipped, if they are not built or pods
/// cannot run as processes.
pub(crate) fn binaries_or_skip() -> Option<Binaries> {
    Binaries::find_or_skip().filter(|_| Machines::can_run_or_skip())
}

impl Cluster {
    pub(crate) async fn start(binaries: &Binaries, options: Options, cluster: ClusterSpec, images: Images) -> Cluster {
        let plane = ControlPlane::start(binaries, options).await.unwrap();
        let machines = Machines::start(&plane, Setup { cluster, images, ..Setup::default() }).await.unwrap();
        machines.ready().await.unwrap();
        Cluster { plane, machines }
    }

    pub(crate) async fn apply(&self, object: Value) {
        self.plane.kubectl_with(&["apply", "-f", "-"], &object.to_string()).await.unwrap().ok().unwrap();
    }

    pub(crate) async fn kubectl(&self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        self.plane.kubectl(&words).await.unwrap().ok().unwrap()
    }

    pub(crate) async fn get(&self, what: &str, path: &str) -> String {
        let path = format!("jsonpath={path}");
        self.plane.kubectl(&["get", what, "-o", &path]).await.unwrap().stdout
    }

    /// Waits until `kubectl get` prints `expected`.
    pub(crate) async fn until(&self, what: &str, path: &str, expected: &str) {
        let end = Instant::now() + MINUTE;
        loop {
            let printed = self.get(what, path).await;
            if printed == expected {
                return;
            }
            assert!(Instant::now() < end, "{what} {path} is {printed}, not {expected}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
