//! The chart, rendered by Helm without a cluster: the same objects as `stead install`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde_json::Value;
use stead_manifests::{AntiAffinity, Options, manifests};
use stead_real::go_tool::{GoTool, HELM_3, HELM_4};

use crate::{chart, run};

const NAMESPACE: &str = "stead-system";
const IMAGE: [&str; 4] = ["--set", "image.repository=registry.test/stead", "--set", "image.tag=v1"];

fn render(helm: &Path, args: &[&str]) -> Result<String> {
    let mut command = Command::new(helm);
    command.args(["template", "stead"]).arg(chart()).args(["-n", NAMESPACE, "--kube-version", "1.36.0"]);
    run(command.args(IMAGE).args(args))?.ok()
}

/// The objects by kind, namespace and name, without what only Helm has.
fn objects(objects: impl IntoIterator<Item = Value>) -> BTreeMap<String, Value> {
    let mut by_name = BTreeMap::new();
    for mut object in objects.into_iter().filter(|object| object.is_object() && object["kind"] != "Namespace") {
        let metadata = &mut object["metadata"];
        metadata["labels"]["app.kubernetes.io/managed-by"] = "either".into();
        if let Some(labels) = metadata["labels"].as_object_mut() {
            labels.remove("helm.sh/chart");
        }
        if let Some(annotations) = metadata["annotations"].as_object_mut() {
            annotations.remove("helm.sh/resource-policy");
        }
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let name = [text(&object["kind"]), text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"])];
        by_name.insert(name.join(" "), object);
    }
    by_name
}

fn rendered(helm: &Path, args: &[&str]) -> Result<BTreeMap<String, Value>> {
    let text = render(helm, &[&["--no-hooks"], args].concat())?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    Ok(objects(documents))
}

fn check_same(helm: &Path, args: &[&str], options: Options) -> Result<()> {
    let options = Options { image: "registry.test/stead:v1".to_owned(), ..options };
    let expected = objects(manifests(&options).into_iter().map(|manifest| manifest.object));
    let found = rendered(helm, args)?;
    let names = |objects: &BTreeMap<String, Value>| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&found), names(&expected), "{args:?}");
    for (name, object) in &expected {
        assert_eq!(found[name], *object, "{name} with {args:?}");
    }
    Ok(())
}

fn same_objects(tool: &GoTool) -> Result<()> {
    let Some(helm) = tool.find_or_skip() else { return Ok(()) };
    check_same(&helm, &[], Options::default())?;
    check_same(
        &helm,
        &["--set", "replicas=1,defaultAntiAffinity=replace,glanceImage=g:1,clusterDomain=c.example"],
        Options {
            replicas: 1,
            default_anti_affinity: AntiAffinity::Replace,
            glance_image: "g:1".into(),
            cluster_domain: "c.example".into(),
            ..Options::default()
        },
    )?;
    for namespaces in [vec!["a", "b"], vec![NAMESPACE], vec!["a", NAMESPACE]] {
        let value = format!("namespaces={{{}}}", namespaces.join(","));
        let namespaces = namespaces.iter().map(ToString::to_string).collect();
        check_same(&helm, &["--set", &value], Options { namespaces, ..Options::default() })?;
    }
    Ok(())
}

#[test]
fn helm_3_renders_the_objects_of_stead_install() -> Result<()> {
    same_objects(&HELM_3)
}

#[test]
fn helm_4_renders_the_objects_of_stead_install() -> Result<()> {
    same_objects(&HELM_4)
}

#[test]
fn the_chart_is_accepted_by_lint() -> Result<()> {
    for tool in [HELM_3, HELM_4] {
        let Some(helm) = tool.find_or_skip() else { return Ok(()) };
        for version in ["1.29.0", "1.36.0"] {
            let mut command = Command::new(&helm);
            command.args(["lint", "--strict", "--kube-version", version]).arg(chart()).args(IMAGE);
            run(&mut command)?.ok()?;
        }
    }
    Ok(())
}

#[test]
fn values_that_are_wrong_are_refused() -> Result<()> {
    for tool in [HELM_3, HELM_4] {
        let Some(helm) = tool.find_or_skip() else { return Ok(()) };
        for (value, message) in [
            ("replicas=many", "replicas"),
            ("crds.openstack=yes", "openstack"),
            ("namespaces={A_B}", "namespaces"),
            ("imge.tag=1", "imge"),
            ("image.repository=", "image.repository is needed"),
        ] {
            let error = render(&helm, &["--set", value]).expect_err(value).to_string();
            assert!(error.contains(message), "{value}: {error}");
        }
    }
    Ok(())
}

#[test]
fn kubernetes_1_29_gets_no_policies() -> Result<()> {
    for tool in [HELM_3, HELM_4] {
        let Some(helm) = tool.find_or_skip() else { return Ok(()) };
        let kinds = |args: &[&str]| -> Result<usize> {
            Ok(rendered(&helm, args)?.keys().filter(|name| name.starts_with("ValidatingAdmissionPolicy")).count())
        };
        assert_eq!(kinds(&["--kube-version", "1.29.4-eks-1234"])?, 0);
        assert_eq!(kinds(&["--kube-version", "1.30.0"])?, 8);
        assert!(render(&helm, &["--kube-version", "1.28.0"]).is_err(), "too old");
    }
    Ok(())
}

#[test]
fn without_crds() -> Result<()> {
    let Some(helm) = HELM_4.find_or_skip() else { return Ok(()) };
    let names = rendered(&helm, &["--set", "crds.openstack=skip"])?;
    assert!(names.keys().all(|name| !name.contains("openstack.org")), "{:?}", names.keys());
    assert!(names.contains_key("Deployment stead-system stead-operator"));
    Ok(())
}
