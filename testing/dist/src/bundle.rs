//! The bundle for the Operator Lifecycle Manager: one ClusterServiceVersion, what it owns, and annotations.
//!
//! The bundle has only the CRD of NodeRecoveries. The CRDs of the OpenStack resources belong to the OpenStack operators in
//! clusters that have them, and OLM would take them over; so the operator of the bundle is a companion of those operators.
//! In a cluster without them, an administrator applies `stead manifests --only crds`.

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use stead_manifests::{Manifest, Options, manifests, recover_manifests};

use crate::archive::ArchiveFile;
use crate::release::{Release, SUMMARY, VERSION};

/// The OpenShift versions that the bundle is offered on: Kubernetes 1.29 to 1.34.
const OPENSHIFT: &str = "v4.16-v4.21";

/// The image if none will be published. No registry has it.
const NO_IMAGE: &str = "registry.invalid/stead";

const ICON: &str = include_str!("../icon.svg");

const DESCRIPTION: &str = "\
Stead explains why stateful workloads are stuck: pods that are Pending, Terminating or ContainerCreating, unreachable nodes,
held volumes. Fixes are verified with kube-scheduler's own rules before they are offered.

The operator works beside the OpenStack operators: it reports whether nodes can satisfy each Topology, and why pods of
Glance are Pending. It never changes resources whose CRD belongs to the OpenStack operators. To run Glance without them, an
administrator applies the CRDs that `stead manifests --only crds` prints.

The operator needs no webhook and no certificate, and connects only to the API server of its cluster.
";

/// The files of the bundle.
pub(crate) fn files(release: &Release) -> Result<Vec<ArchiveFile>> {
    let image = release.image().unwrap_or_else(|| format!("{NO_IMAGE}:{VERSION}"));
    let options = Options { image: image.clone(), ..Options::default() };
    let installed = manifests(&options);
    let mut files = vec![
        yaml("manifests/stead.clusterserviceversion.yaml", &service_version(release, &image, &installed)?)?,
        yaml("metadata/annotations.yaml", &annotations())?,
    ];
    // OLM creates the rest from the ClusterServiceVersion. It chooses the namespace.
    let beside = |manifest: &&Manifest| {
        ["Service", "PodDisruptionBudget"].contains(&manifest.kind()) || ["stead-view"].contains(&manifest.name())
    };
    let recover = recover_manifests();
    for manifest in installed.iter().filter(beside).chain(recover.iter().filter(|m| m.is_definition())) {
        let mut object = manifest.object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
        let name = format!("manifests/{}.{}.yaml", manifest.name(), manifest.kind().to_lowercase());
        files.push(yaml(&name, &object)?);
    }
    Ok(files)
}

fn yaml(path: &str, value: &Value) -> Result<ArchiveFile> {
    Ok(ArchiveFile::new(path, serde_saphyr::to_string(value)?))
}

fn annotations() -> Value {
    json!({"annotations": {
        "operators.operatorframework.io.bundle.mediatype.v1": "registry+v1",
        "operators.operatorframework.io.bundle.manifests.v1": "manifests/",
        "operators.operatorframework.io.bundle.metadata.v1": "metadata/",
        "operators.operatorframework.io.bundle.package.v1": "stead",
        "operators.operatorframework.io.bundle.channels.v1": "alpha",
        "operators.operatorframework.io.bundle.channel.default.v1": "alpha",
        "com.redhat.openshift.versions": OPENSHIFT,
    }})
}

fn service_version(release: &Release, image: &str, installed: &[Manifest]) -> Result<Value> {
    let find = |kind: &str, name: &str| {
        let found = installed.iter().find(|manifest| manifest.kind() == kind && manifest.name() == name);
        Ok::<_, anyhow::Error>(&found.with_context(|| format!("{kind} {name} is missing"))?.object)
    };
    let deployment = find("Deployment", "stead-operator")?;
    let permissions = |kind: &str| {
        let role = find(kind, "stead-operator")?;
        Ok::<_, anyhow::Error>(json!([{"serviceAccountName": "stead-operator", "rules": role["rules"]}]))
    };
    let mut version = json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": format!("stead.v{VERSION}"),
            "namespace": "placeholder",
            "annotations": service_annotations(release, image)?,
        },
        "spec": {
            "displayName": "Stead",
            "description": DESCRIPTION,
            "version": VERSION,
            "maturity": "alpha",
            "minKubeVersion": "1.29.0",
            "provider": {"name": "The Stead authors"},
            "keywords": ["scheduling", "storage", "openstack"],
            "icon": [{"base64data": STANDARD.encode(ICON), "mediatype": "image/svg+xml"}],
            "installModes": [
                {"type": "OwnNamespace", "supported": false},
                {"type": "SingleNamespace", "supported": false},
                {"type": "MultiNamespace", "supported": false},
                {"type": "AllNamespaces", "supported": true},
            ],
            "install": {
                "strategy": "deployment",
                "spec": {
                    "deployments": [{
                        "name": "stead-operator",
                        "label": deployment["metadata"]["labels"],
                        "spec": deployment["spec"],
                    }],
                    "permissions": permissions("Role")?,
                    "clusterPermissions": permissions("ClusterRole")?,
                },
            },
            "customresourcedefinitions": {"owned": [{
                "name": "noderecoveries.stead.dev",
                "kind": "NodeRecovery",
                "version": "v1alpha1",
                "displayName": "Node recovery",
                "description": "The record of the recovery of a dead node, written by `stead recover`.",
            }]},
            "relatedImages": [{"name": "stead", "image": image}],
        },
    });
    if let Some(homepage) = &release.homepage {
        version["spec"]["provider"]["url"] = homepage.as_str().into();
        version["spec"]["links"] = json!([{"name": "Homepage", "url": homepage}]);
    }
    Ok(version)
}

fn service_annotations(release: &Release, image: &str) -> Result<Value> {
    let example = json!([{
        "apiVersion": "stead.dev/v1alpha1",
        "kind": "NodeRecovery",
        "metadata": {"name": "worker-0"},
        "spec": {
            "node": {
                "name": "worker-0",
                "uid": "5a2f3bfe-5d27-4a3c-9a2b-7e0f6d1c9b11",
                "bootID": "0c9f5f5e-3d52-4b7e-8a2e-2f8f1f0d6a55",
            },
            "evidence": [{"kind": "Person", "by": "operator@example.com", "at": release.created()}],
            "plan": {"pods": []},
        },
    }]);
    let mut annotations = json!({
        "alm-examples": serde_json::to_string_pretty(&example)?,
        "capabilities": "Basic Install",
        "categories": "Storage, OpenShift Optional",
        "certified": "false",
        "containerImage": image,
        "createdAt": release.created(),
        "description": SUMMARY,
        "support": "The Stead authors",
        "operatorframework.io/suggested-namespace": "stead-system",
    });
    for (feature, value) in [
        ("disconnected", "true"),
        ("fips-compliant", "false"),
        ("proxy-aware", "false"),
        ("tls-profiles", "false"),
        ("token-auth-aws", "false"),
        ("token-auth-azure", "false"),
        ("token-auth-gcp", "false"),
    ] {
        annotations[format!("features.operators.openshift.io/{feature}")] = value.into();
    }
    Ok(annotations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundle_owns_no_openstack_resource() {
        let release = Release {
            root: std::path::PathBuf::new(),
            commit: String::new(),
            time: jiff::Timestamp::UNIX_EPOCH,
            repository: Some("registry.example/stead".to_owned()),
            base_url: String::new(),
            homepage: None,
        };
        let files = files(&release).expect("a bundle");
        let text = |name: &str| {
            let file = files.iter().find(|file| file.path == name).expect("a file of the bundle");
            String::from_utf8(file.content.clone()).expect("text")
        };
        for file in files.iter().filter(|file| file.path.contains("customresourcedefinition")) {
            assert_eq!(file.path, "manifests/noderecoveries.stead.dev.customresourcedefinition.yaml");
        }
        let version = text("manifests/stead.clusterserviceversion.yaml");
        assert!(version.contains(&format!("image: registry.example/stead:{VERSION}")), "{version}");
        assert!(text("metadata/annotations.yaml").contains("v4.16-v4.21"));
        // The release has no homepage, and the project has no mail address.
        assert!(!version.contains("://") && !version.contains("@stead"), "{version}");
    }
}
