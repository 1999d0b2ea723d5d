//! What `stead recover` does not do on the real control plane: clear words, and nothing written.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stead_stage::{Stage, audited, until};
use stead_testbed::{Binaries, ClusterSpec, FaultProxy, NodeSpec, Options, User};
use tokio::process::Command;

/// What comes in its own time comes by then.
const PATIENCE: Duration = Duration::from_secs(120);

/// Whoever calls `stead` here. The first may do everything; what the others may do is for the test to say.
const USERS: [&str; 6] = ["owner", "nobody", "reader", "no-taint", "no-definition", "no-record"];

/// The node whose machine is away.
const UNREACHABLE: &str = "a";

struct Refusals {
    stage: Stage,
    scratch: PathBuf,
}

/// A command that ended.
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Refusals {
    async fn open(binaries: &Binaries) -> Result<Refusals> {
        let groups = |name: &str| if name == USERS[0] { vec!["system:masters".to_owned()] } else { vec![] };
        let user = |name: &str| User { name: name.into(), token: format!("{name}-token"), groups: groups(name) };
        let options = Options { fast: true, audit: true, users: USERS.map(user).to_vec(), ..Options::default() };
        let node = |name: &str| NodeSpec { name: name.into(), ..NodeSpec::default() };
        let nodes = ClusterSpec { nodes: ["a", "b", "c"].map(node).to_vec(), ..ClusterSpec::default() };
        let stage = Stage::open(binaries, &crate::stead()?, options, nodes).await?;
        let scratch = stage.plane.folder().to_owned();
        let here = Refusals { stage, scratch };
        let set = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db" },
            "spec": { "serviceName": "db", "selector": { "matchLabels": { "app": "db" } }, "template": {
                "metadata": { "labels": { "app": "db" } },
                "spec": { "containers": [{ "name": "db", "image": "db" }],
                          "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
                              "weight": 100, "preference": { "matchExpressions": [
                                  { "key": "kubernetes.io/hostname", "operator": "In", "values": [UNREACHABLE] }] } }] } } },
            } },
        });
        here.stage.kubectl_with(&["apply", "-f", "-"], &set.to_string()).await?;
        let limit = std::time::Duration::from_secs(90);
        here.stage
            .until("the pod is there", limit, async || {
                let pod = here.stage.get("default", "pod/db-0").await?;
                Ok(pod.is_some_and(|pod| pod["spec"]["nodeName"] == UNREACHABLE && pod["status"]["phase"] == "Running"))
            })
            .await?;
        here.stage.nodes.silence(UNREACHABLE)?;
        until("the node is unreachable", limit, async || {
            let said = here.runs(&here.user(USERS[0])?, &["node/a", "--dry-run"]).await?;
            let node = here.stage.get("", &format!("node/{UNREACHABLE}")).await?.context("no node")?;
            let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
            let unknown = conditions.clone().any(|c| c["type"] == "Ready" && c["status"] == "Unknown");
            Ok(unknown && said.code == Some(1) && said.out.contains("unreachable"))
        })
        .await?;
        Ok(here)
    }

    /// `stead recover` of a node and more, by whoever the kubeconfig is of.
    async fn runs(&self, kubeconfig: &Path, args: &[&str]) -> Result<Said> {
        let mut command = Command::new(crate::stead()?);
        command.arg("recover").args(args);
        let output = command.env("KUBECONFIG", kubeconfig).env("NO_COLOR", "1").kill_on_drop(true).output().await?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) })
    }

    /// What a recovery would have written: definitions, records, taints and annotations of nodes, tolerations of pods.
    async fn state(&self) -> Result<Value> {
        let list = async |kind: &str| Ok::<_, anyhow::Error>(self.stage.list("default", kind, "").await?);
        let nodes: Vec<Value> = list("nodes")
            .await?
            .iter()
            .map(|n| json!([n["metadata"]["name"], n["metadata"]["annotations"], taints(n)]))
            .collect();
        let pods: Vec<Value> =
            list("pods").await?.iter().map(|p| json!([p["metadata"]["uid"], p["spec"]["tolerations"]])).collect();
        let definitions: Vec<Value> = list("crd").await?.iter().map(|c| c["metadata"]["name"].clone()).collect();
        Ok(json!({ "nodes": nodes, "pods": pods, "definitions": definitions }))
    }

    /// The writes that were tried by `stead`, questions about oneself left out.
    fn written(&self) -> Result<Vec<String>> {
        let events = self.stage.plane.audit_events()?;
        let theirs = events.iter().filter(|e| USERS.contains(&e.user()));
        let asks = |resource: &str| matches!(resource, "selfsubjectaccessreviews" | "selfsubjectreviews");
        let writes = theirs.filter(|e| !audited::reads(e));
        let writes = writes.filter(|e| !e.object_ref.as_ref().is_some_and(|o| asks(&o.resource)));
        Ok(writes.map(|e| format!("{} {} {}: {}", e.user(), e.verb, e.uri, e.code())).collect())
    }

    /// To recover the unreachable node is refused with these words, and nothing was written or tried.
    async fn refused(&self, kubeconfig: &Path, more: &[&str], words: &[&str]) -> Result<()> {
        self.refused_of(UNREACHABLE, kubeconfig, more, words).await
    }

    async fn refused_of(&self, node: &str, kubeconfig: &Path, more: &[&str], words: &[&str]) -> Result<()> {
        let before = self.state().await?;
        let said = self.runs(kubeconfig, &[&[&format!("node/{node}"), "--yes"], more].concat()).await?;
        ensure!(said.code == Some(1), "{more:?}: {:?}: {}{}", said.code, said.out, said.err);
        for word in words {
            ensure!(said.err.contains(word), "{more:?}: not {word:?}: {}", said.err);
        }
        let after = self.state().await?;
        ensure!(before == after, "{more:?}: {before:#}\nbecame {after:#}");
        let written = self.written()?;
        ensure!(written.is_empty(), "{more:?}: {written:#?}");
        Ok(())
    }

    fn user(&self, name: &str) -> Result<PathBuf> {
        self.stage.plane.kubeconfig_for(name, &format!("{name}-token"))
    }

    /// Gives a user these rights: verbs, groups, resources.
    async fn grant(&self, user: &str, rights: &[(&[&str], &[&str], &[&str])]) -> Result<()> {
        let name = format!("test-{user}");
        let rules: Vec<Value> = rights
            .iter()
            .map(|(verbs, groups, resources)| json!({ "verbs": verbs, "apiGroups": groups, "resources": resources }))
            .collect();
        let api = "rbac.authorization.k8s.io";
        let role = json!({ "apiVersion": format!("{api}/v1"), "kind": "ClusterRole", "metadata": { "name": name }, "rules": rules });
        let binding = json!({
            "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": name },
            "roleRef": { "apiGroup": api, "kind": "ClusterRole", "name": name },
            "subjects": [{ "apiGroup": api, "kind": "User", "name": user }],
        });
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": [role, binding] });
        self.stage.kubectl_with(&["apply", "-f", "-"], &list.to_string()).await?;
        // Who may what is heard of by a watch, a moment later.
        let Some((verb, resource)) =
            rights.first().and_then(|(verbs, _, resources)| verbs.first().zip(resources.first()))
        else {
            return Ok(());
        };
        let may = ["auth", "can-i", verb, resource, "--all-namespaces", "--as", user, "--quiet"];
        until("what was granted holds", PATIENCE, async || Ok(self.stage.kubectl(&may).await.is_ok())).await
    }

    fn policy(&self, name: &str, text: &str) -> Result<String> {
        let path = self.scratch.join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    }
}

/// A node's taints without those that Kubernetes itself puts there and takes away.
fn taints(node: &Value) -> Vec<&Value> {
    let own = ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"];
    let all = node["spec"]["taints"].as_array().into_iter().flatten();
    all.filter(|taint| !own.iter().any(|key| taint["key"] == *key)).collect()
}

const READ: (&[&str], &[&str], &[&str]) = (&["get", "list"], &["*"], &["*"]);
const OFF: [&str; 2] = ["--confirm-off", "unplugged"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_written() -> Result<()> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
    let here = Refusals::open(&binaries).await?;
    let owner = here.user(USERS[0])?;

    // No such node; one that lives.
    here.refused_of("nobody", &owner, &OFF, &["node nobody: not found"]).await?;
    here.refused_of("b", &owner, &OFF, &["node b", "its kubelet is alive"]).await?;

    // No proof, or none that will do.
    here.refused(&owner, &[], &["node a", "--confirm-off"]).await?;
    here.refused(&owner, &["--confirm-off", ""], &["--confirm-off: say how you know that the machine is off"]).await?;
    here.refused(&owner, &["--confirm-off", "  "], &["--confirm-off: say how you know"]).await?;
    let nothing = here.policy("nothing.yaml", "accept: []\n")?;
    here.refused(&owner, &["--policy", &nothing], &["node a", "accept"]).await?;
    here.refused(&owner, &["--policy", &nothing, OFF[0], OFF[1]], &["node a", "accept"]).await?;

    // A policy that cannot be read is not one that allows everything.
    for (name, text, words) in [
        ("kind.yaml", "accept: [Hearsay]\n", "accept[0]: unknown variant `Hearsay`, expected one of"),
        ("field.yaml", "acccept: [Person]\n", "acccept: unknown field `acccept`, expected one of"),
        ("number.yaml", "atOnce: many\n", "atOnce: invalid type: string \"many\", expected usize"),
        ("list.yaml", "- Person\n", "invalid type"),
        ("text.yaml", "accept: [Person\n", "line 1 column"),
    ] {
        let path = here.policy(name, text)?;
        let words = [&format!("error: policy {path}: "), words];
        here.refused(&owner, &["--policy", &path, OFF[0], OFF[1]], &words).await?;
    }
    let missing = here.scratch.join("no-such-file").display().to_string();
    here.refused(&owner, &["--policy", &missing, OFF[0], OFF[1]], &[&missing]).await?;

    // No rights: what is missing is named.
    here.refused(&here.user("nobody")?, &OFF, &["nodes", "forbidden"]).await?;
    here.grant("reader", &[READ]).await?;
    let all = ["patch nodes", "delete pods", "create noderecoveries.stead.dev", "nothing was written"];
    here.refused(&here.user("reader")?, &OFF, &all).await?;
    let pods: (&[&str], &[&str], &[&str]) = (&["patch", "delete"], &[""], &["pods"]);
    let nodes: (&[&str], &[&str], &[&str]) = (&["patch"], &[""], &["nodes"]);
    let records: (&[&str], &[&str], &[&str]) = (&["create", "update"], &["stead.dev"], &["noderecoveries"]);
    let define: (&[&str], &[&str], &[&str]) =
        (&["create", "patch"], &["apiextensions.k8s.io"], &["customresourcedefinitions"]);
    for (user, rights, lacks) in [
        ("no-taint", [READ, pods, records, define], "missing permissions: patch nodes;"),
        (
            "no-definition",
            [READ, pods, nodes, records],
            "missing permissions: create customresourcedefinitions.apiextensions.k8s.io, patch customresourcedefinitions.apiextensions.k8s.io;",
        ),
        (
            "no-record",
            [READ, pods, nodes, define],
            "missing permissions: create noderecoveries.stead.dev, update noderecoveries.stead.dev;",
        ),
    ] {
        here.grant(user, &rights).await?;
        here.refused(&here.user(user)?, &OFF, &[lacks, "nothing was written"]).await?;
    }

    // A server that does not have the taint in its final form.
    let proxy = FaultProxy::start(&here.stage.plane, 1).await?;
    let old = proxy.kubeconfig(&here.scratch, USERS[0], "owner-token")?;
    proxy.pretend_version("1", "27+");
    here.refused(
        &old,
        &OFF,
        &["runs Kubernetes 1.27, which is too old", "Stead needs 1.28, for the out-of-service taint"],
    )
    .await?;
    proxy.pretend_version("1", "28");
    let said = here.runs(&old, &[&["node/a", "--dry-run"], &OFF[..]].concat()).await?;
    ensure!(said.code == Some(0) && said.out.contains("Ready again in about "), "{}{}", said.out, said.err);

    // The same call with proof and rights is carried out: it was nothing else that was in its way.
    let said = here.runs(&owner, &[&["node/a", "--yes"], &OFF[..]].concat()).await?;
    ensure!(said.code == Some(0) && said.out.contains("recovered"), "{:?}: {}{}", said.code, said.out, said.err);
    ensure!(!here.written()?.is_empty(), "what is written is not seen");
    uninstall_is_refused(&here).await
}

/// The record of a recovery that is not over is not taken away.
async fn uninstall_is_refused(here: &Refusals) -> Result<()> {
    let (code, out, err) = here.stage.stead_ran(&["uninstall", "--yes", "--timeout", "300s"]).await?;
    ensure!(code == Some(1), "{code:?}: {out}{err}");
    for words in ["unfinished recoveries: node a (Recovered)", "nothing was changed", "stead recover node/a"] {
        ensure!(err.contains(words), "not {words:?}: {err}");
    }
    let records = here.stage.kubectl(&["get", "noderecoveries", "-o", "name"]).await?;
    ensure!(records.lines().count() == 1, "{records}");
    // What is said to be over and has left its mark is not over.
    let over = r#"{"status": {"phase": "Returned"}}"#;
    here.stage.kubectl(&["patch", records.trim(), "--type=merge", "-p", over]).await?;
    let (code, out, err) = here.stage.stead_ran(&["uninstall", "--yes", "--timeout", "300s"]).await?;
    ensure!(code == Some(1) && err.contains("node a (marked)"), "{code:?}: {out}{err}");
    let open = r#"{"status": {"phase": "Recovered"}}"#;
    here.stage.kubectl(&["patch", records.trim(), "--type=merge", "-p", open]).await?;
    // With the node gone for good its recovery is over, and so is what holds the definition.
    here.stage.kubectl(&["delete", "node", "a"]).await?;
    let (code, out, err) = here.stage.stead_ran(&["recover", "node/a", "--yes"]).await?;
    ensure!(code == Some(1) && err.contains("is gone"), "{code:?}: {out}{err}");
    let (code, out, err) = here.stage.stead_ran(&["uninstall", "--yes", "--timeout", "300s"]).await?;
    ensure!(code == Some(0) && out.contains("delete  noderecovery/"), "{code:?}: {out}{err}");
    let definitions = here.stage.kubectl(&["get", "crd", "-o", "name"]).await?;
    ensure!(!definitions.contains("stead.dev"), "{definitions}");
    Ok(())
}
