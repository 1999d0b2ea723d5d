//! A Gluster pool's objects on a real API server: it takes them, and the policy refuses what it should.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::json;
use stead_manifests::gluster::{Pool, PoolStorageClass, pool};
use stead_pool::{BrickAt, Member, Record, config_map};
use stead_testbed::{Binaries, ControlPlane, Options};

fn values() -> Pool {
    Pool { image: "gluster:11.1".to_owned(), ..Pool::default() }
}

fn list(of: &Pool) -> String {
    let items: Vec<_> = pool(of).into_iter().map(|m| m.object).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

fn name<T: FromStr<Err: Debug>>(text: String) -> T {
    text.parse().expect("a valid name")
}

/// A record in which these ordinals hold bricks of these volumes.
fn record(bricks: &[(u32, &[&str])], start: u32) -> String {
    let member = |ordinal: u32, volumes: &[&str]| Member {
        bricks: volumes
            .iter()
            .map(|v| BrickAt { volume: name((*v).to_owned()), path: name(format!("/data/bricks/{v}")) })
            .collect(),
        ..Member::joined(
            name(format!("glusterfs-{ordinal}.glusterfs.default.svc.cluster.local")),
            name(format!("00000000-0000-4000-8000-{ordinal:012}")),
            100_000,
        )
    };
    let members = bricks.iter().map(|(ordinal, volumes)| (*ordinal, member(*ordinal, volumes))).collect();
    let record = Record { members, ..Record::default() };
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": config_map::name("glusterfs"), "labels": config_map::labels("glusterfs")},
        "data": config_map::data(&record, start),
    })
    .to_string()
}

/// What kubectl says when it scales; nothing is kept.
async fn scale(plane: &ControlPlane, replicas: u32) -> Result<Result<(), String>> {
    let replicas = format!("--replicas={replicas}");
    said(plane, &["scale", "statefulsets", "glusterfs", &replicas, "--dry-run=server"]).await
}

async fn patch(plane: &ControlPlane, patch: &str) -> Result<Result<(), String>> {
    said(plane, &["patch", "statefulset", "glusterfs", "--type=merge", "-p", patch, "--dry-run=server"]).await
}

async fn said(plane: &ControlPlane, args: &[&str]) -> Result<Result<(), String>> {
    let ran = plane.kubectl(args).await?;
    Ok(if ran.code == Some(0) { Ok(()) } else { Err(ran.stderr) })
}

/// Waits until the policy has seen what was written: it acts a moment later.
async fn settled(plane: &ControlPlane, replicas: u32, refused: bool) -> Result<()> {
    for _ in 0..480 {
        if scale(plane, replicas).await?.is_err() == refused {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    bail!("after two minutes, a scale to {replicas} is still {}", if refused { "let in" } else { "refused" })
}

async fn keep_record(plane: &ControlPlane, text: &str) -> Result<()> {
    plane.kubectl_with(&["apply", "-f", "-"], text).await?.ok().map(drop)
}

async fn revisions(plane: &ControlPlane) -> Result<BTreeMap<String, String>> {
    let kinds = "sc,sa,role,rolebinding,cm,secret,validatingadmissionpolicy,validatingadmissionpolicybinding,networkpolicy,service,pdb,sts";
    let form = "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.resourceVersion}{\"\\n\"}{end}";
    let text = plane.kubectl(&["get", kinds, "-l", "app.kubernetes.io/part-of=stead", "-o", form]).await?.ok()?;
    Ok(text.lines().filter_map(|l| l.split_once(' ')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_is_taken_and_its_bricks_are_respected() -> Result<()> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
    let plane = ControlPlane::start(&binaries, Options { bare: true, ..Options::default() }).await?;
    let class = PoolStorageClass { provisioner: "ebs.csi.aws.com".to_owned(), parameters: BTreeMap::new() };
    let five = Pool { replicas: 5, storage_class: Some("bricks".to_owned()), new_class: Some(class), ..values() };
    applies(&plane, &five).await?;
    strands(&plane).await?;
    starts_elsewhere(&plane).await?;
    made_anew(&plane).await
}

async fn applies(plane: &ControlPlane, of: &Pool) -> Result<()> {
    let text = list(of);
    plane.kubectl_with(&["apply", "--dry-run=server", "-f", "-"], &text).await?.ok()?;
    plane.kubectl_with(&["apply", "-f", "-"], &text).await?.ok()?;
    let before = revisions(plane).await?;
    ensure!(before.len() == pool(of).len(), "{before:?}");
    // kubectl says "configured" where it replaces a list by the same list: the server knows better.
    plane.kubectl_with(&["apply", "-f", "-"], &text).await?.ok()?;
    let after = revisions(plane).await?;
    ensure!(after == before, "a second time, nothing is written: {before:?} {after:?}");
    Ok(())
}

async fn strands(plane: &ControlPlane) -> Result<()> {
    // The record is installed empty: a pool that has none of it yet has no bricks either.
    scale(plane, 1).await?.expect("an empty record has no bricks");
    // Where it is missing, nobody can tell.
    plane.kubectl(&["delete", "configmap", "glusterfs-pool"]).await?.ok()?;
    settled(plane, 1, true).await?;
    let text = scale(plane, 6).await?.expect_err("there is no record");
    assert!(text.contains("parameterNotFoundAction"), "{text}");
    keep_record(plane, &record(&[(0, &["gv0"]), (1, &[]), (3, &["gv0", "gv1"]), (4, &["gv1"])], 0)).await?;
    settled(plane, 3, true).await?;
    for (replicas, holders) in [
        (0, "glusterfs-0 holds bricks of gv0; glusterfs-3 holds bricks of gv0, gv1; glusterfs-4 holds bricks of gv1"),
        (3, "glusterfs-3 holds bricks of gv0, gv1; glusterfs-4 holds bricks of gv1"),
        (4, "glusterfs-4 holds bricks of gv1"),
    ] {
        let text = scale(plane, replicas).await?.expect_err("bricks would be stranded");
        assert!(
            text.contains(&format!(
                "with {replicas} replicas bricks would be left without their peer: {holders} (move"
            )),
            "{text}"
        );
        let text = patch(plane, &format!(r#"{{"spec":{{"replicas":{replicas}}}}}"#)).await?.expect_err("the same way");
        assert!(text.contains(holders), "{text}");
    }
    for replicas in [5, 6] {
        scale(plane, replicas).await?.expect("nothing is stranded");
    }
    patch(plane, r#"{"metadata":{"annotations":{"a":"b"}}}"#).await?.expect("another field");

    // What goes and holds nothing may go.
    keep_record(plane, &record(&[(0, &["gv0"]), (1, &["gv0"])], 0)).await?;
    settled(plane, 3, false).await?;
    scale(plane, 2).await?.expect("nothing is stranded");
    scale(plane, 1).await?.expect_err("glusterfs-1 holds a brick");

    // What was stranded before the policy came keeps nobody from anything else, but the last peer stays.
    keep_record(plane, &record(&[(7, &["gv9"])], 0)).await?;
    settled(plane, 1, false).await?;
    patch(plane, r#"{"metadata":{"annotations":{"a":"b"}}}"#).await?.expect("another field");
    let text = scale(plane, 0).await?.expect_err("the pool holds bricks");
    assert!(text.contains("the pool would be left without any peer, and holds bricks: glusterfs-7 of gv9"), "{text}");

    // Others are not asked.
    let mut other = pool(&Pool { name: "other".to_owned(), policy: false, ..values() });
    let set = other.pop().expect("the StatefulSet is the last").object.to_string();
    plane.kubectl_with(&["apply", "-f", "-"], &set).await?.ok()?;
    said(plane, &["scale", "statefulsets", "other", "--replicas=0"]).await?.expect("it is no pool of this policy");
    Ok(())
}

/// A StatefulSet whose first ordinal is not 0.
async fn starts_elsewhere(plane: &ControlPlane) -> Result<()> {
    keep_record(plane, &record(&[(0, &["gv0"]), (4, &["gv1"])], 0)).await?;
    settled(plane, 4, true).await?;
    let text = patch(plane, r#"{"spec":{"ordinals":{"start":1}}}"#).await?.expect_err("0 would go");
    assert!(text.contains("glusterfs-0 holds bricks of gv0 (move"), "{text}");

    keep_record(plane, &record(&[(5, &["gv1"])], 3)).await?;
    // 3, 4 and 5 stay.
    settled(plane, 3, false).await?;
    scale(plane, 2).await?.expect_err("5 would go");
    Ok(())
}

/// A pool that is deleted and applied again: its record was kept.
async fn made_anew(plane: &ControlPlane) -> Result<()> {
    keep_record(plane, &record(&[(0, &["gv0"]), (3, &["gv0", "gv1"])], 0)).await?;
    settled(plane, 3, true).await?;
    plane.kubectl(&["delete", "statefulset", "glusterfs", "--wait"]).await?.ok()?;
    let set = |replicas| {
        let mut all = pool(&Pool { replicas, ..values() });
        all.pop().expect("the StatefulSet is the last").object.to_string()
    };
    for replicas in [1, 3] {
        let ran = plane.kubectl_with(&["apply", "-f", "-"], &set(replicas)).await?;
        let refused = format!("with {replicas} replicas bricks would be left without their peer: glusterfs-3 holds");
        assert!(ran.code != Some(0) && ran.stderr.contains(&refused), "{}", ran.stderr);
        assert!(ran.stderr.contains("glusterfs-3 holds bricks of gv0, gv1 (move"), "{}", ran.stderr);
    }
    plane.kubectl_with(&["apply", "-f", "-"], &set(4)).await?.ok().map(drop)
}
