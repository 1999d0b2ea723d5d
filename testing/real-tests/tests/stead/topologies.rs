//! Topologies and the objects that refer to them, on the real control plane: the functional tests of the OpenStack
//! operators about topology, and further cases. Each scene has its own namespace; all run at the same time.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stead_stage::Stage;
use stead_testbed::{Binaries, ClusterSpec, Options};

use crate::scene::{Scene, glance_spec};

const SINGLE: &str = "glanceapi/glance-default-single";
const SET: &str = "sts/glance-default-single";

#[tokio::test(flavor = "multi_thread")]
async fn topologies_are_followed() -> Result<()> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
    let stead = crate::stead()?;
    let stage = Stage::open(&binaries, &stead, Options::default(), ClusterSpec::seven()).await?;
    stage.install_definitions().await?;
    let operator = stage.start_operator(&stage.plane.kubeconfig(), &[]).await?;
    let played = tokio::try_join!(
        referred_to_by_a_glance(&stage),
        overridden_by_an_api(&stage),
        in_another_namespace(&stage),
        missing_for_a_control_plane(&stage),
        passed_on_by_a_control_plane(&stage),
        missing_then_created(&stage),
        edited(&stage),
        deleted_while_in_use(&stage),
        used_by_two_apis(&stage),
        held_by_both_parts_of_an_api(&stage),
        namespace_deleted(&stage),
    );
    played.with_context(|| operator.log().unwrap_or_default())?;
    operator.stop().await
}

fn named(name: &str) -> Value {
    json!({"name": name})
}

fn applied(name: &str, space: &str) -> Value {
    json!({"name": name, "namespace": space})
}

fn single() -> Value {
    json!({"default": {"type": "single", "replicas": 1}})
}

/// The Topology of the OpenStack operators' tests.
fn sample() -> Value {
    json!([{
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"component": "glance-api"}},
    }])
}

fn spread(constraints: Value) -> Value {
    json!({"topologySpreadConstraints": constraints})
}

fn in_zone_a() -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["zoneA"]}]},
    ]}}})
}

/// The default anti-affinity, which a Topology with an affinity replaces.
fn default_affinity() -> Value {
    json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 100,
        "podAffinityTerm": {
            "labelSelector": {"matchExpressions": [{"key": "service", "operator": "In", "values": ["glance"]}]},
            "topologyKey": "kubernetes.io/hostname",
        },
    }]}})
}

fn completed() -> Value {
    json!(["True", "Ready", "Topology config create completed"])
}

fn not_found(name: &str) -> Value {
    let message = format!("Topology config create error occurred Topology.topology.openstack.org \"{name}\" not found");
    json!(["False", "Error", message])
}

fn api_finalizers(apis: &[&str]) -> Value {
    json!(apis.iter().map(|api| format!("openstack.org/glanceapi-{api}")).collect::<Vec<_>>())
}

fn users(users: &[(&str, &str)]) -> Value {
    json!(users.iter().map(|(kind, name)| json!({"kind": kind, "name": name})).collect::<Vec<_>>())
}

/// Waits until a StatefulSet's pods have this affinity and these spread constraints.
async fn wait_until_placed(scene: &Scene<'_>, set: &str, affinity: Value, spread: Value) -> Result<()> {
    scene.wait_for_field(set, "/spec/template/spec/topologySpreadConstraints", spread).await?;
    scene.wait_for_field(set, "/spec/template/spec/affinity", affinity).await
}

/// A Glance refers to a Topology, then to another one, then to none.
async fn referred_to_by_a_glance(stage: &Stage) -> Result<()> {
    let scene = Scene::open(stage, "referred").await?;
    scene.topology("first", spread(sample())).await?;
    scene.topology("alt", spread(sample())).await?;
    scene.glance(single(), named("first")).await?;
    scene.wait_for_field(SINGLE, "/status/lastAppliedTopology", applied("first", "referred")).await?;
    scene.wait_for_condition(SINGLE, "TopologyReady", completed()).await?;
    scene.wait_for_field("topology/first", "/metadata/finalizers", api_finalizers(&["default"])).await?;
    let both = [("Glance", "glance"), ("GlanceAPI", "glance-default-single")];
    scene.wait_for_field("topology/first", "/status/usedBy", users(&both)).await?;
    wait_until_placed(&scene, SET, default_affinity(), sample()).await?;
    scene.wait_for_condition(SINGLE, "Ready", json!(["True", "Ready", "Setup complete"])).await?;

    scene.glance(single(), named("alt")).await?;
    scene.wait_for_field(SINGLE, "/status/lastAppliedTopology", applied("alt", "referred")).await?;
    scene.wait_for_field("topology/alt", "/metadata/finalizers", api_finalizers(&["default"])).await?;
    scene.wait_for_field("topology/first", "/metadata/finalizers", Value::Null).await?;
    scene.wait_for_field("topology/first", "/status/usedBy", json!([])).await?;

    scene.glance(single(), Value::Null).await?;
    scene.wait_for_field(SINGLE, "/status/lastAppliedTopology", Value::Null).await?;
    scene.wait_for_condition(SINGLE, "TopologyReady", Value::Null).await?;
    wait_until_placed(&scene, SET, default_affinity(), Value::Null).await?;
    for topology in ["topology/first", "topology/alt"] {
        scene.wait_for_field(topology, "/metadata/finalizers", Value::Null).await?;
    }
    Ok(())
}

/// An API's own reference wins; one without a name opts out.
async fn overridden_by_an_api(stage: &Stage) -> Result<()> {
    let scene = Scene::open(stage, "overridden").await?;
    let own = json!([{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"service": "glance"}}}]);
    scene.topology("t0", spread(sample())).await?;
    scene.topology("t1", spread(own.clone())).await?;
    let api = |reference: Value| json!({"default": {"type": "single", "replicas": 1, "topologyRef": reference}});
    scene.glance(api(named("t1")), named("t0")).await?;
    scene.wait_for_field(SINGLE, "/status/lastAppliedTopology", applied("t1", "overridden")).await?;
    wait_until_placed(&scene, SET, default_affinity(), own).await?;
    scene.wait_for_field("topology/t1", "/metadata/finalizers", api_finalizers(&["default"])).await?;
    scene.wait_for_field("topology/t0", "/metadata/finalizers", Value::Null).await?;
    scene.wait_for_field("topology/t1", "/status/usedBy", users(&[("GlanceAPI", "glance-default-single")])).await?;

    scene.glance(api(json!({})), named("t0")).await?;
    scene.wait_for_field(SINGLE, "/status/lastAppliedTopology", Value::Null).await?;
    scene.wait_for_condition(SINGLE, "TopologyReady", Value::Null).await?;
    wait_until_placed(&scene, SET, default_affinity(), Value::Null).await?;
    scene.wait_for_field("topology/t1", "/metadata/finalizers", Value::Null).await
}

/// A Topology has to be in the same namespace; a reference to another one is rejected.
async fn in_another_namespace(stage: &Stage) -> Result<()> {
    let scene = Scene::open(stage, "elsewhere").await?;
    let foreign = json!({"name": "t", "namespace": "default"});
    let api = json!({"default": {"type": "single", "replicas": 1, "topologyRef": foreign}});
    let glance = |apis: Value, reference: Value| json!({"spec": glance_spec(apis, reference)});
    let section = |template: Value| json!({"enabled": true, "template": template});
    let plane = |reference: Value, template: Value| {
        let mut spec = json!({"secret": "osp-secret", "glance": section(template)});
        if !reference.is_null() {
            spec["topologyRef"] = reference;
        }
        json!({"spec": spec})
    };
    let (g, p) = ("glance.openstack.org/v1beta1", "core.openstack.org/v1beta1");
    for (version, kind, rest, field) in [
        (g, "Glance", glance(single(), foreign.clone()), "spec.topologyRef"),
        (g, "Glance", glance(api.clone(), Value::Null), "spec.glanceAPIs[default].topologyRef"),
        (p, "OpenStackControlPlane", plane(foreign.clone(), json!({"glanceAPIs": single()})), "spec.topologyRef"),
        (
            p,
            "OpenStackControlPlane",
            plane(Value::Null, json!({"glanceAPIs": single(), "topologyRef": foreign})),
            "spec.glance.template.topologyRef",
        ),
        (
            p,
            "OpenStackControlPlane",
            plane(Value::Null, json!({"glanceAPIs": api})),
            "spec.glance.template.glanceAPIs[default].topologyRef",
        ),
    ] {
        let (code, output) = scene.try_to_apply(version, kind, "refused", rest).await?;
        let expected =
            format!("{field}.namespace: Invalid value: \"default\": Customizing namespace field is not supported");
        ensure!(code == Some(1) && output.contains(&expected), "{kind} {field}: {code:?} {output}");
    }
    Ok(())
}

fn plane(reference: Option<&str>, template_reference: Option<&str>) -> Value {
    let mut template = json!({"databaseInstance": "openstack", "glanceAPIs": single()});
    if let Some(name) = template_reference {
        template["topologyRef"] = named(name);
    }
    let mut spec = json!({"secret": "osp-secret", "glance": {"enabled": true, "template": template}});
    if let Some(name) = reference {
        spec["topologyRef"] = named(name);
    }
    spec
}

/// A control plane refers to a missing Topology: nothing is created until it exists.
async fn missing_for_a_control_plane(stage: &Stage) -> Result<()> {
    let scene = Scene::open(stage, "plane-missing").await?;
    scene.control_plane(plane(Some("late"), None)).await?;
    scene.wait_for_condition("oscp/plane", "TopologyReady", not_found("late")).await?;
    scene.wait_for_condition("oscp/plane", "Ready", not_found("late")).await?;
    ensure!(scene.get("glance/glance").await?.is_none(), "a Glance was created anyway");
    scene.topology("late", spread(sample())).await?;
    scene.wait_for_condition("oscp/plane", "TopologyReady", completed()).await?;
    scene.wait_for_field("glance/glance", "/spec/topologyRef", applied("late", "plane-missing")).await?;
    wait_until_placed(&scene, SET, default_affinity(), sample()).await
}

/// A control plane's reference is passed on to the Glance; the template's own reference wins; without either there is
/// none.
async fn passed_on_by_a_control_plane(stage: &Stage) -> Result<()> {
    let scene = Scene::open(stage, "plane").await?;
    for name in ["first", "alt", "own"] {
        scene.topology(name, spread(sample())).await?;
    }
    scene.control_plane(plane(Some("first"), None)).await?;
    scene.wait_for_field("glance/glance", "/spec/topologyRef", applied("first", "plane")).await?;
    let all = [("OpenStackControlPlane", "plane"), ("Glance", "glance"), ("GlanceAPI", "glance-default-single")];
    scene.wait_for_field("topology/first", "/status/usedBy", users(&all)).await?;
    scene.wait_for_condition("oscp/plane", "TopologyReady", completed()).await?;

    scene.control_plane(plane(Some("alt"), None)).await?;
    scene.wait_for_field("glance/glance", "/spec/topologyRef", applied("alt", "plane")).await?;
    scene.wait_for_field(SINGLE, "/status/lastAppliedTopology", applied("alt", "plane")).await?;

    scene.control_plane(plane(Some("alt"), Some("own"))).await?;
    scene.wait_for_field("glance/glance", "/spec/topologyRef", named("own")).await?;
    scene.wait_for_field(SINGLE, "/status/lastAppliedTopology", applied("own", "plane")).await?;
    scene.wait_for_field("topology/alt", "/metadata/finalizers", Value::Null).await?;

    scene.control_plane(plane(None, None)).await?;
    scene.wait_for_field("glance/glance", "/spec/topologyRef", Value::Null).await?;
    scene.wait_for_field(SINGLE, "/status/lastAppliedTopology", Value::Null).await?;
    scene.wait_for_condition("oscp/plane", "TopologyReady", Value::Null).await?;
    wait_until_placed(&scene, SET, default_affinity(), Value::Null).await?;
    scene.wait_for_field("topology/own", "/metadata/finalizers", Value::Null).await
}

/// A GlanceAPI waits for a Topology and reports it; its Glance too. When the Topology exists, both continue.
async fn missing_then_created(stage: &Stage) -> Result<()> {
    let scene = Scene::open(stage, "missing").await?;
    scene.glance(single(), named("late")).await?;
    scene.wait_for_condition(SINGLE, "TopologyReady", not_found("late")).await?;
    scene.wait_for_condition(SINGLE, "Ready", not_found("late")).await?;
    scene.wait_for_condition("glance/glance", "GlanceAPIReady", not_found("late")).await?;
    scene.wait_for_field(SINGLE, "/status/lastAppliedTopology", Value::Null).await?;
    ensure!(scene.get(SET).await?.is_none(), "a StatefulSet was created anyway");
    scene.topology("late", json!({"affinity": in_zone_a()})).await?;
    scene.wait_for_condition(SINGLE, "TopologyReady", completed()).await?;
    scene.wait_for_field("topology/late", "/metadata/finalizers", api_finalizers(&["default"])).await?;
    wait_until_placed(&scene, SET, in_zone_a(), Value::Null).await?;
    scene.wait_for_condition("glance/glance", "Ready", json!(["True", "Ready", "Setup complete"])).await
}

/// A Topology changes: the pod template follows, with the workload's labels as selector if none is set.
async fn edited(stage: &Stage) -> Result<()> {
    let scene = Scene::open(stage, "edited").await?;
    let bare = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]);
    let own = json!({"matchLabels": {
        "component": "glance-api",
        "glanceAPI": "glance-default-single",
        "owner": "glance-default-single",
        "service": "glance",
    }});
    let mut selected = bare.clone();
    selected[0]["labelSelector"] = own;
    scene.topology("t", spread(bare)).await?;
    scene.glance(single(), named("t")).await?;
    wait_until_placed(&scene, SET, default_affinity(), selected).await?;
    scene.wait_for_field("topology/t", "/spec/topologySpreadConstraints/0/labelSelector", Value::Null).await?;

    scene.topology("t", spread(sample())).await?;
    wait_until_placed(&scene, SET, default_affinity(), sample()).await?;

    let both = json!({"affinity": in_zone_a(), "topologySpreadConstraints": sample()});
    scene.topology("t", both).await?;
    wait_until_placed(&scene, SET, in_zone_a(), sample()).await?;

    // The spread is removed from the Topology, and so from the pods.
    scene.topology("t", json!({"affinity": in_zone_a()})).await?;
    wait_until_placed(&scene, SET, in_zone_a(), Value::Null).await?;
    scene.wait_for_field("topology/t", "/metadata/finalizers", api_finalizers(&["default"])).await
}

/// A deleted Topology stays while it is used, reports its users, and accepts no new ones.
async fn deleted_while_in_use(stage: &Stage) -> Result<()> {
    let scene = Scene::open(stage, "deleted").await?;
    scene.topology("t", spread(sample())).await?;
    scene.glance(single(), named("t")).await?;
    scene.wait_for_field("topology/t", "/metadata/finalizers", api_finalizers(&["default"])).await?;
    wait_until_placed(&scene, SET, default_affinity(), sample()).await?;
    scene.delete("topology/t").await?;
    let since =
        scene.get("topology/t").await?.context("the Topology is gone")?["metadata"]["deletionTimestamp"].clone();
    let since = since.as_str().context("it is not being deleted")?;
    let message = format!(
        "it was deleted at {since} and is kept until nobody uses it any more; it is used by Glance API default \
         (finalizer openstack.org/glanceapi-default)"
    );
    scene.wait_for_condition("topology/t", "Terminating", json!(["True", "BeingDeleted", message])).await?;
    scene.wait_for_condition(SINGLE, "TopologyReady", completed()).await?;
    wait_until_placed(&scene, SET, default_affinity(), sample()).await?;

    let mut two = single();
    two["late"] = json!({"type": "edge", "replicas": 1});
    scene.glance(two, named("t")).await?;
    let message = "Topology config create error occurred Topology.topology.openstack.org \"t\" is invalid: \
                   metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, \
                   found new finalizers []string{\"openstack.org/glanceapi-late\"}";
    scene.wait_for_condition("glanceapi/glance-late-edge", "TopologyReady", json!(["False", "Error", message])).await?;
    scene.wait_for_field("topology/t", "/metadata/finalizers", api_finalizers(&["default"])).await?;

    scene.glance(single(), Value::Null).await?;
    scene.wait_until_deleted("topology/t").await?;
    scene.wait_until_deleted("glanceapi/glance-late-edge").await?;
    wait_until_placed(&scene, SET, default_affinity(), Value::Null).await
}

/// Two APIs use one Topology, each with its own finalizer; one API is deleted, then the Glance.
async fn used_by_two_apis(stage: &Stage) -> Result<()> {
    let scene = Scene::open(stage, "two").await?;
    scene.topology("t", spread(sample())).await?;
    let mut two = single();
    two["far"] = json!({"type": "edge", "replicas": 1});
    scene.glance(two, named("t")).await?;
    scene.wait_for_condition("glance/glance", "Ready", json!(["True", "Ready", "Setup complete"])).await?;
    let topology = scene.get("topology/t").await?.context("no Topology")?;
    let mut finalizers: Vec<&str> =
        topology["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    finalizers.sort_unstable();
    ensure!(json!(finalizers) == api_finalizers(&["default", "far"]), "finalizers {finalizers:?}");
    let all = [("Glance", "glance"), ("GlanceAPI", "glance-default-single"), ("GlanceAPI", "glance-far-edge")];
    scene.wait_for_field("topology/t", "/status/usedBy", users(&all)).await?;
    wait_until_placed(&scene, "sts/glance-far-edge-api", default_affinity(), sample()).await?;

    scene.glance(single(), named("t")).await?;
    scene.wait_until_deleted("glanceapi/glance-far-edge").await?;
    scene.wait_until_deleted("sts/glance-far-edge-api").await?;
    scene.wait_for_field("topology/t", "/metadata/finalizers", api_finalizers(&["default"])).await?;
    scene.wait_for_field("topology/t", "/status/usedBy", users(&all[..2])).await?;

    scene.delete("glance/glance").await?;
    scene.wait_until_deleted("glance/glance").await?;
    scene.wait_until_deleted(SINGLE).await?;
    scene.wait_until_deleted(SET).await?;
    scene.wait_for_field("topology/t", "/metadata/finalizers", Value::Null).await?;
    scene.wait_for_field("topology/t", "/status/usedBy", json!([])).await
}

/// Both parts of a split API share one finalizer on a Topology, which stays until both have released it.
async fn held_by_both_parts_of_an_api(stage: &Stage) -> Result<()> {
    let scene = Scene::open(stage, "split").await?;
    scene.topology("t", spread(sample())).await?;
    let split = json!({"default": {"type": "split", "replicas": 1,
        "customServiceConfig": "[DEFAULT]\nenabled_backends = default_backend:swift\n"}});
    scene.glance(split.clone(), named("t")).await?;
    let parts = ["external", "internal"];
    for part in parts {
        let api = format!("glanceapi/glance-default-{part}");
        scene.wait_for_field(&api, "/status/lastAppliedTopology", applied("t", "split")).await?;
        wait_until_placed(&scene, &format!("sts/glance-default-{part}-api"), default_affinity(), sample()).await?;
    }
    scene.wait_for_field("topology/t", "/metadata/finalizers", api_finalizers(&["default"])).await?;
    let all =
        [("Glance", "glance"), ("GlanceAPI", "glance-default-external"), ("GlanceAPI", "glance-default-internal")];
    scene.wait_for_field("topology/t", "/status/usedBy", users(&all)).await?;
    scene.glance(split, Value::Null).await?;
    scene.wait_for_field("topology/t", "/metadata/finalizers", Value::Null).await?;
    for part in parts {
        scene
            .wait_for_field(&format!("glanceapi/glance-default-{part}"), "/status/lastAppliedTopology", Value::Null)
            .await?;
    }
    Ok(())
}

/// A namespace is deleted with everything in it: nothing blocks it.
async fn namespace_deleted(stage: &Stage) -> Result<()> {
    let scene = Scene::open(stage, "doomed").await?;
    scene.topology("t", spread(sample())).await?;
    scene.control_plane(plane(Some("t"), None)).await?;
    scene.wait_for_field("topology/t", "/metadata/finalizers", api_finalizers(&["default"])).await?;
    stage.kubectl(&["delete", "namespace", "doomed", "--timeout=180s"]).await.map(drop)
}
