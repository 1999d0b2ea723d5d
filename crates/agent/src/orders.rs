//! Carries out repair orders from the record: repairs of this pod's state, with glusterd stopped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use stead_pool::{Daemon as DaemonState, Identity, Repair, RepairOrder, Report, VolumeName};
use tracing::{info, warn};

use crate::boot::timestamp;
use crate::cluster::PoolObjects;
use crate::daemon::Daemon;
use crate::observe::observe_once;
use crate::other_agents;
use crate::shared::Shared;

/// How soon a failed order is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// How long to wait for a glusterd that was just started before its state is used as it is.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long bricks may take to stop.
const BRICK_STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Carries out orders, for as long as it is polled.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut objects = shared.cluster.objects();
    let mut done = last_done(&shared).await;
    loop {
        let order = match objects.wait_for(|objects| order_for(&shared, objects, done).is_some()).await {
            Ok(objects) => order_for(&shared, &objects, done),
            Err(_) => return,
        };
        let Some(order) = order else { continue };
        info!(order = order.id, "{:?}: {}", order.repair, order.reason);
        shared.set_doing(Some(format!("repair {}: {:?}: {}", order.id, order.repair, order.reason)));
        match carry_out(&shared, &order).await {
            Ok(true) => {
                done = Some(order.id);
                shared.metrics.repaired(metric_label(&order.repair));
                info!(order = order.id, "done");
            }
            Ok(false) => {
                done = Some(order.id);
                info!(order = order.id, "withdrawn, no longer needed, or not possible without losing data");
            }
            Err(error) => {
                warn!(order = order.id, "{error:#}");
                shared.set_doing(Some(format!("repair {} waits: {error:#}", order.id)));
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
        shared.set_doing(None);
        shared.nudge.notify_one();
    }
}

/// Returns the last order that this pod has carried out, as soon as it can be read.
async fn last_done(shared: &Shared) -> Option<u64> {
    loop {
        match shared.state.read(&shared.host()).await {
            Ok(content) => return content.done(&shared.settings.pod.uid),
            Err(error) => warn!("{error}"),
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Returns the order for this pod, unless it is the last one that was carried out.
fn order_for(shared: &Shared, objects: &PoolObjects, done: Option<u64>) -> Option<RepairOrder> {
    let order = objects.record()?.order?;
    let pod = &shared.settings.pod;
    let ours = order.ordinal == pod.ordinal && order.pod == pod.uid;
    // Compared for equality only: if the record was lost and created again, the numbers start again too.
    (ours && done != Some(order.id)).then_some(order)
}

/// Carries out an order. Returns false if it was withdrawn, is no longer needed, or would lose data: then it is only
/// marked as done, for which the leader waits.
async fn carry_out(shared: &Arc<Shared>, order: &RepairOrder) -> Result<bool> {
    if order.withdrawn {
        mark_done(shared, order).await?;
        return Ok(false);
    }
    let record = shared.cluster.objects().borrow().record().context("the record is not known")?;
    let own = own_report(shared).await;
    let needed = stead_pool::still_needed(order, &record, &own);
    if !needed || !stead_pool::loses_nothing(order, &own, &other_reports(shared).await) {
        mark_done(shared, order).await?;
        return Ok(false);
    }
    // The other agents are queried while glusterd still runs, so that it is not stopped in vain.
    let change = prepare_change(shared, order).await?;
    while_stopped(&shared.daemon, apply(shared, order, change)).await?;
    Ok(true)
}

/// Returns a current report of this pod; waits a while for a glusterd that was just started.
async fn own_report(shared: &Shared) -> Report {
    let mut observation = shared.observation.subscribe();
    let answers = observation.wait_for(|observation| observation.report.daemon == DaemonState::Running);
    // If it does not answer, its state is used as it is.
    drop(tokio::time::timeout(ANSWER_TIMEOUT, answers).await);
    observe_once(shared).await
}

/// Returns the current reports of the other pods.
async fn other_reports(shared: &Arc<Shared>) -> BTreeMap<u32, Report> {
    let objects = shared.cluster.objects().borrow().clone();
    other_agents::ask_all(shared, &objects).await.reports
}

/// Runs `work` while glusterd is stopped, and starts glusterd again whatever the result.
async fn while_stopped(daemon: &Daemon, work: impl Future<Output = Result<()>>) -> Result<()> {
    daemon.stop().await;
    let done = work.await;
    daemon.start();
    done
}

/// A change of the state directory.
enum Change {
    Restore(Identity),
    ForgetVolumes(Vec<VolumeName>),
    Forget,
}

async fn prepare_change(shared: &Arc<Shared>, order: &RepairOrder) -> Result<Change> {
    shared.state.read(&shared.host()).await?.readable()?;
    Ok(match order.repair {
        Repair::ResyncVolumes => Change::ForgetVolumes(order.volumes.clone()),
        Repair::Forget => Change::Forget,
        Repair::RestoreIdentity | Repair::CorrectNames => {
            let wanted = shared.cluster.wanted().context("the StatefulSet is not known")?;
            let record = shared.cluster.objects().borrow().record().context("the record is not known")?;
            let reports = other_reports(shared).await;
            let identity = stead_pool::identity(&wanted, shared.settings.pod.ordinal, &record, &reports);
            Change::Restore(identity.context("the pool does not know this pod")?)
        }
    })
}

async fn apply(shared: &Shared, order: &RepairOrder, change: Change) -> Result<()> {
    let before = shared.state.read(&shared.host()).await?.state.volumes;
    let changed = shared.state.change(move |state| match &change {
        Change::Restore(identity) => state.restore(identity, &timestamp()),
        Change::ForgetVolumes(names) => state.forget_volumes(names, &timestamp()),
        Change::Forget => state.forget(&timestamp()),
    });
    changed.await?;
    let after = shared.state.read(&shared.host()).await?.state.volumes;
    if after.is_empty() || before.iter().any(|(name, bricks)| !bricks.is_empty() && !after.contains_key(name)) {
        // Bricks survive glusterd, but a glusterd that lost their volumes does not learn their ports again, and no
        // client would find them. It starts new ones: at once for volumes that it kept, for the others when it has got
        // their definitions back from the peers.
        shared.children.terminate_orphans(BRICK_STOP_TIMEOUT).await;
    }
    mark_done(shared, order).await
}

async fn mark_done(shared: &Shared, order: &RepairOrder) -> Result<()> {
    let (id, pod) = (order.id, shared.settings.pod.uid.clone());
    shared.state.change(move |state| state.set_done(id, &pod)).await
}

fn metric_label(repair: &Repair) -> &'static str {
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

    use crate::cluster::{RecordView, Revision, StatefulSetView};
    use crate::daemon::Process;
    use crate::test_agent::{A, B, B_HOST, TestAgent, name, sleeper, wait_until_running};

    use super::*;

    /// The agent of one of two pods, which is ordered to repair itself and has the other pod in this state.
    async fn agent(test: &str, peer_state: u32) -> TestAgent {
        let member = |host: &str, uuid: &str| Member::joined(name(host), name(uuid), 100_000);
        let members = [(0, member("g-0.g.n.svc.d", A)), (1, member(B_HOST, B))].into();
        let record = Record { members, order: Some(order()), orders: 7 };
        let objects = PoolObjects {
            set: Some(StatefulSetView { replicas: 2, start: 0, selector: String::new() }),
            pods: Some([].into()),
            record: Some(RecordView::Present { record, revision: Revision::default() }),
        };
        let agent = TestAgent::new(test, "http://127.0.0.1:1", Some(peer_state), objects).await;
        // Without volumes, a repair would terminate the orphans of other tests.
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
    async fn a_pod_that_became_healthy_is_not_repaired() {
        for (name, peer_state, carried_out) in [("friend", 3, false), ("rejected", 6, true)] {
            let agent = agent(name, peer_state).await;
            let shared = &agent.shared;
            let mut changes = shared.daemon.changes();
            changes.mark_unchanged();
            assert_eq!(carry_out(shared, &order()).await.unwrap(), carried_out, "{name}");
            assert_eq!((changes.has_changed().unwrap(), last_done(shared).await), (carried_out, Some(7)), "{name}");
            let done = last_done(shared).await;
            assert!(order_for(shared, &shared.cluster.objects().borrow(), done).is_none(), "{name}");
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
    async fn glusterd_is_not_stopped_if_its_state_cannot_be_read() {
        let agent = agent("unreadable", 6).await;
        let shared = &agent.shared;
        agent.write("vols/gv0/info", "type=2\n");
        let mut changes = shared.daemon.changes();
        changes.mark_unchanged();
        let error = carry_out(shared, &order()).await.unwrap_err().to_string();
        assert!(error.starts_with("the state directory cannot be read completely"), "{error}");
        assert_eq!((changes.has_changed().unwrap(), last_done(shared).await), (false, None));
        let prepared = crate::boot::prepare(shared);
        assert!(tokio::time::timeout(Duration::from_millis(50), prepared).await.is_err(), "it waits");
        assert_eq!(shared.doing(), Some(error));
    }

    #[tokio::test]
    async fn orders_are_compared_by_number_not_by_age() {
        let agent = agent("number", 6).await;
        let shared = &agent.shared;
        for (done, ours) in [(6, true), (7, false), (8, true)] {
            let found = order_for(shared, &shared.cluster.objects().borrow(), Some(done));
            assert_eq!(found.is_some(), ours, "{done}");
        }
    }

    #[tokio::test]
    async fn glusterd_is_started_again_whatever_the_result() {
        let (daemon, task) = sleeper();
        daemon.start();
        wait_until_running(&daemon).await;
        for fails in [false, true] {
            let work = async {
                assert_eq!(daemon.process(), Process::Stopped);
                anyhow::ensure!(!fails, "no space left");
                Ok(())
            };
            assert_eq!(while_stopped(&daemon, work).await.is_err(), fails);
            wait_until_running(&daemon).await;
        }
        task.abort();
    }
}
