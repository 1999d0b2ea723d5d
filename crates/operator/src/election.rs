//! The election: a [`Candidate`] in front of a real Lease.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use stead_loops::ObjectKey;
use tokio::sync::oneshot;
use tracing::{debug, info, warn};

use crate::api::Fault;
use crate::client::exchange;
use crate::lease::{Candidate, DURATION, Deed, Seen};
use crate::request::{Request, Resource};
use crate::shared::Shared;
use crate::standing::Standing;

/// The name of the Lease.
const NAME: &str = "stead-operator";

/// How long a request of the election may take.
const LIMIT: Duration = Duration::from_secs(4);

const LEASES: Resource<'static> =
    Resource { api_version: "coordination.k8s.io/v1", plural: "leases", namespaced: true };

/// Takes part in the election until told to stop, then gives the Lease back. It has a thread and a client of its own:
/// nothing that the loops do may keep it from renewing.
pub(crate) struct Election {
    stop: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Election {
    /// Begins to take part.
    pub(crate) fn begin(
        config: kube::Config,
        namespace: &str,
        identity: String,
        shared: Arc<Shared>,
    ) -> anyhow::Result<Election> {
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let key = ObjectKey::new("Lease", namespace, NAME);
        let thread = std::thread::Builder::new().name("election".into()).spawn(move || {
            runtime.block_on(async {
                match Client::try_from(config) {
                    Ok(client) => {
                        Booth { client, key, shared, candidate: Candidate::new(identity), lease: None }
                            .run(stopped)
                            .await;
                    }
                    Err(error) => warn!("the election has no client: {error}"),
                }
            });
        })?;
        Ok(Election { stop, thread })
    }

    /// Gives the Lease back, if this process holds it.
    pub(crate) async fn end(self) {
        // Where nobody listens any more, the thread has ended already.
        let _ = self.stop.send(());
        let _ = tokio::task::spawn_blocking(move || self.thread.join()).await;
    }
}

struct Booth {
    client: Client,
    key: ObjectKey,
    shared: Arc<Shared>,
    candidate: Candidate,
    /// The Lease as it was last seen.
    lease: Option<Value>,
}

impl Booth {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        loop {
            if let Err(fault) = self.round().await {
                debug!("{}: {fault}", self.key);
            }
            self.announce();
            let pause = self.candidate.pause(self.now());
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = &mut stopped => break,
            }
        }
        if self.candidate.term(self.now()).is_some() {
            self.shared.leadership.set(Standing::Standby);
            match self.write(Deed::Renew, "").await {
                Ok(()) => info!("gave the {} back", self.key),
                Err(fault) => warn!("giving the {} back: {fault}", self.key),
            }
        }
    }

    fn now(&self) -> Duration {
        self.shared.clock.now()
    }

    /// Tells everybody where this process stands.
    fn announce(&self) {
        let standing = match self.candidate.term(self.now()) {
            Some(term) => Standing::Leads(term),
            None => Standing::Standby,
        };
        let led = self.shared.leadership.leads();
        self.shared.leadership.set(standing);
        match (led, self.shared.leadership.leads()) {
            (false, true) => info!("leads, as {}", self.candidate.identity()),
            (true, false) => warn!("leads no longer: the {} was not renewed", self.key),
            _ => {}
        }
    }

    /// One look at the Lease, and what follows from it. A leader relies on what it wrote last: that it was changed
    /// by somebody else shows when it renews.
    async fn round(&mut self) -> Result<(), Fault> {
        if self.candidate.term(self.now()).is_none() || self.lease.is_none() {
            self.lease = match self.send(LEASES.get(&self.key)).await {
                Ok(lease) => Some(lease),
                Err(fault) if fault.is_not_found() => None,
                Err(fault) => return Err(fault),
            };
        }
        let seen = self.lease.as_ref().map(seen);
        let now = self.now();
        match self.candidate.decide(now, seen.as_ref()) {
            Deed::Wait => Ok(()),
            deed => {
                let identity = self.candidate.identity().to_owned();
                let written = self.write(deed, &identity).await;
                match &written {
                    Ok(()) => self.candidate.holds(now),
                    // Whatever it is now, it is not what was last seen.
                    Err(fault) if fault.failure.code != 0 => self.lease = None,
                    Err(_) => {}
                }
                written
            }
        }
    }

    async fn write(&mut self, deed: Deed, holder: &str) -> Result<(), Fault> {
        let time = format!("{:.6}", Timestamp::now());
        let before = self.lease.clone().unwrap_or_default();
        let mut spec = before["spec"].clone();
        if deed != Deed::Renew {
            let transitions = before["spec"]["leaseTransitions"].as_i64().map_or(0, |n| n + 1);
            spec = json!({"acquireTime": time, "leaseTransitions": transitions});
        }
        spec["holderIdentity"] = holder.into();
        spec["leaseDurationSeconds"] = DURATION.as_secs().into();
        spec["renewTime"] = time.into();
        let mut lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.key.name, "namespace": self.key.namespace},
            "spec": spec,
        });
        let request = if deed == Deed::Create {
            LEASES.create(&self.key.namespace, lease)
        } else {
            lease["metadata"] = before["metadata"].clone();
            LEASES.update(&self.key, lease)
        };
        self.lease = Some(self.send(request).await?);
        Ok(())
    }

    async fn send(&self, request: Request) -> Result<Value, Fault> {
        tokio::time::timeout(LIMIT, exchange(&self.client, request))
            .await
            .unwrap_or_else(|_| Err(Fault::unanswered("Timeout", format!("no answer within {} s", LIMIT.as_secs()))))
    }
}

fn seen(lease: &Value) -> Seen {
    Seen {
        holder: lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned(),
        duration: lease["spec"]["leaseDurationSeconds"].as_u64().map_or(DURATION, Duration::from_secs),
        revision: lease["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned(),
    }
}
