//! `stead recover node/NAME`: a plan, proof, and then the safe way, one write at a time.

mod carry_out;
mod definition;
mod how_long;
mod look;
mod patience;
mod rights;
mod show;

use anyhow::{Context as _, anyhow, bail};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use stead_client::Client;
use stead_explain::outage::NodeStanding;
use stead_model::Objects;
use stead_recovery::{
    Deed, End, NodeRecovery, Policy, Request, Said, Step, UnrevokedVolume, View, plan, record_of, step,
};

use crate::args::{RecoverArgs, RecoverFormat};
use crate::connect::connect_for_writes;
use crate::consent;
use crate::output::{self, Hinted, Outcome};
use crate::server::{self, Server};
use patience::patiently;

pub(crate) use look::RECORDS;

/// The first Kubernetes that has the out-of-service taint in its final form.
const OLDEST: (u32, u32) = (1, 28);

pub(crate) fn run(args: &RecoverArgs) -> anyhow::Result<Outcome> {
    let called = Timestamp::now();
    let policy = policy(args)?;
    let node = args.target.as_deref().map(target).transpose()?;
    server::run(async {
        let connection = connect_for_writes(&args.connect).await?;
        let client = connection.client.clone();
        let server = Server::new(connection);
        server.at_least(OLDEST, "the out-of-service taint in its final form").await?;
        let ahead = patiently(async || server.ahead().await).await?.unwrap_or_default();
        let desk = Desk { args, policy, server, client, ahead, called };
        match node {
            None => desk.list().await,
            Some(node) if args.status => desk.status(node).await,
            Some(node) => desk.recover(node).await,
        }
    })
}

/// The name in `node/NAME`.
fn target(target: &str) -> anyhow::Result<&str> {
    let hint = "say which: node/NAME";
    let wrong = || Hinted { message: format!("cannot recover {target:?}"), hint: hint.into() };
    let (kind, name) = target.split_once('/').filter(|(_, name)| !name.is_empty()).ok_or_else(wrong)?;
    if !matches!(kind.to_lowercase().as_str(), "node" | "nodes" | "no") {
        return Err(wrong().into());
    }
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    if let Some(odd) = name.chars().find(|c| !allowed(*c)) {
        bail!("cannot recover {target:?}: no node's name has {odd:?} in it");
    }
    Ok(name)
}

fn policy(args: &RecoverArgs) -> anyhow::Result<Policy> {
    let mut policy = match &args.policy {
        None => Policy::default(),
        Some(path) => {
            let named = || format!("policy {}", path.display());
            let text = std::fs::read_to_string(path).with_context(named)?;
            let read: Value = serde_saphyr::from_str(&text)
                .map_err(|e| anyhow!("{}: {}", named(), output::first_line(&e.to_string())))?;
            serde_path_to_error::deserialize(read).map_err(|e| match e.path().to_string().as_str() {
                "." => anyhow!("{}: {}", named(), e.inner()),
                path => anyhow!("{}: {path}: {}", named(), e.inner()),
            })?
        }
    };
    for (field, limit) in [("atOnce", policy.at_once), ("atOncePerZone", policy.at_once_per_zone)] {
        if let Some(path) = args.policy.as_ref().filter(|_| limit == 0) {
            bail!("policy {}: {field}: it is 0, so that no node could ever be recovered", path.display());
        }
    }
    policy.allow_pending |= args.allow_pending;
    policy.include_tolerating |= args.include_tolerating;
    Ok(policy)
}

/// What a call has at hand.
struct Desk<'a> {
    args: &'a RecoverArgs,
    policy: Policy,
    server: Server,
    client: Client,
    /// The server's clock less ours: what a Lease says is judged by the server's.
    ahead: SignedDuration,
    /// When it was made, by our clock. Whatever a person says was true then; a slow server makes nothing true that is
    /// not so any more when it answers.
    called: Timestamp,
}

impl Desk<'_> {
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
        let record = record.ok_or_else(|| anyhow!("node {node}: there is no recovery of it"))?;
        match self.args.output {
            RecoverFormat::Table => output::text(&show::status(&record))?,
            RecoverFormat::Json => output::json(&record)?,
            RecoverFormat::Yaml => output::yaml(&record)?,
        }
        Ok(Outcome::Yes)
    }

    async fn records(&self) -> anyhow::Result<Vec<NodeRecovery>> {
        let read = |value: Value| {
            let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let record = serde_json::from_value(value);
            record.map_err(|e| output::complain("warning", &format!("NodeRecovery {name} cannot be read: {e}"))).ok()
        };
        Ok(self.server.list(look::RECORDS).await?.into_iter().filter_map(read).collect())
    }

    async fn recover(&self, node: &str) -> anyhow::Result<Outcome> {
        let mut begun = std::time::Instant::now();
        let hints = how_long::hints(self).await;
        let objects = patiently(async || look::whole(self, node, hints.clone()).await).await?.objects;
        let last = record_of(&objects, node);
        let mut request = patiently(async || self.request().await).await?;
        let mut first = self.first_look(node, &objects, last.as_ref(), &request)?;
        if let Some(End::PowerOffNotStated { volumes, .. }) = &first.end
            && request.confirm_off.is_some()
            && !self.args.consent.dry_run
            && consent::stated(&self.args.consent, &power_off_question(node, volumes), "powered off")?
        {
            request.powered_off = true;
            let view = View::new(node, &objects, None, self.now());
            first = step(&view, last.as_ref(), &request, &self.policy);
        }
        if let Some(end) = first.end {
            carry_out::tell_end(self, node, &end, last.as_ref())?;
            return Ok(Outcome::Yes);
        }
        let definition = patiently(async || definition::look(&self.server).await).await?;
        patiently(async || rights::check(&self.server, node, definition.is_wanting()).await).await?;
        if self.args.consent.dry_run {
            return Ok(Outcome::Yes);
        }
        let question = match &first.deed {
            _ if self.args.abort => "Undo this recovery?",
            _ if last.as_ref().is_some_and(is_under_way) => "Continue this recovery?",
            Some(Deed::Record(_)) => "Is the machine off, and should this be done?",
            _ => "Remove what is left of the last recovery?",
        };
        let asked = std::time::Instant::now();
        if !consent::given(&self.args.consent, question)? {
            output::complain("note", "nothing was done");
            return Ok(Outcome::No);
        }
        // A person may take their time.
        begun += asked.elapsed();
        patiently(async || definition.bring(&self.server, self.args.consent.timeout).await).await?;
        carry_out::until_the_end(self, node, &request, last, begun).await
    }

    /// Shows what would be done; gives the first step.
    fn first_look(
        &self,
        node: &str,
        objects: &Objects,
        last: Option<&NodeRecovery>,
        request: &Request,
    ) -> anyhow::Result<Step> {
        let now = self.now();
        let view = View::new(node, objects, None, now);
        let under_way = last.filter(|record| is_under_way(record));
        let Some(standing) = NodeStanding::find(objects, node) else {
            // With a node that is gone for good its recovery is over; that is written down.
            return under_way
                .map(|record| step(&view, Some(record), request, &self.policy))
                .ok_or_else(|| no_such_node(objects, node));
        };
        let step = step(&view, last, request, &self.policy);
        let shown = match (&step.deed, under_way) {
            // What is going to be done: evidence for some pods leaves the others alone, and an old plan is made anew.
            (Some(Deed::Record(record)), _) => Ok(record.spec.plan.clone()),
            (_, Some(record)) => Ok(record.spec.plan.clone()),
            (_, None) => plan(objects, node, &self.policy),
        };
        // A program gets the record when it is over; the plan is in it.
        let record_comes = match &step.end {
            Some(end) if end.refusal().is_some() => false,
            Some(_) => true,
            None => !self.args.consent.dry_run,
        };
        match shown {
            Ok(shown) if !self.args.abort => {
                let foreseen = how_long::foreseen(objects, node, now);
                match self.args.output {
                    RecoverFormat::Table => {
                        output::text(&show::plan(&standing, under_way, &shown, &foreseen, now))?;
                    }
                    _ if record_comes => output::aside(&show::plan(&standing, under_way, &shown, &foreseen, now)),
                    RecoverFormat::Json => output::json(&show::plan_value(&shown, &foreseen)?)?,
                    RecoverFormat::Yaml => output::yaml(&show::plan_value(&shown, &foreseen)?)?,
                }
            }
            // The step says it, unless there is something else to be said or done before.
            Err(error) if self.args.consent.dry_run => return Err(anyhow!("{error}")),
            Ok(_) if self.args.consent.dry_run && step.deed.is_some() => {
                let undone = show::abort(&standing, under_way, now);
                match self.args.output {
                    RecoverFormat::Table => output::text(&undone)?,
                    _ => output::aside(&undone),
                }
            }
            _ => {}
        }
        Ok(step)
    }

    /// What this person wants.
    async fn request(&self) -> anyhow::Result<Request> {
        let who = self.who().await?;
        let said = |words: &str| Said { by: who.clone(), at: self.called + self.ahead, words: words.to_owned() };
        let confirm_off = match self.args.confirm_off.as_deref().map(str::trim) {
            Some("") => bail!("--confirm-off: say how you know that the machine is off"),
            words => words.map(said),
        };
        let powered_off = confirm_off.is_some() && self.args.powered_off;
        Ok(Request { confirm_off, powered_off, abort: self.args.abort.then(|| said("--abort")), who: who.clone() })
    }

    /// Who this is, as the server knows them.
    async fn who(&self) -> anyhow::Result<String> {
        let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
        let answer = self.server.ask("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await?;
        Ok(answer["status"]["userInfo"]["username"].as_str().unwrap_or("somebody").to_owned())
    }
}

fn is_under_way(record: &NodeRecovery) -> bool {
    !record.status.phase.is_over()
}

/// What has to be stated on storage that does not revoke access.
fn power_off_question(node: &str, volumes: &[UnrevokedVolume]) -> String {
    let mut out = format!("\nDetaching does not stop the machine of node {node} from writing to these volumes:\n");
    for volume in volumes {
        out.push_str(&format!("  - {volume}\n"));
    }
    out.push_str("A machine that is only suspended or unreachable would write to them again when it continues.\n");
    out.push_str("Type \"powered off\" if the machine is powered off: ");
    out
}

/// What is said of a node that is not there: with what it has left behind, where it has.
fn no_such_node(objects: &Objects, node: &str) -> anyhow::Error {
    let pods = objects.raw_of_kind("Pod").filter(|(_, p)| p["spec"]["nodeName"] == node).count();
    let volumes = objects.raw_of_kind("VolumeAttachment").filter(|(_, a)| a["spec"]["nodeName"] == node).count();
    if pods + volumes == 0 {
        return anyhow!("node {node}: not found");
    }
    Hinted {
        message: format!(
            "node {node}: its Node object is gone, and {pods} pods and {volumes} attached volumes are left: Kubernetes \
             collects the pods within a minute and detaches the volumes after six; there is nothing that could be tainted"
        ),
        hint: format!("stead explain node/{node} tells when each pod would be ready again"),
    }
    .into()
}
