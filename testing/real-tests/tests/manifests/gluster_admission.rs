//! The objects of a Gluster pool on a real API server: it accepts them, and the policy denies what it should.

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

/// Returns a record in which these ordinals hold bricks of these volumes.
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

/// Scales as a dry run; returns kubectl's error.
async fn scale(plane: &ControlPlane, replicas: u32) -> Result<Result<(), String>> {
    let replicas = format!("--replicas={replicas}");
    run_kubectl(plane, &["scale", "statefulsets", "glusterfs", &replicas, "--dry-run=server"]).await
}

async fn patch(plane: &ControlPlane, patch: &str) -> Result<Result<(), String>> {
    run_kubectl(plane, &["patch", "statefulset", "glusterfs", "--type=merge", "-p", patch, "--dry-run=server"]).await
}

async fn run_kubectl(plane: &ControlPlane, args: &[&str]) -> Result<Result<(), String>> {
    let ran = plane.kubectl(args).await?;
    Ok(if ran.code == Some(0) { Ok(()) } else { Err(ran.stderr) })
}

/// Waits until the policy has seen the last write, which is a moment later.
async fn wait_for_policy(plane: &ControlPlane, replicas: u32, denied: bool) -> Result<()> {
    for _ in 0..480 {
        if scale(plane, replicas).await?.is_err() == denied {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    bail!("after two minutes, a scale to {replicas} is still {}", if denied { "accepted" } else { "denied" })
}

async fn store_record(plane: &ControlPlane, text: &str) -> Result<()> {
    plane.kubectl_with(&["apply", "-f", "-"], text).await?.ok().map(drop)
}

async fn revisions(plane: &ControlPlane) -> Result<BTreeMap<String, String>> {
    let kinds = "sc,sa,role,rolebinding,cm,secret,validatingadmissionpolicy,validatingadmissionpolicybinding,networkpolicy,service,pdb,sts";
    let form = "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.resourceVersion}{\"\\n\"}{end}";
    let text = plane.kubectl(&["get", kinds, "-l", "app.kubernetes.io/part-of=stead", "-o", form]).await?.ok()?;
    Ok(text.lines().filter_map(|l| l.split_once(' ')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_is_accepted_and_its_bricks_are_protected() -> Result<()> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
    let plane = ControlPlane::start(&binaries, Options { bare: true, ..Options::default() }).await?;
    let class = PoolStorageClass { provisioner: "ebs.csi.aws.com".to_owned(), parameters: BTreeMap::new() };
    let five = Pool { replicas: 5, storage_class: Some("bricks".to_owned()), new_class: Some(class), ..values() };
    applies(&plane, &five).await?;
    denied_scale_downs(&plane).await?;
    other_first_ordinal(&plane).await?;
    recreated(&plane).await
}

async fn applies(plane: &ControlPlane, of: &Pool) -> Result<()> {
    let text = list(of);
    plane.kubectl_with(&["apply", "--dry-run=server", "-f", "-"], &text).await?.ok()?;
    plane.kubectl_with(&["apply", "-f", "-"], &text).await?.ok()?;
    let before = revisions(plane).await?;
    ensure!(before.len() == pool(of).len(), "{before:?}");
    // kubectl prints "configured" if it replaces a list by the same list; the resourceVersion tells.
    plane.kubectl_with(&["apply", "-f", "-"], &text).await?.ok()?;
    let after = revisions(plane).await?;
    ensure!(after == before, "a second apply writes nothing: {before:?} {after:?}");
    Ok(())
}

async fn denied_scale_downs(plane: &ControlPlane) -> Result<()> {
    // The record is installed empty: a pool without a record has no bricks.
    scale(plane, 1).await?.expect("an empty record has no bricks");
    // Without the record, the bricks are not known.
    plane.kubectl(&["delete", "configmap", "glusterfs-pool"]).await?.ok()?;
    wait_for_policy(plane, 1, true).await?;
    let text = scale(plane, 6).await?.expect_err("there is no record");
    assert!(text.contains("parameterNotFoundAction"), "{text}");
    store_record(plane, &record(&[(0, &["gv0"]), (1, &[]), (3, &["gv0", "gv1"]), (4, &["gv1"])], 0)).await?;
    wait_for_policy(plane, 3, true).await?;
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
        let text =
            patch(plane, &format!(r#"{{"spec":{{"replicas":{replicas}}}}}"#)).await?.expect_err("denied as well");
        assert!(text.contains(holders), "{text}");
    }
    for replicas in [5, 6] {
        scale(plane, replicas).await?.expect("nothing is stranded");
    }
    patch(plane, r#"{"metadata":{"annotations":{"a":"b"}}}"#).await?.expect("another field");

    // Pods without bricks may be removed.
    store_record(plane, &record(&[(0, &["gv0"]), (1, &["gv0"])], 0)).await?;
    wait_for_policy(plane, 3, false).await?;
    scale(plane, 2).await?.expect("nothing is stranded");
    scale(plane, 1).await?.expect_err("glusterfs-1 holds a brick");

    // Bricks that had no peer before the policy was installed do not prevent other changes, but the last peer stays.
    store_record(plane, &record(&[(7, &["gv9"])], 0)).await?;
    wait_for_policy(plane, 1, false).await?;
    patch(plane, r#"{"metadata":{"annotations":{"a":"b"}}}"#).await?.expect("another field");
    let text = scale(plane, 0).await?.expect_err("the pool holds bricks");
    assert!(text.contains("the pool would be left without any peer, and holds bricks: glusterfs-7 of gv9"), "{text}");

    // Other StatefulSets are not affected.
    let mut other = pool(&Pool { name: "other".to_owned(), policy: false, ..values() });
    let set = other.pop().expect("the StatefulSet is the last").object.to_string();
    plane.kubectl_with(&["apply", "-f", "-"], &set).await?.ok()?;
    run_kubectl(plane, &["scale", "statefulsets", "other", "--replicas=0"])
        .await?
        .expect("the policy is for another pool");
    Ok(())
}

/// A StatefulSet whose first ordinal is not 0.
async fn other_first_ordinal(plane: &ControlPlane) -> Result<()> {
    store_record(plane, &record(&[(0, &["gv0"]), (4, &["gv1"])], 0)).await?;
    wait_for_policy(plane, 4, true).await?;
    let text = patch(plane, r#"{"spec":{"ordinals":{"start":1}}}"#).await?.expect_err("pod 0 would be removed");
    assert!(text.contains("glusterfs-0 holds bricks of gv0 (move"), "{text}");

    store_record(plane, &record(&[(5, &["gv1"])], 3)).await?;
    // 3, 4 and 5 stay.
    wait_for_policy(plane, 3, false).await?;
    scale(plane, 2).await?.expect_err("pod 5 would be removed");
    Ok(())
}

/// A pool that is deleted and applied again: its record still exists.
async fn recreated(plane: &ControlPlane) -> Result<()> {
    store_record(plane, &record(&[(0, &["gv0"]), (3, &["gv0", "gv1"])], 0)).await?;
    wait_for_policy(plane, 3, true).await?;
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
