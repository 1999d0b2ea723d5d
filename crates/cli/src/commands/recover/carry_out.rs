//! Reads, makes one write, and reads again, until there is nothing more to do.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use stead_client::{ApiRequest, DeletePolicy, Error, Preconditions};
use stead_recovery::{
    ClusterView, NextStep, NodeRecovery, RecoveryEnd, RecoveryPhase, RecoveryRequest, RecoveryWrite, Refusal,
    next_step, record_of,
};

use super::retry::{RETRY_INTERVAL, is_temporary};
use super::show::{self, Progress};
use super::{Call, look};
use crate::args::RecoverFormat;
use crate::output::{self, Hinted, Outcome};
use crate::server::found;

/// How long a kubelet may take to report which pods it runs, before a warning.
const KUBELET_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum age of what was read when a taint is applied or a pod deleted.
const MAX_READ_AGE: SignedDuration = SignedDuration::from_secs(10);

/// How long to wait after a write that was refused because the object had changed.
const AFTER_CONFLICT: Duration = Duration::from_millis(100);

/// Carries the recovery out, or continues it. Everything that has to be remembered is in the cluster; the last record that
/// was read only determines how much to read.
pub(super) async fn until_the_end(
    call: &Call<'_>,
    node: &str,
    request: &RecoveryRequest,
    mut last: Option<NodeRecovery>,
    begun: Instant,
) -> anyhow::Result<Outcome> {
    let mut progress = Progress::new(begun);
    let mut kubelet = Kubelet::default();
    let mut last_error = String::new();
    let mut ended = None;
    loop {
        if begun.elapsed() > call.args.consent.timeout {
            let waits = [progress.waits(), last_error].into_iter().find(|w| !w.is_empty()).unwrap_or_default();
            return Err(Hinted {
                message: format!("node {node}: not finished after {}s; {waits}", call.args.consent.timeout.as_secs()),
                hint: format!("nothing is undone: stead recover node/{node} continues, --status shows the progress"),
            }
            .into());
        }
        let read = read_and_decide(call, node, request, last.as_ref(), &mut kubelet).await;
        let (step, record, at) = match read {
            Ok(read) => read,
            Err(error) if is_temporary(&error) => {
                last_error = format!("{error:#}");
                tokio::time::sleep(RETRY_INTERVAL).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        // It is over when our annotation is removed from the node, too. Another call may start another recovery then.
        if let Some((end, record)) = ended.as_ref().filter(|_| !matches!(step.write, Some(RecoveryWrite::Node { .. })))
        {
            print_end(call, node, end, Some(record))?;
            return Ok(Outcome::Yes);
        }
        progress.show(&step, record.as_ref());
        last = record;
        match (&step.write, &step.end) {
            // The program was suspended between reading and writing: read again.
            (Some(RecoveryWrite::Node { .. } | RecoveryWrite::DeletePod { .. }), _)
                if call.now().duration_since(at).abs() > MAX_READ_AGE => {}
            (Some(write), _) => match make(call, write).await {
                Ok(true) => {
                    progress.done(write);
                    if let RecoveryWrite::Record(record) = write {
                        ended = end_of(record).map(|end| (end, (**record).clone()));
                    }
                }
                // Somebody else was faster, or it is another object by now.
                Ok(false) => {
                    last_error = "the object had changed before it was written".to_owned();
                    tokio::time::sleep(AFTER_CONFLICT).await;
                }
                Err(error) if is_temporary(&error) => {
                    last_error = format!("{error:#}");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                Err(error) => return Err(error),
            },
            (None, Some(RecoveryEnd::Recovered)) if call.args.wait_return => tokio::time::sleep(step.again).await,
            (None, Some(end)) => {
                if call.args.output == RecoverFormat::Table {
                    progress.summary(node, last.as_ref(), end)?;
                }
                print_end(call, node, end, last.as_ref())?;
                return Ok(Outcome::Yes);
            }
            (None, None) => tokio::time::sleep(step.again).await,
        }
    }
}

/// The end of a recovery whose record says that it is over.
fn end_of(record: &NodeRecovery) -> Option<RecoveryEnd> {
    match record.status.phase {
        RecoveryPhase::Returned => Some(RecoveryEnd::Returned),
        RecoveryPhase::Undone => Some(RecoveryEnd::Undone),
        RecoveryPhase::Void => {
            let identity = &record.spec.node;
            let gone = Refusal::NodeGone { node: identity.name.clone(), uid: identity.uid.clone() };
            Some(RecoveryEnd::Refused(gone))
        }
        _ => None,
    }
}

/// Prints how it ended: a line for people, the record for programs.
pub(super) fn print_end(
    call: &Call<'_>,
    node: &str,
    end: &RecoveryEnd,
    record: Option<&NodeRecovery>,
) -> anyhow::Result<()> {
    let line = show::end(node, end, record)?;
    match call.args.output {
        RecoverFormat::Table => return output::text(&line),
        RecoverFormat::Json => record.map_or(Ok(()), output::json)?,
        RecoverFormat::Yaml => record.map_or(Ok(()), output::yaml)?,
    }
    output::complain("note", line.trim_end());
    Ok(())
}

/// Reads the cluster, and decides.
async fn read_and_decide(
    call: &Call<'_>,
    node: &str,
    request: &RecoveryRequest,
    last: Option<&NodeRecovery>,
    kubelet: &mut Kubelet,
) -> anyhow::Result<(NextStep, Option<NodeRecovery>, Timestamp)> {
    let running = kubelet.ask(call, node).await?;
    let is_fenced = |record: &NodeRecovery| {
        use RecoveryPhase::{Fenced, Recovered, Released};
        matches!(record.status.phase, Fenced | Released | Recovered)
    };
    let part = match last.filter(|record| is_fenced(record)) {
        Some(record) => Some(look::part(call, node, record).await?),
        None => None,
    };
    // A new plan needs more objects than a recovery after the taint.
    let still = |read: &look::ReadCluster| record_of(&read.objects, node).is_some_and(|record| is_fenced(&record));
    let look::ReadCluster { objects, at } = match part.filter(still) {
        Some(read) => read,
        None => look::whole(call, node, Vec::new()).await?,
    };
    let record = record_of(&objects, node);
    let view = ClusterView::new(node, &objects, running.as_ref(), call.now());
    let step = next_step(&view, record.as_ref(), request, &call.policy);
    kubelet.wanted = step.ask_running;
    Ok((step, record, at))
}

pub(super) fn is_denied(error: &anyhow::Error) -> bool {
    let denied = |error: &Error| error.is_unauthorized() || error.is_forbidden();
    error.downcast_ref::<Error>().is_some_and(denied)
}

/// Asks the kubelet of a node that is back which pods it runs.
#[derive(Default)]
struct Kubelet {
    wanted: bool,
    unanswered_since: Option<Instant>,
}

impl Kubelet {
    async fn ask(&mut self, call: &Call<'_>, node: &str) -> anyhow::Result<Option<BTreeSet<String>>> {
        if !self.wanted {
            return Ok(None);
        }
        let answer = tokio::time::timeout(KUBELET_TIMEOUT, look::running(call, node)).await;
        match answer.unwrap_or_else(|late| Err(late.into())) {
            Ok(running) => {
                self.unanswered_since = None;
                Ok(Some(running))
            }
            Err(error) if is_denied(&error) => Err(Hinted {
                message: format!(
                    "node {node}: it is back without a restart, and you do not have permission to ask its kubelet which pods it runs"
                ),
                hint: "get nodes/proxy is needed (role stead-recover-return); or restart the machine: a new boot ID is proof, too"
                    .into(),
            }
            .into()),
            Err(error) => {
                let since = *self.unanswered_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= KUBELET_TIMEOUT {
                    output::complain(
                        "warning",
                        &format!("node {node}: its kubelet does not report which pods it runs: {error:#}"),
                    );
                    self.unanswered_since = None;
                }
                Ok(None)
            }
        }
    }
}

/// Makes a write. False if the object had changed.
async fn make(call: &Call<'_>, write: &RecoveryWrite) -> anyhow::Result<bool> {
    let pod = |namespace: &str, name: &str| format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let request = match write {
        // A server with an older definition would drop fields that it does not know.
        RecoveryWrite::Record(record) => match record.metadata.get("resourceVersion") {
            Some(_) => ApiRequest::update(format!("{}/{}", look::RECORDS, record.name()), record),
            None => ApiRequest::create(look::RECORDS, record),
        }
        .with("fieldValidation", "Strict"),
        RecoveryWrite::Node { name, patch, .. } => ApiRequest::patch(format!("/api/v1/nodes/{name}"), patch),
        RecoveryWrite::Pod { namespace, name, patch, .. } => ApiRequest::patch(pod(namespace, name), patch),
        RecoveryWrite::DeletePod { namespace, name, uid, resource_version } => {
            let seen = Preconditions { uid: Some(uid.clone()), resource_version: Some(resource_version.clone()) };
            ApiRequest::delete(pod(namespace, name), &seen, DeletePolicy::Default)
        }
    };
    let what = format!("{} {}", request.verb.name(), request.path);
    found(call.server.send(request).await).context(what)
}
