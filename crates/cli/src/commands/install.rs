//! `stead install`: shows what would change, asks, applies it, and waits for the operator.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition};
use stead_explain::hanging;
use stead_manifests::plan::{Action, Plan, compare, foreign, is_left_out};
use stead_manifests::{DEPLOYMENT, Manifest, UNCHECKED, all_manifests, helm_release, is_ours, manifests};
use stead_model::{ObjectKey, Typed};

use crate::args::{InstallArgs, OperatorOptions};
use crate::connect::connect;
use crate::consent;
use crate::live_object::LiveObject;
use crate::output::{self, Hinted, Outcome};
use crate::server::{self, Server};
use crate::version;

/// The oldest version of Kubernetes that the operator is tested with.
const OLDEST: (u32, u32) = (1, 29);

/// How often the cluster is asked while waiting.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

pub(crate) fn run(args: &InstallArgs) -> anyhow::Result<Outcome> {
    server::run(install(args))
}

async fn install(args: &InstallArgs) -> anyhow::Result<Outcome> {
    let image = args.options.operator_image()?;
    let server = Server::new(connect(&args.connect).await?);
    let reported = server.at_least(OLDEST, "its operator").await?;
    let version = version::choose(args.kubernetes, &reported);
    let options = args.options.options(version, image);
    let manifests = manifests(&options);
    check_permissions(&server, &manifests).await?;
    check_not_helm(&server, &options.namespace).await?;
    check_namespaces(&server, &args.options).await?;
    let obsolete = obsolete(&server, &manifests, &args.options.namespace).await?;
    let mut plan = plan_changes(&server, manifests).await?;
    plan.steps.extend(obsolete.into_iter().map(|manifest| (manifest, Action::Delete)));
    output::text(&render(&plan, &server, &reported))?;
    if !version::has_admission_policies(version) {
        version::tell_unchecked(version, UNCHECKED);
    }
    if args.consent.dry_run {
        return Ok(Outcome::Yes);
    }
    if plan.changes() {
        if !consent::given(&args.consent, "Install?")? {
            output::complain("note", "nothing was changed");
            return Ok(Outcome::No);
        }
        apply(&server, &plan, args.consent.timeout).await?;
    }
    if !args.no_wait {
        wait_for_operator(&server, &args.options.namespace, args.consent.timeout).await?;
    }
    Ok(Outcome::Yes)
}

/// An error that names missing permissions.
async fn check_permissions(server: &Server, manifests: &[Manifest]) -> anyhow::Result<()> {
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
        message: format!("missing permissions: {}", missing.join(", ")),
        hint: "ask a cluster administrator to apply the output of `stead manifests`".to_owned(),
    }
    .into())
}

/// An error if Helm installed the operator: the next `helm upgrade` would undo what is applied here.
async fn check_not_helm(server: &Server, namespace: &str) -> anyhow::Result<()> {
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{DEPLOYMENT}");
    let Some(release) = server.get(&path).await?.and_then(|live| helm_release(&live)) else { return Ok(()) };
    Err(Hinted {
        message: format!("the operator belongs to the Helm release {}", release.name),
        hint: format!("helm upgrade {} -n {}", release.name, release.namespace),
    }
    .into())
}

/// An error that names a namespace of `--namespaces` that does not exist.
async fn check_namespaces(server: &Server, options: &OperatorOptions) -> anyhow::Result<()> {
    for namespace in options.namespaces.iter().filter(|namespace| **namespace != options.namespace) {
        if server.get(&format!("/api/v1/namespaces/{namespace}")).await?.is_none() {
            return Err(Hinted {
                message: format!("namespace {namespace} does not exist, so no Role can be created in it"),
                hint: format!("kubectl create namespace {namespace}"),
            }
            .into());
        }
    }
    Ok(())
}

/// Objects of an earlier installation with other namespaces: its Roles would allow more than this one needs.
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

/// What would change in the cluster.
async fn plan_changes(server: &Server, manifests: Vec<Manifest>) -> anyhow::Result<Plan> {
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
            // A namespace that existed before stays when Stead is removed.
            Some(live) if manifest.kind() == "Namespace" && !is_ours(&live) => Action::Foreign,
            Some(live) => {
                let applied = server.apply(&manifest.path(), &manifest.object, true).await;
                compare(&live, &applied.with_context(|| format!("dry run of {manifest}"))?)
            }
        };
        steps.push((manifest, action));
    }
    Ok(Plan { steps })
}

/// What would change, as text.
fn render(plan: &Plan, server: &Server, version: &str) -> String {
    let mut text = format!("{}\n", verdict(plan, server.address(), version));
    for (manifest, action) in &plan.steps {
        // Objects about another installation's CRD are not worth a line.
        if *action == Action::Foreign && !manifest.is_definition() && manifest.kind() != "Namespace" {
            continue;
        }
        let (word, more) = match action {
            Action::Create => ("create", String::new()),
            Action::Change(fields) => ("change", format!(": {}", fields.join(", "))),
            Action::Delete => ("delete", String::new()),
            Action::Unchanged => ("unchanged", String::new()),
            Action::Foreign if manifest.kind() == "Namespace" => ("keep", ": it existed before".to_owned()),
            Action::Foreign => ("keep", ": it belongs to another installation".to_owned()),
        };
        let place = manifest.namespace().map_or(String::new(), |n| format!(" in {n}"));
        text.push_str(&format!("  {word:9}  {manifest}{place}{more}\n"));
    }
    if !plan.foreign().is_empty() {
        let note = format!(
            "Companion mode: another installation manages {}. Stead explains and reports its objects, and never changes \
             them.",
            plan.foreign().join(", ")
        );
        hanging(&mut text, "", "", &note);
    }
    text
}

/// The first line: whether anything would change, and how much.
fn verdict(plan: &Plan, address: &str, version: &str) -> String {
    if !plan.changes() {
        return format!("Stead is installed in {address} (Kubernetes {version}); nothing to change.");
    }
    let count = |wanted: fn(&Action) -> bool| plan.steps.iter().filter(|(_, action)| wanted(action)).count();
    let counts = [
        ("create", count(|action| matches!(action, Action::Create))),
        ("change", count(|action| matches!(action, Action::Change(_)))),
        ("delete", count(|action| matches!(action, Action::Delete))),
    ];
    let counts = counts.iter().filter(|(_, count)| *count > 0).map(|(verb, count)| format!("{count} to {verb}"));
    let counts: Vec<String> = counts.collect();
    format!("Install Stead in {address} (Kubernetes {version}): {}.", counts.join(", "))
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
        // The objects after the CRDs may depend on them.
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
            let live = server.get(&manifest.path()).await?;
            let live = live.map(|live| LiveObject::read(manifest, &live)).transpose()?.unwrap_or_default();
            if live.condition("Established", "True").is_some() {
                break;
            }
            if Instant::now() >= until {
                let refused = live.condition("NamesAccepted", "False");
                let why = refused.and_then(|c| c.message.as_deref()).unwrap_or("the API server gives no reason");
                anyhow::bail!("{manifest} is not established after {}s: {why}", timeout.as_secs());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}

async fn wait_for_operator(server: &Server, namespace: &str, timeout: Duration) -> anyhow::Result<()> {
    let key = ObjectKey::new(Deployment::KIND, namespace, DEPLOYMENT);
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{DEPLOYMENT}");
    let until = Instant::now() + timeout;
    let mut said = String::new();
    loop {
        let live = server.get(&path).await?;
        let live: Option<Deployment> = live.map(|live| Deployment::from_raw(&key, &live)).transpose()?;
        if live.as_ref().is_some_and(is_available) {
            output::complain("note", "the operator is ready");
            return Ok(());
        }
        let available = live.as_ref().and_then(available);
        let why = available.and_then(|condition| condition.message.as_deref()).unwrap_or("no status yet");
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
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Whether all pods of a Deployment are updated and available.
fn is_available(deployment: &Deployment) -> bool {
    let Some(status) = &deployment.status else { return false };
    let observed = status.observed_generation >= deployment.metadata.generation;
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let updated = status.updated_replicas.unwrap_or(0) >= replicas;
    observed && updated && available(deployment).is_some_and(|condition| condition.status == "True")
}

fn available(deployment: &Deployment) -> Option<&DeploymentCondition> {
    deployment.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == "Available")
}
