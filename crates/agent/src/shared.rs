//! The state that the parts of the agent share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stead_election::{Leadership, MonotonicClock};
use stead_pool::{Daemon as DaemonState, HostName, Note, Report};
use tokio::sync::{Notify, watch};

use crate::auth::{AnsweredRequests, Keys};
use crate::children::Children;
use crate::cluster::Cluster;
use crate::daemon::Daemon;
use crate::disk::Disks;
use crate::gluster::Gluster;
use crate::heals::{self, HealCount, IndexReader};
use crate::metrics::Metrics;
use crate::settings::Settings;
use crate::state_dir::StateDisk;

/// The maximum age of a fresh report.
const FRESH: Duration = Duration::from_millis(800);

/// The state that the parts of the agent share.
pub(crate) struct Shared {
    pub(crate) settings: Arc<Settings>,
    pub(crate) clock: MonotonicClock,
    pub(crate) leadership: Arc<Leadership>,
    pub(crate) cluster: Cluster,
    pub(crate) children: Children,
    pub(crate) daemon: Daemon,
    pub(crate) gluster: Gluster,
    pub(crate) state: StateDisk,
    pub(crate) disks: Disks,
    /// Counts the entries of a brick's index.
    pub(crate) count_index: IndexReader,
    /// The requests of other agents that were answered.
    pub(crate) answered: AnsweredRequests,
    pub(crate) metrics: Metrics,
    /// The last observation of this pod.
    pub(crate) observation: watch::Sender<Observation>,
    /// The last count of pending heals.
    pub(crate) heals: watch::Sender<HealCount>,
    /// Triggers an observation now.
    pub(crate) nudge: Notify,
    /// Until when this agent does not want to lead.
    pub(crate) declines_until: watch::Sender<Option<Instant>>,
    doing: Mutex<Option<String>>,
    notes: Mutex<Vec<Note>>,
}

/// An observation of this pod.
#[derive(Debug, Clone)]
pub(crate) struct Observation {
    /// The report.
    pub(crate) report: Report,
    /// When the observation began.
    pub(crate) began: Instant,
    /// When the report last changed.
    pub(crate) changed: Instant,
}

impl Shared {
    /// Returns the state at the start.
    pub(crate) fn new(settings: Arc<Settings>, cluster: Cluster, daemon: Daemon, children: Children) -> Shared {
        let now = Instant::now();
        let disks = Disks::default();
        let observation = Observation { report: initial_report(&settings), began: now, changed: now };
        Shared {
            state: StateDisk::new(settings.state_dir.clone(), disks.clone()),
            disks,
            count_index: heals::count_index,
            answered: AnsweredRequests::default(),
            clock: MonotonicClock::new(),
            leadership: Arc::default(),
            cluster,
            gluster: Gluster::new(settings.gluster.clone(), children),
            children,
            daemon,
            metrics: Metrics::new(),
            observation: watch::Sender::new(observation),
            heals: watch::Sender::default(),
            nudge: Notify::new(),
            declines_until: watch::Sender::new(None),
            doing: Mutex::default(),
            notes: Mutex::default(),
            settings,
        }
    }

    /// The host name by which the other peers know this pod.
    pub(crate) fn host(&self) -> HostName {
        self.cluster.host(self.settings.pod.ordinal)
    }

    /// The pool's keys.
    pub(crate) fn keys(&self) -> Keys {
        self.cluster.keys().borrow().clone()
    }

    /// Whether a pod of the pool has an agent of a version that does not sign, as during an update.
    pub(crate) fn has_older_agents(&self) -> bool {
        let objects = self.cluster.objects();
        let objects = objects.borrow();
        objects.pods.iter().flat_map(|pods| pods.values()).any(|pod| !pod.signs)
    }

    /// The last report.
    pub(crate) fn report(&self) -> Report {
        self.observation.borrow().report.clone()
    }

    /// Returns a fresh report, or the last one if that takes longer than `timeout`.
    pub(crate) async fn fresh(&self, timeout: Duration) -> Report {
        let now = Instant::now();
        let mut observation = self.observation.subscribe();
        if observation.borrow().began + FRESH < now {
            self.nudge.notify_one();
            // If it takes too long, the last report is used.
            let _ = tokio::time::timeout(timeout, observation.wait_for(|observation| observation.began + FRESH >= now))
                .await;
        }
        self.report()
    }

    /// Sets what the agent is doing or waits for; it is shown to users.
    pub(crate) fn set_doing(&self, what: Option<String>) {
        let changed = {
            let mut doing = lock(&self.doing);
            let changed = *doing != what;
            *doing = what;
            changed
        };
        if changed {
            self.nudge.notify_one();
        }
    }

    /// What the agent is doing or waits for.
    pub(crate) fn doing(&self) -> Option<String> {
        lock(&self.doing).clone()
    }

    /// Sets the notes of this agent's last decision as the leader.
    pub(crate) fn set_notes(&self, notes: Vec<Note>) {
        *lock(&self.notes) = notes;
    }

    /// The notes of this agent's last decision as the leader.
    pub(crate) fn notes(&self) -> Vec<Note> {
        lock(&self.notes).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The report of a pod before its first observation.
pub(crate) fn initial_report(settings: &Settings) -> Report {
    Report {
        ordinal: settings.pod.ordinal,
        pod: settings.pod.uid.clone(),
        address: settings.pod.address.clone(),
        daemon: DaemonState::Stopped,
        uuid: None,
        operating_version: None,
        peers: Vec::new(),
        volumes: Vec::new(),
        heals: None,
        stuck_bricks: Vec::new(),
        done: None,
        doing: None,
    }
}
