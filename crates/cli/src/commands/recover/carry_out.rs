//! Looks, makes one write, and looks again, until there is nothing more to do.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use stead_client::{ApiRequest, DeletePolicy, Error, Preconditions};
use stead_recovery::{Deed, End, NodeRecovery, Phase, Request, Step, View, record_of, step};

use super::patience::{AGAIN, passes};
use super::show::{self, Progress};
use super::{Desk, look};
use crate::args::RecoverFormat;
use crate::output::{self, Hinted, Outcome};
use crate::server::found;

/// So much time has a node that is back to say what it runs, before its silence is told.
const KUBELET: Duration = Duration::from_secs(10);

/// What was read so long ago is not acted upon.
const FRESH: SignedDuration = SignedDuration::from_secs(10);

/// How long to wait after a write that was refused because of another one.
const CHANGED: Duration = Duration::from_millis(100);

/// Carries the recovery out, or goes on with it. All that is remembered from one look to the next is in the cluster; the
/// last record that was seen only says how much to read.
pub(super) async fn until_the_end(
    desk: &Desk<'_>,
    node: &str,
    request: &Request,
    mut last: Option<NodeRecovery>,
    begun: Instant,
) -> anyhow::Result<Outcome> {
    let mut progress = Progress::new(begun);
    let mut kubelet = Kubelet::default();
    let mut trouble = String::new();
    let mut ended = None;
    loop {
        if begun.elapsed() > desk.args.consent.timeout {
            let waits = [progress.waits(), trouble].into_iter().find(|w| !w.is_empty()).unwrap_or_default();
            return Err(Hinted {
                message: format!("node {node}: not finished after {}s; {waits}", desk.args.consent.timeout.as_secs()),
                hint: format!("nothing is undone: stead recover node/{node} continues, --status shows the progress"),
            }
            .into());
        }
        let turn = turn(desk, node, request, last.as_ref(), &mut kubelet).await;
        let (step, record, at) = match turn {
            Ok(turn) => turn,
            Err(error) if passes(&error) => {
                trouble = format!("{error:#}");
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        // It is over once our mark is gone from the node, too; what could be begun then is for another call.
        if let Some((end, record)) = ended.as_ref().filter(|_| !matches!(step.deed, Some(Deed::Node { .. }))) {
            tell_end(desk, node, end, Some(record))?;
            return Ok(Outcome::Yes);
        }
        progress.tell(&step, record.as_ref());
        last = record;
        match (&step.deed, &step.end) {
            // Whoever slept between the look and the deed looks again.
            (Some(Deed::Node { .. } | Deed::DeletePod { .. }), _) if desk.now().duration_since(at).abs() > FRESH => {}
            (Some(deed), _) => match write(desk, deed).await {
                Ok(true) => {
                    progress.done(deed);
                    if let Deed::Record(record) = deed {
                        ended = over(record).map(|end| (end, (**record).clone()));
                    }
                }
                // Somebody was quicker, or it is another by now: the next look tells.
                Ok(false) => {
                    trouble = "what was to be written has changed meanwhile".to_owned();
                    tokio::time::sleep(CHANGED).await;
                }
                Err(error) if passes(&error) => {
                    trouble = format!("{error:#}");
                    tokio::time::sleep(AGAIN).await;
                }
                Err(error) => return Err(error),
            },
            (None, Some(End::Recovered)) if desk.args.wait_return => tokio::time::sleep(step.again).await,
            (None, Some(end)) => {
                if desk.args.output == RecoverFormat::Table {
                    progress.summary(node, last.as_ref(), end)?;
                }
                tell_end(desk, node, end, last.as_ref())?;
                return Ok(Outcome::Yes);
            }
            (None, None) => tokio::time::sleep(step.again).await,
        }
    }
}

/// The end that a record tells of, where nothing is left to be done.
fn over(record: &NodeRecovery) -> Option<End> {
    match record.status.phase {
        Phase::Returned => Some(End::Returned),
        Phase::Undone => Some(End::Undone),
        Phase::Void => Some(End::Refused(record.status.message.clone())),
        _ => None,
    }
}

/// Says how it ended: to people in a line, to programs by the record.
pub(super) fn tell_end(desk: &Desk<'_>, node: &str, end: &End, record: Option<&NodeRecovery>) -> anyhow::Result<()> {
    let line = show::end(node, end, record)?;
    match desk.args.output {
        RecoverFormat::Table => return output::text(&line),
        RecoverFormat::Json => record.map_or(Ok(()), output::json)?,
        RecoverFormat::Yaml => record.map_or(Ok(()), output::yaml)?,
    }
    output::complain("note", line.trim_end());
    Ok(())
}

/// One look.
async fn turn(
    desk: &Desk<'_>,
    node: &str,
    request: &Request,
    last: Option<&NodeRecovery>,
    kubelet: &mut Kubelet,
) -> anyhow::Result<(Step, Option<NodeRecovery>, Timestamp)> {
    let running = kubelet.ask(desk, node).await?;
    let is_fenced = |r: &NodeRecovery| matches!(r.status.phase, Phase::Fenced | Phase::Released | Phase::Recovered);
    let part = match last.filter(|record| is_fenced(record)) {
        Some(record) => Some(look::part(desk, node, record).await?),
        None => None,
    };
    // What is about to be planned takes more than what goes on.
    let still = |seen: &look::Seen| record_of(&seen.objects, node).is_some_and(|record| is_fenced(&record));
    let look::Seen { objects, at } = match part.filter(still) {
        Some(seen) => seen,
        None => look::whole(desk, node, Vec::new()).await?,
    };
    let record = record_of(&objects, node);
    let view = View::new(node, &objects, running.as_ref(), desk.now());
    let step = step(&view, record.as_ref(), request, &desk.policy);
    kubelet.wanted = step.ask_running;
    Ok((step, record, at))
}

pub(super) fn is_denied(error: &anyhow::Error) -> bool {
    let denied = |error: &Error| error.is_unauthorized() || error.is_forbidden();
    error.downcast_ref::<Error>().is_some_and(denied)
}

/// What a node that is back says of the pods that it runs.
#[derive(Default)]
struct Kubelet {
    wanted: bool,
    silent_since: Option<Instant>,
}

impl Kubelet {
    async fn ask(&mut self, desk: &Desk<'_>, node: &str) -> anyhow::Result<Option<BTreeSet<String>>> {
        if !self.wanted {
            return Ok(None);
        }
        let answer = tokio::time::timeout(KUBELET, look::running(desk, node)).await;
        match answer.unwrap_or_else(|late| Err(late.into())) {
            Ok(running) => {
                self.silent_since = None;
                Ok(Some(running))
            }
            Err(error) if is_denied(&error) => Err(Hinted {
                message: format!(
                    "node {node}: it is back without a restart, and you may not ask its kubelet what it runs"
                ),
                hint: "get nodes/proxy is needed (role stead-recover-return), or restart the machine: a new boot ID is proof too"
                    .into(),
            }
            .into()),
            Err(error) => {
                let since = *self.silent_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= KUBELET {
                    output::complain(
                        "warning",
                        &format!("node {node}: its kubelet does not report what it runs: {error:#}"),
                    );
                    self.silent_since = None;
                }
                Ok(None)
            }
        }
    }
}

/// Makes a write. False where what it was decided for is not like that any more.
async fn write(desk: &Desk<'_>, deed: &Deed) -> anyhow::Result<bool> {
    let pod = |namespace: &str, name: &str| format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let request = match deed {
        // A server with an older definition would drop fields that it does not know.
        Deed::Record(record) => match record.metadata.get("resourceVersion") {
            Some(_) => ApiRequest::update(format!("{}/{}", look::RECORDS, record.name()), record),
            None => ApiRequest::create(look::RECORDS, record),
        }
        .with("fieldValidation", "Strict"),
        Deed::Node { name, patch, .. } => ApiRequest::patch(format!("/api/v1/nodes/{name}"), patch),
        Deed::Pod { namespace, name, patch, .. } => ApiRequest::patch(pod(namespace, name), patch),
        Deed::DeletePod { namespace, name, uid, resource_version } => {
            let seen = Preconditions { uid: Some(uid.clone()), resource_version: Some(resource_version.clone()) };
            ApiRequest::delete(pod(namespace, name), &seen, DeletePolicy::Default)
        }
    };
    let what = format!("{} {}", request.verb.name(), request.path);
    found(desk.server.send(request).await).context(what)
}
