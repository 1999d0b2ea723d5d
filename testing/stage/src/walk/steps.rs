//! The steps of the walk, as a table.

use serde_json::{Value, json};

use super::{Act, Scene, Step};

const PLANE: &str = "openstack";

fn object(api_version: &str, kind: &str, name: &str, rest: Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if let (Some(object), Value::Object(rest)) = (object.as_object_mut(), rest) {
        object.extend(rest);
    }
    object
}

/// A Topology that keeps pods in one zone.
fn zone(name: &str, zone: &str) -> Value {
    let terms = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]);
    let required =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    object("topology.openstack.org/v1beta1", "Topology", name, json!({"spec": {"affinity": required}}))
}

/// A Topology that spreads pods over the zones, where that can be.
fn spread(name: &str, skew: u32) -> Value {
    let constraint = json!({"maxSkew": skew, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"});
    let spec = json!({"spec": {"topologySpreadConstraints": [constraint]}});
    object("topology.openstack.org/v1beta1", "Topology", name, spec)
}

/// What a Glance leans on: passwords, and a database's name.
fn neighbours() -> [Act; 2] {
    let passwords = json!({"stringData": {"GlancePassword": "12345678", "GlanceDatabasePassword": "12345678"}});
    let port = json!({"spec": {"ports": [{"name": "mysql", "port": 3306, "protocol": "TCP"}]}});
    [
        Act::Apply(object("v1", "Secret", "osp-secret", passwords)),
        Act::Apply(object("v1", "Service", "openstack", port)),
    ]
}

/// Images in Ceph: an API in two parts cannot keep them in files.
const CEPH: &str =
    "[DEFAULT]\nenabled_backends = default_backend:rbd\n[glance_store]\ndefault_backend = default_backend\n";

/// A control plane with one API in two parts. No schedule comes due in the time of a walk.
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

/// A change to the template of the control plane's Glance.
fn template(patch: Value) -> Act {
    Act::Merge("OpenStackControlPlane", PLANE, json!({"spec": {"glance": {"template": patch}}}))
}

/// A change to the control plane's APIs.
fn apis(patch: Value) -> Act {
    template(json!({"glanceAPIs": patch}))
}

fn edge(topology: &str) -> Value {
    json!({"type": "edge", "replicas": 1, "topologyRef": {"name": topology}})
}

fn no_more(_: &Scene) -> bool {
    true
}

const EXTERNAL: &str = "glance-default-external-api";
const INTERNAL: &str = "glance-default-internal-api";
const A: &str = "glance-azone-edge-api";
const B: &str = "glance-bzone-edge-api";
const C: &str = "glance-czone-edge-api";

fn step(name: &'static str, acts: Vec<Act>, sets: &'static [(&'static str, i64, &'static str)]) -> Step {
    Step { name, acts, sets, restarts: &[], and: no_more }
}

/// The walk.
pub fn steps() -> Vec<Step> {
    let mut first: Vec<Act> = neighbours().into();
    first.extend(
        [zone("zone-a", "zoneA"), zone("zone-b", "zoneB"), zone("zone-c", "zoneC"), spread("spread", 1)]
            .map(Act::Apply),
    );
    vec![
        Step {
            and: |scene| scene.at("Topology", "spread", "/status/observedGeneration") == 1,
            ..step("Topologies", first, &[])
        },
        step("a control plane with a split API", vec![Act::Apply(plane())], &[(EXTERNAL, 1, ""), (INTERNAL, 1, "")]),
        step(
            "three edge APIs, each in its zone",
            vec![apis(json!({"azone": edge("zone-a"), "bzone": edge("zone-b"), "czone": edge("zone-c")}))],
            &[(A, 1, "zone-a"), (B, 1, "zone-b"), (C, 1, "zone-c"), (EXTERNAL, 1, ""), (INTERNAL, 1, "")],
        ),
        step(
            "a Topology for the whole control plane",
            vec![Act::Merge("OpenStackControlPlane", PLANE, json!({"spec": {"topologyRef": {"name": "spread"}}}))],
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
            "it moves back, and another opts out",
            vec![apis(json!({"azone": {"topologyRef": {"name": "zone-a"}}, "bzone": {"topologyRef": {"name": null}}}))],
            &[(A, 1, "zone-a"), (B, 1, ""), (C, 1, "zone-c"), (EXTERNAL, 3, "spread"), (INTERNAL, 3, "spread")],
        ),
        Step {
            restarts: &[EXTERNAL, INTERNAL],
            and: |scene| scene.at("StatefulSet", EXTERNAL, "/spec/volumeClaimTemplates").is_null(),
            ..step(
                "storage outside of the cluster",
                vec![apis(json!({"default": {"storage": {"external": true}}}))],
                &[(A, 1, "zone-a"), (B, 1, ""), (C, 1, "zone-c"), (EXTERNAL, 3, "spread"), (INTERNAL, 3, "spread")],
            )
        },
        Step {
            restarts: &[C],
            ..step(
                "a cache of images",
                vec![apis(json!({"czone": {"imageCache":
                    {"size": "1G", "cleanerScheduler": "0 0 29 2 *", "prunerScheduler": "0 0 29 2 *"}}}))],
                &[(A, 1, "zone-a"), (B, 1, ""), (C, 1, "zone-c"), (EXTERNAL, 3, "spread"), (INTERNAL, 3, "spread")],
            )
        },
        Step {
            and: |scene| {
                let skew = "/spec/template/spec/topologySpreadConstraints/0/maxSkew";
                [EXTERNAL, INTERNAL].iter().all(|set| scene.at("StatefulSet", set, skew) == 2)
            },
            ..step(
                "a Topology edited",
                vec![Act::Apply(spread("spread", 2))],
                &[(A, 1, "zone-a"), (B, 1, ""), (C, 1, "zone-c"), (EXTERNAL, 3, "spread"), (INTERNAL, 3, "spread")],
            )
        },
        Step {
            and: |scene| {
                let conditions = scene.at("Topology", "zone-c", "/status/conditions").as_array();
                conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Terminating"))
            },
            ..step(
                "a Topology deleted while it is in use",
                vec![Act::Delete("Topology", "zone-c")],
                &[(A, 1, "zone-a"), (B, 1, ""), (C, 1, "zone-c"), (EXTERNAL, 3, "spread"), (INTERNAL, 3, "spread")],
            )
        },
        Step {
            and: |scene| scene.get("Topology", "zone-c").is_none(),
            ..step(
                "its user refers to another",
                vec![apis(json!({"czone": {"topologyRef": {"name": "spread"}}}))],
                &[(A, 1, "zone-a"), (B, 1, ""), (C, 1, "spread"), (EXTERNAL, 3, "spread"), (INTERNAL, 3, "spread")],
            )
        },
        Step {
            and: |scene| {
                let finalizers = scene.at("Topology", "zone-a", "/metadata/finalizers").as_array();
                scene.get("GlanceAPI", "glance-azone-edge").is_none() && finalizers.is_none_or(Vec::is_empty)
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
                "configuration of one's own",
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
            vec![Act::Merge("OpenStackControlPlane", PLANE, json!({"spec": {"topologyRef": null}}))],
            &[(B, 0, ""), (C, 1, "spread"), (EXTERNAL, 3, ""), (INTERNAL, 3, "")],
        ),
        Step {
            restarts: &[B, C, EXTERNAL, INTERNAL],
            ..step(
                "another password",
                vec![Act::Merge("Secret", "osp-secret", json!({"stringData": {"GlancePassword": "87654321"}}))],
                &[(B, 0, ""), (C, 1, "spread"), (EXTERNAL, 3, ""), (INTERNAL, 3, "")],
            )
        },
    ]
}
