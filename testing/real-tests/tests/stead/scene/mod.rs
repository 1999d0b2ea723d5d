//! A namespace of a stage: applies objects, and waits for the results.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use stead_stage::Stage;

/// The time limit for an expected result, on a busy machine.
pub(crate) const RESULT_TIMEOUT: Duration = Duration::from_secs(180);

/// A namespace for one test.
pub(crate) struct Scene<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) space: &'a str,
}

impl<'a> Scene<'a> {
    /// Creates a namespace with what a Glance depends on: a Secret with passwords, and a database's Service.
    pub(crate) async fn open(stage: &'a Stage, space: &'a str) -> Result<Scene<'a>> {
        stage.kubectl(&["create", "namespace", space]).await?;
        let scene = Scene { stage, space };
        let password = "MTIzNDU2Nzg=";
        scene
            .apply(
                "v1",
                "Secret",
                "osp-secret",
                json!({"data": {"GlancePassword": password, "GlanceDatabasePassword": password}}),
            )
            .await?;
        scene.apply("v1", "Service", "openstack", json!({"spec": {"ports": [{"port": 3306}]}})).await?;
        Ok(scene)
    }

    /// Applies an object; returns kubectl's output, including warnings.
    pub(crate) async fn apply(&self, version: &str, kind: &str, name: &str, rest: Value) -> Result<String> {
        let (code, said) = self.try_to_apply(version, kind, name, rest).await?;
        ensure!(code == Some(0), "{kind} {name}: {said}");
        Ok(said)
    }

    /// Tries to apply an object; returns exit code and output of kubectl.
    pub(crate) async fn try_to_apply(
        &self,
        version: &str,
        kind: &str,
        name: &str,
        rest: Value,
    ) -> Result<(Option<i32>, String)> {
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
        object.as_object_mut().context("an object")?.extend(rest.as_object().cloned().unwrap_or_default());
        let args = ["-n", self.space, "apply", "--server-side", "-f", "-"];
        let ran = self.stage.plane.kubectl_with(&args, &object.to_string()).await?;
        Ok((ran.code, ran.stderr + &ran.stdout))
    }

    pub(crate) async fn topology(&self, name: &str, spec: Value) -> Result<String> {
        self.apply("topology.openstack.org/v1beta1", "Topology", name, json!({"spec": spec})).await
    }

    /// Applies the namespace's Glance with these APIs, and with this Topology for all of them.
    pub(crate) async fn glance(&self, apis: Value, topology_ref: Value) -> Result<String> {
        let spec = glance_spec(apis, topology_ref);
        self.apply("glance.openstack.org/v1beta1", "Glance", "glance", json!({"spec": spec})).await
    }

    pub(crate) async fn control_plane(&self, spec: Value) -> Result<String> {
        self.apply("core.openstack.org/v1beta1", "OpenStackControlPlane", "plane", json!({"spec": spec})).await
    }

    pub(crate) async fn delete(&self, what: &str) -> Result<()> {
        self.stage.kubectl(&["-n", self.space, "delete", what, "--wait=false"]).await.map(drop)
    }

    /// Returns an object, such as `glanceapi/glance-default-single`; none if it does not exist.
    pub(crate) async fn get(&self, what: &str) -> Result<Option<Value>> {
        let (resource, name) = what.split_once('/').context("KIND/NAME")?;
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.stage.plane.client(), self.space, &self.resource(resource)?);
        let found = api.get_opt(name).await.with_context(|| what.to_owned())?;
        Ok(found.map(serde_json::to_value).transpose()?)
    }

    fn resource(&self, kind: &str) -> Result<ApiResource> {
        let (group, version, kind, plural) = match kind {
            "topology" => ("topology.openstack.org", "v1beta1", "Topology", "topologies"),
            "glance" => ("glance.openstack.org", "v1beta1", "Glance", "glances"),
            "glanceapi" => ("glance.openstack.org", "v1beta1", "GlanceAPI", "glanceapis"),
            "oscp" => ("core.openstack.org", "v1beta1", "OpenStackControlPlane", "openstackcontrolplanes"),
            "sts" => ("apps", "v1", "StatefulSet", "statefulsets"),
            "pod" => ("", "v1", "Pod", "pods"),
            other => bail!("no resource {other}"),
        };
        Ok(ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural))
    }

    /// Waits until a field of an object has this value; null for a missing field.
    pub(crate) async fn wait_for_field(&self, what: &str, pointer: &str, expected: Value) -> Result<()> {
        let part = |object: Option<Value>| object.and_then(|o| o.pointer(pointer).cloned()).unwrap_or_default();
        self.wait_for_value(&format!("{what} {pointer}"), expected, || async { Ok(part(self.get(what).await?)) }).await
    }

    /// Waits until a condition has this status, reason and message; null for a missing condition.
    pub(crate) async fn wait_for_condition(&self, what: &str, condition: &str, expected: Value) -> Result<()> {
        let part = |object: Option<Value>| {
            let found = object.as_ref().and_then(|o| self::condition(o, condition));
            found.map(|c| json!([c["status"], c["reason"], c["message"]])).unwrap_or_default()
        };
        self.wait_for_value(&format!("{what} {condition}"), expected, || async { Ok(part(self.get(what).await?)) })
            .await
    }

    /// Waits until an object is gone.
    pub(crate) async fn wait_until_deleted(&self, what: &str) -> Result<()> {
        self.wait_for_value(what, Value::Null, || async { Ok(self.get(what).await?.unwrap_or_default()) }).await
    }

    async fn wait_for_value<F>(&self, what: &str, expected: Value, mut look: impl FnMut() -> F) -> Result<()>
    where
        F: Future<Output = Result<Value>>,
    {
        let end = Instant::now() + RESULT_TIMEOUT;
        loop {
            let found = look().await?;
            if found == expected {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("{}: {what} is {found:#}\nand should be {expected:#}", self.space);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Returns a Glance's spec with these APIs, and with this Topology for all of them.
pub(crate) fn glance_spec(apis: Value, topology_ref: Value) -> Value {
    let mut spec = json!({"databaseInstance": "openstack", "secret": "osp-secret", "glanceAPIs": apis});
    if let Some(names) = spec["glanceAPIs"].as_object()
        && names.len() > 1
    {
        spec["keystoneEndpoint"] = "default".into();
    }
    if !topology_ref.is_null() {
        spec["topologyRef"] = topology_ref;
    }
    spec
}

/// Returns a condition of an object.
pub(crate) fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}
