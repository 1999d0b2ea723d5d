//! The election: a [`Candidate`] in front of a real Lease.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tracing::{debug, info, warn};

use crate::clock::Clock;
use crate::lease::{Candidate, Deed, Pace, Seen};
use crate::standing::{Leadership, Standing};

/// How long a request of the election may take.
const LIMIT: Duration = Duration::from_secs(4);

/// Who wrote what, in managedFields.
const MANAGER: &str = "stead";

/// Which Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl std::fmt::Display for LeaseName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lease {}/{}", self.namespace, self.name)
    }
}

impl LeaseName {
    fn all(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    fn one(&self) -> String {
        format!("{}/{}", self.all(), self.name)
    }
}

/// Takes part in the election until told to stop, then gives the Lease back. It has a thread and a client of its own:
/// nothing that the process does otherwise may keep it from renewing.
pub struct Election {
    stop: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
    _stands: watch::Sender<bool>,
}

impl Election {
    /// Begins to take part.
    pub fn begin(
        config: kube::Config,
        lease: LeaseName,
        identity: String,
        clock: Clock,
        leadership: Arc<Leadership>,
    ) -> anyhow::Result<Election> {
        let (stop, stopped) = oneshot::channel();
        let (stands, standing) = watch::channel(true);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("election".into()).spawn(move || {
            runtime.block_on(async {
                match Client::try_from(config) {
                    Ok(client) => {
                        let candidate = Candidate::new(identity, Pace::USUAL);
                        stand(client, lease, candidate, clock, leadership, standing, stopped).await;
                    }
                    Err(error) => warn!("the election has no client: {error}"),
                }
            });
        })?;
        Ok(Election { stop, thread, _stands: stands })
    }

    /// Gives the Lease back, if this process holds it.
    pub async fn end(self) {
        // Where nobody listens any more, the thread has ended already.
        let _ = self.stop.send(());
        let _ = tokio::task::spawn_blocking(move || self.thread.join()).await;
    }
}

/// Takes part in the election for as long as `stands` says so, until told to stop; then gives the Lease back.
pub async fn stand(
    client: Client,
    name: LeaseName,
    candidate: Candidate,
    clock: Clock,
    leadership: Arc<Leadership>,
    mut stands: watch::Receiver<bool>,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut booth = Booth { client, name, clock, leadership, candidate, lease: None };
    loop {
        let pause = if *stands.borrow_and_update() {
            if let Err(fault) = booth.round().await {
                debug!("{}: {fault}", booth.name);
            }
            booth.announce();
            booth.candidate.pause(booth.now())
        } else {
            booth.give_back().await;
            Duration::from_secs(3600)
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            Ok(()) = stands.changed() => {}
            _ = &mut stopped => break,
        }
    }
    booth.give_back().await;
}

struct Booth {
    client: Client,
    name: LeaseName,
    clock: Clock,
    leadership: Arc<Leadership>,
    candidate: Candidate,
    /// The Lease as it was last seen.
    lease: Option<Value>,
}

impl Booth {
    fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Lets the next one lead, if this process does.
    async fn give_back(&mut self) {
        let led = self.candidate.term(self.now()).is_some();
        self.leadership.set(Standing::Standby);
        if led {
            match self.write(Deed::Renew, "").await {
                Ok(()) => info!("gave the {} back", self.name),
                Err(fault) => warn!("giving the {} back: {fault}", self.name),
            }
            self.candidate.gave_back();
        }
    }

    /// Tells everybody where this process stands.
    fn announce(&self) {
        let standing = match self.candidate.term(self.now()) {
            Some(term) => Standing::Leads(term),
            None => Standing::Standby,
        };
        let led = self.leadership.leads();
        self.leadership.set(standing);
        match (led, self.leadership.leads()) {
            (false, true) => info!("leads, as {}", self.candidate.identity()),
            (true, false) => warn!("leads no longer: the {} was not renewed", self.name),
            _ => {}
        }
    }

    /// One look at the Lease, and what follows from it. A leader relies on what it wrote last: that it was changed
    /// by somebody else shows when it renews.
    async fn round(&mut self) -> Result<(), Fault> {
        if self.candidate.term(self.now()).is_none() || self.lease.is_none() {
            self.lease = match self.send("GET", &self.name.one(), None).await {
                Ok(lease) => Some(lease),
                Err(Fault::Refused { code: 404, .. }) => None,
                Err(fault) => return Err(fault),
            };
        }
        let seen = self.lease.as_ref().map(|lease| seen(lease, self.candidate.pace()));
        let now = self.now();
        match self.candidate.decide(now, seen.as_ref()) {
            Deed::Wait => Ok(()),
            deed => {
                let identity = self.candidate.identity().to_owned();
                let written = self.write(deed, &identity).await;
                match &written {
                    Ok(()) => self.candidate.holds(now),
                    // Whatever it is now, it is not what was last seen.
                    Err(Fault::Refused { .. }) => self.lease = None,
                    Err(Fault::Unanswered(_)) => {}
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
        spec["leaseDurationSeconds"] = self.candidate.pace().duration.as_secs().into();
        spec["renewTime"] = time.into();
        let mut lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name.name, "namespace": self.name.namespace},
            "spec": spec,
        });
        self.lease = Some(if deed == Deed::Create {
            self.send("POST", &self.name.all(), Some(&lease)).await?
        } else {
            lease["metadata"] = before["metadata"].clone();
            self.send("PUT", &self.name.one(), Some(&lease)).await?
        });
        Ok(())
    }

    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Fault> {
        let query = if body.is_some() { format!("?fieldManager={MANAGER}") } else { String::new() };
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{path}{query}"))
            .header("content-type", "application/json")
            .header("accept", "application/json")
            .body(body.map(|b| b.to_string().into_bytes()).unwrap_or_default())
            .map_err(|e| Fault::Unanswered(e.to_string()))?;
        match tokio::time::timeout(LIMIT, self.client.request(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => {
                Err(Fault::Refused { code: status.code, message: status.message.clone() })
            }
            Ok(Err(error)) => Err(Fault::Unanswered(error.to_string())),
            Err(_) => Err(Fault::Unanswered(format!("no answer within {} s", LIMIT.as_secs()))),
        }
    }
}

/// A request that failed.
#[derive(Debug)]
enum Fault {
    /// The server said no.
    Refused { code: u16, message: String },
    /// There was no answer, or none that can be read.
    Unanswered(String),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Refused { code, message } => write!(f, "{code}: {message}"),
            Fault::Unanswered(why) => f.write_str(why),
        }
    }
}

fn seen(lease: &Value, pace: Pace) -> Seen {
    Seen {
        holder: lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned(),
        duration: lease["spec"]["leaseDurationSeconds"].as_u64().map_or(pace.duration, Duration::from_secs),
        revision: lease["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned(),
    }
}
