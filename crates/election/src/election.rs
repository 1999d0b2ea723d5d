//! The election on a real cluster: a [`Candidate`] and its Lease.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use stead_client::{ApiPath, ApiRequest, Client, ClientConfig, Error};
use tokio::sync::{oneshot, watch};
use tracing::{debug, info, warn};

use crate::candidate::{Candidate, LeaseAction, LeaseState, LeaseTiming};
use crate::clock::MonotonicClock;
use crate::leadership::{ElectionRole, Leadership};

/// How long a request of the election may take.
const REQUEST: Duration = Duration::from_secs(4);

/// The field manager of the Lease.
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

/// Takes part in the election until it is stopped, then releases the Lease. It has a thread and a client of its own, so
/// that nothing else in the process can delay a renewal.
pub struct Election {
    stop: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
    _takes_part: watch::Sender<bool>,
}

impl Election {
    /// Starts.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(
        config: ClientConfig,
        lease: LeaseName,
        identity: String,
        clock: MonotonicClock,
        leadership: Arc<Leadership>,
    ) -> std::io::Result<Election> {
        let (stop, stopped) = oneshot::channel();
        let (sender, takes_part) = watch::channel(true);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("election".into()).spawn(move || {
            runtime.block_on(async {
                match config.connect() {
                    Ok(client) => {
                        let candidate = Candidate::new(identity, LeaseTiming::DEFAULT);
                        run_candidate(client, lease, candidate, clock, leadership, takes_part, stopped).await;
                    }
                    Err(error) => warn!("no leader election: {error}"),
                }
            });
        })?;
        Ok(Election { stop, thread, _takes_part: sender })
    }

    /// Releases the Lease if this process holds it, and ends.
    pub async fn end(self) {
        // Fails only if the thread has ended.
        let _ = self.stop.send(());
        let _ = tokio::task::spawn_blocking(move || self.thread.join()).await;
    }
}

/// Takes part in the election while `takes_part` is true, until it is stopped; then releases the Lease.
pub async fn run_candidate(
    client: Client,
    name: LeaseName,
    candidate: Candidate,
    clock: MonotonicClock,
    leadership: Arc<Leadership>,
    mut takes_part: watch::Receiver<bool>,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut elector = Elector { client, name, clock, leadership, candidate, lease: None };
    loop {
        let pause = if *takes_part.borrow_and_update() {
            if let Err(error) = elector.act().await {
                debug!("{}: {error}", elector.name);
            }
            elector.announce();
            elector.candidate.pause(elector.clock.now())
        } else {
            elector.release().await;
            Duration::from_secs(3600)
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            Ok(()) = takes_part.changed() => {}
            _ = &mut stopped => break,
        }
    }
    elector.release().await;
}

struct Elector {
    client: Client,
    name: LeaseName,
    clock: MonotonicClock,
    leadership: Arc<Leadership>,
    candidate: Candidate,
    /// The Lease as it was last read or written.
    lease: Option<Lease>,
}

impl Elector {
    /// Lets another process become the leader, if this one is.
    async fn release(&mut self) {
        let led = self.candidate.term(self.clock.now()).is_some();
        self.leadership.set(ElectionRole::Standby);
        if led {
            match self.write(LeaseAction::Renew, "").await {
                Ok(()) => info!("released the {}", self.name),
                Err(error) => warn!("releasing the {}: {error}", self.name),
            }
            self.candidate.released();
        }
    }

    /// Publishes the role of this process.
    fn announce(&self) {
        let role = self.candidate.term(self.clock.now()).map_or(ElectionRole::Standby, ElectionRole::Leader);
        let led = self.leadership.leads();
        self.leadership.set(role);
        match (led, self.leadership.leads()) {
            (false, true) => info!("became the leader, as {}", self.candidate.identity()),
            (true, false) => warn!("no longer the leader: the {} was not renewed", self.name),
            _ => {}
        }
    }

    /// Reads the Lease and does what follows from it. A leader relies on what it wrote last: if another process has
    /// changed the Lease, the renewal fails.
    async fn act(&mut self) -> Result<(), Error> {
        if self.candidate.term(self.clock.now()).is_none() || self.lease.is_none() {
            self.lease = match self.send(ApiRequest::get(self.path())).await {
                Ok(lease) => Some(lease),
                Err(error) if error.is_not_found() => None,
                Err(error) => return Err(error),
            };
        }
        let state = self.lease.as_ref().map(|lease| state(lease, self.candidate.timing()));
        let now = self.clock.now();
        match self.candidate.decide(now, state.as_ref()) {
            LeaseAction::Wait => Ok(()),
            action => {
                let identity = self.candidate.identity().to_owned();
                let written = self.write(action, &identity).await;
                match &written {
                    Ok(()) => self.candidate.holds(now),
                    // Rejected: the Lease is not what was last read.
                    Err(Error::Api(_)) => self.lease = None,
                    Err(_) => {}
                }
                written
            }
        }
    }

    async fn write(&mut self, action: LeaseAction, holder: &str) -> Result<(), Error> {
        let Lease { metadata, spec } = self.lease.clone().unwrap_or_default();
        let spec = spec.unwrap_or_default();
        let time = MicroTime(Timestamp::now());
        let kept = match action {
            LeaseAction::Renew => spec,
            _ => LeaseSpec {
                acquire_time: Some(time.clone()),
                lease_transitions: Some(spec.lease_transitions.map_or(0, |n| n.saturating_add(1))),
                ..LeaseSpec::default()
            },
        };
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: i32::try_from(self.candidate.timing().duration.as_secs()).ok(),
            renew_time: Some(time),
            ..kept
        };
        let request = if action == LeaseAction::Create {
            let LeaseName { namespace, name } = self.name.clone();
            let metadata = ObjectMeta { namespace: Some(namespace), name: Some(name), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(spec) };
            ApiRequest::create(ApiPath::of::<Lease>().collection(Some(&self.name.namespace)), &lease)
        } else {
            ApiRequest::update(self.path(), &Lease { metadata, spec: Some(spec) })
        };
        self.lease = Some(self.send(request.managed_by(MANAGER)).await?);
        Ok(())
    }

    async fn send(&self, request: ApiRequest) -> Result<Lease, Error> {
        self.client.send_within(REQUEST, request).await
    }

    fn path(&self) -> String {
        ApiPath::of::<Lease>().object(&self.name.namespace, &self.name.name)
    }
}

fn state(lease: &Lease, timing: LeaseTiming) -> LeaseState {
    let spec = lease.spec.as_ref();
    let duration = spec.and_then(|spec| u64::try_from(spec.lease_duration_seconds?).ok());
    LeaseState {
        holder: spec.and_then(|spec| spec.holder_identity.clone()).filter(|holder| !holder.is_empty()),
        duration: duration.map_or(timing.duration, Duration::from_secs),
        revision: lease.metadata.resource_version.clone().unwrap_or_default(),
    }
}
