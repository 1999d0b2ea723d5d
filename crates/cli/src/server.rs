//! Requests of the commands to an API server, about objects as JSON values.

use anyhow::{Context as _, anyhow};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::apimachinery::pkg::version::Info;
use serde_json::Value;
use stead_client::{ApiPath, ApiRequest, Client, DeletePolicy, Error, Preconditions};

use crate::connect::Connection;
use crate::output::Hinted;

/// The field manager of `stead install`.
const MANAGER: &str = "stead-install";

/// An API server.
pub(crate) struct Server {
    client: Client,
    address: String,
}

impl Server {
    /// The server of a connection.
    pub(crate) fn new(connection: Connection) -> Server {
        Server { client: connection.client, address: connection.name }
    }

    /// The server's address.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The server's version.
    pub(crate) async fn version(&self) -> Result<Info, Error> {
        self.client.send(ApiRequest::get("/version")).await
    }

    /// The server's version, if it is recent enough for what is needed.
    pub(crate) async fn at_least(&self, oldest: (u32, u32), needed: &str) -> anyhow::Result<String> {
        let info = self.version().await.context("reading /version")?;
        let number = |field: &str, text: &str| {
            let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u32>().with_context(|| format!("/version: {field}: {text:?} is not a number"))
        };
        let (major, minor) = (number("major", &info.major)?, number("minor", &info.minor)?);
        if (major, minor) < oldest {
            return Err(Hinted {
                message: format!("{} runs Kubernetes {major}.{minor}, which is too old", self.address),
                hint: format!("Stead needs {}.{}, for {needed}", oldest.0, oldest.1),
            }
            .into());
        }
        Ok(format!("{major}.{minor}"))
    }

    /// Whether the user has a permission.
    pub(crate) async fn allows(&self, attributes: ResourceAttributes) -> anyhow::Result<bool> {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() },
            ..Default::default()
        };
        let path = ApiPath::of::<SelfSubjectAccessReview>().collection(None);
        let answer: SelfSubjectAccessReview =
            self.client.send(ApiRequest::create(&path, &review)).await.with_context(|| format!("creating {path}"))?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    /// A permission that the user does not have, as text; none if they have it.
    pub(crate) async fn lacks(
        &self,
        verb: &str,
        group: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> anyhow::Result<Option<String>> {
        let attributes = ResourceAttributes {
            verb: Some(verb.to_owned()),
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            namespace: namespace.map(str::to_owned),
            ..ResourceAttributes::default()
        };
        let dot = if group.is_empty() { "" } else { "." };
        Ok((!self.allows(attributes).await?).then(|| format!("{verb} {resource}{dot}{group}")))
    }

    /// The object at a path; none if it does not exist.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Option<Value>> {
        self.client.find(path).await.with_context(|| format!("reading {path}"))
    }

    /// The objects of a collection; none if the server does not have the kind.
    pub(crate) async fn list(&self, path: &str) -> anyhow::Result<Vec<Value>> {
        match self.client.list(ApiRequest::list(path)).await {
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            answer => Ok(answer.with_context(|| format!("listing {path}"))?.items),
        }
    }

    /// The namespaces that the operator has Roles in, if it was installed for some namespaces only.
    pub(crate) async fn scoped_namespaces(&self, own: &str) -> anyhow::Result<Vec<String>> {
        let path = "/apis/rbac.authorization.k8s.io/v1/rolebindings?labelSelector=app.kubernetes.io%2Fpart-of%3Dstead";
        Ok(stead_manifests::rights::scoped_namespaces(&self.list(path).await?, own))
    }

    /// Applies an object; with `dry_run`, only returns the result.
    pub(crate) async fn apply(&self, path: &str, object: &Value, dry_run: bool) -> anyhow::Result<Value> {
        let request = ApiRequest::apply(path, object).managed_by(MANAGER);
        Ok(self.send(if dry_run { request.dry_run() } else { request }).await?)
    }

    /// Creates an object that answers a question, such as a review.
    pub(crate) async fn ask(&self, path: &str, object: &Value) -> anyhow::Result<Value> {
        self.send(ApiRequest::create(path, object)).await.with_context(|| format!("creating {path}"))
    }

    /// Sends a request.
    pub(crate) async fn send(&self, request: ApiRequest) -> Result<Value, Error> {
        self.client.send_json(request).await
    }

    /// How far the server's clock is ahead of this machine's, to the second; none if the server does not tell the time.
    pub(crate) async fn ahead(&self) -> anyhow::Result<Option<SignedDuration>> {
        let time = self.client.server_time().await.context("reading /version")?;
        // The server tells whole seconds: half a second more is right on average.
        Ok(time.map(|time| time.duration_since(Timestamp::now()) + SignedDuration::from_millis(500)))
    }

    /// Changes an object with a merge patch. False if the object is gone, or has changed since it was read.
    pub(crate) async fn patch(&self, path: &str, patch: &Value) -> anyhow::Result<bool> {
        found(self.send(ApiRequest::patch(path, patch)).await).with_context(|| format!("changing {path}"))
    }

    /// Deletes the object that was read. False if it is gone, or another one has its name.
    pub(crate) async fn delete(&self, path: &str, object: &Value) -> anyhow::Result<bool> {
        let uid = object["metadata"]["uid"].as_str().map(str::to_owned);
        let same = Preconditions { uid, ..Preconditions::default() };
        let answer = self.send(ApiRequest::delete(path, &same, DeletePolicy::Background)).await;
        found(answer).with_context(|| format!("deleting {path}"))
    }
}

/// Whether a write found the object that it was decided for.
pub(crate) fn found(answer: Result<Value, Error>) -> Result<bool, Error> {
    match answer {
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(false),
        other => other.map(|_| true),
    }
}

/// Runs a command that talks to a server.
pub(crate) fn run<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| anyhow!("cannot start a runtime: {error}"))?.block_on(work)
}
