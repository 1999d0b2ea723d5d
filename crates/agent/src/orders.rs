//! Orders of the record: repairs of this pod's own state, with glusterd stopped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use stead_pool::{Daemon as DaemonState, Identity, Repair, RepairOrder, Report, VolumeName};
use tracing::{info, warn};

use crate::boot::time;
use crate::cluster::Seen;
use crate::daemon::Daemon;
use crate::observe::look;
use crate::other_agents;
use crate::shared::Shared;

/// How soon an order is tried again that could not be carried out.
const AGAIN: Duration = Duration::from_secs(5);

/// How long a glusterd that was just started may take to answer before its state is used as it is.
const ANSWERS: Duration = Duration::from_secs(10);

/// How long bricks may take to end.
const BRICKS: Duration = Duration::from_secs(10);

/// Carries orders out for as long as it is polled.
pub(crate) async fn keep(shared: Arc<Shared>) {
    let mut seen = shared.cluster.seen();
    let mut done = last_done(&shared).await;
    loop {
        let order = match seen.wait_for(|seen| addressed(&shared, seen, done).is_some()).await {
            Ok(seen) => addressed(&shared, &seen, done),
            Err(_) => return,
        };
        let Some(order) = order else { continue };
        info!(order = order.id, "{:?}: {}", order.repair, order.reason);
        shared.set_doing(Some(format!("repair {}: {:?}: {}", order.id, order.repair, order.reason)));
        match carry_out(&shared, &order).await {
            Ok(true) => {
                done = Some(order.id);
                shared.metrics.repaired(metric(&order.repair));
                info!(order = order.id, "done");
            }
            Ok(false) => {
                done = Some(order.id);
                info!(order = order.id, "withdrawn, no longer needed, or not possible without a loss");
            }
            Err(error) => {
                warn!(order = order.id, "{error:#}");
                shared.set_doing(Some(format!("repair {} waits: {error:#}", order.id)));
                tokio::time::sleep(AGAIN).await;
            }
        }
        shared.set_doing(None);
        shared.nudge.notify_one();
    }
}

/// The last order that this pod has carried out, as soon as that can be read.
async fn last_done(shared: &Shared) -> Option<u64> {
    loop {
        match shared.state.read(&shared.host()).await {
            Ok(held) => return held.done(&shared.settings.pod.uid),
            Err(error) => warn!("{error}"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// The order that this pod has not carried out yet, if this was the last that it did.
fn addressed(shared: &Shared, seen: &Seen, done: Option<u64>) -> Option<RepairOrder> {
    let order = seen.record()?.order?;
    let pod = &shared.settings.pod;
    let ours = order.ordinal == pod.ordinal && order.pod == pod.uid;
    // Where the record was lost and begun anew, the numbers begin anew too.
    (ours && done != Some(order.id)).then_some(order)
}

/// Carries out an order. Returns false if it was withdrawn, is no longer needed, or would lose something: the agent is
/// done with it all the same, and the leader waits for that.
async fn carry_out(shared: &Arc<Shared>, order: &RepairOrder) -> Result<bool> {
    if order.withdrawn {
        set_done(shared, order).await?;
        return Ok(false);
    }
    let record = shared.cluster.seen().borrow().record().context("the record is not known")?;
    let own = answer(shared).await;
    let needed = stead_pool::still_needed(order, &record, &own);
    if !needed || !stead_pool::loses_nothing(order, &own, &reports(shared).await) {
        set_done(shared, order).await?;
        return Ok(false);
    }
    // All that others have to tell is asked while glusterd runs, so that it is not stopped for nothing.
    let change = change(shared, order).await?;
    stopped(&shared.daemon, make(shared, order, change)).await?;
    Ok(true)
}

/// What this pod says now. One whose glusterd was started just now has a while to answer.
async fn answer(shared: &Shared) -> Report {
    let mut observation = shared.observation.subscribe();
    let answers = observation.wait_for(|observation| observation.report.daemon == DaemonState::Running);
    // If it does not answer, its state is used as it is.
    drop(tokio::time::timeout(ANSWERS, answers).await);
    look(shared).await
}

/// What the others say now.
async fn reports(shared: &Arc<Shared>) -> BTreeMap<u32, Report> {
    let seen = shared.cluster.seen().borrow().clone();
    other_agents::ask_all(shared, &seen).await.reports
}

/// Does something while glusterd is stopped. It is started again, whatever comes of it.
async fn stopped(daemon: &Daemon, work: impl Future<Output = Result<()>>) -> Result<()> {
    daemon.stop().await;
    let done = work.await;
    daemon.start();
    done
}

/// What is changed in the state directory.
enum Change {
    Restore(Identity),
    ForgetVolumes(Vec<VolumeName>),
    Forget,
}

async fn change(shared: &Arc<Shared>, order: &RepairOrder) -> Result<Change> {
    shared.state.read(&shared.host()).await?.readable()?;
    Ok(match order.repair {
        Repair::ResyncVolumes => Change::ForgetVolumes(order.volumes.clone()),
        Repair::Forget => Change::Forget,
        Repair::RestoreIdentity | Repair::CorrectNames => {
            let wanted = shared.cluster.wanted().context("the StatefulSet is not known")?;
            let record = shared.cluster.seen().borrow().record().context("the record is not known")?;
            let reports = reports(shared).await;
            let identity = stead_pool::identity(&wanted, shared.settings.pod.ordinal, &record, &reports);
            Change::Restore(identity.context("the pool does not know this pod")?)
        }
    })
}

async fn make(shared: &Shared, order: &RepairOrder, change: Change) -> Result<()> {
    let before = shared.state.read(&shared.host()).await?.state.volumes;
    let changed = shared.state.change(move |state| match &change {
        Change::Restore(identity) => state.restore(identity, &time()),
        Change::ForgetVolumes(names) => state.forget_volumes(names, &time()),
        Change::Forget => state.forget(&time()),
    });
    changed.await?;
    let after = shared.state.read(&shared.host()).await?.state.volumes;
    if after.is_empty() || before.iter().any(|(name, bricks)| !bricks.is_empty() && !after.contains_key(name)) {
        // Bricks outlive their glusterd, but one that has lost their volumes does not learn their ports again, and
        // no client would find them. It starts them anew: those of volumes that it kept at once, the others when their
        // volumes have come back from the others.
        shared.children.end_orphans(BRICKS).await;
    }
    set_done(shared, order).await
}

async fn set_done(shared: &Shared, order: &RepairOrder) -> Result<()> {
    let (id, pod) = (order.id, shared.settings.pod.uid.clone());
    shared.state.change(move |state| state.set_done(id, &pod)).await
}

fn metric(repair: &Repair) -> &'static str {
    match repair {
        Repair::RestoreIdentity => "restore-identity",
        Repair::ResyncVolumes => "resync-volumes",
        Repair::Forget => "forget",
        Repair::CorrectNames => "correct-names",
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use stead_pool::{Member, Record};

    use crate::cluster::{RecordSeen, Revision, Set};
    use crate::daemon::Process;
    use crate::test_agent::{A, B, B_HOST, TestAgent, name, runs, sleeper};

    use super::*;

    /// The agent of one of two that is ordered to repair itself, and that has the other one in this state.
    async fn agent(test: &str, peer_state: u32) -> TestAgent {
        let member = |host: &str, uuid: &str| Member::joined(name(host), name(uuid), 100_000);
        let members = [(0, member("g-0.g.n.svc.d", A)), (1, member(B_HOST, B))].into();
        let record = Record { members, order: Some(order()), orders: 7 };
        let seen = Seen {
            set: Some(Set { replicas: 2, start: 0, selector: String::new() }),
            pods: Some([].into()),
            record: Some(RecordSeen::There { record, revision: Revision::default() }),
        };
        let agent = TestAgent::new(test, "http://127.0.0.1:1", Some(peer_state), seen).await;
        // One without volumes would end all that other tests have left behind.
        agent.write("vols/gv0/info", "version=1\n");
        agent
    }

    fn order() -> RepairOrder {
        RepairOrder {
            id: 7,
            ordinal: 0,
            pod: "uid".into(),
            repair: Repair::RestoreIdentity,
            since: 0,
            made: None,
            withdrawn: false,
            volumes: vec![name("gv0")],
            reason: "it is rejected".into(),
        }
    }

    #[tokio::test]
    async fn one_that_became_healthy_is_not_stopped() {
        for (name, peer_state, carried_out) in [("friend", 3, false), ("rejected", 6, true)] {
            let agent = agent(name, peer_state).await;
            let shared = &agent.shared;
            let mut changes = shared.daemon.changes();
            changes.mark_unchanged();
            assert_eq!(carry_out(shared, &order()).await.unwrap(), carried_out, "{name}");
            assert_eq!((changes.has_changed().unwrap(), last_done(shared).await), (carried_out, Some(7)), "{name}");
            let done = last_done(shared).await;
            assert!(addressed(shared, &shared.cluster.seen().borrow(), done).is_none(), "{name}");
        }
    }

    #[tokio::test]
    async fn a_withdrawn_order_is_acknowledged_and_not_carried_out() {
        let agent = agent("withdrawn", 6).await;
        let shared = &agent.shared;
        let mut changes = shared.daemon.changes();
        changes.mark_unchanged();
        let withdrawn = RepairOrder { withdrawn: true, ..order() };
        assert!(!carry_out(shared, &withdrawn).await.unwrap());
        assert_eq!((changes.has_changed().unwrap(), last_done(shared).await), (false, Some(7)));
    }

    #[tokio::test]
    async fn glusterd_is_not_stopped_where_something_cannot_be_read() {
        let agent = agent("unreadable", 6).await;
        let shared = &agent.shared;
        agent.write("vols/gv0/info", "type=2\n");
        let mut changes = shared.daemon.changes();
        changes.mark_unchanged();
        let error = carry_out(shared, &order()).await.unwrap_err().to_string();
        assert!(error.starts_with("the state directory cannot be read as a whole"), "{error}");
        assert_eq!((changes.has_changed().unwrap(), last_done(shared).await), (false, None));
        let why = crate::boot::prepare(shared);
        assert!(tokio::time::timeout(Duration::from_millis(50), why).await.is_err(), "it waits");
        assert_eq!(shared.doing(), Some(error));
    }

    #[tokio::test]
    async fn an_order_is_told_by_its_number_not_by_its_age() {
        let agent = agent("number", 6).await;
        let shared = &agent.shared;
        for (done, ours) in [(6, true), (7, false), (8, true)] {
            let found = addressed(shared, &shared.cluster.seen().borrow(), Some(done));
            assert_eq!(found.is_some(), ours, "{done}");
        }
    }

    #[tokio::test]
    async fn glusterd_runs_again_whatever_came_of_it() {
        let (daemon, task) = sleeper();
        daemon.start();
        runs(&daemon).await;
        for fails in [false, true] {
            let work = async {
                assert_eq!(daemon.process(), Process::Stopped);
                anyhow::ensure!(!fails, "no space left");
                Ok(())
            };
            assert_eq!(stopped(&daemon, work).await.is_err(), fails);
            runs(&daemon).await;
        }
        task.abort();
    }
}
