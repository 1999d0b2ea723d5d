//! The agent as a whole: what is started, and how it ends.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use stead_client::ClientConfig;
use stead_election::{Candidate, LeaseName, LeaseTiming, run_candidate};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::children::Children;
use crate::cluster::Cluster;
use crate::daemon::Daemon;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::{boot, heals, lead, observe, orders, server, shutdown, web};

/// How long the processes that glusterd left behind may take to end.
const BRICKS: Duration = Duration::from_secs(10);

/// How long giving the Lease back may take.
const LEASE: Duration = Duration::from_secs(5);

/// The intervals of the election. Agents read the Lease less often than an operator would: there are many of them, and a
/// decision can wait for two seconds more.
const TIMING: LeaseTiming = LeaseTiming { retry: Duration::from_secs(3), ..LeaseTiming::DEFAULT };

/// How long connecting to the API server, and a request, may take.
const REQUEST: Duration = Duration::from_secs(5);

/// How long a connection to the API server may be silent; a watch lasts for less.
const IDLE: Duration = Duration::from_secs(300);

/// Runs the agent until `stop` comes: then, if this pod leaves for good, it waits to be detached; the Lease is given back,
/// and glusterd and its bricks are ended.
pub async fn run(config: ClientConfig, settings: Settings, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    let config = config.without_retries().connect_timeout(REQUEST).request_timeout(REQUEST).idle_timeout(IDLE);
    let client = config.connect()?;
    let settings = Arc::new(settings);
    let children = Children::adopt();
    let (daemon, supervised) = Daemon::new(settings.glusterd.clone(), children);
    let cluster = Cluster::new(client.clone(), settings.clone()).context("the names of the pool's pods")?;
    let shared = Arc::new(Shared::new(settings.clone(), cluster.clone(), daemon, children));

    let listener = tokio::net::TcpListener::bind(settings.listen)
        .await
        .with_context(|| format!("listening on {}", settings.listen))?;
    info!(version = env!("CARGO_PKG_VERSION"), pod = settings.pod.name, "on {}", listener.local_addr()?);

    let mut tasks = JoinSet::new();
    let pages = web::pages(shared.clone());
    tasks.spawn(server::serve(listener, pages, server::Limits::USUAL));
    tasks.spawn(async move {
        if let Err(error) = children.reap().await {
            warn!("taking note of orphans: {error}");
        }
    });
    let supervisor = tokio::spawn(supervised);
    tasks.spawn(async move { cluster.keep().await });
    tasks.spawn(observe::keep(shared.clone()));

    let (takes_part, receiver) = watch::channel(false);
    let (end_election, ended) = oneshot::channel();
    let lease = LeaseName { namespace: settings.namespace.clone(), name: settings.record() };
    let identity = format!("{}_{}", settings.pod.name, settings.pod.uid);
    let candidate = Candidate::new(identity, TIMING);
    let leadership = shared.leadership.clone();
    let election = tokio::spawn(run_candidate(client, lease, candidate, shared.clock, leadership, receiver, ended));

    let work = {
        let shared = shared.clone();
        async move {
            boot::prepare(&shared).await?;
            shared.set_doing(None);
            shared.daemon.start();
            tokio::join!(
                heals::keep(shared.clone()),
                orders::keep(shared.clone()),
                lead::keep(shared.clone()),
                lead::update_candidacy(shared.clone(), takes_part),
            );
            anyhow::Ok(())
        }
    };
    let ending = async {
        stop.await;
        shutdown::prepare_to_end(&shared).await;
    };
    let result = tokio::select! {
        () = ending => Ok(()),
        // All of them run for ever: one that ends has failed.
        _ = tasks.join_next() => Err(anyhow::anyhow!("a part of the agent ended; see the log")),
        ended = work => ended.and_then(|()| Err(anyhow::anyhow!("a part of the agent ended; see the log"))),
    };
    info!("ending");
    // Where nobody listens any more, the election has ended already.
    let _ = end_election.send(());
    let _ = tokio::time::timeout(LEASE, election).await;
    shared.daemon.stop().await;
    children.end_orphans(BRICKS).await;
    supervisor.abort();
    tasks.shutdown().await;
    result
}
