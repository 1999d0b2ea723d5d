//! The installed objects, checked without a cluster.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stead_manifests::plan::{Action, compare, definition_differences, foreign, is_left_out};
use stead_manifests::removal::{FINALIZED_KINDS, claim_commands};
use stead_manifests::{AntiAffinity, Manifest, Options, Part, definitions, helm_release, is_ours, manifests, rights};

fn all() -> Vec<Manifest> {
    manifests(&Options::default())
}

#[test]
fn every_object_is_expanded_and_labelled() {
    for manifest in all() {
        assert!(is_ours(&manifest.object), "{manifest}");
        assert_eq!(manifest.object["metadata"]["labels"]["app.kubernetes.io/managed-by"], "stead", "{manifest}");
        assert!(!manifest.object.to_string().contains("\"$"), "{manifest}: a fragment was not inserted");
        assert!(!manifest.object.to_string().contains("{spec}"), "{manifest}: a placeholder was not replaced");
        if manifest.is_definition() {
            assert_eq!(manifest.object["metadata"]["annotations"]["stead.dev/version"], env!("CARGO_PKG_VERSION"));
        }
    }
}

#[test]
fn objects_are_ordered_by_dependency() {
    let kinds: Vec<String> = all().iter().map(|m| m.kind().to_owned()).collect();
    let first = |kind: &str| kinds.iter().position(|k| k == kind).expect("the kind exists");
    let last = |kind: &str| kinds.iter().rposition(|k| k == kind).expect("the kind exists");
    assert_eq!(first("Namespace"), 0);
    assert!(last("CustomResourceDefinition") < first("ValidatingAdmissionPolicy"));
    assert!(last("ClusterRoleBinding") < first("Deployment"));
    assert_eq!(last("Deployment"), kinds.len() - 1);
}

/// kube-apiserver estimates the maximum cost of rules, and refuses a CRD without bounds.
#[test]
fn every_list_and_map_of_a_spec_is_bounded() {
    fn walk(schema: &Value, at: &str, faults: &mut Vec<String>) {
        if schema["type"] == "array" && schema["maxItems"].is_null() {
            faults.push(format!("{at}: a list without maxItems"));
        }
        if schema["additionalProperties"].is_object() && schema["maxProperties"].is_null() {
            faults.push(format!("{at}: a map without maxProperties"));
        }
        for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
            walk(inner, &format!("{at}.{name}"), faults);
        }
        for inner in ["items", "additionalProperties"] {
            if schema[inner].is_object() {
                walk(&schema[inner], &format!("{at}[]"), faults);
            }
        }
    }
    let mut faults = Vec::new();
    for manifest in all().iter().filter(|m| m.is_definition()) {
        walk(&manifest.object["spec"]["versions"][0]["schema"]["openAPIV3Schema"], manifest.name(), &mut faults);
    }
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn the_operator_may_watch_everything_its_loops_read() {
    for watched in stead_loops::WATCHED {
        let kind = watched.kind;
        for verb in ["list", "watch"] {
            let rights = if kind.namespaced { rights::NAMESPACED } else { rights::CLUSTER_SCOPED };
            let may = rights
                .iter()
                .any(|r| r.group == kind.group() && r.resources.contains(&kind.plural) && r.verbs.contains(&verb));
            assert!(may, "{verb} {}", kind.plural);
        }
    }
}

#[test]
fn secrets_cannot_be_listed() {
    for manifest in all().into_iter().chain(manifests(&some_namespaces())) {
        for rule in manifest.object["rules"].as_array().into_iter().flatten() {
            let has = |field: &str, word: &str| rule[field].as_array().is_some_and(|l| l.iter().any(|v| v == word));
            let all = ["list", "watch"].iter().any(|verb| has("verbs", verb));
            assert!(!(has("resources", "secrets") && all), "{manifest}: {rule}");
        }
    }
}

fn some_namespaces() -> Options {
    Options { namespaces: vec!["a".into(), "b".into()], ..Options::default() }
}

#[test]
fn with_named_namespaces_only_roles_allow_writes() {
    let scoped = manifests(&some_namespaces());
    let reads = |verb: &Value| ["get", "list", "watch"].iter().any(|read| verb == read);
    for role in scoped.iter().filter(|m| m.kind() == "ClusterRole") {
        for rule in role.object["rules"].as_array().into_iter().flatten() {
            assert!(rule["verbs"].as_array().into_iter().flatten().all(reads), "{role}: {rule}");
        }
    }
    let named = |kind: &str| -> Vec<(String, String)> {
        let of_kind = scoped.iter().filter(|m| m.kind() == kind);
        of_kind.map(|m| (m.name().to_owned(), m.namespace().unwrap_or_default().to_owned())).collect()
    };
    let pairs = |list: &[(&str, &str)]| -> Vec<(String, String)> {
        list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    };
    let bound = [("stead-operator", "stead-system"), ("stead-operator", "a"), ("stead-operator", "b")];
    assert_eq!(named("RoleBinding"), pairs(&bound));
    assert_eq!(named("Role"), pairs(&[&bound[..], &[("stead-edit", "a"), ("stead-edit", "b")]].concat()));
    assert_eq!(named("ClusterRole"), pairs(&[("stead-operator", ""), ("stead-view", "")]));
    let deployment = scoped.last().expect("the Deployment is the last");
    let arguments = deployment.object["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
    assert!(arguments.contains("--namespaces=a,b"), "{arguments}");

    let bindings: Vec<Value> = scoped.iter().filter(|m| m.kind() == "RoleBinding").map(|m| m.object.clone()).collect();
    assert_eq!(rights::scoped_namespaces(&bindings, "stead-system"), ["a", "b"]);
    assert_eq!(rights::scoped_namespaces(&bindings, "elsewhere"), Vec::<String>::new());

    // The operator's own namespace may be among them: it also needs its Lease there.
    let own = Options { namespaces: vec!["stead-system".into()], ..Options::default() };
    let roles: Vec<Manifest> = manifests(&own).into_iter().filter(|m| m.kind() == "Role").collect();
    let role = roles.iter().find(|m| m.name() == "stead-operator").expect("a Role");
    assert_eq!(roles.len(), 2, "and stead-edit");
    for resource in ["leases", "glances"] {
        assert!(role.object["rules"].to_string().contains(resource), "{resource}");
    }
}

#[test]
fn every_right_has_bounds_and_a_reason() {
    for right in rights::cluster_wide().chain(rights::OWN_NAMESPACE) {
        assert!(!right.why.is_empty(), "{right:?}");
        let words = right.resources.iter().chain(right.verbs).chain([&right.group]);
        assert!(words.clone().all(|word| !word.contains('*')), "{right:?}");
    }
}

#[test]
fn the_operator_runs_with_least_privilege() {
    let options = Options { default_anti_affinity: AntiAffinity::Replace, ..Options::default() };
    let deployment = manifests(&options).pop().expect("the Deployment is the last").object;
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(
        container["securityContext"],
        json!({
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        })
    );
    assert_eq!(
        pod["securityContext"],
        json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}),
        "and no user id"
    );
    assert!(container["args"].to_string().contains("--default-anti-affinity=replace"));
}

#[test]
fn objects_about_a_foreign_definition_are_left_out() {
    let theirs = json!({"metadata": {"name": "glances.glance.openstack.org"}});
    let ours = json!({"metadata": {
        "name": "topologies.topology.openstack.org",
        "labels": {"app.kubernetes.io/part-of": "stead"},
    }});
    let foreign = foreign([&theirs, &ours]);
    assert_eq!(foreign, BTreeSet::from(["glances.glance.openstack.org".to_owned()]));
    let left_out: Vec<String> = all().iter().filter(|m| is_left_out(m, &foreign)).map(ToString::to_string).collect();
    assert_eq!(
        left_out,
        [
            "customresourcedefinition/glances.glance.openstack.org",
            "validatingadmissionpolicy/stead.glances.glance.openstack.org",
            "validatingadmissionpolicybinding/stead.glances.glance.openstack.org",
        ]
    );
    assert!(all().iter().any(|m| m.part == Part::Operator && m.kind() == "Deployment"));
}

#[test]
fn differences_that_count_as_a_change() {
    let live = json!({
        "metadata": {"name": "a", "resourceVersion": "5", "generation": 1, "managedFields": [1]},
        "spec": {"replicas": 2, "list": [1, 2], "gone": true},
        "status": {"ready": 1},
    });
    let with = |change: fn(&mut Value)| {
        let mut applied = live.clone();
        change(&mut applied);
        compare(&live, &applied)
    };
    assert_eq!(with(|_| ()), Action::Unchanged);
    assert_eq!(with(|o| o["metadata"]["managedFields"] = json!([2])), Action::Unchanged);
    assert_eq!(with(|o| o["metadata"]["generation"] = json!(2)), Action::Unchanged);
    assert_eq!(with(|o| o["status"] = json!({})), Action::Unchanged);
    assert_eq!(with(|o| o["spec"]["replicas"] = json!(3)), Action::Change(vec!["spec.replicas".to_owned()]));
    assert_eq!(with(|o| o["spec"]["list"][1] = json!(3)), Action::Change(vec!["spec.list[1]".to_owned()]));
    assert_eq!(with(|o| o["spec"]["list"] = json!([1])), Action::Change(vec!["spec.list".to_owned()]));
    assert_eq!(
        with(|o| o["spec"] = json!({"replicas": 2, "list": [1, 2], "new": 1})),
        Action::Change(vec!["spec.gone".to_owned(), "spec.new".to_owned()])
    );
}

#[test]
fn a_definition_is_compared_without_the_server_s_defaults() {
    for manifest in definitions() {
        let mut live = manifest.object.clone();
        let kind = live["spec"]["names"]["kind"].as_str().expect("a kind").to_owned();
        live["spec"]["conversion"] = json!({"strategy": "None"});
        live["spec"]["names"]["listKind"] = format!("{kind}List").into();
        live["spec"]["names"]["singular"] = kind.to_lowercase().into();
        live["status"] = json!({"storedVersions": ["v1beta1"]});
        assert_eq!(definition_differences(&manifest, &live), Vec::<String>::new(), "{manifest}");
        live["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["description"] = "other".into();
        live["spec"]["names"]["categories"] = json!(["all"]);
        assert_eq!(
            definition_differences(&manifest, &live),
            ["spec.names.categories", "spec.versions[0].schema.openAPIV3Schema.properties.spec.description"]
        );
    }
}

#[test]
fn releases_of_helm_are_recognized() {
    let annotations = json!({"meta.helm.sh/release-name": "stead", "meta.helm.sh/release-namespace": "n"});
    let release = helm_release(&json!({"metadata": {"annotations": annotations}})).expect("a release");
    assert_eq!((release.name.as_str(), release.namespace.as_str()), ("stead", "n"));
    assert_eq!(helm_release(&json!({"metadata": {"annotations": {"a": "b"}}})), None);
}

#[test]
fn only_our_finalizers_are_removed() {
    for (kind, finalizers, kept) in [
        ("Glance", json!(["openstack.org/glance"]), Some(json!([]))),
        ("Glance", json!(["openstack.org/glanceapi"]), None),
        ("GlanceAPI", json!(["a.example/b", "openstack.org/glanceapi"]), Some(json!(["a.example/b"]))),
        ("OpenStackControlPlane", json!(["openstack.org/openstackcontrolplane"]), Some(json!([]))),
        (
            "Topology",
            json!(["openstack.org/glanceapi-azone", "openstack.org/memcached-m", "openstack.org/glanceapi-default"]),
            Some(json!(["openstack.org/memcached-m"])),
        ),
        ("Topology", json!(["openstack.org/memcached-m"]), None),
        ("Topology", Value::Null, None),
    ] {
        let finalized = FINALIZED_KINDS.iter().find(|h| h.kind == kind).expect("a kind");
        let object = json!({"metadata": {"uid": "u", "resourceVersion": "7", "finalizers": finalizers}});
        let patch = finalized.release(&object);
        assert_eq!(patch.as_ref().map(|p| p["metadata"]["finalizers"].clone()), kept, "{kind} {finalizers}");
        if let Some(patch) = patch {
            assert_eq!((&patch["metadata"]["uid"], &patch["metadata"]["resourceVersion"]), (&json!("u"), &json!("7")));
        }
    }
}

#[test]
fn owners_are_deleted_before_their_dependents() {
    assert_eq!(FINALIZED_KINDS.map(|h| h.kind), ["OpenStackControlPlane", "Glance", "GlanceAPI", "Topology"]);
}

#[test]
fn commands_that_delete_claims() {
    let claim = |namespace: &str, name: &str| json!({"metadata": {"namespace": namespace, "name": name}});
    let claims = [claim("b", "z"), claim("a", "y"), claim("b", "x")];
    assert_eq!(claim_commands(&claims), ["kubectl -n a delete pvc y", "kubectl -n b delete pvc x z"]);
}
