//! The CRDs and policies on a real API server: it accepts them, and they accept and reject what they should.

use anyhow::{Context, Result};
use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use stead_manifests::{Options, Part, manifests};
use stead_testbed::{Binaries, ControlPlane};

/// An API server with the CRDs and policies installed.
struct Server {
    client: Client,
    _plane: ControlPlane,
}

impl Server {
    /// Starts the server; none if the Kubernetes binaries are not available.
    async fn start() -> Result<Option<Server>> {
        let Some(binaries) = Binaries::find_or_skip() else { return Ok(None) };
        let options = stead_testbed::Options { bare: true, ..stead_testbed::Options::default() };
        let plane = ControlPlane::start(&binaries, options).await?;
        let server = Server { client: plane.client(), _plane: plane };
        for manifest in manifests(&Options::default()).iter().filter(|m| m.part == Part::Definitions) {
            let path = format!("{}?fieldManager=test", manifest.path());
            let (code, answer) =
                server.send(Method::PATCH, &path, "application/apply-patch+yaml", &manifest.object).await?;
            assert!(code == 200 || code == 201, "{manifest}: {}", answer["message"]);
        }
        server.wait_for_policies().await?;
        Ok(Some(server))
    }

    /// Waits until every policy is active, which is a moment after it was created.
    async fn wait_for_policies(&self) -> Result<()> {
        let spread = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]);
        let elsewhere = json!({"topologyRef": {"name": "t", "namespace": "elsewhere"}});
        for _ in 0..480 {
            if self.create(GLANCES, &glance(elsewhere.clone())).await?.0 == 422
                && self.create(PLANES, &plane(elsewhere.clone())).await?.0 == 422
                && self.warning(TOPOLOGIES, &topology(json!({"topologySpreadConstraint": spread}))).await?.is_some()
            {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        }
        anyhow::bail!("the policies are not active after two minutes")
    }

    async fn send(&self, method: Method, path: &str, form: &str, body: &Value) -> Result<(u16, Value)> {
        let request = Request::builder().method(method).uri(path).header("content-type", form);
        let request = request.body(body.to_string().into_bytes())?;
        match self.client.request::<Value>(request).await {
            Ok(answer) => Ok((200, answer)),
            Err(kube::Error::Api(status)) => Ok((status.code, serde_json::to_value(status)?)),
            Err(error) => Err(error).with_context(|| path.to_owned()),
        }
    }

    /// Tries to create an object, as a dry run.
    async fn create(&self, collection: &str, object: &Value) -> Result<(u16, Value)> {
        self.send(Method::POST, &format!("{collection}?dryRun=All"), "application/json", object).await
    }

    /// Returns the warning for the creation of an object, as a dry run.
    async fn warning(&self, collection: &str, object: &Value) -> Result<Option<String>> {
        let request = Request::post(format!("{collection}?dryRun=All")).header("content-type", "application/json");
        let answer = self.client.send(request.body(object.to_string().into_bytes())?.map(Into::into)).await?;
        assert_eq!(answer.status(), 201);
        Ok(answer.headers().get("warning").map(|text| text.to_str().map(str::to_owned)).transpose()?)
    }
}

const GLANCES: &str = "/apis/glance.openstack.org/v1beta1/namespaces/default/glances";
const PLANES: &str = "/apis/core.openstack.org/v1beta1/namespaces/default/openstackcontrolplanes";
const TOPOLOGIES: &str = "/apis/topology.openstack.org/v1beta1/namespaces/default/topologies";
const RBD: &str = "[DEFAULT]\nenabled_backends=backend1:rbd";

/// A Glance with one API of type single, and these fields.
fn glance(fields: Value) -> Value {
    let mut spec = json!({
        "databaseInstance": "openstack",
        "secret": "osp-secret",
        "glanceAPIs": {"default": {"type": "single"}},
    });
    merge(&mut spec, fields);
    json!({"apiVersion": "glance.openstack.org/v1beta1", "kind": "Glance", "metadata": {"name": "glance"}, "spec": spec})
}

fn plane(spec: Value) -> Value {
    json!({"apiVersion": "core.openstack.org/v1beta1", "kind": "OpenStackControlPlane", "metadata": {"name": "p"}, "spec": spec})
}

fn topology(spec: Value) -> Value {
    json!({"apiVersion": "topology.openstack.org/v1beta1", "kind": "Topology", "metadata": {"name": "t"}, "spec": spec})
}

fn merge(under: &mut Value, over: Value) {
    if let (Some(under), Value::Object(over)) = (under.as_object_mut(), over) {
        under.extend(over);
    }
}

/// A Glance with these APIs instead of the one of [`glance`].
fn apis(apis: Value) -> Value {
    glance(json!({"glanceAPIs": apis}))
}

async fn glances(server: &Server) -> Result<()> {
    let split = |config: &str| json!({"default": {"customServiceConfig": config}});
    let named = |length: usize, kind: &str| {
        let name = "a".repeat(length);
        let config = if kind == "single" { "" } else { RBD };
        glance(json!({
            "keystoneEndpoint": "main",
            "glanceAPIs": {name: {"type": kind, "customServiceConfig": config}, "main": {"type": "single"}},
        }))
    };
    const FILE: &str = "split cannot be used in combination with File and NFS backend";
    const NO_FILE: &str = "single can only be used in combination with File and NFS backend";
    const ENDPOINT: &str = "KeystoneEndpoint is assigned to an invalid GlanceAPI instance";
    const LONG: &str = "must be no more than 52 characters";
    const NAMESPACE: &str =
        r#"topologyRef.namespace: Invalid value: "x": Customizing namespace field is not supported"#;
    let table: Vec<(&str, Value, Option<&str>)> = vec![
        (
            "nothing but a name",
            json!({"apiVersion": "glance.openstack.org/v1beta1", "kind": "Glance", "metadata": {"name": "g"}}),
            None,
        ),
        ("a single API", glance(json!({})), None),
        ("no API", apis(json!({})), None),
        ("no API, but an endpoint", glance(json!({"glanceAPIs": {}, "keystoneEndpoint": "x"})), None),
        ("split on files", apis(split("")), Some(FILE)),
        ("split on rbd", apis(split(RBD)), None),
        ("split on rbd and files", apis(split("[DEFAULT]\nenabled_backends = a:rbd, b:file")), Some(FILE)),
        ("split on rbd, files in a comment", apis(split(&format!("#enabled_backends=a:file\n{RBD}"))), None),
        ("split on a backend that only looks like files", apis(split("enabled_backends=file:filesystem")), None),
        ("split on files without replicas", apis(json!({"default": {"replicas": 0}})), None),
        ("split on the rbd of all", glance(json!({"customServiceConfig": RBD, "glanceAPIs": {"default": {}}})), None),
        ("single on the rbd of all", glance(json!({"customServiceConfig": RBD})), Some(NO_FILE)),
        ("single on rbd", apis(json!({"default": {"type": "single", "customServiceConfig": RBD}})), Some(NO_FILE)),
        (
            "single on files, the others on rbd",
            glance(
                json!({"customServiceConfig": RBD, "glanceAPIs": {"default": {"type": "single", "customServiceConfig": "enabled_backends=a:file"}}}),
            ),
            None,
        ),
        ("an edge alone", apis(json!({"a": {"type": "edge", "customServiceConfig": RBD}})), Some(ENDPOINT)),
        (
            "an edge as endpoint",
            glance(json!({"keystoneEndpoint": "a", "glanceAPIs": {"a": {"type": "edge"}, "b": {"type": "single"}}})),
            Some(ENDPOINT),
        ),
        ("two and no endpoint", apis(json!({"a": {"type": "single"}, "b": {"type": "single"}})), Some(ENDPOINT)),
        ("an endpoint that does not exist", glance(json!({"keystoneEndpoint": "x"})), Some(ENDPOINT)),
        ("an invalid layout", apis(json!({"default": {"type": "triple"}})), Some("Unsupported value")),
        ("33 replicas", apis(json!({"default": {"type": "single", "replicas": 33}})), Some("less than or equal to 32")),
        (
            "-1 replicas",
            apis(json!({"default": {"type": "single", "replicas": -1}})),
            Some("greater than or equal to 0"),
        ),
        ("a timeout of 0", glance(json!({"apiTimeout": 0})), Some("greater than or equal to 1")),
        ("rows purged at once", glance(json!({"dbPurge": {"age": 0}})), Some("greater than or equal to 1")),
        ("capitals in a name", apis(json!({"Default": {"type": "single"}})), Some("RFC 1123 label")),
        ("38 letters, single", named(38, "single"), None),
        ("39 letters, single", named(39, "single"), Some(LONG)),
        ("36 letters, edge", named(36, "edge"), None),
        ("37 letters, edge", named(37, "edge"), Some(LONG)),
        ("32 letters, split", named(32, "split"), None),
        ("33 letters, split", named(33, "split"), Some(LONG)),
        (
            "an override of an endpoint",
            apis(
                json!({"default": {"type": "single", "override": {"service": {"public": {"endpointURL": "http://x"}}}}}),
            ),
            None,
        ),
        (
            "an override of no endpoint",
            apis(json!({"default": {"type": "single", "override": {"service": {"admin": {}}}}})),
            Some("invalid endpoint type"),
        ),
        ("a reference", glance(json!({"topologyRef": {"name": "t"}})), None),
        ("its own namespace", glance(json!({"topologyRef": {"name": "t", "namespace": "default"}})), None),
        ("another namespace", glance(json!({"topologyRef": {"name": "t", "namespace": "x"}})), Some(NAMESPACE)),
        ("another namespace without a name", glance(json!({"topologyRef": {"namespace": "x"}})), Some(NAMESPACE)),
        (
            "another namespace in an API",
            apis(json!({"default": {"type": "single", "topologyRef": {"name": "t", "namespace": "x"}}})),
            Some("spec.glanceAPIs[default].topologyRef.namespace"),
        ),
        ("an opt-out", glance(json!({"topologyRef": {}})), None),
    ];
    check(server, GLANCES, &table).await
}

/// Checks that each object is accepted, or rejected as invalid with this message.
async fn check(server: &Server, collection: &str, table: &[(&str, Value, Option<&str>)]) -> Result<()> {
    for (about, object, refused) in table {
        let (code, answer) = server.create(collection, object).await?;
        let message = answer["message"].as_str().unwrap_or_default();
        match refused {
            None => assert_eq!(code, 200, "{about}: {message}"),
            Some(words) => {
                assert_eq!(code, 422, "{about}: {message}");
                assert!(message.contains(words), "{about}: {message}");
            }
        }
    }
    Ok(())
}

async fn control_planes(server: &Server) -> Result<()> {
    let with = |section: Value| plane(json!({"secret": "s", "glance": section}));
    let elsewhere = json!({"name": "t", "namespace": "x"});
    let single = json!({"default": {"type": "single"}});
    let table: Vec<(&str, Value, Option<&str>)> = vec![
        ("no service at all", plane(json!({})), None),
        ("other services alone", plane(json!({"keystone": {"enabled": false}, "watcher": {"new": [1]}})), None),
        ("Glance without a template", with(json!({})), None),
        ("Glance", with(json!({"template": {"glanceAPIs": single}})), None),
        ("split on files", with(json!({"template": {"glanceAPIs": {"default": {}}}})), Some("File and NFS backend")),
        (
            "split on files, disabled",
            with(json!({"enabled": false, "template": {"glanceAPIs": {"default": {}}}})),
            None,
        ),
        ("a long name", with(json!({"template": {"glanceAPIs": {"a".repeat(38): {"type": "single"}}}})), None),
        (
            "a long name that is made unique",
            with(json!({"uniquePodNames": true, "template": {"glanceAPIs": {"a".repeat(38): {"type": "single"}}}})),
            Some("no more than 52"),
        ),
        (
            "another namespace",
            plane(json!({"topologyRef": elsewhere})),
            Some(r#"spec.topologyRef.namespace: Invalid value: "x""#),
        ),
        (
            "another namespace for Glance",
            with(json!({"template": {"glanceAPIs": single, "topologyRef": elsewhere}})),
            Some("spec.glance.template.topologyRef.namespace"),
        ),
        (
            "another namespace for an API",
            with(json!({"template": {"glanceAPIs": {"default": {"type": "single", "topologyRef": elsewhere}}}})),
            Some("spec.glance.template.glanceAPIs[default].topologyRef.namespace"),
        ),
        (
            "another namespace for an API, disabled",
            with(
                json!({"enabled": false, "template": {"glanceAPIs": {"default": {"type": "single", "topologyRef": elsewhere}}}}),
            ),
            None,
        ),
    ];
    check(server, PLANES, &table).await
}

/// The API server keeps opt-outs and sections of others, and sets the defaults of the OpenStack operators.
async fn kept_fields_and_defaults(server: &Server) -> Result<()> {
    let object = glance(json!({
        "topologyRef": {},
        "glanceAPIs": {"default": {"type": "single", "topologyRef": {}, "nodeSelector": {}}},
    }));
    let (_, kept) = server.create(GLANCES, &object).await?;
    let spec = &kept["spec"];
    let api = &spec["glanceAPIs"]["default"];
    assert_eq!((&spec["topologyRef"], &api["topologyRef"], &api["nodeSelector"]), (&json!({}), &json!({}), &json!({})));
    assert_eq!(spec["dbPurge"], json!({"age": 30, "schedule": "1 0 * * *"}));
    assert_eq!(api["tls"], json!({"api": {"internal": {}, "public": {}}}));
    assert_eq!(spec["passwordSelectors"], json!({"service": "GlancePassword"}));
    let plane = json!({
        "apiVersion": "core.openstack.org/v1beta1",
        "kind": "OpenStackControlPlane",
        "metadata": {"name": "p"},
        "spec": {"nova": {"template": {"cells": [{"a": 1}]}}, "later": {"b": 2}, "glance": {}},
    });
    let (_, kept) = server.create(PLANES, &plane).await?;
    assert_eq!(kept["spec"]["nova"], plane["spec"]["nova"]);
    assert_eq!(kept["spec"]["later"], plane["spec"]["later"]);
    assert_eq!(kept["spec"]["glance"], json!({"enabled": true, "uniquePodNames": false}));
    Ok(())
}

async fn a_layout_cannot_change(server: &Server) -> Result<()> {
    let first = apis(json!({"default": {"type": "single"}}));
    assert_eq!(server.send(Method::POST, GLANCES, "application/json", &first).await?.0, 200);
    let path = format!("{GLANCES}/glance?dryRun=All");
    for (about, apis, refused) in [
        ("the same", json!({"default": {"type": "single"}}), false),
        ("another layout", json!({"default": {"type": "split", "replicas": 0}}), true),
        ("one more", json!({"other": {"type": "split", "customServiceConfig": RBD}}), false),
        ("none: a split one would be created instead", json!({"default": null}), true),
    ] {
        let patch = json!({"spec": {"keystoneEndpoint": "default", "glanceAPIs": apis}});
        let (code, answer) = server.send(Method::PATCH, &path, "application/merge-patch+json", &patch).await?;
        assert_eq!(code, if refused { 422 } else { 200 }, "{about}: {}", answer["message"]);
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(!refused || message.contains("layout (type) cannot be modified"), "{about}: {message}");
    }
    Ok(())
}

/// A Topology accepts what a StatefulSet accepts: each content is tried with both. A Topology additionally rejects what
/// Kubernetes accepts but what leaves pods uncreated or Pending for ever.
async fn topologies_are_validated_like_pods(server: &Server) -> Result<()> {
    const STRICTER: [&str; 3] =
        ["exists in both matchLabelKeys and labelSelector", "values must be a number", "only one of the two"];
    let (mut accepted, mut rejected) = (0, 0);
    for line in include_str!("data/contents.jsonl").lines() {
        let content: Value = serde_json::from_str(line)?;
        let (ours, answer) = server.create(TOPOLOGIES, &topology(content.clone())).await?;
        let labels = json!({"service": "glance"});
        let mut pod = content.clone();
        for constraint in pod["topologySpreadConstraints"].as_array_mut().into_iter().flatten() {
            if constraint["labelSelector"].is_null() {
                constraint["labelSelector"] = json!({"matchLabels": labels});
            }
        }
        if pod["topologySpreadConstraints"].is_null() {
            merge(&mut pod, json!({"topologySpreadConstraints": []}));
        }
        merge(&mut pod, json!({"containers": [{"name": "c", "image": "i"}]}));
        let set = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"},
            "spec": {"serviceName": "s", "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
        });
        let (theirs, reason) = server.create("/apis/apps/v1/namespaces/default/statefulsets", &set).await?;
        let message = answer["message"].as_str().unwrap_or_default();
        let stricter = ours == 422 && STRICTER.iter().any(|words| message.contains(words));
        assert!(
            ours == theirs || stricter,
            "{line}\ntopology {ours} {message}\nstatefulset {theirs} {}",
            reason["message"]
        );
        *(if ours == 200 { &mut accepted } else { &mut rejected }) += 1;
    }
    assert!(accepted > 40 && rejected > 40, "{accepted} accepted, {rejected} rejected");
    Ok(())
}

async fn the_draft_spelling(server: &Server) -> Result<()> {
    let spread = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]);
    let draft = topology(json!({"topologySpreadConstraint": spread}));
    let warning = server.warning(TOPOLOGIES, &draft).await?.context("a warning")?;
    assert!(warning.contains("early draft's spelling of spec.topologySpreadConstraints"), "{warning}");
    let both = topology(json!({"topologySpreadConstraint": spread, "topologySpreadConstraints": spread}));
    let (code, answer) = server.create(TOPOLOGIES, &both).await?;
    assert_eq!(code, 422, "{}", answer["message"]);
    let wrong = topology(
        json!({"topologySpreadConstraint": [{"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}),
    );
    assert_eq!(server.create(TOPOLOGIES, &wrong).await?.0, 422);
    Ok(())
}

/// One server for all checks: starting it takes longer than the checks.
#[tokio::test]
async fn admission() -> Result<()> {
    let Some(server) = Server::start().await? else { return Ok(()) };
    glances(&server).await?;
    control_planes(&server).await?;
    kept_fields_and_defaults(&server).await?;
    a_layout_cannot_change(&server).await?;
    topologies_are_validated_like_pods(&server).await?;
    the_draft_spelling(&server).await
}
