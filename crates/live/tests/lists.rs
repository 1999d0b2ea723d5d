//! What is read from a server, and what happens if it may not be read.

#[path = "../../client/tests/stub/mod.rs"]
mod stub;

use serde_json::Value;
use stead_client::{Client, ClientConfig};
use stead_live::{Live, OWNERS, ReadError, Resource, placement, read};
use stub::{StubServer, page, status};

fn connect(url: &str) -> Client {
    ClientConfig::from_url(url).expect("a URL").connect().expect("a client")
}

async fn read_kinds(server: &StubServer, kinds: &[&str]) -> Result<Live, ReadError> {
    let live = read(&connect(&server.url), &only(kinds), &|_, _| {}).await;
    assert!(server.asked().iter().all(|asked| asked.starts_with("GET ")), "nothing is written: {:?}", server.asked());
    live
}

fn only(kinds: &[&str]) -> Vec<Resource> {
    let owners = OWNERS.iter().map(|further| Resource::from(*further).within("ns"));
    placement().into_iter().chain(owners).filter(|resource| kinds.contains(&resource.kind)).collect()
}

fn names(items: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    items.iter().map(|item| format!("{}/{}", text(&item["kind"]), text(&item["metadata"]["name"]))).collect()
}

#[tokio::test]
async fn all_lists_are_of_the_revision_of_the_first() {
    let server = StubServer::start(|asked| match asked {
        "GET /api/v1/nodes?limit=500" => page("7", "", &["n"]),
        "GET /api/v1/pods?resourceVersion=7&resourceVersionMatch=Exact&limit=500" => page("7", "more", &["a"]),
        "GET /api/v1/pods?limit=500&continue=more" => page("7", "", &["b"]),
        other => status(500, "InternalError", other),
    })
    .await;
    let live = read_kinds(&server, &["Node", "Pod"]).await.expect("an answer");
    assert_eq!(names(&live.items), ["Node/n", "Pod/a", "Pod/b"]);
    assert_eq!(server.asked().len(), 3);
}

#[tokio::test]
async fn a_kind_that_may_not_be_listed_is_told_from_one_that_does_not_exist() {
    let server = StubServer::start(|asked| match asked.strip_prefix("GET ").expect("a read") {
        path if path.starts_with("/api/v1/nodes") || path.starts_with("/api/v1/pods") => page("7", "", &[]),
        "/apis/storage.k8s.io/v1" => {
            let kind = |plural: &str, kind: &str| {
                format!(
                    r#"{{"name":"{plural}","singularName":"","namespaced":false,"kind":"{kind}","verbs":["list"]}}"#
                )
            };
            let kinds = [kind("csinodes", "CSINode"), kind("volumeattachments", "VolumeAttachment")].join(",");
            (200, format!(r#"{{"groupVersion":"storage.k8s.io/v1","resources":[{kinds}]}}"#))
        }
        path if path.starts_with("/apis/storage.k8s.io/v1/") => status(403, "Forbidden", "forbidden"),
        path if path.starts_with("/apis/glance.openstack.org/v1beta1/") => status(403, "Forbidden", "forbidden"),
        _ => status(404, "NotFound", "the server could not find the requested resource"),
    })
    .await;
    let wanted = ["Node", "Pod", "CSINode", "VolumeAttachment", "CSIStorageCapacity", "Topology", "Glance"];
    let live = read_kinds(&server, &wanted).await.expect("an answer");
    assert_eq!(
        live.warnings,
        ["not allowed to list csinodes, volumeattachments: the limit of attached volumes per node is not checked"]
    );
    let kinds: Vec<&str> = live.kinds.iter().map(String::as_str).collect();
    assert_eq!(kinds, ["CSIStorageCapacity", "Glance", "Node", "Pod", "Topology"]);
}

#[tokio::test]
async fn reading_fails_without_nodes_and_pods() {
    let server = StubServer::start(|asked| match asked {
        asked if asked.starts_with("GET /api/v1/nodes") => page("7", "", &[]),
        _ => status(403, "Forbidden", "pods is forbidden: User cannot list"),
    })
    .await;
    let error = read_kinds(&server, &["Node", "Pod"]).await.expect_err("a missing permission");
    assert_eq!(
        error.to_string(),
        "cannot list pods: pods is forbidden: User cannot list; needs the permission to list pods in all namespaces"
    );
}

#[tokio::test]
async fn rejected_credentials_are_told_from_an_unreachable_server() {
    let server = StubServer::start(|_| status(401, "Unauthorized", "Unauthorized")).await;
    let error = read_kinds(&server, &["Node"]).await.expect_err("rejected credentials");
    assert!(error.is_unauthorized() && !error.is_unreachable(), "{error}");
    let error = read(&connect("http://127.0.0.1:1"), &only(&["Node"]), &|_, _| {}).await.expect_err("nobody listens");
    assert!(error.is_unreachable() && matches!(error, ReadError::Failed { .. }), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
}
