//! stead install and uninstall on a real control plane.

use std::process::Command;

use anyhow::{Context, Result};
use stead_testbed::{Binaries, ControlPlane, Options};

/// The result of a command.
struct CommandOutput {
    out: String,
    err: String,
    code: Option<i32>,
}

fn stead(plane: &ControlPlane, args: &[&str]) -> Result<CommandOutput> {
    let output = Command::new(crate::stead()?)
        .args(args)
        .args((args[0] == "install").then_some("--image=registry.test/stead:1"))
        .arg("--kubeconfig")
        .arg(plane.kubeconfig())
        .stdin(std::process::Stdio::null())
        .output()
        .context("running stead")?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(CommandOutput { out: text(output.stdout), err: text(output.stderr), code: output.status.code() })
}

const OBJECTS: &str = r#"
{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "topology.openstack.org/v1beta1", "kind": "Topology",
   "metadata": {"name": "t", "finalizers": ["openstack.org/glanceapi-default"]}},
  {"apiVersion": "core.openstack.org/v1beta1", "kind": "OpenStackControlPlane",
   "metadata": {"name": "p", "finalizers": ["openstack.org/openstackcontrolplane"]}, "spec": {}},
  {"apiVersion": "glance.openstack.org/v1beta1", "kind": "Glance",
   "metadata": {"name": "glance", "finalizers": ["openstack.org/glance"]},
   "spec": {"glanceAPIs": {"default": {"type": "single"}}}},
  {"apiVersion": "glance.openstack.org/v1beta1", "kind": "GlanceAPI",
   "metadata": {"name": "glance-default-single", "finalizers": ["openstack.org/glanceapi"]}, "spec": {}},
  {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
   "metadata": {"name": "glance-0", "labels": {"service": "glance"}},
   "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1G"}}}}
]}"#;

const FOREIGN: &str = r#"
{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
 "metadata": {"name": "topologies.topology.openstack.org"},
 "spec": {
   "group": "topology.openstack.org", "scope": "Namespaced",
   "names": {"kind": "Topology", "plural": "topologies"},
   "versions": [{"name": "v1beta1", "served": true, "storage": true,
     "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}"#;

/// Returns the names of Stead's objects in the cluster.
async fn stead_objects(plane: &ControlPlane) -> Result<Vec<String>> {
    let kinds = "crd,clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding,ns";
    let names = plane.kubectl(&["get", kinds, "-o", "name"]).await?.ok()?;
    let ours = |name: &&str| name.contains("stead") || name.contains("openstack.org");
    Ok(names.lines().filter(ours).map(str::to_owned).collect())
}

/// Returns the resourceVersions of all installed objects: they change only with a write.
async fn revisions(plane: &ControlPlane) -> Result<String> {
    let kinds = "crd,clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding,ns";
    let form = "jsonpath={range .items[*]}{.metadata.name} {.metadata.resourceVersion}{\"\\n\"}{end}";
    plane.kubectl(&["get", kinds, "-l", "app.kubernetes.io/part-of=stead", "-o", form]).await?.ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn install_and_uninstall() -> Result<()> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
    let plane = ControlPlane::start(&binaries, Options::default()).await?;

    let asked = stead(&plane, &["install"])?;
    assert_eq!(asked.code, Some(1));
    assert!(asked.err.contains("hint: use --yes"), "{}", asked.err);
    let looked = stead(&plane, &["install", "--dry-run"])?;
    assert_eq!(looked.code, Some(0), "{}", looked.err);
    assert!(looked.out.contains("create     deployment/stead-operator in stead-system"), "{}", looked.out);
    assert_eq!(stead_objects(&plane).await?, Vec::<String>::new(), "a dry run writes nothing");

    let first = stead(&plane, &["install", "--yes", "--no-wait"])?;
    assert_eq!(first.code, Some(0), "{}", first.err);
    // Kubernetes updates some objects a moment after they are created.
    for (form, kind) in
        [("condition=Established", "crd"), ("jsonpath={.status.observedGeneration}", "validatingadmissionpolicy")]
    {
        let form = format!("--for={form}");
        plane.kubectl(&["wait", &form, kind, "-l", "app.kubernetes.io/part-of=stead", "--timeout=300s"]).await?.ok()?;
    }
    let before = revisions(&plane).await?;
    let second = stead(&plane, &["install", "--yes", "--no-wait"])?;
    assert!(second.out.contains("nothing to change.\n") && second.err.is_empty(), "{}{}", second.out, second.err);
    assert_eq!(revisions(&plane).await?, before, "a second install writes nothing");
    let more = stead(&plane, &["install", "--dry-run", "--replicas", "1"])?;
    assert!(more.out.contains("change     deployment/stead-operator in stead-system: spec.replicas\n"), "{}", more.out);
    // Without nodes the operator does not become available, which is reported.
    let waited = stead(&plane, &["install", "--yes", "--timeout", "1s"])?;
    assert_eq!(waited.code, Some(1));
    assert!(waited.err.contains("deployment/stead-operator is not available after 1s"), "{}", waited.err);

    plane.kubectl_with(&["apply", "-f", "-"], OBJECTS).await?.ok()?;
    // A part of it is deleted already.
    plane.kubectl(&["-n", "stead-system", "delete", "deployment", "stead-operator"]).await?.ok()?;
    let gone = stead(&plane, &["uninstall", "--yes", "--timeout", "300s"])?;
    assert_eq!(gone.code, Some(0), "{}", gone.err);
    assert!(gone.out.ends_with("To delete:\n  kubectl -n default delete pvc glance-0\n"), "{}", gone.out);
    assert_eq!(stead_objects(&plane).await?, Vec::<String>::new());
    let claims = plane.kubectl(&["get", "pvc", "-o", "name"]).await?.ok()?;
    assert_eq!(claims.trim(), "persistentvolumeclaim/glance-0", "claims are kept");
    let nothing = stead(&plane, &["uninstall", "--yes"])?;
    assert!(nothing.out.contains("nothing to remove"), "{}", nothing.out);

    plane.kubectl_with(&["create", "-f", "-"], FOREIGN).await?.ok()?;
    let form = "jsonpath={.metadata.resourceVersion}";
    let revision = ["get", "crd", "topologies.topology.openstack.org", "-o", form];
    let foreign =
        plane.kubectl(&["get", "crd", "topologies.topology.openstack.org", "-o", "jsonpath={.spec}"]).await?.ok()?;
    let companion = stead(&plane, &["install", "--yes", "--no-wait"])?;
    assert_eq!(companion.code, Some(0), "{}", companion.err);
    assert!(companion.out.contains("another installation manages topologies.topology.openstack.org"));
    let after = plane.kubectl(&revision).await?.ok()?;
    assert_eq!(stead(&plane, &["uninstall", "--yes", "--timeout", "300s"])?.code, Some(0));
    assert_eq!(plane.kubectl(&revision).await?.ok()?, after, "a foreign definition is not touched");
    let still =
        plane.kubectl(&["get", "crd", "topologies.topology.openstack.org", "-o", "jsonpath={.spec}"]).await?.ok()?;
    assert_eq!(still, foreign);
    assert_eq!(
        stead_objects(&plane).await?,
        ["customresourcedefinition.apiextensions.k8s.io/topologies.topology.openstack.org"]
    );
    Ok(())
}
