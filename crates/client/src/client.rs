//! Sends requests, each within a deadline.

use std::time::Duration;

use futures::future::BoxFuture;
use http::header::{ACCEPT, CONTENT_TYPE, DATE, RETRY_AFTER};
use http::response::Parts;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::client::Body;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{ApiStatus, Error};
use crate::request::ApiRequest;

/// A connection to an API server. It is cheap to clone.
#[derive(Clone)]
pub struct Client {
    pub(crate) http: kube::Client,
    pub(crate) request_timeout: Duration,
}

impl Client {
    /// Sends a request and parses the answer.
    ///
    /// # Errors
    /// If the server rejects it, does not answer within the timeout of the configuration, or answers something else.
    pub async fn send<T: DeserializeOwned>(&self, request: ApiRequest) -> Result<T, Error> {
        self.send_within(self.request_timeout, request).await
    }

    /// Sends a request and parses the answer, which has to be there in full within this time.
    ///
    /// # Errors
    /// If the server rejects it, does not answer in time, or answers something else.
    pub async fn send_within<T: DeserializeOwned>(&self, limit: Duration, request: ApiRequest) -> Result<T, Error> {
        let answer = self.send_json_within(limit, request).await?;
        stead_model::parse("answer", &answer).map_err(|error| Error::unreadable(&error))
    }

    /// Sends a request and returns the answer as JSON.
    ///
    /// # Errors
    /// Like [`Client::send`].
    pub async fn send_json(&self, request: ApiRequest) -> Result<Value, Error> {
        self.send_json_within(self.request_timeout, request).await
    }

    /// Sends a request and returns the answer as JSON, which has to be there in full within this time.
    ///
    /// # Errors
    /// Like [`Client::send`].
    pub async fn send_json_within(&self, limit: Duration, request: ApiRequest) -> Result<Value, Error> {
        let (_, body) = self.answer(limit, request).await?;
        serde_json::from_slice(&body).map_err(|error| Error::unreadable(&error))
    }

    /// Reads an object; none if it does not exist, or the server does not have its kind.
    ///
    /// # Errors
    /// Like [`Client::send`].
    pub async fn find<T: DeserializeOwned>(&self, path: impl Into<String>) -> Result<Option<T>, Error> {
        match self.send(ApiRequest::get(path)).await {
            Err(error) if error.is_not_found() => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Whether the server has a kind, such as `apps/v1` `deployments`.
    ///
    /// # Errors
    /// Like [`Client::send`].
    pub async fn has_kind(&self, api_version: &str, plural: &str) -> Result<bool, Error> {
        let root = if api_version.contains('/') { "apis" } else { "api" };
        let known: Option<APIResourceList> = self.find(format!("/{root}/{api_version}")).await?;
        Ok(known.is_some_and(|known| known.resources.iter().any(|resource| resource.name == plural)))
    }

    /// The server's clock, to the second; none if it does not tell the time.
    ///
    /// # Errors
    /// Like [`Client::send`].
    pub async fn server_time(&self) -> Result<Option<Timestamp>, Error> {
        let (parts, _) = self.answer(self.request_timeout, ApiRequest::get("/version")).await?;
        let date = parts.headers.get(DATE).and_then(|date| date.to_str().ok());
        Ok(date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok()))
    }

    /// Sends a request and reads the whole answer within this time. The future is boxed: an `async fn` would be compiled
    /// again, with all of kube's client, in every crate that sends a request.
    fn answer(&self, limit: Duration, request: ApiRequest) -> BoxFuture<'_, Result<(Parts, Vec<u8>), Error>> {
        let answer = tokio::time::timeout(limit, self.exchange(request));
        Box::pin(async move { answer.await.unwrap_or(Err(Error::Timeout(limit))) })
    }

    async fn exchange(&self, request: ApiRequest) -> Result<(Parts, Vec<u8>), Error> {
        let body = request.body.as_ref().map(Value::to_string).unwrap_or_default();
        let request = http::Request::builder()
            .method(request.verb.method())
            .uri(request.uri())
            .header(CONTENT_TYPE, request.verb.content_type())
            .header(ACCEPT, "application/json")
            .body(Body::from(body.into_bytes()))
            .map_err(|error| Error::Malformed(format!("cannot build the request: {error}")))?;
        let (parts, body) = self.http.send(request).await?.into_parts();
        let body = body.collect_bytes().await?;
        if parts.status.is_success() {
            return Ok((parts, body.into()));
        }
        let retry_after = parts.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        Err(Error::Api(ApiStatus::parse(parts.status.as_u16(), retry_after, &body)))
    }
}
