//! The heartbeats of nodes, on a separate thread, so that nothing else in this process can delay them.

use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use kube::Client;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::machine;
use super::world::World;

/// A thread that renews the leases of the nodes. It stops when this value is dropped.
pub(super) struct Heartbeats {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeats {
    /// Starts the thread, with its own connection to the API server.
    pub(super) fn start(config: kube::Config, world: Arc<World>) -> Result<Heartbeats> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("a runtime for heartbeats")?;
        let (stop, stopped) = oneshot::channel();
        let renew = move || {
            runtime.block_on(async move {
                let Ok(client) = Client::try_from(config) else { return };
                let mut nodes = JoinSet::new();
                for node in &world.spec.nodes {
                    nodes.spawn(machine::renew_lease(client.clone(), world.clone(), node.name.clone()));
                }
                // Also returns when the sender is dropped.
                let _ = stopped.await;
            });
        };
        let thread = std::thread::Builder::new().name("heartbeats".to_owned()).spawn(renew);
        Ok(Heartbeats { stop: Some(stop), thread: Some(thread.context("a thread for heartbeats")?) })
    }
}

impl Drop for Heartbeats {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It fails only after a panic, which was reported already.
            let _ = thread.join();
        }
    }
}
