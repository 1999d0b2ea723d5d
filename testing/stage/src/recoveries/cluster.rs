//! Direct access to the API: fast, and without the faults that the users of `stead recover` experience.

use anyhow::{Context, Result};
use http::Request;
use kube::Client;
use serde_json::Value;

/// Access to the cluster as cluster administrator.
#[derive(Clone)]
pub(super) struct Cluster(pub(super) Client);

impl Cluster {
    /// Returns the object at a path; null if there is none.
    pub(super) async fn get(&self, path: &str) -> Result<Value> {
        let request = Request::get(path).body(Vec::new()).context("building a request")?;
        match self.0.request(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Value::Null),
            answer => answer.with_context(|| format!("reading {path}")),
        }
    }

    /// Returns the objects of a collection; empty if the kind is unknown.
    pub(super) async fn list(&self, path: &str) -> Result<Vec<Value>> {
        let mut list = self.get(path).await?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Creates an object.
    pub(super) async fn create(&self, path: &str, object: &Value) -> Result<()> {
        let request = Request::post(path).header("Content-Type", "application/json");
        let request = request.body(object.to_string().into_bytes()).context("building a request")?;
        self.0.request::<Value>(request).await.map(drop).with_context(|| format!("creating {object} at {path}"))
    }

    /// Applies a merge patch to an object.
    pub(super) async fn patch(&self, path: &str, patch: &Value) -> Result<()> {
        let request = Request::patch(path).header("Content-Type", "application/merge-patch+json");
        let request = request.body(patch.to_string().into_bytes()).context("building a request")?;
        self.0.request::<Value>(request).await.map(drop).with_context(|| format!("patching {path}"))
    }

    /// Deletes an object and its dependents.
    pub(super) async fn delete(&self, path: &str) -> Result<()> {
        let request = Request::delete(format!("{path}?propagationPolicy=Background"))
            .body(Vec::new())
            .context("building a request")?;
        self.0.request::<Value>(request).await.map(drop).with_context(|| format!("deleting {path}"))
    }

    /// Returns the taints of a node.
    pub(super) async fn taints(&self, node: &str) -> Result<Vec<Value>> {
        let mut node = self.get(&format!("/api/v1/nodes/{node}")).await?;
        Ok(node["spec"]["taints"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Returns the NodeRecovery objects of a node.
    pub(super) async fn records(&self, node: &str) -> Result<Vec<Value>> {
        let mut all = self.list("/apis/stead.dev/v1alpha1/noderecoveries").await?;
        all.retain(|record| record["spec"]["node"]["name"] == node);
        Ok(all)
    }
}

/// Returns the status of a condition of an object; empty if there is none.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|c| c["type"] == kind).and_then(|c| c["status"].as_str()).unwrap_or_default()
}

/// Returns a string of an object, such as its uid; empty if it is not a string.
pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
