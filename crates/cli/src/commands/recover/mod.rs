//! `stead recover node/NAME`: shows a plan, asks for evidence, and recovers the node one write at a time.

mod carry_out;
mod definition;
mod from_dump;
mod look;
mod permissions;
mod retry;
mod show;
mod when_ready;

use anyhow::{Context as _, anyhow, bail};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use serde_json::{Value, json};
use stead_client::Client;
use stead_model::{KubernetesVersion, ModelError, ObjectKey, Objects, attachments_on, parse};
use stead_recovery::{
    ClusterView, KIND, NextStep, NodeRecovery, RecoveryEnd, RecoveryPolicy, RecoveryRequest, RecoveryWrite, Refusal,
    Statement, UnrevokedVolume, next_step, plan, record_of,
};

use crate::args::{RecoverArgs, RecoverFormat};
use crate::connect::connect_for_writes;
use crate::consent;
use crate::output::{self, Hinted, Outcome};
use crate::server::{self, Server};
use crate::{scheduler, version};
use retry::with_retries;

pub(crate) use look::RECORDS;

/// The first Kubernetes version in which the out-of-service taint is stable.
const OLDEST_VERSION: (u32, u32) = (1, 28);

pub(crate) fn run(args: &RecoverArgs) -> anyhow::Result<Outcome> {
    let called = Timestamp::now();
    let policy = policy(args)?;
    let node = args.target.as_deref().map(target).transpose()?;
    if let Some(node) = node.filter(|_| !args.from.is_empty()) {
        return from_dump::run(args, node, &policy);
    }
    server::run(async {
        let connection = connect_for_writes(&args.connect).await?;
        let client = connection.client.clone();
        let server = Server::new(connection);
        let reported = server.at_least(OLDEST_VERSION, "the out-of-service taint (stable since 1.28)").await?;
        let version = version::choose(args.control_plane.kubernetes, &reported);
        let scheduler_config = scheduler::read(args.control_plane.scheduler_config.as_deref())?;
        let ahead = with_retries(async || server.ahead().await).await?.unwrap_or_default();
        let call = Call { args, policy, server, client, version, scheduler_config, ahead, called };
        match node {
            None => call.list().await,
            Some(node) if args.status => call.status(node).await,
            Some(node) => call.recover(node).await,
        }
    })
}

/// The name in `node/NAME`.
fn target(target: &str) -> anyhow::Result<&str> {
    let hint = "name a node: node/NAME";
    let wrong = || Hinted { message: format!("cannot recover {target:?}"), hint: hint.into() };
    let (kind, name) = target.split_once('/').filter(|(_, name)| !name.is_empty()).ok_or_else(wrong)?;
    if !matches!(kind.to_lowercase().as_str(), "node" | "nodes" | "no") {
        return Err(wrong().into());
    }
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    if let Some(odd) = name.chars().find(|c| !allowed(*c)) {
        bail!("cannot recover {target:?}: {odd:?} is not allowed in the name of a node");
    }
    Ok(name)
}

fn policy(args: &RecoverArgs) -> anyhow::Result<RecoveryPolicy> {
    let mut policy = match &args.policy {
        None => RecoveryPolicy::default(),
        Some(path) => {
            let named = || format!("policy {}", path.display());
            let text = std::fs::read_to_string(path).with_context(named)?;
            let read: Value = serde_saphyr::from_str(&text)
                .map_err(|e| anyhow!("{}: {}", named(), output::first_line(&e.to_string())))?;
            parse(named(), &read).map_err(|error| match error {
                ModelError::Malformed { object, field, reason } if field == "." => anyhow!("{object}: {reason}"),
                error => error.into(),
            })?
        }
    };
    for (field, limit) in [("atOnce", policy.at_once), ("atOncePerZone", policy.at_once_per_zone)] {
        if let Some(path) = args.policy.as_ref().filter(|_| limit == 0) {
            bail!("policy {}: {field}: must be at least 1", path.display());
        }
    }
    policy.allow_pending |= args.allow_pending;
    policy.include_tolerating |= args.include_tolerating;
    Ok(policy)
}

/// A call of `stead recover`.
struct Call<'a> {
    args: &'a RecoverArgs,
    policy: RecoveryPolicy,
    server: Server,
    client: Client,
    /// The version of Kubernetes whose rules are used.
    version: KubernetesVersion,
    /// The configuration of kube-scheduler that the user gives.
    scheduler_config: Option<Value>,
    /// How far the server's clock is ahead of ours. Leases are judged by the server's clock.
    ahead: SignedDuration,
    /// When the call was made, by our clock. A confirmation holds for this time, however long the server takes to answer.
    called: Timestamp,
}

impl Call<'_> {
    fn now(&self) -> Timestamp {
        Timestamp::now() + self.ahead
    }

    async fn list(&self) -> anyhow::Result<Outcome> {
        let records = self.records().await?;
        match self.args.output {
            RecoverFormat::Table => output::text(&show::list(&records, self.now()))?,
            RecoverFormat::Json => output::json(&records)?,
            RecoverFormat::Yaml => output::yaml(&records)?,
        }
        Ok(Outcome::Yes)
    }

    async fn status(&self, node: &str) -> anyhow::Result<Outcome> {
        let records = self.records().await?;
        let values = records.iter().filter_map(|r| serde_json::to_value(r).ok());
        let record = record_of(&Objects::from_items(values), node);
        let record = record.ok_or_else(|| anyhow!("node {node}: no recovery is recorded"))?;
        match self.args.output {
            RecoverFormat::Table => output::text(&show::status(&record))?,
            RecoverFormat::Json => output::json(&record)?,
            RecoverFormat::Yaml => output::yaml(&record)?,
        }
        Ok(Outcome::Yes)
    }

    async fn records(&self) -> anyhow::Result<Vec<NodeRecovery>> {
        let read = |value: Value| {
            let key = ObjectKey::of_kind(KIND, &value)?;
            let record = parse(key, &value);
            record.map_err(|error| output::complain("warning", &format!("ignored: {error}"))).ok()
        };
        Ok(self.server.list(look::RECORDS).await?.into_iter().filter_map(read).collect())
    }

    async fn recover(&self, node: &str) -> anyhow::Result<Outcome> {
        let mut begun = std::time::Instant::now();
        let hints = when_ready::hints(self).await;
        let objects = with_retries(async || look::whole(self, node, hints.clone()).await).await?.objects;
        let last = record_of(&objects, node);
        let mut request = with_retries(async || self.request().await).await?;
        let mut first = self.first_look(node, &objects, last.as_ref(), &request)?;
        if let Some(RecoveryEnd::Refused(Refusal::PowerOffNotStated { volumes, .. })) = &first.end
            && request.confirm_off.is_some()
            && !self.args.consent.dry_run
            && consent::stated(&self.args.consent, &power_off_question(node, volumes), "powered off")?
        {
            request.powered_off = true;
            let view = ClusterView::new(node, &objects, None, self.now());
            first = next_step(&view, last.as_ref(), &request, &self.policy);
        }
        if let Some(end) = first.end {
            carry_out::print_end(self, node, &end, last.as_ref())?;
            return Ok(Outcome::Yes);
        }
        let definition = with_retries(async || definition::look(&self.server).await).await?;
        with_retries(async || permissions::check(&self.server, node, definition.must_be_applied()).await).await?;
        if self.args.consent.dry_run {
            return Ok(Outcome::Yes);
        }
        let question = match &first.write {
            _ if self.args.abort => "Undo this recovery?",
            _ if last.as_ref().is_some_and(is_in_progress) => "Continue this recovery?",
            Some(RecoveryWrite::Record(_)) => "Is the machine off, and should this be done?",
            _ => "Remove what is left of the last recovery?",
        };
        let asked = std::time::Instant::now();
        if !consent::given(&self.args.consent, question)? {
            output::complain("note", "nothing was done");
            return Ok(Outcome::No);
        }
        // The time to answer the question does not count.
        begun += asked.elapsed();
        with_retries(async || definition.apply(&self.server, self.args.consent.timeout).await).await?;
        carry_out::until_the_end(self, node, &request, last, begun).await
    }

    /// Shows what would be done; returns the first step.
    fn first_look(
        &self,
        node: &str,
        objects: &Objects,
        last: Option<&NodeRecovery>,
        request: &RecoveryRequest,
    ) -> anyhow::Result<NextStep> {
        let now = self.now();
        let view = ClusterView::new(node, objects, None, now);
        let in_progress = last.filter(|record| is_in_progress(record));
        let Some(health) = objects.node_health(node)? else {
            // The recovery of a node that no longer exists is over: that is recorded.
            return in_progress
                .map(|record| next_step(&view, Some(record), request, &self.policy))
                .ok_or_else(|| no_such_node(objects, node));
        };
        let step = next_step(&view, last, request, &self.policy);
        let shown = match (&step.write, in_progress) {
            // The plan that is carried out: evidence for some pods leaves the others alone, and an old plan is updated.
            (Some(RecoveryWrite::Record(record)), _) => Ok(record.spec.plan.clone()),
            (_, Some(record)) => Ok(record.spec.plan.clone()),
            (_, None) => plan(objects, node, &self.policy),
        };
        // With -o json or yaml, the record is printed at the end; it contains the plan.
        let record_comes = match &step.end {
            Some(end) if end.refusal().is_some() => false,
            Some(_) => true,
            None => !self.args.consent.dry_run,
        };
        match shown {
            Ok(shown) if !self.args.abort => {
                let ready = when_ready::forecast(objects, node, &shown, now);
                match self.args.output {
                    RecoverFormat::Table => {
                        output::text(&show::plan(&health, in_progress, &shown, &ready, now))?;
                    }
                    _ if record_comes => output::aside(&show::plan(&health, in_progress, &shown, &ready, now)),
                    RecoverFormat::Json => output::json(&show::ShownPlan::new(&shown, &ready))?,
                    RecoverFormat::Yaml => output::yaml(&show::ShownPlan::new(&shown, &ready))?,
                }
            }
            // Otherwise the step reports the error, unless something else comes first.
            Err(error) if self.args.consent.dry_run => return Err(anyhow!("{error}")),
            Ok(_) if self.args.consent.dry_run && step.write.is_some() => {
                let undone = show::abort(&health, in_progress, now);
                match self.args.output {
                    RecoverFormat::Table => output::text(&undone)?,
                    _ => output::aside(&undone),
                }
            }
            _ => {}
        }
        Ok(step)
    }

    /// What the user asks for.
    async fn request(&self) -> anyhow::Result<RecoveryRequest> {
        let who = self.who().await?;
        let statement =
            |words: &str| Statement { by: who.clone(), at: self.called + self.ahead, words: words.to_owned() };
        let confirm_off = match self.args.confirm_off.as_deref().map(str::trim) {
            Some("") => bail!("--confirm-off: say how you know that the machine is off"),
            words => words.map(statement),
        };
        let powered_off = confirm_off.is_some() && self.args.powered_off;
        let abort = self.args.abort.then(|| statement("--abort"));
        Ok(RecoveryRequest { confirm_off, powered_off, abort, who: who.clone() })
    }

    /// The user, by the server's name for them.
    async fn who(&self) -> anyhow::Result<String> {
        let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
        let answer = self.server.ask("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await?;
        let review: SelfSubjectReview = parse("SelfSubjectReview", &answer)?;
        let user = review.status.and_then(|status| status.user_info?.username);
        Ok(user.unwrap_or_else(|| "unknown".to_owned()))
    }
}

fn is_in_progress(record: &NodeRecovery) -> bool {
    !record.status.phase.is_over()
}

/// The question on storage that does not revoke access.
fn power_off_question(node: &str, volumes: &[UnrevokedVolume]) -> String {
    let mut out = format!("\nDetaching does not stop the machine of node {node} from writing to these volumes:\n");
    for volume in volumes {
        out.push_str(&format!("  - {volume}\n"));
    }
    out.push_str("A machine that is only suspended or unreachable would write to them again when it continues.\n");
    out.push_str("Type \"powered off\" if the machine is powered off: ");
    out
}

/// The error for a node that does not exist, with the pods and volumes that it has left behind.
fn no_such_node(objects: &Objects, node: &str) -> anyhow::Error {
    let (pods, volumes) = (objects.pods_on(node).count(), attachments_on(objects, node).len());
    if pods + volumes == 0 {
        return anyhow!("node {node}: not found");
    }
    Hinted {
        message: format!(
            "node {node}: its Node object was deleted, and {pods} pods and {volumes} attached volumes are left: Kubernetes \
             removes the pods within a minute and detaches the volumes after six; there is no Node to taint"
        ),
        hint: format!("stead explain node/{node} shows when each pod will be Ready again"),
    }
    .into()
}
