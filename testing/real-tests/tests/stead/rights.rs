//! The operator's permissions on the real control plane: it runs with the token of its ServiceAccount, is made to do
//! everything it can do, and the audit log has to show exactly the requests that its roles grant.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use stead_manifests::rights::{NAMESPACED, OWN_NAMESPACE, OperatorRight, cluster_wide};
use stead_stage::{Objects, Stage, audit_log, walk};
use stead_testbed::{AuditEvent, Binaries, ClusterSpec, FaultProxy, Faults, Options};

const STORAGE: &str = include_str!("../../../../testdata/cluster/storage.yaml");

/// The operator's namespace in this test, and its user name.
const OWN: &str = "default";
const USER: &str = "system:serviceaccount:default:stead-operator";

/// A permission: where it applies, group, resource with subresource, verb.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Permission {
    own_namespace: bool,
    group: String,
    resource: String,
    verb: String,
}

impl Permission {
    fn new(own_namespace: bool, group: &str, resource: &str, verb: &str) -> Permission {
        let [group, resource, verb] = [group, resource, verb].map(str::to_owned);
        Permission { own_namespace, group, resource, verb }
    }
}

/// Permissions that do not appear in the audit log because they are checked for other requests. Each with an object
/// that cannot be created without it, and the resource that is refused then.
const UNTRACED: [(&str, &str, &str, &str, &str); 4] = [
    ("core.openstack.org", "openstackcontrolplanes/finalizers", "update", "OpenStackControlPlane", "glances"),
    ("glance.openstack.org", "glances/finalizers", "update", "Glance", "serviceaccounts"),
    ("glance.openstack.org", "glanceapis/finalizers", "update", "Glance", "services"),
    ("security.openshift.io", "securitycontextconstraints", "use", "Glance", "roles"),
];

/// Opens a stage with an audit log, on which owner references need the permission to update finalizers. None if the
/// control plane is not available.
async fn audited_stage(stead: &Path) -> Result<Option<Stage>> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(None) };
    let admission = vec!["OwnerReferencesPermissionEnforcement".to_owned()];
    let options = Options { audit: true, admission, ..Options::default() };
    let stage = Stage::open(&binaries, stead, options, ClusterSpec::seven()).await?;
    stage.kubectl_with(&["apply", "-f", "-"], STORAGE).await?;
    stage.kubectl_with(&["apply", "-f", "-"], &network_definition().to_string()).await?;
    stage.install_definitions().await?;
    stage.wait_for_garbage_collector().await?;
    Ok(Some(stage))
}

#[tokio::test(flavor = "multi_thread")]
async fn granted_rights_are_exactly_the_used_ones() -> Result<()> {
    let stead = crate::stead()?;
    let Some(stage) = audited_stage(&stead).await? else { return Ok(()) };
    let roles = install_rights(&stage, &[]).await?;
    wait_until_allowed(&stage, &first(NAMESPACED, false), "", true).await?;

    // Conflicts make the operator read objects again.
    let proxy = FaultProxy::start(&stage.plane, 1).await?;
    proxy.set(Faults { conflict: 0.4, ..Faults::default() });
    let token = stage.plane.service_account_token(OWN, "stead-operator").await?;
    let kubeconfig = proxy.kubeconfig(stage.plane.folder(), USER, &token)?;
    let operator = stage.start_operator(&kubeconfig, &[]).await?;
    let expected = granted();
    let untraced: BTreeSet<Permission> = UNTRACED.iter().map(|(g, r, v, ..)| Permission::new(false, g, r, v)).collect();
    for round in 0..8 {
        let scene = |part: usize| create_and_play(&stage, format!("rights-{round}-{part}"));
        tokio::try_join!(scene(0), scene(1), scene(2))?;
        let used = used(&stage)?;
        if expected.difference(&untraced).all(|right| used.contains(right)) {
            break;
        }
    }
    let (found, refused) = (used(&stage)?, refusals(&stage)?);
    ensure!(refused.is_empty(), "refused:\n{}", refused.join("\n"));
    let unused: Vec<&Permission> = expected.difference(&untraced).filter(|right| !found.contains(right)).collect();
    ensure!(unused.is_empty(), "granted and never used: {unused:#?}");
    let beyond: Vec<&Permission> = found.difference(&expected).collect();
    ensure!(beyond.is_empty(), "used by another grant than the operator's own: {beyond:#?}");
    check_names_used(&stage)?;

    proxy.set(Faults::default());
    for (index, (group, resource, verb, kind, refused)) in UNTRACED.into_iter().enumerate() {
        check_without(&stage, &roles, (group, resource, verb), &format!("without-{index}"), kind, refused).await?;
    }
    operator.stop().await
}

/// In a namespace that it was installed for, Roles are enough for everything the operator does; in another one it does
/// nothing, and attempts no write.
#[tokio::test(flavor = "multi_thread")]
async fn with_named_namespaces_roles_are_enough() -> Result<()> {
    let stead = crate::stead()?;
    let Some(stage) = audited_stage(&stead).await? else { return Ok(()) };
    let outside = create_dependencies(&stage, "outside").await?;
    let objects = create_dependencies(&stage, "inside").await?;
    install_rights(&stage, &["--namespaces", "inside"]).await?;
    wait_until_allowed(&stage, &first(NAMESPACED, false), "inside", true).await?;
    let token = stage.plane.service_account_token(OWN, "stead-operator").await?;
    let kubeconfig = stage.plane.kubeconfig_for(USER, &token)?;
    let operator = stage.start_operator(&kubeconfig, &["--namespaces", "inside"]).await?;

    let glance = json!({"apiVersion": "glance.openstack.org/v1beta1", "kind": "Glance", "metadata": {"name": "glance"},
        "spec": glance_spec()});
    outside.apply(&glance).await?;
    play(&stage, &objects).await?;
    let left_alone = outside.list("Glance").await?;
    ensure!(left_alone.len() == 1 && left_alone[0]["status"].is_null(), "{left_alone:#?}");
    // Without the right to list all pods, no fix can be verified: only that is tried.
    let refused: BTreeSet<String> = refusals(&stage)?.into_iter().collect();
    ensure!(refused.iter().all(|r| r.starts_with("list /api/v1/pods?")), "{refused:#?}");
    operator.stop().await
}

fn first(rights: &[OperatorRight], own: bool) -> Permission {
    let right = &rights[0];
    Permission::new(own, right.group, right.resources[0], right.verbs[0])
}

/// Installs the operator's account, roles and bindings as `stead manifests` prints them; returns the ClusterRole.
async fn install_rights(stage: &Stage, flags: &[&str]) -> Result<Value> {
    let printed = [&["manifests", "--image=stead", "--only", "operator", "-n", OWN, "-o", "json"], flags].concat();
    let printed = stage.stead(&printed).await?;
    let printed: Value = serde_json::from_str(&printed)?;
    let all = printed["items"].as_array().cloned().unwrap_or_default();
    let kinds = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
    let wanted: Vec<Value> = all.into_iter().filter(|o| kinds.iter().any(|kind| o["kind"] == *kind)).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": wanted});
    stage.kubectl_with(&["apply", "-f", "-"], &list.to_string()).await?;
    // The API server uses a new binding a moment after it was created.
    wait_until_allowed(stage, &first(OWN_NAMESPACE, true), OWN, true).await?;
    let role = wanted.iter().find(|o| o["kind"] == "ClusterRole" && o["metadata"]["name"] == "stead-operator");
    Ok(role.cloned().unwrap_or_default())
}

/// Waits until the API server reports that the operator may do something, or may not. Another user asks, so that
/// nothing is refused to the operator.
async fn wait_until_allowed(stage: &Stage, right: &Permission, namespace: &str, expected: bool) -> Result<()> {
    let rights: Vec<&OperatorRight> =
        if right.own_namespace { OWN_NAMESPACE.iter().collect() } else { cluster_wide().collect() };
    let is = |r: &&OperatorRight| {
        r.group == right.group && r.resources.contains(&&*right.resource) && r.verbs.contains(&&*right.verb)
    };
    let name = rights.into_iter().find(is).and_then(|r| r.names.first());
    let (resource, part) = right.resource.split_once('/').unwrap_or((&right.resource, ""));
    let asked = json!({"namespace": namespace, "group": right.group, "resource": resource, "subresource": part,
                       "name": name, "verb": right.verb});
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                        "spec": {"user": USER, "resourceAttributes": asked}});
    let args = ["create", "-f", "-", "-o", "jsonpath={.status.allowed}"];
    stage
        .wait_until(&format!("{right:?}: {expected}"), PATIENCE, async || {
            Ok((stage.kubectl_with(&args, &review.to_string()).await?.trim() == "true") == expected)
        })
        .await
}

fn granted() -> BTreeSet<Permission> {
    let each = |own: bool, right: &OperatorRight| -> Vec<Permission> {
        let resources = right.resources.iter();
        resources.flat_map(|r| right.verbs.iter().map(move |v| Permission::new(own, right.group, r, v))).collect()
    };
    let cluster = cluster_wide().flat_map(|right| each(false, right));
    cluster.chain(OWN_NAMESPACE.iter().flat_map(|right| each(true, right))).collect()
}

/// Returns the permissions that the operator used. An apply that creates an object also counts as a creation.
fn used(stage: &Stage) -> Result<BTreeSet<Permission>> {
    let events = stage.plane.audit_events()?;
    let mut all = BTreeSet::new();
    for (event, object) in audit_log::requests(&events, USER) {
        let resource = match object.subresource.as_str() {
            "" => object.resource.clone(),
            part => format!("{}/{part}", object.resource),
        };
        let own = object.resource == "leases" && object.namespace == OWN;
        all.insert(Permission::new(own, &object.api_group, &resource, &event.verb));
        if event.verb == "patch" && event.code() == 201 {
            all.insert(Permission::new(own, &object.api_group, &resource, "create"));
        }
    }
    Ok(all)
}

fn refusals(stage: &Stage) -> Result<Vec<String>> {
    let refused = |event: &&AuditEvent| event.user() == USER && event.code() == 403;
    Ok(stage.plane.audit_events()?.iter().filter(refused).map(|e| format!("{} {}", e.verb, e.uri)).collect())
}

/// Checks that for permissions restricted to names, each name is used.
fn check_names_used(stage: &Stage) -> Result<()> {
    let events = stage.plane.audit_events()?;
    let traced = cluster_wide().chain(OWN_NAMESPACE).filter(|right| right.verbs != ["use"]);
    for right in traced {
        for name in right.names {
            let mut ours = audit_log::requests(&events, USER);
            let is =
                ours.any(|(_, o)| o.api_group == right.group && o.name == *name && right.resources[0] == o.resource);
            ensure!(is, "{} {name} is granted and never used", right.resources[0]);
        }
    }
    Ok(())
}

/// A foreign CRD, by which pods are attached to networks.
fn network_definition() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "network-attachment-definitions.k8s.cni.cncf.io"},
        "spec": {
            "group": "k8s.cni.cncf.io",
            "scope": "Namespaced",
            "names": {"kind": "NetworkAttachmentDefinition", "plural": "network-attachment-definitions",
                      "singular": "network-attachment-definition"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

const PATIENCE: Duration = Duration::from_secs(120);

/// Creates the objects that the control loops depend on, in a new namespace.
async fn create_dependencies(stage: &Stage, namespace: &str) -> Result<Objects> {
    walk::create_namespace(stage, namespace).await?;
    let objects = stage.objects(namespace);
    let passwords = json!({"GlancePassword": "12345678", "GlanceDatabasePassword": "12345678"});
    let nowhere = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
        [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["nowhere"]}]}]}}});
    let constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"});
    let topology = |name: &str, spec: Value| json!({"apiVersion": "topology.openstack.org/v1beta1", "kind": "Topology", "metadata": {"name": name}, "spec": spec});
    for object in [
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "osp-secret"}, "stringData": passwords}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "openstack"},
               "spec": {"ports": [{"name": "mysql", "port": 3306, "protocol": "TCP"}]}}),
        topology("nowhere", json!({"affinity": nowhere})),
        topology("spread", json!({"topologySpreadConstraints": [constraint]})),
    ] {
        objects.apply(&object).await?;
    }
    let network = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "storage", "namespace": namespace}, "spec": {"config": "{}"}});
    stage.kubectl_with(&["apply", "-f", "-"], &network.to_string()).await?;
    Ok(objects)
}

fn glance_spec() -> Value {
    json!({
        "databaseInstance": "openstack",
        "secret": "osp-secret",
        "keystoneEndpoint": "default",
        "storage": {"storageClass": "local-storage", "storageRequest": "1G"},
        "glanceAPIs": {
            "default": {"type": "single", "topologyRef": {"name": "spread"}, "networkAttachments": ["storage"]},
            "cached": {"type": "edge", "imageCache": {"size": "1G"}},
            "stuck": {"type": "edge", "topologyRef": {"name": "nowhere"}},
        },
    })
}

/// Makes the operator do everything it can do, from the creation of a control plane to its deletion.
async fn create_and_play(stage: &Stage, namespace: String) -> Result<()> {
    let objects = create_dependencies(stage, &namespace).await?;
    play(stage, &objects).await
}

/// Like `create_and_play`, in a namespace where the dependencies exist.
async fn play(stage: &Stage, objects: &Objects) -> Result<()> {
    let plane = json!({"apiVersion": "core.openstack.org/v1beta1", "kind": "OpenStackControlPlane",
        "metadata": {"name": "openstack"}, "spec": {"glance": {"template": glance_spec()}}});
    objects.apply(&plane).await?;
    let has_condition = async |api: &str, condition: &str, status: &str| -> Result<bool> {
        let apis = objects.list("GlanceAPI").await?;
        let Some(api) = apis.iter().find(|a| a["metadata"]["name"] == api) else { return Ok(false) };
        let conditions = api["status"]["conditions"].as_array().into_iter().flatten();
        let mut found = conditions.into_iter().filter(|c| c["type"] == condition);
        Ok(observed(api) && found.any(|c| c["status"] == status))
    };
    let count = async |kind: &str| -> Result<usize> { Ok(objects.list(kind).await?.len()) };
    stage
        .wait_until("two APIs are ready", PATIENCE, async || {
            Ok(has_condition("glance-default-single", "Ready", "True").await?
                && has_condition("glance-cached-edge", "Ready", "True").await?)
        })
        .await?;
    stage
        .wait_until("an API reports why its pod is Pending", PATIENCE, async || {
            has_condition("glance-stuck-edge", "PodsScheduled", "False").await
        })
        .await?;
    stage.wait_until("the cache is cleaned", PATIENCE, async || Ok(count("CronJob").await? == 3)).await?;
    let change = async |patch: Value| {
        let patch = json!({"spec": {"glance": {"template": patch}}});
        objects.merge("OpenStackControlPlane", "openstack", &patch).await
    };
    // External storage, no cache, another configuration, a missing Topology, one API less.
    change(json!({
        "customServiceConfig": "[DEFAULT]\ndebug = true\n",
        "glanceAPIs": {
            "default": {"storage": {"external": true}, "topologyRef": {"name": "missing"}},
            "cached": {"imageCache": {"size": ""}},
            "stuck": null,
        },
    }))
    .await?;
    stage
        .wait_until("the cache is not cleaned any more", PATIENCE, async || {
            Ok(count("CronJob").await? == 1 && count("GlanceAPI").await? == 2)
        })
        .await?;
    stage
        .wait_until("a Topology is missing", PATIENCE, async || {
            has_condition("glance-default-single", "TopologyReady", "False").await
        })
        .await?;
    change(json!({"glanceAPIs": {"default": {"topologyRef": {"name": "spread"}}}})).await?;
    stage
        .wait_until("all APIs are ready again", PATIENCE, async || {
            Ok(has_condition("glance-default-single", "Ready", "True").await?
                && has_condition("glance-cached-edge", "Ready", "True").await?)
        })
        .await?;
    let off = json!({"spec": {"glance": {"enabled": false}}});
    objects.merge("OpenStackControlPlane", "openstack", &off).await?;
    stage
        .wait_until("all objects are deleted", PATIENCE, async || {
            Ok(count("Glance").await? == 0 && count("GlanceAPI").await? == 0 && count("StatefulSet").await? == 0)
        })
        .await?;
    objects.delete("OpenStackControlPlane", "openstack").await
}

fn observed(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

/// Checks that without a permission that leaves no trace, a request is refused that the operator needs.
async fn check_without(
    stage: &Stage,
    role: &Value,
    (group, resource, verb): (&str, &str, &str),
    namespace: &str,
    kind: &str,
    refused: &str,
) -> Result<()> {
    let mut reduced = role.clone();
    for rule in reduced["rules"].as_array_mut().into_iter().flatten() {
        if rule["apiGroups"][0] == group && rule["verbs"][0] == verb {
            let resources = rule["resources"].as_array_mut();
            resources.into_iter().for_each(|all| all.retain(|r| r != resource));
        }
    }
    if let Some(rules) = reduced["rules"].as_array_mut() {
        rules.retain(|rule| rule["resources"].as_array().is_some_and(|all| !all.is_empty()));
    }
    ensure!(reduced != *role, "{resource} {verb} is not granted");
    stage.kubectl_with(&["replace", "-f", "-"], &reduced.to_string()).await?;
    wait_until_allowed(stage, &Permission::new(false, group, resource, verb), "", false).await?;
    let objects = create_dependencies(stage, namespace).await?;
    let (api_version, name, spec) = match kind {
        "Glance" => ("glance.openstack.org/v1beta1", "glance", glance_spec()),
        _ => ("core.openstack.org/v1beta1", "openstack", json!({"glance": {"template": glance_spec()}})),
    };
    let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
    objects.apply(&object).await?;
    let what = format!("without {verb} of {resource}, {refused} are refused");
    stage
        .wait_until(&what, PATIENCE, async || {
            let events = stage.plane.audit_events()?;
            let mut ours = audit_log::requests(&events, USER);
            Ok(ours.any(|(e, o)| o.namespace == namespace && o.resource == refused && e.code() == 403))
        })
        .await?;
    stage.kubectl_with(&["replace", "-f", "-"], &role.to_string()).await.map(drop)
}
