//! The faults of the proxy, as a client sees them. Skipped if the real control plane is not built.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use stead_testbed::{Binaries, ControlPlane, FaultProxy, Faults, Options, User};

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap()
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_are_seen_by_a_client() {
    let Some(binaries) = Binaries::find_or_skip() else { return };
    let eve = User { name: "eve".into(), token: "evetoken".into(), groups: vec![] };
    let plane =
        ControlPlane::start(&binaries, Options { bare: true, users: vec![eve], ..Options::default() }).await.unwrap();
    let proxy = FaultProxy::start(&plane, 1).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(proxy.client(plane.token()).unwrap(), "default");
    let direct: Api<ConfigMap> = Api::namespaced(plane.client(), "default");
    let create = async |name: &str| maps.create(&PostParams::default(), &map(name)).await;

    // There are no faults by default, and requests keep the caller's rights.
    create("a").await.unwrap();
    let eves: Api<ConfigMap> = Api::namespaced(proxy.client("evetoken").unwrap(), "default");
    assert_eq!(code(&eves.get("a").await.unwrap_err()), 403);
    assert_eq!(proxy.tally().faults(), 0);

    for (faults, expected) in [
        (Faults { conflict: 1.0, ..Faults::default() }, 409),
        (Faults { too_many: 1.0, ..Faults::default() }, 429),
        (Faults { internal: 1.0, ..Faults::default() }, 500),
    ] {
        proxy.set(faults);
        assert_eq!(code(&create("refused").await.unwrap_err()), expected);
    }
    assert!(direct.get_opt("refused").await.unwrap().is_none());

    // The answer is lost, but the write succeeded.
    proxy.set(Faults { lost_answer: 1.0, ..Faults::default() });
    assert_eq!(code(&create("lost").await.unwrap_err()), 0);
    assert!(direct.get_opt("lost").await.unwrap().is_some());
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 2, "reads go through");

    let tally = proxy.tally();
    assert_eq!((tally.conflicts, tally.too_many, tally.internal, tally.lost_answers), (1, 1, 1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_streams_until_it_stalls() {
    let Some(binaries) = Binaries::find_or_skip() else { return };
    let plane = ControlPlane::start(&binaries, Options { bare: true, ..Options::default() }).await.unwrap();
    let proxy = FaultProxy::start(&plane, 1).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(proxy.client(plane.token()).unwrap(), "default");
    let direct: Api<ConfigMap> = Api::namespaced(plane.client(), "default");
    let version = direct.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let second = Duration::from_secs(1);

    let mut good = maps.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    let stall_for = 10 * second;
    proxy.set(Faults { stall: 1.0, stall_within: Duration::ZERO, stall_for, ..Faults::default() });
    let mut stalled = maps.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    direct.create(&PostParams::default(), &map("a")).await.unwrap();
    let event = tokio::time::timeout(60 * second, good.next()).await.unwrap().unwrap().unwrap();
    assert!(matches!(event, WatchEvent::Added(map) if map.metadata.name.as_deref() == Some("a")));
    assert!(tokio::time::timeout(second, stalled.next()).await.is_err(), "no event, and no end");
    let end = tokio::time::timeout(60 * second, stalled.next()).await.expect("the watch ends");
    assert!(!matches!(end, Some(Ok(_))), "{end:?}");
    assert_eq!(proxy.tally().stalls, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_may_be_stale_and_answers_may_be_held_after_a_write() {
    let Some(binaries) = Binaries::find_or_skip() else { return };
    let plane = ControlPlane::start(&binaries, Options { bare: true, ..Options::default() }).await.unwrap();
    let proxy = FaultProxy::start(&plane, 1).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(proxy.client(plane.token()).unwrap(), "default");
    let direct: Api<ConfigMap> = Api::namespaced(plane.client(), "default");
    let count = async || maps.list(&ListParams::default()).await.unwrap().items.len();

    // A read returns the earlier answer if it is recent enough; a new read is forwarded.
    proxy.set(Faults { stale: 1.0, stale_by: Duration::from_secs(60), ..Faults::default() });
    let before = count().await;
    direct.create(&PostParams::default(), &map("a")).await.unwrap();
    assert_eq!((count().await, proxy.tally().stale), (before, 1));
    assert_eq!(maps.get("a").await.unwrap().metadata.name.as_deref(), Some("a"));
    proxy.set(Faults { stale: 1.0, stale_by: Duration::ZERO, ..Faults::default() });
    assert_eq!((count().await, proxy.tally().stale), (before + 1, 1));

    // The write succeeds; neither its answer nor any other comes.
    proxy.set(Faults::default());
    proxy.hold_after(Some(1));
    let writer = maps.clone();
    let waits = tokio::spawn(async move { writer.create(&PostParams::default(), &map("b")).await });
    proxy.wait_until_held().await;
    assert!(direct.get_opt("b").await.unwrap().is_some());
    assert!(tokio::time::timeout(Duration::from_millis(300), maps.get("b")).await.is_err());
    assert!(!waits.is_finished());
    proxy.hold_after(None);
    waits.await.unwrap().unwrap();
    let written: Vec<_> = proxy.written().into_iter().map(|w| (w.method, w.path, w.code)).collect();
    assert_eq!(written, [("POST".to_owned(), "/api/v1/namespaces/default/configmaps".to_owned(), 201)]);
}
