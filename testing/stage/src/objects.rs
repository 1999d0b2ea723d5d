//! Reads and writes the objects of a namespace through the API: faster than kubectl for frequent requests.

use anyhow::{Context, Result, bail};
use http::{Method, Request};
use kube::Client;
use serde_json::Value;

/// The kinds that a walk-through uses: API version, kind, resource name in the path.
const KINDS: [(&str, &str, &str); 14] = [
    ("topology.openstack.org/v1beta1", "Topology", "topologies"),
    ("core.openstack.org/v1beta1", "OpenStackControlPlane", "openstackcontrolplanes"),
    ("glance.openstack.org/v1beta1", "Glance", "glances"),
    ("glance.openstack.org/v1beta1", "GlanceAPI", "glanceapis"),
    ("apps/v1", "StatefulSet", "statefulsets"),
    ("batch/v1", "Job", "jobs"),
    ("batch/v1", "CronJob", "cronjobs"),
    ("v1", "Pod", "pods"),
    ("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ("v1", "Service", "services"),
    ("v1", "Secret", "secrets"),
    ("v1", "ServiceAccount", "serviceaccounts"),
    ("rbac.authorization.k8s.io/v1", "Role", "roles"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings"),
];

/// Returns the names of all kinds.
pub(crate) fn kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(_, kind, _)| *kind)
}

/// Reads and writes the objects of one namespace as cluster administrator.
#[derive(Clone)]
pub struct Objects {
    client: Client,
    namespace: String,
}

impl Objects {
    pub(crate) fn new(client: Client, namespace: &str) -> Objects {
        Objects { client, namespace: namespace.to_owned() }
    }

    /// Lists the objects of a kind by name, with `apiVersion` and `kind` set on each.
    pub async fn list(&self, kind: &str) -> Result<Vec<Value>> {
        let (api_version, kind, _) = known(kind)?;
        let mut list = self.send(Method::GET, &self.path(kind, "")?, "", None).await?;
        let items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let named = |mut item: Value| {
            item["apiVersion"] = api_version.into();
            item["kind"] = kind.into();
            item
        };
        Ok(items.into_iter().map(named).collect())
    }

    /// Applies an object in this namespace, with force.
    pub async fn apply(&self, object: &Value) -> Result<()> {
        let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
        let path = self.path(kind.as_str().unwrap_or_default(), name.as_str().unwrap_or_default())?;
        let path = format!("{path}?fieldManager=walker&force=true");
        self.send(Method::PATCH, &path, "application/apply-patch+yaml", Some(object)).await.map(drop)
    }

    /// Applies a merge patch to an object; `null` removes a field.
    pub async fn merge(&self, kind: &str, name: &str, patch: &Value) -> Result<()> {
        let path = self.path(kind, name)?;
        self.send(Method::PATCH, &path, "application/merge-patch+json", Some(patch)).await.map(drop)
    }

    /// Deletes an object without waiting for it to be gone.
    pub async fn delete(&self, kind: &str, name: &str) -> Result<()> {
        self.send(Method::DELETE, &self.path(kind, name)?, "", None).await.map(drop)
    }

    fn path(&self, kind: &str, name: &str) -> Result<String> {
        let (api_version, _, plural) = known(kind)?;
        let root = if api_version.contains('/') { "apis" } else { "api" };
        let path = format!("/{root}/{api_version}/namespaces/{}/{plural}", self.namespace);
        Ok(if name.is_empty() { path } else { format!("{path}/{name}") })
    }

    async fn send(&self, method: Method, path: &str, media: &str, body: Option<&Value>) -> Result<Value> {
        let request = Request::builder().method(&method).uri(path).header("content-type", media);
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = request.body(body.into_bytes()).context("building a request")?;
        self.client.request(request).await.with_context(|| format!("{method} {path}"))
    }
}

fn known(kind: &str) -> Result<(&'static str, &'static str, &'static str)> {
    match KINDS.iter().find(|(_, k, _)| *k == kind) {
        Some(found) => Ok(*found),
        None => bail!("kind {kind:?} is not in the list of kinds"),
    }
}
