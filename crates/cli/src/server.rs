//! Requests to an API server, about objects as JSON values.

use anyhow::{Context as _, anyhow};
use http::{Method, Request};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::connect::Connection;
use crate::output::Hinted;

/// The name under which an installation applies.
const MANAGER: &str = "stead-install";

/// An API server.
pub(crate) struct Server {
    client: Client,
    address: String,
}

impl Server {
    /// The server at the other end of a connection.
    pub(crate) fn new(connection: Connection) -> Server {
        Server { client: connection.client, address: connection.name }
    }

    /// The server's address.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The server's version, if it is new enough for what is needed.
    pub(crate) async fn at_least(&self, oldest: (u32, u32), needed: &str) -> anyhow::Result<String> {
        let answer = self.get("/version").await?.unwrap_or_default();
        let number = |field: &str| {
            let digits: String =
                answer[field].as_str().unwrap_or_default().chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u32>().with_context(|| format!("version: {field}: {} is no number", answer[field]))
        };
        let (major, minor) = (number("major")?, number("minor")?);
        if (major, minor) < oldest {
            return Err(Hinted {
                message: format!("{} runs Kubernetes {major}.{minor}, which is too old", self.address),
                hint: format!("Stead needs {}.{}, for {needed}", oldest.0, oldest.1),
            }
            .into());
        }
        Ok(format!("{major}.{minor}"))
    }

    /// Whether whoever asks may do something.
    pub(crate) async fn allows(&self, attributes: &Value) -> anyhow::Result<bool> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        });
        let answer = self.ask("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await?;
        Ok(answer["status"]["allowed"] == true)
    }

    /// A right that whoever asks does not have, in words; none if they have it.
    pub(crate) async fn lacks(
        &self,
        verb: &str,
        group: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> anyhow::Result<Option<String>> {
        let mut attributes = json!({"verb": verb, "group": group, "resource": resource});
        if let Some(namespace) = namespace {
            attributes["namespace"] = namespace.into();
        }
        let dot = if group.is_empty() { "" } else { "." };
        Ok((!self.allows(&attributes).await?).then(|| format!("{verb} {resource}{dot}{group}")))
    }

    /// What is at a path; none where there is nothing.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Option<Value>> {
        absent(self.send(Method::GET, path, None, "").await).with_context(|| format!("reading {path}"))
    }

    /// The objects of a collection; none where the server does not know the kind.
    pub(crate) async fn list(&self, path: &str) -> anyhow::Result<Vec<Value>> {
        let mut items = Vec::new();
        let mut from = String::new();
        loop {
            let join = if path.contains('?') { '&' } else { '?' };
            let page = format!("{path}{join}limit=500{from}");
            let answer = absent(self.send(Method::GET, &page, None, "").await);
            let Some(mut list) = answer.with_context(|| format!("listing {path}"))? else { return Ok(items) };
            if let Value::Array(some) = list["items"].take() {
                items.extend(some);
            }
            match list["metadata"]["continue"].as_str() {
                Some(token) if !token.is_empty() => from = format!("&continue={token}"),
                _ => return Ok(items),
            }
        }
    }

    /// The namespaces that the operator has Roles in, if it was installed for some namespaces only.
    pub(crate) async fn scoped_namespaces(&self, own: &str) -> anyhow::Result<Vec<String>> {
        let path = "/apis/rbac.authorization.k8s.io/v1/rolebindings?labelSelector=app.kubernetes.io%2Fpart-of%3Dstead";
        Ok(stead_manifests::rights::scoped_namespaces(&self.list(path).await?, own))
    }

    /// Applies an object; with `dry_run`, only says what it would be then.
    pub(crate) async fn apply(&self, path: &str, object: &Value, dry_run: bool) -> anyhow::Result<Value> {
        let dry = if dry_run { "&dryRun=All" } else { "" };
        let path = format!("{path}?fieldManager={MANAGER}&force=true{dry}");
        let answer = self.send(Method::PATCH, &path, Some(object), "application/apply-patch+yaml").await;
        answer.map_err(anyhow::Error::from)
    }

    /// Makes an object that answers a question.
    pub(crate) async fn ask(&self, path: &str, object: &Value) -> anyhow::Result<Value> {
        let answer = self.send(Method::POST, path, Some(object), "application/json").await;
        answer.with_context(|| format!("asking {path}"))
    }

    /// Makes an object, or replaces it by one of the same version. The server's own words where it will not.
    pub(crate) async fn write(&self, method: Method, path: &str, object: &Value) -> kube::Result<Value> {
        let form = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        self.send(method, path, Some(object), form).await
    }

    /// The server's clock less this machine's, in whole seconds; none where it does not tell the time.
    pub(crate) async fn ahead(&self) -> anyhow::Result<Option<SignedDuration>> {
        let request = Request::get("/version").body(Body::empty())?;
        let answer = self.client.send(request).await.context("reading /version")?;
        let date = answer.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
        let time = date.and_then(|date| jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(date).ok());
        // The header has whole seconds: half of one more is right on average.
        Ok(time.map(|time| time.duration_since(Timestamp::now()) + SignedDuration::from_millis(500)))
    }

    /// Changes an object by a merge patch. False where the object is gone, or no longer the one that was looked at.
    pub(crate) async fn patch(&self, path: &str, patch: &Value) -> anyhow::Result<bool> {
        let answer = self.send(Method::PATCH, path, Some(patch), "application/merge-patch+json").await;
        settled(answer).with_context(|| format!("changing {path}"))
    }

    /// Deletes the object that was looked at. False where it is gone already, or is another one by now.
    pub(crate) async fn delete(&self, path: &str, object: &Value) -> anyhow::Result<bool> {
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": object["metadata"]["uid"]},
            "propagationPolicy": "Background",
        });
        let answer = self.send(Method::DELETE, path, Some(&options), "application/json").await;
        settled(answer).with_context(|| format!("deleting {path}"))
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>, form: &str) -> kube::Result<Value> {
        let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
        let mut request = Request::builder().method(method).uri(path);
        if !form.is_empty() {
            request = request.header(http::header::CONTENT_TYPE, form);
        }
        self.client.request(request.body(body).map_err(kube::Error::HttpError)?).await
    }
}

/// What there is, or none where the server says that there is nothing.
fn absent(answer: kube::Result<Value>) -> kube::Result<Option<Value>> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        other => other.map(Some),
    }
}

/// Whether a write that was decided for one object found that object.
fn settled(answer: kube::Result<Value>) -> kube::Result<bool> {
    match answer {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        other => other.map(|_| true),
    }
}

/// Runs what talks to a server.
pub(crate) fn run<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| anyhow!("no runtime: {error}"))?.block_on(work)
}
