//! An agent without a pool, for tests: its glusterd only sleeps, and the output of the gluster command is fixed.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fmt::Debug;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stead_client::ClientConfig;
use stead_pool::{Identity, PeerFile};
use tokio::task::JoinHandle;

use crate::auth::{Key, Keys};
use crate::children::Children;
use crate::cluster::{Cluster, PoolObjects};
use crate::daemon::{Daemon, Process};
use crate::heals::IndexReader;
use crate::observe::observe_once;
use crate::settings::{PoolPod, Settings};
use crate::shared::{Observation, Shared};

/// The identity of the first pod.
pub(crate) const A: &str = "edb18957-b7f5-468d-baf8-19e0e02d20c7";

/// The identity of the second pod.
pub(crate) const B: &str = "d77f225f-14f9-4028-9ed1-02eff28cbc4c";

/// The name of the second pod.
pub(crate) const B_HOST: &str = "g-1.g.n.svc.d";

/// Parses a valid name.
pub(crate) fn name<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

/// Returns the keys of a pool whose key consists of this byte.
pub(crate) fn keys(byte: u8) -> Keys {
    let mut keys = Keys::default();
    keys.replace(Key::new(&[byte; 32]).unwrap());
    keys
}

/// The settings of the first pod of pool `g`.
pub(crate) fn settings() -> Settings {
    Settings {
        pool: "g".into(),
        service: "g".into(),
        cluster_domain: "d".into(),
        namespace: "n".into(),
        pod: PoolPod { name: "g-0".into(), ordinal: 0, uid: "uid".into(), address: name("10.0.0.1") },
        state_dir: PathBuf::new(),
        listen: ([127, 0, 0, 1], 1).into(),
        glusterd: Vec::new(),
        gluster: "gluster".into(),
        key_secret: Some("g-pool-key".into()),
        leave: Duration::from_secs(1),
    }
}

/// A glusterd that only sleeps, and the task that supervises it.
pub(crate) fn sleeper() -> (Daemon, JoinHandle<()>) {
    let (daemon, supervised) = Daemon::new(["sh", "-c", "exec sleep 1000"].map(str::to_owned).to_vec(), Children);
    (daemon, tokio::spawn(supervised))
}

/// Waits until glusterd runs.
pub(crate) async fn wait_until_running(daemon: &Daemon) {
    let mut changes = daemon.changes();
    changes.wait_for(|process| *process == Process::Running).await.unwrap();
}

/// An agent. Dropping it stops glusterd and removes the state directory.
pub(crate) struct TestAgent {
    pub(crate) shared: Arc<Shared>,
    supervised: JoinHandle<()>,
}

impl TestAgent {
    /// The agent of the first pod, whose glusterd runs and has the second pod in this state, if it knows it. `api` is
    /// the address of an API server, and `objects` what was read there.
    pub(crate) async fn new(test: &str, api: &str, peer_state: Option<u32>, objects: PoolObjects) -> TestAgent {
        TestAgent::with_settings(test, api, peer_state, objects, settings()).await
    }

    /// Like `new`, with other settings.
    pub(crate) async fn with_settings(
        test: &str,
        api: &str,
        peer_state: Option<u32>,
        objects: PoolObjects,
        settings: Settings,
    ) -> TestAgent {
        let folder = std::env::temp_dir().join(format!("stead-agent-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let gluster = folder.join("gluster");
        let peer = peer_state.map_or(String::new(), |state| {
            format!(
                "<peer><uuid>{B}</uuid><hostname>{B_HOST}</hostname><connected>1</connected><state>{state}</state></peer>"
            )
        });
        let answer = format!("<cliOutput><opRet>0</opRet><peerStatus>{peer}</peerStatus></cliOutput>");
        let asked = folder.join("asked");
        fs::write(&gluster, format!("#!/bin/sh\necho \"$@\" >> {}\necho '{answer}'\n", asked.display())).unwrap();
        fs::set_permissions(&gluster, fs::Permissions::from_mode(0o755)).unwrap();
        let gluster = gluster.display().to_string();
        let settings = Arc::new(Settings { state_dir: folder, gluster, ..settings });
        let client = ClientConfig::from_url(api).unwrap().connect().unwrap();
        let (daemon, supervised) = sleeper();
        let cluster = Cluster::new(client, settings.clone()).unwrap();
        cluster.set_objects(objects);
        let shared = Arc::new(Shared::new(settings, cluster, daemon, Children));
        let peer = PeerFile { uuid: name(B), state: 3, hosts: vec![name(B_HOST)] };
        let peers = peer_state.map(|_| peer).into_iter().collect();
        let identity = Identity { uuid: name(A), operating_version: 100_000, peers };
        shared.state.change(move |state| state.restore(&identity, "1")).await.unwrap();
        shared.daemon.start();
        wait_until_running(&shared.daemon).await;
        let report = observe_once(&shared).await;
        let now = Instant::now();
        shared.observation.send_replace(Observation { report, began: now, changed: now });
        TestAgent { shared, supervised }
    }

    /// Replaces the function that reads bricks.
    pub(crate) fn set_index_reader(&mut self, reader: IndexReader) {
        Arc::get_mut(&mut self.shared).unwrap().count_index = reader;
    }

    /// Writes a file into the state directory.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.shared.settings.state_dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The gluster commands that were run, one per line.
    pub(crate) fn gluster_commands(&self) -> String {
        fs::read_to_string(self.shared.settings.state_dir.join("asked")).unwrap_or_default()
    }
}

impl Drop for TestAgent {
    fn drop(&mut self) {
        self.supervised.abort();
        let _ = fs::remove_dir_all(&self.shared.settings.state_dir);
    }
}
