//! `stead dump` on the real control plane: the dump gives the answers that the cluster gives.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use stead_stage::Stage;
use stead_testbed::{Binaries, ClusterSpec, Options};

use crate::scene::Scene;

const NOW: &str = "2036-01-01T00:00:00Z";

#[tokio::test(flavor = "multi_thread")]
async fn answers_from_a_dump_are_those_from_the_cluster() -> Result<()> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
    let stead = crate::stead()?;
    let stage = Stage::open(&binaries, &stead, Options::default(), ClusterSpec::seven()).await?;
    let scene = Scene::open(&stage, "dumped").await?;
    let secret = "a-value-that-no-dump-has";
    let container = |cpu: &str| {
        json!({
            "name": "c", "image": "example.com/c:1", "args": [secret], "env": [{"name": "A", "value": secret}],
            "resources": {"requests": {"cpu": cpu}},
        })
    };
    for (name, cpu) in [("fits", "1m"), ("too-large", "900")] {
        let template = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [container(cpu)]}});
        let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template});
        scene.apply("apps/v1", "StatefulSet", name, json!({ "spec": spec })).await?;
    }
    // Nothing may change any more between the two answers.
    scene.wait_for_field("sts/fits", "/status/readyReplicas", json!(1)).await?;
    scene.wait_for_field("pod/too-large-0", "/status/conditions/0/reason", json!("Unschedulable")).await?;
    let kubeconfig = stage.plane.kubeconfig().display().to_string();
    let directory = std::env::temp_dir().join(format!("stead-dump-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let file = directory.join("dump.json");
    let run = |args: &[&str]| -> Result<(Option<i32>, String, String)> {
        let output = Command::new(&stead).args(args).output().context("stead")?;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes);
        Ok((output.status.code(), text(output.stdout)?, text(output.stderr)?))
    };
    let name = file.display().to_string();
    let (code, _, errors) = run(&["dump", "--kubeconfig", &kubeconfig, "-o", &name])?;
    ensure!(code == Some(0), "{errors}");
    let text = std::fs::read_to_string(&file)?;
    ensure!(!text.contains(secret), "the dump has arguments or values of environment variables");
    for question in [&["pod/fits-0"][..], &["pod/too-large-0"], &["sts/too-large"]] {
        let ask = |source: [&str; 2]| {
            run(&[&["explain"][..], question, &["-n", "dumped", "-o", "json", "--now", NOW], &source].concat())
        };
        let (live, dumped) = (ask(["--kubeconfig", &kubeconfig])?, ask(["--from", &name])?);
        // Suggested commands repeat the kubeconfig that was given.
        let live = (live.0, live.1.replace(&format!(" --kubeconfig {kubeconfig}"), ""));
        ensure!(live == (dumped.0, dumped.1.clone()), "{question:?}\n{}\n{}", live.1, dumped.1);
    }
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
