//! `stead uninstall`: look, show, ask, let go, take away, and list what is kept.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;
use stead_manifests::plan::foreign;
use stead_manifests::removal::{HELD, Held, claim_commands};
use stead_manifests::{DEPLOYMENT, Manifest, Part, all_manifests, is_ours, recover_manifests, recovery};
use stead_recovery::{ANNOTATION, RecoveryPhase};

use crate::args::UninstallArgs;
use crate::commands::recover::RECORDS;
use crate::connect::connect;
use crate::consent;
use crate::output::{self, Hinted, Outcome};
use crate::server::{self, Server};

/// How often something that is waited for is looked at.
const PACE: Duration = Duration::from_millis(500);

/// The claims that Glance's pods leave behind.
const CLAIMS: &str = "/api/v1/persistentvolumeclaims?labelSelector=service%3Dglance";

pub(crate) fn run(args: &UninstallArgs) -> anyhow::Result<Outcome> {
    server::run(uninstall(args))
}

/// What is there to be taken away.
struct Found {
    /// Objects of our own installation that are there, in the order in which they go.
    installed: Vec<(Manifest, Value)>,
    /// The kinds of ours that the cluster knows, with their objects.
    held: Vec<(&'static Held, Vec<Value>)>,
    /// Objects by the names of ours that are somebody else's.
    foreign: Vec<String>,
    /// The claims that stay.
    claims: Vec<Value>,
    /// Whether the definition of recoveries goes, and with it their records.
    records: bool,
    /// Those records.
    recoveries: Vec<Value>,
    /// Whether an operator runs that can let go of what it holds.
    operator: bool,
}

async fn uninstall(args: &UninstallArgs) -> anyhow::Result<Outcome> {
    let server = Server::new(connect(&args.connect).await?);
    let found = look(&server, args).await?;
    if found.installed.is_empty() {
        output::text(&format!("{}: there is nothing of Stead to take away.\n", server.address()))?;
        return Ok(Outcome::Yes);
    }
    output::text(&render(&found, args, server.address()))?;
    unfinished(&server, &found, "nothing was done").await?;
    if args.consent.dry_run {
        return Ok(Outcome::Yes);
    }
    if !consent::given(&args.consent, "Go on?")? {
        output::complain("note", "nothing was done");
        return Ok(Outcome::No);
    }
    if !args.keep_crds {
        for (held, _) in found.held.iter().filter(|(held, _)| held.goes) {
            remove_all(&server, held, found.operator, args.consent.timeout).await?;
        }
    }
    // Somebody may have begun one meanwhile.
    unfinished(&server, &found, "what else belongs to Stead is still there").await?;
    take_away(&server, &found, args).await?;
    if !found.claims.is_empty() {
        output::text(&kept(&found.claims))?;
    }
    Ok(Outcome::Yes)
}

/// An error that names the recoveries that are not over: without its record, nobody would take a node's taint away.
async fn unfinished(server: &Server, found: &Found, done: &str) -> anyhow::Result<()> {
    if !found.records {
        return Ok(());
    }
    // A phase that is not known is not over.
    let phase = |record: &Value| serde_json::from_value::<RecoveryPhase>(record["status"]["phase"].clone());
    let records = server.list(RECORDS).await?;
    let open = records.iter().filter(|r| !phase(r).is_ok_and(RecoveryPhase::is_over)).map(|record| {
        let name = record["spec"]["node"]["name"].as_str().unwrap_or_default().to_owned();
        (name, record["status"]["phase"].as_str().unwrap_or("not begun").to_owned())
    });
    // What is over has left its mark where whoever ended it was killed before they had taken it away.
    let nodes = server.list("/api/v1/nodes").await?;
    let marked = nodes.iter().filter(|node| node["metadata"]["annotations"][ANNOTATION].is_string()).map(|node| {
        let name = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        (name, "marked".to_owned())
    });
    let mut left: BTreeMap<String, String> = marked.collect();
    left.extend(open);
    let Some(first) = left.keys().next() else { return Ok(()) };
    let named: Vec<String> = left.iter().map(|(node, how)| format!("node {node} ({how})")).collect();
    Err(Hinted {
        message: format!(
            "recoveries are not over: {}; with their records gone, nobody would take the taint away; {done}",
            named.join(", ")
        ),
        hint: format!("stead recover node/{first} goes on (--abort undoes it); --keep-crds leaves the records"),
    }
    .into())
}

async fn look(server: &Server, args: &UninstallArgs) -> anyhow::Result<Found> {
    let scoped = server.scoped_namespaces(&args.namespace).await?;
    let (mut installed, mut others, mut definitions) = (Vec::new(), Vec::new(), Vec::new());
    for manifest in
        all_manifests(&args.namespace, scoped).into_iter().rev().chain(recover_manifests().into_iter().rev())
    {
        let Some(live) = server.get(&manifest.path()).await? else { continue };
        if manifest.is_definition() {
            definitions.push(live.clone());
        }
        if !is_ours(&live) {
            others.push(manifest.to_string());
        } else if !args.keep_crds || manifest.part == Part::Operator {
            installed.push((manifest, live));
        }
    }
    let foreign = foreign(&definitions);
    let known = |held: &&Held| {
        let there = definitions.iter().any(|d| d["metadata"]["name"] == held.definition);
        there && !foreign.contains(held.definition)
    };
    let mut held = Vec::new();
    for kind in HELD.iter().filter(known) {
        held.push((kind, server.list(&kind.collection()).await?));
    }
    // Claims of a Glance that somebody else looks after are none of our business.
    let glance = held.iter().any(|(kind, _)| kind.kind == "Glance");
    let claims = if glance && !args.keep_crds { server.list(CLAIMS).await? } else { Vec::new() };
    let deployment = installed.iter().find(|(manifest, _)| manifest.kind() == "Deployment");
    let operator = deployment.is_some_and(|(_, live)| live["status"]["availableReplicas"].as_u64() > Some(0));
    let records = installed.iter().any(|(manifest, _)| manifest.name() == recovery().name());
    let recoveries = if records { server.list(RECORDS).await? } else { Vec::new() };
    Ok(Found { installed, held, foreign: others, claims, records, recoveries, operator })
}

/// What would be done, for people.
fn render(found: &Found, args: &UninstallArgs, address: &str) -> String {
    let mut text = format!("{address}\n");
    for (held, objects) in &found.held {
        for object in objects {
            let name = named(held, object);
            if !args.keep_crds {
                text.push_str(&format!("  delete  {name}\n"));
            } else if held.release(object).is_some() {
                text.push_str(&format!("  let go  {name}\n"));
            }
        }
    }
    for record in &found.recoveries {
        text.push_str(&format!("  delete  noderecovery/{}\n", record["metadata"]["name"].as_str().unwrap_or_default()));
    }
    for (manifest, _) in &found.installed {
        let place = manifest.namespace().map_or(String::new(), |n| format!(" in {n}"));
        text.push_str(&format!("  delete  {manifest}{place}\n"));
    }
    for name in &found.foreign {
        text.push_str(&format!("  leave   {name}: it belongs to somebody else\n"));
    }
    for claim in &found.claims {
        let text_of = |field: &str| claim["metadata"][field].as_str().unwrap_or_default();
        text.push_str(&format!("  keep    persistentvolumeclaim/{} in {}\n", text_of("name"), text_of("namespace")));
    }
    if !found.operator && !args.keep_crds && found.held.iter().any(|(_, objects)| !objects.is_empty()) {
        text.push_str("No operator is running: what it holds on to is let go of by hand.\n");
    }
    text
}

fn named(held: &Held, object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{} in {}", held.kind.to_lowercase(), text("name"), text("namespace"))
}

/// Deletes all objects of a kind and sees that they go: by the operator where one runs, else by our own hand.
async fn remove_all(server: &Server, held: &Held, operator: bool, timeout: Duration) -> anyhow::Result<()> {
    let patient = Instant::now() + if operator { timeout } else { Duration::ZERO };
    let until = patient + timeout;
    loop {
        let objects = server.list(&held.collection()).await?;
        if objects.is_empty() {
            return Ok(());
        }
        for object in &objects {
            let path = held.path(object);
            if object["metadata"]["deletionTimestamp"].is_null() && server.delete(&path, object).await? {
                output::complain("note", &format!("deleted {}", named(held, object)));
            } else if Instant::now() >= patient {
                let_go(server, held, object).await?;
            }
        }
        if Instant::now() >= until {
            let held_by = |object: &Value| format!("{} ({})", named(held, object), object["metadata"]["finalizers"]);
            let left: Vec<String> = objects.iter().map(held_by).collect();
            anyhow::bail!(
                "still there after {}s, held by somebody else's finalizers: {}",
                timeout.as_secs(),
                left.join(", ")
            );
        }
        tokio::time::sleep(PACE).await;
    }
}

/// Takes our finalizers from an object. Where it has changed meanwhile, the next look will do it.
async fn let_go(server: &Server, held: &Held, object: &Value) -> anyhow::Result<()> {
    let Some(patch) = held.release(object) else { return Ok(()) };
    if server.patch(&held.path(object), &patch).await? {
        output::complain("note", &format!("let go of {}", named(held, object)));
    }
    Ok(())
}

/// Lets go of all objects of all kinds, until none is held any more.
async fn let_go_of_all(server: &Server, found: &Found, timeout: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + timeout;
    loop {
        let mut left = 0;
        for (held, _) in &found.held {
            for object in server.list(&held.collection()).await?.iter().filter(|o| held.release(o).is_some()) {
                let_go(server, held, object).await?;
                left += 1;
            }
        }
        if left == 0 || Instant::now() >= until {
            return Ok(());
        }
    }
}

/// Takes the installation away: the operator first, so that it takes hold of nothing new, then what it held.
async fn take_away(server: &Server, found: &Found, args: &UninstallArgs) -> anyhow::Result<()> {
    let timeout = args.consent.timeout;
    let (operator, rest): (Vec<_>, Vec<_>) =
        found.installed.iter().partition(|(manifest, _)| manifest.kind() == "Deployment");
    for (manifest, live) in operator {
        delete(server, manifest, live).await?;
        let pods =
            format!("/api/v1/namespaces/{}/pods?labelSelector=app.kubernetes.io%2Fname%3D{DEPLOYMENT}", args.namespace);
        let until = Instant::now() + timeout;
        while Instant::now() < until && !server.list(&pods).await?.is_empty() {
            tokio::time::sleep(PACE).await;
        }
    }
    let_go_of_all(server, found, timeout).await?;
    for (manifest, live) in rest {
        delete(server, manifest, live).await?;
        if manifest.is_definition() || manifest.kind() == "Namespace" {
            wait_until_gone(server, manifest, live, timeout).await?;
        }
    }
    Ok(())
}

async fn delete(server: &Server, manifest: &Manifest, live: &Value) -> anyhow::Result<()> {
    if server.delete(&manifest.path(), live).await? {
        output::complain("note", &format!("deleted {manifest}"));
    }
    Ok(())
}

async fn wait_until_gone(server: &Server, manifest: &Manifest, was: &Value, timeout: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + timeout;
    while let Some(live) = server.get(&manifest.path()).await? {
        if live["metadata"]["uid"] != was["metadata"]["uid"] {
            break;
        }
        if Instant::now() >= until {
            let conditions = live["status"]["conditions"].as_array().into_iter().flatten();
            let why: Vec<&str> =
                conditions.filter(|c| c["status"] == "True").filter_map(|c| c["message"].as_str()).collect();
            let why = if why.is_empty() { "and does not say why".to_owned() } else { why.join("; ") };
            anyhow::bail!("{manifest} is still going after {}s: {why}", timeout.as_secs());
        }
        tokio::time::sleep(PACE).await;
    }
    Ok(())
}

fn kept(claims: &[Value]) -> String {
    let count = claims.len();
    let mut text =
        format!("{count} claim{} kept, with all data. To delete:\n", if count == 1 { " is" } else { "s are" });
    for command in claim_commands(claims) {
        text.push_str(&format!("  {command}\n"));
    }
    text
}
