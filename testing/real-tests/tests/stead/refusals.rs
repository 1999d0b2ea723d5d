//! Refusals of `stead recover` on the real control plane: clear messages, and nothing is written.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stead_stage::{Stage, audit_log, wait_until};
use stead_testbed::{Binaries, ClusterSpec, FaultProxy, NodeSpec, Options, User};
use tokio::process::Command;

/// The time limit for changes that take effect with a delay.
const PATIENCE: Duration = Duration::from_secs(120);

/// The users of `stead` in this test. The first may do everything; the test grants rights to the others.
const USERS: [&str; 6] = ["owner", "nobody", "reader", "no-taint", "no-definition", "no-record"];

/// The unreachable node.
const UNREACHABLE: &str = "a";

struct Refusals {
    stage: Stage,
    scratch: PathBuf,
}

/// The result of a command.
struct CommandOutput {
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
        let setup = Refusals { stage, scratch };
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
        setup.stage.kubectl_with(&["apply", "-f", "-"], &set.to_string()).await?;
        let limit = std::time::Duration::from_secs(90);
        setup
            .stage
            .wait_until("the pod runs", limit, async || {
                let pod = setup.stage.get("default", "pod/db-0").await?;
                Ok(pod.is_some_and(|pod| pod["spec"]["nodeName"] == UNREACHABLE && pod["status"]["phase"] == "Running"))
            })
            .await?;
        setup.stage.nodes.make_unreachable(UNREACHABLE)?;
        wait_until("the node is unreachable", limit, async || {
            let output = setup.run_recover(&setup.user(USERS[0])?, &["node/a", "--dry-run"]).await?;
            let node = setup.stage.get("", &format!("node/{UNREACHABLE}")).await?.context("no node")?;
            let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
            let unknown = conditions.clone().any(|c| c["type"] == "Ready" && c["status"] == "Unknown");
            Ok(unknown && output.code == Some(1) && output.out.contains("unreachable"))
        })
        .await?;
        Ok(setup)
    }

    /// Runs `stead recover` with these arguments as the user of the kubeconfig.
    async fn run_recover(&self, kubeconfig: &Path, args: &[&str]) -> Result<CommandOutput> {
        let mut command = Command::new(crate::stead()?);
        command.arg("recover").args(args);
        let output = command.env("KUBECONFIG", kubeconfig).env("NO_COLOR", "1").kill_on_drop(true).output().await?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(CommandOutput { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) })
    }

    /// The state that a recovery would change: CRDs, taints and annotations of nodes, tolerations of pods.
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

    /// The write requests of `stead`, without access reviews.
    fn written(&self) -> Result<Vec<String>> {
        let events = self.stage.plane.audit_events()?;
        let theirs = events.iter().filter(|e| USERS.contains(&e.user()));
        let asks = |resource: &str| matches!(resource, "selfsubjectaccessreviews" | "selfsubjectreviews");
        let writes = theirs.filter(|e| !audit_log::is_read(e));
        let writes = writes.filter(|e| !e.object_ref.as_ref().is_some_and(|o| asks(&o.resource)));
        Ok(writes.map(|e| format!("{} {} {}: {}", e.user(), e.verb, e.uri, e.code())).collect())
    }

    /// Checks that a recovery of the unreachable node is refused with these messages, and that nothing was written or
    /// tried.
    async fn check_refused(&self, kubeconfig: &Path, more: &[&str], words: &[&str]) -> Result<()> {
        self.check_refused_for(UNREACHABLE, kubeconfig, more, words).await
    }

    async fn check_refused_for(&self, node: &str, kubeconfig: &Path, more: &[&str], words: &[&str]) -> Result<()> {
        let before = self.state().await?;
        let output = self.run_recover(kubeconfig, &[&[&format!("node/{node}"), "--yes"], more].concat()).await?;
        ensure!(output.code == Some(1), "{more:?}: {:?}: {}{}", output.code, output.out, output.err);
        for word in words {
            ensure!(output.err.contains(word), "{more:?}: not {word:?}: {}", output.err);
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

    /// Grants these rights to a user: verbs, groups, resources.
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
        // RBAC takes effect a moment later, by a watch.
        let Some((verb, resource)) =
            rights.first().and_then(|(verbs, _, resources)| verbs.first().zip(resources.first()))
        else {
            return Ok(());
        };
        let may = ["auth", "can-i", verb, resource, "--all-namespaces", "--as", user, "--quiet"];
        wait_until("the granted rights are in effect", PATIENCE, async || Ok(self.stage.kubectl(&may).await.is_ok()))
            .await
    }

    fn policy(&self, name: &str, text: &str) -> Result<String> {
        let path = self.scratch.join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    }
}

/// A node's taints without those of the node lifecycle controller.
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
    let setup = Refusals::open(&binaries).await?;
    let owner = setup.user(USERS[0])?;

    // A node that does not exist; one that is alive.
    setup.check_refused_for("nobody", &owner, &OFF, &["node nobody: not found"]).await?;
    setup.check_refused_for("b", &owner, &OFF, &["node b", "its kubelet is alive"]).await?;

    // No evidence, or none that is accepted.
    setup.check_refused(&owner, &[], &["node a", "--confirm-off"]).await?;
    setup
        .check_refused(&owner, &["--confirm-off", ""], &["--confirm-off: say how you know that the machine is off"])
        .await?;
    setup.check_refused(&owner, &["--confirm-off", "  "], &["--confirm-off: say how you know"]).await?;
    let nothing = setup.policy("nothing.yaml", "accept: []\n")?;
    setup.check_refused(&owner, &["--policy", &nothing], &["node a", "accept"]).await?;
    setup.check_refused(&owner, &["--policy", &nothing, OFF[0], OFF[1]], &["node a", "accept"]).await?;

    // An invalid policy file does not allow everything.
    for (name, text, words) in [
        ("kind.yaml", "accept: [Hearsay]\n", "accept[0]: unknown variant `Hearsay`, expected one of"),
        ("field.yaml", "acccept: [Person]\n", "unknown field `acccept`, expected one of"),
        ("number.yaml", "atOnce: many\n", "atOnce: invalid type: string \"many\", expected usize"),
        ("list.yaml", "- Person\n", "invalid type"),
        ("text.yaml", "accept: [Person\n", "line 1 column"),
    ] {
        let path = setup.policy(name, text)?;
        let words = [&format!("error: policy {path}: "), words];
        setup.check_refused(&owner, &["--policy", &path, OFF[0], OFF[1]], &words).await?;
    }
    let missing = setup.scratch.join("no-such-file").display().to_string();
    setup.check_refused(&owner, &["--policy", &missing, OFF[0], OFF[1]], &[&missing]).await?;

    // Missing permissions are listed.
    setup.check_refused(&setup.user("nobody")?, &OFF, &["nodes", "forbidden"]).await?;
    setup.grant("reader", &[READ]).await?;
    let all = ["patch nodes", "delete pods", "create noderecoveries.stead.dev", "nothing was written"];
    setup.check_refused(&setup.user("reader")?, &OFF, &all).await?;
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
        setup.grant(user, &rights).await?;
        setup.check_refused(&setup.user(user)?, &OFF, &[lacks, "nothing was written"]).await?;
    }

    // A server that does not support the taint as a stable feature.
    let proxy = FaultProxy::start(&setup.stage.plane, 1).await?;
    let old = proxy.kubeconfig(&setup.scratch, USERS[0], "owner-token")?;
    proxy.pretend_version("1", "27+");
    setup
        .check_refused(
            &old,
            &OFF,
            &["runs Kubernetes 1.27, which is too old", "Stead needs 1.28, for the out-of-service taint"],
        )
        .await?;
    proxy.pretend_version("1", "28");
    let output = setup.run_recover(&old, &[&["node/a", "--dry-run"], &OFF[..]].concat()).await?;
    ensure!(output.code == Some(0) && output.out.contains("Ready again in about "), "{}{}", output.out, output.err);

    // With evidence and rights the same call succeeds.
    let output = setup.run_recover(&owner, &[&["node/a", "--yes"], &OFF[..]].concat()).await?;
    ensure!(
        output.code == Some(0) && output.out.contains("recovered"),
        "{:?}: {}{}",
        output.code,
        output.out,
        output.err
    );
    ensure!(!setup.written()?.is_empty(), "the writes are not detected");
    uninstall_is_refused(&setup).await
}

/// The record of an unfinished recovery is not deleted.
async fn uninstall_is_refused(setup: &Refusals) -> Result<()> {
    let (code, out, err) = setup.stage.run_stead(&["uninstall", "--yes", "--timeout", "300s"]).await?;
    ensure!(code == Some(1), "{code:?}: {out}{err}");
    for words in ["unfinished recoveries: node a (Recovered)", "nothing was changed", "stead recover node/a"] {
        ensure!(err.contains(words), "not {words:?}: {err}");
    }
    let records = setup.stage.kubectl(&["get", "noderecoveries", "-o", "name"]).await?;
    ensure!(records.lines().count() == 1, "{records}");
    // A recovery that is recorded as finished but left its annotation is not finished.
    let over = r#"{"status": {"phase": "Returned"}}"#;
    setup.stage.kubectl(&["patch", records.trim(), "--type=merge", "-p", over]).await?;
    let (code, out, err) = setup.stage.run_stead(&["uninstall", "--yes", "--timeout", "300s"]).await?;
    ensure!(code == Some(1) && err.contains("node a (marked)"), "{code:?}: {out}{err}");
    let open = r#"{"status": {"phase": "Recovered"}}"#;
    setup.stage.kubectl(&["patch", records.trim(), "--type=merge", "-p", open]).await?;
    // When the node is deleted, its recovery is over, and the CRD can be deleted.
    setup.stage.kubectl(&["delete", "node", "a"]).await?;
    let (code, out, err) = setup.stage.run_stead(&["recover", "node/a", "--yes"]).await?;
    ensure!(code == Some(1) && err.contains("is gone"), "{code:?}: {out}{err}");
    let (code, out, err) = setup.stage.run_stead(&["uninstall", "--yes", "--timeout", "300s"]).await?;
    ensure!(code == Some(0) && out.contains("delete  noderecovery/"), "{code:?}: {out}{err}");
    let definitions = setup.stage.kubectl(&["get", "crd", "-o", "name"]).await?;
    ensure!(!definitions.contains("stead.dev"), "{definitions}");
    Ok(())
}
