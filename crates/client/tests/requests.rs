//! The client against a server on loopback.

mod stub;

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use stead_client::{ApiPath, ApiRequest, Client, ClientConfig, Error};
use stub::{Answer, NEVER, StubServer, page, status};

fn connect(server: &StubServer) -> Client {
    ClientConfig::from_url(&server.url).expect("a URL").without_retries().connect().expect("a client")
}

async fn server(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> (Client, StubServer) {
    let server = StubServer::start(answer).await;
    (connect(&server), server)
}

fn names(items: &[Value]) -> Vec<&str> {
    items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

const PODS: &str = "/api/v1/pods";

#[tokio::test]
async fn a_list_is_read_page_by_page() {
    let (client, server) = server(|asked| match asked {
        "GET /api/v1/pods?labelSelector=a%3Db&limit=500" => page("7", "x/y=", &["a", "b"]),
        "GET /api/v1/pods?labelSelector=a%3Db&limit=500&continue=x%2Fy%3D" => page("7", "z", &["c"]),
        "GET /api/v1/pods?labelSelector=a%3Db&limit=500&continue=z" => page("7", "", &["d"]),
        other => status(500, "InternalError", other),
    })
    .await;
    let list = client.list(ApiRequest::list(PODS).with("labelSelector", "a=b")).await.expect("a list");
    assert_eq!((names(&list.items), list.revision.as_deref()), (vec!["a", "b", "c", "d"], Some("7")));
    assert_eq!(server.asked().len(), 3);
}

#[tokio::test]
async fn a_list_of_nothing_is_empty() {
    let (client, _) = server(|_| (200, r#"{"metadata":{},"items":null}"#.to_owned())).await;
    assert_eq!(client.list(ApiRequest::list(PODS)).await.expect("a list").items, [] as [Value; 0]);
}

#[tokio::test]
async fn a_list_whose_pages_expired_is_started_again() {
    let (client, server) = server(|asked| match asked {
        "GET /api/v1/pods?resourceVersion=7&resourceVersionMatch=Exact&limit=500" => page("7", "next", &["a", "b"]),
        "GET /api/v1/pods?limit=500&continue=next" => {
            status(410, "Expired", "The provided continue parameter is too old")
        }
        "GET /api/v1/pods?limit=500" => page("9", "", &["a", "c"]),
        other => status(500, "InternalError", other),
    })
    .await;
    let list = client.list(ApiRequest::list(PODS).at_revision("7")).await.expect("a list");
    assert_eq!((names(&list.items), list.revision.as_deref()), (vec!["a", "c"], Some("9")), "{:?}", server.asked());
}

#[tokio::test]
async fn a_list_that_always_expires_is_an_error() {
    let (client, server) = server(|_| status(410, "Expired", "too old")).await;
    let error = client.list(ApiRequest::list(PODS)).await.expect_err("it expires");
    assert!(error.is_gone(), "{error}");
    assert_eq!(server.asked().len(), 4);
}

#[tokio::test]
async fn a_revision_that_the_server_does_not_have_is_not_insisted_on() {
    for code in [400, 410, 504] {
        let (client, _) = server(move |asked| match asked.contains("resourceVersion=7") {
            true => status(code, "", "too large resource version"),
            false => page("3", "", &["a"]),
        })
        .await;
        let list = client.list(ApiRequest::list(PODS).at_revision("7")).await.expect("a list");
        assert_eq!(list.revision.as_deref(), Some("3"), "{code}");
        // Without a revision, the same answer is a failure.
        let (client, server) = self::server(move |_| status(code, "", "no")).await;
        assert_eq!(client.list(ApiRequest::list(PODS)).await.expect_err("an error").code(), Some(code));
        assert_eq!(server.asked().len(), if code == 410 { 4 } else { 1 });
    }
}

#[tokio::test]
async fn rejections_keep_what_the_server_says() {
    let (client, _) = server(|asked| match asked {
        "PUT /api/v1/namespaces/n/configmaps/c?fieldManager=stead" => {
            status(409, "Conflict", "the object has been modified")
        }
        "GET /api/v1/pods" => status(403, "Forbidden", "pods is forbidden: User cannot list"),
        "GET /api/v1/nodes" => status(401, "Unauthorized", "Unauthorized"),
        "GET /api/v1/proxied" => (502, "bad gateway".to_owned()),
        _ => status(404, "NotFound", "not found"),
    })
    .await;
    let path = ApiPath::of::<ConfigMap>().object("n", "c");
    let update = ApiRequest::update(path.clone(), &json!({"metadata": {"resourceVersion": "1"}})).managed_by("stead");
    let error = client.send::<Value>(update).await.expect_err("a conflict");
    assert!(error.is_conflict() && !error.is_not_found(), "{error}");
    assert_eq!(error.to_string(), "409 Conflict: the object has been modified");

    let error = client.send::<Value>(ApiRequest::get(PODS)).await.expect_err("no permission");
    assert!(error.is_forbidden() && !error.is_unreachable(), "{error}");
    assert_eq!(error.message(), "pods is forbidden: User cannot list");

    let error = client.send::<Value>(ApiRequest::get("/api/v1/nodes")).await.expect_err("no login");
    assert!(error.is_unauthorized(), "{error}");
    let error = client.send::<Value>(ApiRequest::get("/api/v1/proxied")).await.expect_err("a proxy");
    assert_eq!(error.to_string(), "502: bad gateway");

    assert_eq!(client.find::<Value>(path).await.expect("an answer"), None);
}

#[tokio::test]
async fn an_answer_that_is_something_else_is_malformed() {
    let (client, _) = server(|_| (200, "<html>".to_owned())).await;
    let error = client.send::<Value>(ApiRequest::get(PODS)).await.expect_err("not JSON");
    assert!(matches!(error, Error::Malformed(_)), "{error:?}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    let client = ClientConfig::from_url("http://127.0.0.1:1").expect("a URL").connect().expect("a client");
    let error = client.send::<Value>(ApiRequest::get(PODS)).await.expect_err("nobody listens");
    assert!(error.is_unreachable(), "{error:?}");
    assert_eq!(error.to_string(), "Connection refused (os error 111)");
}

/// It is given up however busy the machine is, since the answer never comes.
#[tokio::test]
async fn a_server_that_never_answers_is_given_up_after_the_deadline() {
    let (client, _) = server(|_| (NEVER, String::new())).await;
    let limit = Duration::from_millis(20);
    let error = client.send_within::<Value>(limit, ApiRequest::get(PODS)).await.expect_err("no answer");
    assert_eq!(error, Error::Timeout(limit));
    assert!(error.is_unreachable());
}

#[tokio::test]
async fn a_write_is_sent_once_unless_retries_are_allowed() {
    let server = StubServer::start(|_| status(503, "ServiceUnavailable", "later")).await;
    let error = connect(&server).send::<Value>(ApiRequest::patch(PODS, &json!({}))).await.expect_err("unavailable");
    assert_eq!((error.code(), server.asked().len()), (Some(503), 1));
}

#[tokio::test]
async fn kinds_are_looked_up() {
    let (client, _) = server(|asked| match asked {
        "GET /apis/apps/v1" => (
            200,
            r#"{"groupVersion":"apps/v1","resources":[{"name":"deployments","singularName":"",
            "namespaced":true,"kind":"Deployment","verbs":["list"]}]}"#
                .to_owned(),
        ),
        _ => status(404, "NotFound", "the server could not find the requested resource"),
    })
    .await;
    for (api_version, plural, known) in
        [("apps/v1", "deployments", true), ("apps/v1", "statefulsets", false), ("example.org/v1", "things", false)]
    {
        assert_eq!(client.has_kind(api_version, plural).await.expect("an answer"), known, "{api_version} {plural}");
    }
}
