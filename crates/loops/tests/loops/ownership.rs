//! Objects that exist before a loop wants to create one of the same name.

use serde_json::{Value, json};
use stead_loops::{MANAGER, ObjectKey};

use crate::fake::Cluster;

/// A Glance with one API of one part, an image cache claim and all that it depends on.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.create(
        "Secret",
        json!({"apiVersion": "v1", "metadata": {"name": "osp-secret"},
            "stringData": {"GlancePassword": "a", "GlanceDatabasePassword": "b"}}),
    );
    cluster.create("Service", json!({"apiVersion": "v1", "metadata": {"name": "openstack"}}));
    cluster.create(
        "PersistentVolumeClaim",
        json!({"apiVersion": "v1", "metadata": {"name": "glance-cache-glance-default-single-0",
            "labels": {"owner": "glance-default-single"}, "annotations": {"image-cache": "true"}}}),
    );
    cluster
}

fn glance() -> Value {
    json!({"apiVersion": "glance.openstack.org/v1beta1", "metadata": {"name": "glance"},
        "spec": {"secret": "osp-secret", "databaseInstance": "openstack", "storage": {"storageRequest": "1G"},
            "imageCache": {"size": "1G"}, "glanceAPIs": {"default": {"type": "single", "replicas": 1}}}})
}

fn condition<'a>(cluster: &'a Cluster, owner: (&str, &str), kind: &str) -> &'a Value {
    let object = cluster.find(owner.0, owner.1).unwrap_or_else(|| panic!("{owner:?} is there"));
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().find(|c| c["type"] == kind).unwrap_or_else(|| panic!("{owner:?} has {kind}: {object:#}"))
}

/// A kind and name that a loop wants, the object that wants it, and the condition that reports a conflict.
const WANTED: &[(&str, &str, (&str, &str), &str)] = &[
    ("ServiceAccount", "glance-glance", ("Glance", "glance"), "ServiceAccountReady"),
    ("Role", "glance-glance-role", ("Glance", "glance"), "RoleReady"),
    ("RoleBinding", "glance-glance-rolebinding", ("Glance", "glance"), "RoleBindingReady"),
    ("Secret", "glance-config-data", ("Glance", "glance"), "ServiceConfigReady"),
    ("Secret", "glance-scripts", ("Glance", "glance"), "ServiceConfigReady"),
    ("Job", "glance-db-sync", ("Glance", "glance"), "DBSyncReady"),
    ("CronJob", "glance-db-purge", ("Glance", "glance"), "CronJobReady"),
    ("GlanceAPI", "glance-default-single", ("Glance", "glance"), "GlanceAPIReady"),
    ("Service", "glance-default-single", ("GlanceAPI", "glance-default-single"), "CreateServiceReady"),
    ("Service", "glance-default-internal", ("GlanceAPI", "glance-default-single"), "CreateServiceReady"),
    ("Secret", "glance-default-single-config-data", ("GlanceAPI", "glance-default-single"), "ServiceConfigReady"),
    ("StatefulSet", "glance-default-single", ("GlanceAPI", "glance-default-single"), "DeploymentReady"),
    ("CronJob", "glance-cache-glance-default-single-0-cleaner", ("GlanceAPI", "glance-default-single"), "CronJobReady"),
    ("Glance", "glance", ("OpenStackControlPlane", "plane"), "OpenStackControlPlaneGlanceReady"),
];

fn ask_for(cluster: &mut Cluster, owner: (&str, &str)) {
    if owner.0 == "OpenStackControlPlane" {
        let spec = json!({"secret": "osp-secret", "glance": {"template": glance()["spec"]}});
        let plane = json!({"apiVersion": "core.openstack.org/v1beta1", "metadata": {"name": owner.1}, "spec": spec});
        cluster.create("OpenStackControlPlane", plane);
    } else {
        cluster.create("Glance", glance());
    }
}

#[test]
fn objects_of_others_are_reported_and_not_adopted() {
    for (kind, name, owner, reports) in WANTED {
        let mut cluster = cluster();
        let own = json!({"apiVersion": "v1", "metadata": {"name": name}, "spec": {"mine": true}});
        cluster.create(kind, own);
        let uid = cluster.find(kind, name).expect("it is there")["metadata"]["uid"].clone();
        ask_for(&mut cluster, *owner);
        cluster.settle(&json!({}));

        let after = cluster.find(kind, name).unwrap_or_else(|| panic!("{kind} {name} was deleted"));
        assert_eq!(after["metadata"]["uid"], uid, "{kind} {name} was replaced");
        assert_eq!(after["spec"], json!({"mine": true}), "{kind} {name} was changed");
        assert!(after["metadata"]["ownerReferences"].is_null(), "{kind} {name} was adopted");
        let told = condition(&cluster, *owner, reports);
        assert_eq!((&told["status"], &told["reason"]), (&json!("False"), &json!("Error")), "{kind} {name}: {told}");
        let message = told["message"].as_str().unwrap_or_default();
        assert!(message.contains(&format!("{kind} case/{name} already exists")), "{message}");

        // As soon as the name is free, the loop creates its own.
        cluster.delete(&ObjectKey::new(kind, "case", name));
        cluster.settle(&json!({}));
        cluster.look_again(&ObjectKey::new(owner.0, "case", owner.1));
        cluster.settle(&json!({}));
        let after = cluster.find(kind, name).unwrap_or_else(|| panic!("{kind} {name} was not created"));
        assert_eq!(after["metadata"]["ownerReferences"][0]["kind"], owner.0, "{kind} {name}");
    }
}

#[test]
fn what_stead_applied_and_lost_its_owner_is_taken_again() {
    for (kind, name, owner, reports) in WANTED {
        let mut cluster = cluster();
        let orphan = json!({"apiVersion": "v1", "spec": {"old": true}, "metadata": {"name": name,
            "managedFields": [{"manager": MANAGER, "operation": "Apply"}]}});
        cluster.create(kind, orphan);
        ask_for(&mut cluster, *owner);
        cluster.settle(&json!({}));
        let Some(after) = cluster.find(kind, name) else { panic!("{kind} {name} is gone") };
        assert_eq!(after["metadata"]["ownerReferences"][0]["name"], owner.1, "{kind} {name}");
        assert!(after["spec"]["old"].is_null(), "{kind} {name}");
        assert_ne!(condition(&cluster, *owner, reports)["reason"], "Error", "{kind} {name}");
    }
}
