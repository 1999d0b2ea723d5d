//! Orders of the record: repairs of this pod's own state, with glusterd stopped.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use stead_pool::{Daemon as DaemonState, Identity, Order, Repair, Report};
use tracing::{info, warn};

use crate::boot::{others, time};
use crate::cluster::Seen;
use crate::daemon::Daemon;
use crate::look::look;
use crate::neighbours;
use crate::shared::Shared;

/// How soon an order is tried again that could not be carried out.
const AGAIN: Duration = Duration::from_secs(5);

/// How long a glusterd that was just started may take to answer before it is looked at as it is.
const ANSWERS: Duration = Duration::from_secs(10);

/// How long bricks may take to end.
const BRICKS: Duration = Duration::from_secs(10);

/// Carries orders out for as long as it is polled.
pub(crate) async fn keep(shared: Arc<Shared>) {
    let mut seen = shared.cluster.seen();
    loop {
        let order = match seen.wait_for(|seen| addressed(&shared, seen).is_some()).await {
            Ok(seen) => addressed(&shared, &seen),
            Err(_) => return,
        };
        let Some(order) = order else { continue };
        info!(order = order.id, "{:?}: {}", order.repair, order.reason);
        shared.set_doing(Some(format!("repair {}: {:?}: {}", order.id, order.repair, order.reason)));
        match carry_out(&shared, &order).await {
            Ok(true) => {
                shared.metrics.repaired(name(&order.repair));
                info!(order = order.id, "done");
            }
            Ok(false) => info!(order = order.id, "not needed any more"),
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

/// The order that this pod has not carried out yet.
fn addressed(shared: &Shared, seen: &Seen) -> Option<Order> {
    let order = seen.record()?.order?;
    let pod = &shared.settings.pod;
    let ours = order.ordinal == pod.ordinal && order.pod == pod.uid;
    // Where the record was lost and begun anew, the numbers begin anew too.
    (ours && shared.state.done(&pod.uid) != Some(order.id)).then_some(order)
}

/// Carries an order out; whether it still was to be.
async fn carry_out(shared: &Arc<Shared>, order: &Order) -> Result<bool> {
    let record = shared.cluster.seen().borrow().record().context("the record is not known")?;
    if !stead_pool::still_needed(order, &record, &answer(shared).await) {
        shared.state.set_done(order.id, &shared.settings.pod.uid)?;
        return Ok(false);
    }
    // All that others have to tell is asked while glusterd runs, so that it is not stopped for nothing.
    let change = change(shared, order).await?;
    stopped(&shared.daemon, make(shared, order, &change)).await?;
    Ok(true)
}

/// What this pod says now. One whose glusterd was started just now has a while to answer.
async fn answer(shared: &Shared) -> Report {
    let mut looked = shared.looked.subscribe();
    let answers = looked.wait_for(|looked| looked.report.daemon == DaemonState::Running);
    // One that does not answer is looked at as it is.
    drop(tokio::time::timeout(ANSWERS, answers).await);
    look(shared).await
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
    ForgetVolumes,
    Forget,
}

async fn change(shared: &Arc<Shared>, order: &Order) -> Result<Change> {
    shared.state.read(&shared.host()).readable()?;
    Ok(match order.repair {
        Repair::ResyncVolumes => Change::ForgetVolumes,
        Repair::Forget => Change::Forget,
        Repair::RestoreIdentity => {
            let seen = shared.cluster.seen().borrow().clone();
            let wanted = shared.cluster.wanted().context("the StatefulSet is not known")?;
            let record = seen.record().context("the record is not known")?;
            let reports = neighbours::ask(&others(shared, &seen), shared.settings.listen.port()).await;
            let identity = stead_pool::identity(&wanted, shared.settings.pod.ordinal, &record, &reports);
            Change::Restore(identity.context("the pool does not know this pod")?)
        }
    })
}

async fn make(shared: &Shared, order: &Order, change: &Change) -> Result<()> {
    match change {
        Change::Restore(identity) => shared.state.restore(identity, &time())?,
        Change::ForgetVolumes => shared.state.forget_volumes(&time())?,
        Change::Forget => shared.state.forget(&time())?,
    }
    if shared.state.read(&shared.host()).volumes.is_empty() {
        // Bricks outlive their glusterd, but one that has lost their volumes does not learn their ports again, and
        // no client would find them. It starts them anew when the volumes have come back from the others.
        shared.children.end_orphans(BRICKS).await;
    }
    shared.state.set_done(order.id, &shared.settings.pod.uid)
}

fn name(repair: &Repair) -> &'static str {
    match repair {
        Repair::RestoreIdentity => "restore-identity",
        Repair::ResyncVolumes => "resync-volumes",
        Repair::Forget => "forget",
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use stead_pool::{Member, PeerFile, Record, Standing};

    use crate::children::Children;
    use crate::cluster::{Cluster, RecordSeen, Set};
    use crate::daemon::Process;
    use crate::settings::{Settings, example};
    use crate::shared::Looked;

    use super::*;

    const A: &str = "edb18957-b7f5-468d-baf8-19e0e02d20c7";
    const B: &str = "d77f225f-14f9-4028-9ed1-02eff28cbc4c";

    fn sleeper() -> (Daemon, tokio::task::JoinHandle<()>) {
        let (daemon, supervised) = Daemon::new(["sh", "-c", "exec sleep 1000"].map(str::to_owned).to_vec(), Children);
        (daemon, tokio::spawn(supervised))
    }

    async fn runs(daemon: &Daemon) {
        daemon.changes().wait_for(|process| *process == Process::Runs).await.unwrap();
    }

    /// The agent of pod 0 of two, whose glusterd has the other one in this state.
    async fn agent(name: &str, peer_state: u32) -> (Arc<Shared>, tokio::task::JoinHandle<()>) {
        let folder = std::env::temp_dir().join(format!("stead-agent-orders-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let gluster = folder.join("gluster");
        let answer = format!(
            "<cliOutput><opRet>0</opRet><peerStatus><peer><uuid>{B}</uuid><hostname>g-1.g.n.svc.d</hostname>\
             <connected>1</connected><state>{peer_state}</state></peer></peerStatus></cliOutput>"
        );
        fs::write(&gluster, format!("#!/bin/sh\necho '{answer}'\n")).unwrap();
        fs::set_permissions(&gluster, fs::Permissions::from_mode(0o755)).unwrap();
        let gluster = gluster.display().to_string();
        let settings = Arc::new(Settings { state_dir: folder, gluster, ..example() });
        let client = kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let (daemon, task) = sleeper();
        let cluster = Cluster::new(client, settings.clone());
        let member = |n: u32, uuid: &str| Member {
            host: format!("g-{n}.g.n.svc.d"),
            uuid: uuid.into(),
            operating_version: 100_000,
            addresses: Vec::new(),
            bricks: Vec::new(),
            standing: Standing::Joined,
            seen: String::new(),
            since: 0,
        };
        let members = [(0, member(0, A)), (1, member(1, B))].into();
        let record = Record { members, order: Some(order()), orders: 7 };
        cluster.pretend(Seen {
            set: Some(Set { replicas: 2, start: 0, selector: String::new() }),
            pods: Some([].into()),
            record: Some(RecordSeen::There { record, revision: "1".into() }),
        });
        let shared = Arc::new(Shared::new(settings, cluster, daemon, Children));
        let peer = PeerFile { uuid: B.into(), state: 3, hosts: vec!["g-1.g.n.svc.d".into()] };
        let identity = Identity { uuid: A.into(), operating_version: 100_000, peers: vec![peer] };
        shared.state.restore(&identity, "1").unwrap();
        // One without volumes would end all that other tests have left behind.
        fs::create_dir_all(shared.settings.state_dir.join("vols/gv0")).unwrap();
        fs::write(shared.settings.state_dir.join("vols/gv0/info"), "version=1\n").unwrap();
        shared.daemon.start();
        runs(&shared.daemon).await;
        let report = look(&shared).await;
        let now = std::time::Instant::now();
        shared.looked.send_replace(Looked { report, began: now, changed: now });
        (shared, task)
    }

    fn order() -> Order {
        Order {
            id: 7,
            ordinal: 0,
            pod: "uid".into(),
            repair: Repair::RestoreIdentity,
            since: 0,
            made: None,
            volumes: vec!["gv0".into()],
            reason: "it is rejected".into(),
        }
    }

    #[tokio::test]
    async fn one_that_became_healthy_is_not_stopped() {
        for (name, peer_state, carried_out) in [("friend", 3, false), ("rejected", 6, true)] {
            let (shared, task) = agent(name, peer_state).await;
            let mut changes = shared.daemon.changes();
            changes.mark_unchanged();
            assert_eq!(carry_out(&shared, &order()).await.unwrap(), carried_out, "{name}");
            assert_eq!((changes.has_changed().unwrap(), shared.state.done("uid")), (carried_out, Some(7)), "{name}");
            assert!(addressed(&shared, &shared.cluster.seen().borrow()).is_none(), "{name}");
            task.abort();
            fs::remove_dir_all(&shared.settings.state_dir).unwrap();
        }
    }

    #[tokio::test]
    async fn glusterd_is_not_stopped_where_something_cannot_be_read() {
        let (shared, task) = agent("unreadable", 6).await;
        fs::write(shared.settings.state_dir.join("vols/gv0/info"), "type=2\n").unwrap();
        let mut changes = shared.daemon.changes();
        changes.mark_unchanged();
        let error = carry_out(&shared, &order()).await.unwrap_err().to_string();
        assert!(error.starts_with("the state directory cannot be read as a whole"), "{error}");
        assert_eq!((changes.has_changed().unwrap(), shared.state.done("uid")), (false, None));
        let why = crate::boot::prepare(&shared);
        assert!(tokio::time::timeout(Duration::from_millis(50), why).await.is_err(), "it waits");
        assert_eq!(shared.doing(), Some(error));
        task.abort();
        fs::remove_dir_all(&shared.settings.state_dir).unwrap();
    }

    #[tokio::test]
    async fn an_order_is_told_by_its_number_not_by_its_age() {
        let (shared, task) = agent("number", 6).await;
        for (done, ours) in [(6, true), (7, false), (8, true)] {
            shared.state.set_done(done, "uid").unwrap();
            assert_eq!(addressed(&shared, &shared.cluster.seen().borrow()).is_some(), ours, "{done}");
        }
        task.abort();
        fs::remove_dir_all(&shared.settings.state_dir).unwrap();
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
