//! The steps of the walk-through, as a table.

use serde_json::{Value, json};

use super::{NamespaceSnapshot, Step, UserAction};

const PLANE: &str = "openstack";

fn object(api_version: &str, kind: &str, name: &str, rest: Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if let (Some(object), Value::Object(rest)) = (object.as_object_mut(), rest) {
        object.extend(rest);
    }
    object
}

/// Returns a Topology that keeps pods in one zone.
fn zone(name: &str, zone: &str) -> Value {
    let terms = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]);
    let required =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    object("topology.openstack.org/v1beta1", "Topology", name, json!({"spec": {"affinity": required}}))
}

/// Returns a Topology that spreads pods over the zones, if possible.
fn spread(name: &str, skew: u32) -> Value {
    let constraint = json!({"maxSkew": skew, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"});
    let spec = json!({"spec": {"topologySpreadConstraints": [constraint]}});
    object("topology.openstack.org/v1beta1", "Topology", name, spec)
}

/// Returns what a Glance depends on: the Secret with the passwords, and the Service of the database.
fn dependencies() -> [UserAction; 2] {
    let passwords = json!({"stringData": {"GlancePassword": "12345678", "GlanceDatabasePassword": "12345678"}});
    let port = json!({"spec": {"ports": [{"name": "mysql", "port": 3306, "protocol": "TCP"}]}});
    [
        UserAction::Apply(object("v1", "Secret", "osp-secret", passwords)),
        UserAction::Apply(object("v1", "Service", "openstack", port)),
    ]
}

/// Stores images in Ceph: a split API cannot store them in files.
const CEPH: &str =
    "[DEFAULT]\nenabled_backends = default_backend:rbd\n[glance_store]\ndefault_backend = default_backend\n";

/// Returns a control plane with one split API. Its cron schedules never run during a walk.
fn plane() -> Value {
    let template = json!({
        "databaseInstance": "openstack",
        "customServiceConfig": CEPH,
        "keystoneEndpoint": "default",
        "preserveJobs": true,
        "dbPurge": {"schedule": "0 0 29 2 *"},
        "storage": {"storageRequest": "1G"},
        "glanceAPIs": {"default": {"type": "split", "replicas": 1}},
    });
    let spec = json!({"secret": "osp-secret", "storageClass": "local-storage", "glance": {"template": template}});
    object("core.openstack.org/v1beta1", "OpenStackControlPlane", PLANE, json!({"spec": spec}))
}

/// Patches the template of the control plane's Glance.
fn template(patch: Value) -> UserAction {
    UserAction::Merge("OpenStackControlPlane", PLANE, json!({"spec": {"glance": {"template": patch}}}))
}

/// Patches the control plane's APIs.
fn apis(patch: Value) -> UserAction {
    template(json!({"glanceAPIs": patch}))
}

fn edge(topology: &str) -> Value {
    json!({"type": "edge", "replicas": 1, "topologyRef": {"name": topology}})
}

fn no_extra_check(_: &NamespaceSnapshot) -> bool {
    true
}

const EXTERNAL: &str = "glance-default-external-api";
const INTERNAL: &str = "glance-default-internal-api";
const A: &str = "glance-azone-edge-api";
const B: &str = "glance-bzone-edge-api";
const C: &str = "glance-czone-edge-api";

fn step(
    name: &'static str,
    actions: Vec<UserAction>,
    stateful_sets: &'static [(&'static str, i64, &'static str)],
) -> Step {
    Step { name, actions, stateful_sets, restarts: &[], extra_check: no_extra_check }
}

/// Returns the steps of the walk-through, in order.
pub fn steps() -> Vec<Step> {
    let mut first: Vec<UserAction> = dependencies().into();
    first.extend(
        [zone("zone-a", "zoneA"), zone("zone-b", "zoneB"), zone("zone-c", "zoneC"), spread("spread", 1)]
            .map(UserAction::Apply),
    );
    vec![
        Step {
            extra_check: |now| now.at("Topology", "spread", "/status/observedGeneration") == 1,
            ..step("Topologies", first, &[])
        },
        step(
            "a control plane with a split API",
            vec![UserAction::Apply(plane())],
            &[(EXTERNAL, 1, ""), (INTERNAL, 1, "")],
        ),
        step(
            "three edge APIs, each in its zone",
            vec![apis(json!({"azone": edge("zone-a"), "bzone": edge("zone-b"), "czone": edge("zone-c")}))],
            &[(A, 1, "zone-a"), (B, 1, "zone-b"), (C, 1, "zone-c"), (EXTERNAL, 1, ""), (INTERNAL, 1, "")],
        ),
        step(
            "a Topology for the whole control plane",
            vec![UserAction::Merge(
                "OpenStackControlPlane",
                PLANE,
                json!({"spec": {"topologyRef": {"name": "spread"}}}),
            )],
            &[(A, 1, "zone-a"), (B, 1, "zone-b"), (C, 1, "zone-c"), (EXTERNAL, 1, "spread"), (INTERNAL, 1, "spread")],
        ),
        step(
            "the split API scaled",
            vec![apis(json!({"default": {"replicas": 3}}))],
            &[(A, 1, "zone-a"), (B, 1, "zone-b"), (C, 1, "zone-c"), (EXTERNAL, 3, "spread"), (INTERNAL, 3, "spread")],
        ),
        step(
            "an edge API moves to another zone",
            vec![apis(json!({"azone": {"topologyRef": {"name": "zone-b"}}}))],
            &[(A, 1, "zone-b"), (B, 1, "zone-b"), (C, 1, "zone-c"), (EXTERNAL, 3, "spread"), (INTERNAL, 3, "spread")],
        ),
        step(
            "it moves back, and another API opts out",
            vec![apis(json!({"azone": {"topologyRef": {"name": "zone-a"}}, "bzone": {"topologyRef": {"name": null}}}))],
            &[(A, 1, "zone-a"), (B, 1, ""), (C, 1, "zone-c"), (EXTERNAL, 3, "spread"), (INTERNAL, 3, "spread")],
        ),
        Step {
            restarts: &[EXTERNAL, INTERNAL],
            extra_check: |now| now.at("StatefulSet", EXTERNAL, "/spec/volumeClaimTemplates").is_null(),
            ..step(
                "external storage",
                vec![apis(json!({"default": {"storage": {"external": true}}}))],
                &[(A, 1, "zone-a"), (B, 1, ""), (C, 1, "zone-c"), (EXTERNAL, 3, "spread"), (INTERNAL, 3, "spread")],
            )
        },
        Step {
            restarts: &[C],
            ..step(
                "an image cache",
                vec![apis(json!({"czone": {"imageCache":
                    {"size": "1G", "cleanerScheduler": "0 0 29 2 *", "prunerScheduler": "0 0 29 2 *"}}}))],
                &[(A, 1, "zone-a"), (B, 1, ""), (C, 1, "zone-c"), (EXTERNAL, 3, "spread"), (INTERNAL, 3, "spread")],
            )
        },
        Step {
            extra_check: |now| {
                let skew = "/spec/template/spec/topologySpreadConstraints/0/maxSkew";
                [EXTERNAL, INTERNAL].iter().all(|set| now.at("StatefulSet", set, skew) == 2)
            },
            ..step(
                "a Topology edited",
                vec![UserAction::Apply(spread("spread", 2))],
                &[(A, 1, "zone-a"), (B, 1, ""), (C, 1, "zone-c"), (EXTERNAL, 3, "spread"), (INTERNAL, 3, "spread")],
            )
        },
        Step {
            extra_check: |now| {
                let conditions = now.at("Topology", "zone-c", "/status/conditions").as_array();
                conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Terminating"))
            },
            ..step(
                "a Topology deleted while it is in use",
                vec![UserAction::Delete("Topology", "zone-c")],
                &[(A, 1, "zone-a"), (B, 1, ""), (C, 1, "zone-c"), (EXTERNAL, 3, "spread"), (INTERNAL, 3, "spread")],
            )
        },
        Step {
            extra_check: |now| now.get("Topology", "zone-c").is_none(),
            ..step(
                "its API refers to another Topology",
                vec![apis(json!({"czone": {"topologyRef": {"name": "spread"}}}))],
                &[(A, 1, "zone-a"), (B, 1, ""), (C, 1, "spread"), (EXTERNAL, 3, "spread"), (INTERNAL, 3, "spread")],
            )
        },
        Step {
            extra_check: |now| {
                let finalizers = now.at("Topology", "zone-a", "/metadata/finalizers").as_array();
                now.get("GlanceAPI", "glance-azone-edge").is_none() && finalizers.is_none_or(Vec::is_empty)
            },
            ..step(
                "an API removed",
                vec![apis(json!({"azone": null}))],
                &[(B, 1, ""), (C, 1, "spread"), (EXTERNAL, 3, "spread"), (INTERNAL, 3, "spread")],
            )
        },
        Step {
            restarts: &[B, C, EXTERNAL, INTERNAL],
            ..step(
                "a custom service configuration",
                vec![template(
                    json!({"customServiceConfig": format!("{CEPH}[oslo_concurrency]\ndisable_process_locking = true\n")}),
                )],
                &[(B, 1, ""), (C, 1, "spread"), (EXTERNAL, 3, "spread"), (INTERNAL, 3, "spread")],
            )
        },
        step(
            "an API without pods",
            vec![apis(json!({"bzone": {"replicas": 0}}))],
            &[(B, 0, ""), (C, 1, "spread"), (EXTERNAL, 3, "spread"), (INTERNAL, 3, "spread")],
        ),
        step(
            "the control plane's reference removed",
            vec![UserAction::Merge("OpenStackControlPlane", PLANE, json!({"spec": {"topologyRef": null}}))],
            &[(B, 0, ""), (C, 1, "spread"), (EXTERNAL, 3, ""), (INTERNAL, 3, "")],
        ),
        Step {
            restarts: &[B, C, EXTERNAL, INTERNAL],
            ..step(
                "another password",
                vec![UserAction::Merge("Secret", "osp-secret", json!({"stringData": {"GlancePassword": "87654321"}}))],
                &[(B, 0, ""), (C, 1, "spread"), (EXTERNAL, 3, ""), (INTERNAL, 3, "")],
            )
        },
    ]
}
