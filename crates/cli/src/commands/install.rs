//! `stead install`: look, show, ask, apply, wait.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::Value;
use stead_manifests::plan::{Action, Plan, compare, foreign, is_left_out};
use stead_manifests::{DEPLOYMENT, Manifest, all_manifests, is_ours, manifests};

use crate::args::{InstallArgs, OperatorOptions};
use crate::connect::connect;
use crate::consent;
use crate::output::{self, Hinted, Outcome};
use crate::server::{self, Server};

/// The first Kubernetes that has ValidatingAdmissionPolicy in its final form.
const OLDEST: (u32, u32) = (1, 30);

/// How often something that is waited for is looked at.
const PACE: Duration = Duration::from_millis(500);

pub(crate) fn run(args: &InstallArgs) -> anyhow::Result<Outcome> {
    server::run(install(args))
}

async fn install(args: &InstallArgs) -> anyhow::Result<Outcome> {
    let server = Server::new(connect(&args.connect).await?);
    let version = server.at_least(OLDEST, "ValidatingAdmissionPolicy").await?;
    let manifests = manifests(&args.options.options());
    rights(&server, &manifests).await?;
    namespaces(&server, &args.options).await?;
    let obsolete = obsolete(&server, &manifests, &args.options.namespace).await?;
    let mut plan = look(&server, manifests).await?;
    plan.steps.extend(obsolete.into_iter().map(|manifest| (manifest, Action::Delete)));
    output::text(&render(&plan, &server, &version))?;
    if args.consent.dry_run {
        return Ok(Outcome::Yes);
    }
    if plan.changes() {
        if !consent::given(&args.consent, "Go on?")? {
            output::complain("note", "nothing was done");
            return Ok(Outcome::No);
        }
        apply(&server, &plan, args.consent.timeout).await?;
    }
    if !args.no_wait {
        wait_for_operator(&server, &args.options.namespace, args.consent.timeout).await?;
    }
    Ok(Outcome::Yes)
}

/// An error that names the rights that are missing, if any are.
async fn rights(server: &Server, manifests: &[Manifest]) -> anyhow::Result<()> {
    if server.lacks("*", "*", "*", None).await?.is_none() {
        return Ok(());
    }
    let mut wanted: Vec<(String, &str, Option<&str>)> =
        manifests.iter().map(|m| (m.group().to_owned(), m.plural, m.namespace())).collect();
    wanted.sort();
    wanted.dedup();
    let mut missing = Vec::new();
    for (group, resource, namespace) in wanted {
        for verb in ["get", "create", "patch"] {
            missing.extend(server.lacks(verb, &group, resource, namespace).await?);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Hinted {
        message: format!("you may not: {}", missing.join(", ")),
        hint: "give the output of `stead manifests` to somebody who may, or ask for the role cluster-admin".to_owned(),
    }
    .into())
}

/// An error that names a namespace that the operator is to work in and that does not exist.
async fn namespaces(server: &Server, options: &OperatorOptions) -> anyhow::Result<()> {
    for namespace in options.namespaces.iter().filter(|namespace| **namespace != options.namespace) {
        if server.get(&format!("/api/v1/namespaces/{namespace}")).await?.is_none() {
            return Err(Hinted {
                message: format!("namespace {namespace} does not exist, so the operator can have no Role in it"),
                hint: format!("kubectl create namespace {namespace}"),
            }
            .into());
        }
    }
    Ok(())
}

/// What an earlier installation with other namespaces left: its roles would allow more than is asked for now.
async fn obsolete(server: &Server, wanted: &[Manifest], own: &str) -> anyhow::Result<Vec<Manifest>> {
    let wanted: Vec<String> = wanted.iter().map(Manifest::path).collect();
    let mut found = Vec::new();
    for manifest in all_manifests(own, server.scoped_namespaces(own).await?) {
        if !wanted.contains(&manifest.path())
            && let Some(live) = server.get(&manifest.path()).await?
            && is_ours(&live)
        {
            found.push(Manifest { object: live, ..manifest });
        }
    }
    Ok(found)
}

/// What would be done to the cluster as it is.
async fn look(server: &Server, manifests: Vec<Manifest>) -> anyhow::Result<Plan> {
    let mut live = Vec::new();
    for manifest in &manifests {
        live.push(server.get(&manifest.path()).await?);
    }
    let definitions = manifests.iter().zip(&live).filter(|(manifest, _)| manifest.is_definition());
    let foreign = foreign(definitions.filter_map(|(_, live)| live.as_ref()));
    let mut steps = Vec::new();
    for (manifest, live) in manifests.into_iter().zip(live) {
        let action = match live {
            _ if is_left_out(&manifest, &foreign) => Action::Foreign,
            None => Action::Create,
            // A namespace that was there before stays when Stead goes.
            Some(live) if manifest.kind() == "Namespace" && !is_ours(&live) => Action::Foreign,
            Some(live) => {
                let applied = server.apply(&manifest.path(), &manifest.object, true).await;
                compare(&live, &applied.with_context(|| format!("trying {manifest}"))?)
            }
        };
        steps.push((manifest, action));
    }
    Ok(Plan { steps })
}

/// What would be done, for people.
fn render(plan: &Plan, server: &Server, version: &str) -> String {
    let mut text = format!("{} (Kubernetes {version})\n", server.address());
    for (manifest, action) in &plan.steps {
        // What would only be about a foreign definition is not worth a line.
        if *action == Action::Foreign && !manifest.is_definition() && manifest.kind() != "Namespace" {
            continue;
        }
        let (word, more) = match action {
            Action::Create => ("create", String::new()),
            Action::Change(fields) => ("change", format!(": {}", fields.join(", "))),
            Action::Delete => ("delete", String::new()),
            Action::Unchanged => ("unchanged", String::new()),
            Action::Foreign if manifest.kind() == "Namespace" => ("leave", ": it was there before".to_owned()),
            Action::Foreign => ("leave", ": the definition belongs to somebody else".to_owned()),
        };
        let place = manifest.namespace().map_or(String::new(), |n| format!(" in {n}"));
        text.push_str(&format!("  {word:9}  {manifest}{place}{more}\n"));
    }
    if !plan.foreign().is_empty() {
        text.push_str(&format!(
            "Stead runs as a companion of whoever looks after {}: it explains and reports, and changes nothing of \
             theirs.\n",
            plan.foreign().join(", ")
        ));
    }
    if !plan.changes() {
        text.push_str("Nothing changes.\n");
    }
    text
}

async fn apply(server: &Server, plan: &Plan, timeout: Duration) -> anyhow::Result<()> {
    let mut waited = false;
    for (manifest, action) in &plan.steps {
        let done = match action {
            Action::Create => "created",
            Action::Change(_) => "changed",
            Action::Delete => {
                if server.delete(&manifest.path(), &manifest.object).await? {
                    output::complain("note", &format!("deleted {manifest}"));
                }
                continue;
            }
            Action::Unchanged | Action::Foreign => continue,
        };
        // What comes after the definitions may be about them.
        if !manifest.is_definition() && manifest.kind() != "Namespace" && !waited {
            wait_for_definitions(server, plan, timeout).await?;
            waited = true;
        }
        let answer = server.apply(&manifest.path(), &manifest.object, false).await;
        answer.with_context(|| format!("applying {manifest}"))?;
        output::complain("note", &format!("{done} {manifest}"));
    }
    if waited { Ok(()) } else { wait_for_definitions(server, plan, timeout).await }
}

async fn wait_for_definitions(server: &Server, plan: &Plan, timeout: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + timeout;
    let ours = plan.steps.iter().filter(|(m, action)| m.is_definition() && *action != Action::Foreign);
    for (manifest, _) in ours {
        loop {
            let live = server.get(&manifest.path()).await?.unwrap_or_default();
            if condition(&live, "Established").is_some_and(|c| c["status"] == "True") {
                break;
            }
            if Instant::now() >= until {
                let refused = condition(&live, "NamesAccepted").filter(|c| c["status"] == "False");
                let why = refused.and_then(|c| c["message"].as_str()).unwrap_or("no reason is given");
                anyhow::bail!("{manifest} is not established after {}s: {why}", timeout.as_secs());
            }
            tokio::time::sleep(PACE).await;
        }
    }
    Ok(())
}

async fn wait_for_operator(server: &Server, namespace: &str, timeout: Duration) -> anyhow::Result<()> {
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{DEPLOYMENT}");
    let until = Instant::now() + timeout;
    let mut said = String::new();
    loop {
        let live = server.get(&path).await?.unwrap_or_default();
        if is_available(&live) {
            output::complain("note", "the operator is ready");
            return Ok(());
        }
        let why = condition(&live, "Available").and_then(|c| c["message"].as_str()).unwrap_or("it is not there yet");
        if why != said {
            output::complain("note", &format!("waiting for deployment/{DEPLOYMENT}: {why}"));
            said = why.to_owned();
        }
        if Instant::now() >= until {
            return Err(Hinted {
                message: format!("deployment/{DEPLOYMENT} is not available after {}s: {why}", timeout.as_secs()),
                hint: format!("kubectl -n {namespace} describe pods -l app.kubernetes.io/name={DEPLOYMENT}"),
            }
            .into());
        }
        tokio::time::sleep(PACE).await;
    }
}

/// Whether a Deployment is as far as its spec asks.
fn is_available(deployment: &Value) -> bool {
    let status = &deployment["status"];
    let seen = status["observedGeneration"].as_i64() >= deployment["metadata"]["generation"].as_i64();
    let updated =
        status["updatedReplicas"].as_i64().unwrap_or(0) >= deployment["spec"]["replicas"].as_i64().unwrap_or(1);
    seen && updated && condition(deployment, "Available").is_some_and(|c| c["status"] == "True")
}

fn condition<'a>(object: &'a Value, sort: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == sort)
}
