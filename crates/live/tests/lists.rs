//! How lists are asked for, against a server that answers as told.

use std::sync::{Arc, Mutex};

use kube::{Client, Config};
use stead_live::{OWNERS, ReadError, Resource, placement, read};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

type Answer = (u16, String);

/// Starts a server that answers each request by its path and query; gives a client, and what was asked.
async fn server(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> (Client, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (log, answer) = (asked.clone(), Arc::new(answer));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (log, answer) = (log.clone(), answer.clone());
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.windows(4).any(|w| w == b"\r\n\r\n") {
                    let mut part = [0; 4096];
                    let n = stream.read(&mut part).await.unwrap_or(0);
                    if n == 0 {
                        return;
                    }
                    request.extend_from_slice(&part[..n]);
                }
                let text = String::from_utf8_lossy(&request).into_owned();
                let mut words = text.split(' ');
                assert_eq!(words.next(), Some("GET"), "nothing but reading");
                let path = words.next().expect("a path").to_owned();
                let (code, body) = answer(&path);
                log.lock().expect("no panic before").push(path);
                let head = format!(
                    "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
            });
        }
    });
    let config = Config::new(format!("http://{address}").parse().expect("an address"));
    (Client::try_from(config).expect("a client"), asked)
}

fn list(revision: &str, next: &str, names: &[&str]) -> Answer {
    let items: Vec<String> = names.iter().map(|n| format!(r#"{{"metadata":{{"name":"{n}"}}}}"#)).collect();
    let items = items.join(",");
    (200, format!(r#"{{"metadata":{{"resourceVersion":"{revision}","continue":"{next}"}},"items":[{items}]}}"#))
}

fn status(code: u16, message: &str) -> Answer {
    (code, format!(r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"{message}","code":{code}}}"#))
}

fn only(kinds: &[&str]) -> Vec<Resource> {
    let owners = OWNERS.iter().map(|f| Resource::from(*f).within("ns"));
    placement().into_iter().chain(owners).filter(|r| kinds.contains(&r.kind)).collect()
}

fn names(items: &[serde_json::Value]) -> Vec<String> {
    items
        .iter()
        .map(|i| {
            let text = |v: &serde_json::Value| v.as_str().expect("text").to_owned();
            format!("{}/{}", text(&i["kind"]), text(&i["metadata"]["name"]))
        })
        .collect()
}

#[tokio::test]
async fn pages_of_one_moment() {
    let (client, asked) = server(|path| match path {
        "/api/v1/nodes?&limit=500" => list("7", "", &["n"]),
        "/api/v1/pods?&limit=500&resourceVersion=7&resourceVersionMatch=Exact" => list("7", "more", &["a"]),
        "/api/v1/pods?&limit=500&continue=more" => list("7", "", &["b"]),
        other => panic!("{other}"),
    })
    .await;
    let live = read(&client, &only(&["Node", "Pod"]), &|_, _| {}).await.expect("an answer");
    assert_eq!(names(&live.items), ["Node/n", "Pod/a", "Pod/b"]);
    assert_eq!(asked.lock().expect("no panic").len(), 3);
}

#[tokio::test]
async fn a_page_that_came_too_late_begins_the_list_anew() {
    let (client, asked) = server(|path| match path {
        "/api/v1/nodes?&limit=500" => list("7", "", &["n"]),
        "/api/v1/pods?&limit=500" => list("9", "", &["a", "c"]),
        p if p.contains("resourceVersion=7") => list("7", "more", &["a", "b"]),
        _ => status(410, "The provided continue parameter is too old"),
    })
    .await;
    let live = read(&client, &only(&["Node", "Pod"]), &|_, _| {}).await.expect("an answer");
    assert_eq!(names(&live.items), ["Node/n", "Pod/a", "Pod/c"], "{asked:?}");
}

#[tokio::test]
async fn what_may_not_be_listed_and_what_is_not_known() {
    let (client, _) = server(|path| match path {
        p if p.starts_with("/api/v1/nodes") || p.starts_with("/api/v1/pods") => list("7", "", &[]),
        "/apis/storage.k8s.io/v1" => {
            (200, r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"storage.k8s.io/v1","resources":[
                {"name":"csinodes","singularName":"","namespaced":false,"kind":"CSINode","verbs":["list"]},
                {"name":"volumeattachments","singularName":"","namespaced":false,"kind":"VolumeAttachment","verbs":["list"]}
            ]}"#.to_owned())
        }
        p if p.starts_with("/apis/storage.k8s.io/v1/") => status(403, "forbidden"),
        p if p.starts_with("/apis/glance.openstack.org/v1beta1/") => status(403, "forbidden"),
        _ => status(404, "the server could not find the requested resource"),
    })
    .await;
    let wanted = only(&["Node", "Pod", "CSINode", "VolumeAttachment", "CSIStorageCapacity", "Topology", "Glance"]);
    let live = read(&client, &wanted, &|_, _| {}).await.expect("an answer");
    assert_eq!(
        live.warnings,
        ["not allowed to list csinodes, volumeattachments: how many volumes a node can have attached is not judged"]
    );
    let kinds: Vec<&str> = live.kinds.iter().map(String::as_str).collect();
    assert_eq!(kinds, ["CSIStorageCapacity", "Glance", "Node", "Pod", "Topology"]);
}

#[tokio::test]
async fn nothing_is_said_without_nodes_and_pods() {
    let (client, _) = server(|path| match path {
        p if p.starts_with("/api/v1/nodes") => list("7", "", &[]),
        _ => status(403, "pods is forbidden: User cannot list"),
    })
    .await;
    let error = read(&client, &only(&["Node", "Pod"]), &|_, _| {}).await.expect_err("no rights");
    assert_eq!(
        error.to_string(),
        "cannot list pods: pods is forbidden: User cannot list; needs the right to list pods in all namespaces"
    );
}

#[tokio::test]
async fn a_server_that_does_not_know_who_asks_or_is_not_there() {
    let (client, _) = server(|_| status(401, "Unauthorized")).await;
    let error = read(&client, &only(&["Node"]), &|_, _| {}).await.expect_err("no login");
    assert!(error.is_unauthorized() && !error.is_unreachable(), "{error}");
    let config = Config::new("http://127.0.0.1:1".parse().expect("an address"));
    let client = Client::try_from(config).expect("a client");
    let error = read(&client, &only(&["Node"]), &|_, _| {}).await.expect_err("nobody there");
    assert!(error.is_unreachable() && matches!(error, ReadError::Failed { .. }), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
}
