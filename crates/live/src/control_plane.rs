//! The version of the control plane and, on OpenShift, its configuration.

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroupList;
use k8s_openapi::apimachinery::pkg::version::Info;
use serde_json::Value;
use stead_client::{ApiRequest, Client};
use stead_model::OPENSHIFT_SETTINGS;

use crate::CONCURRENCY;

/// What the server tells about itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ControlPlane {
    /// The version, such as `v1.31.4`; none where the server does not tell it.
    pub version: Option<String>,
    /// The objects with the configuration of OpenShift's control plane; empty on other clusters.
    pub settings: Vec<Value>,
    /// What could not be read.
    pub warnings: Vec<String>,
}

/// The version of the control plane, such as `v1.31.4`; none where the server does not tell it.
pub async fn server_version(client: &Client) -> Option<String> {
    let info = client.send::<Info>(ApiRequest::get("/version")).await;
    info.ok().map(|info| info.git_version).filter(|version| !version.is_empty())
}

/// Reads the version of the control plane and its configuration. What cannot be read is left out: answers then use the
/// defaults.
pub async fn control_plane(client: &Client) -> ControlPlane {
    let mut out = ControlPlane { version: server_version(client).await, ..ControlPlane::default() };
    // Somebody without permissions gets "forbidden" for kinds that do not exist, too.
    let groups = client.send::<APIGroupList>(ApiRequest::get("/apis")).await;
    if !groups.is_ok_and(|list| list.groups.iter().any(|group| group.name == "config.openshift.io")) {
        return out;
    }
    let answers: Vec<_> = futures::stream::iter(OPENSHIFT_SETTINGS)
        .map(|path| async move { (path, client.find::<Value>(path).await) })
        .buffered(CONCURRENCY)
        .collect()
        .await;
    let mut unread = Vec::new();
    for (path, answer) in answers {
        match answer {
            Ok(object) => out.settings.extend(object),
            Err(_) => unread.extend(path.rsplit('/').nth(1)),
        }
    }
    if !unread.is_empty() {
        let consequence = "timers and scheduler profile are taken to be the defaults";
        out.warnings.push(format!("not allowed to get {} named cluster: {consequence}", unread.join(", ")));
    }
    out
}
