//! The heartbeats of nodes, on a thread of their own, so that nothing else in this process can delay them.

use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use kube::Client;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::machine;
use super::world::World;

/// A thread that renews the leases of the nodes. It ends with this value.
pub(super) struct Heartbeats {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeats {
    /// Starts the thread. It has a connection of its own to the API server.
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
                // It comes when the value is dropped too.
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
            // It can only fail by a panic, which it has reported itself.
            let _ = thread.join();
        }
    }
}
