//! Reads and writes through the API directly: fast, and without the faults that users of `stead recover` see.

use anyhow::{Context, Result};
use http::Request;
use kube::Client;
use serde_json::Value;

/// The cluster, for somebody who may do everything.
#[derive(Clone)]
pub(super) struct Cluster(pub(super) Client);

impl Cluster {
    /// What is at a path; null where there is nothing.
    pub(super) async fn get(&self, path: &str) -> Result<Value> {
        let request = Request::get(path).body(Vec::new()).context("a request")?;
        match self.0.request(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Value::Null),
            answer => answer.with_context(|| format!("reading {path}")),
        }
    }

    /// The objects of a collection; none where the kind is not known.
    pub(super) async fn list(&self, path: &str) -> Result<Vec<Value>> {
        let mut list = self.get(path).await?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Makes an object.
    pub(super) async fn make(&self, path: &str, object: &Value) -> Result<()> {
        let request = Request::post(path).header("Content-Type", "application/json");
        let request = request.body(object.to_string().into_bytes()).context("a request")?;
        self.0.request::<Value>(request).await.map(drop).with_context(|| format!("making {object} at {path}"))
    }

    /// Changes an object by a merge patch.
    pub(super) async fn patch(&self, path: &str, patch: &Value) -> Result<()> {
        let request = Request::patch(path).header("Content-Type", "application/merge-patch+json");
        let request = request.body(patch.to_string().into_bytes()).context("a request")?;
        self.0.request::<Value>(request).await.map(drop).with_context(|| format!("changing {path}"))
    }

    /// Deletes an object, with what depends on it.
    pub(super) async fn delete(&self, path: &str) -> Result<()> {
        let request =
            Request::delete(format!("{path}?propagationPolicy=Background")).body(Vec::new()).context("a request")?;
        self.0.request::<Value>(request).await.map(drop).with_context(|| format!("deleting {path}"))
    }

    /// The taints of a node.
    pub(super) async fn taints(&self, node: &str) -> Result<Vec<Value>> {
        let mut node = self.get(&format!("/api/v1/nodes/{node}")).await?;
        Ok(node["spec"]["taints"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// The records of a node's recoveries.
    pub(super) async fn records(&self, node: &str) -> Result<Vec<Value>> {
        let mut all = self.list("/apis/stead.dev/v1alpha1/noderecoveries").await?;
        all.retain(|record| record["spec"]["node"]["name"] == node);
        Ok(all)
    }
}

/// The status of an object's condition.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|c| c["type"] == kind).and_then(|c| c["status"].as_str()).unwrap_or_default()
}

/// A text of an object, such as its uid.
pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
