//! Topologies and Glances of the first field report, as the repository ships them and with one thing changed.

use std::collections::BTreeSet;
use std::path::PathBuf;

use expect_test::{Expect, expect, expect_file};
use serde_json::{Value, json};
use stead_explain::{ClientAtHand, SuggestsCommands, glance, topology};
use stead_model::{ObjectKey, Objects};

/// The example's objects, and the kinds that it has.
fn example() -> (Vec<Value>, BTreeSet<String>) {
    let from = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/glance-zones");
    let dump = stead_dump::read(&[from], &|_, _| true, stead_dump::DEFAULT_MAX_SIZE).expect("the example can be read");
    (dump.items.into_iter().map(|i| i.value()).collect(), dump.kinds)
}

fn object<'a>(items: &'a mut [Value], kind: &str, name: &str) -> &'a mut Value {
    items.iter_mut().find(|o| o["kind"] == kind && o["metadata"]["name"] == name).expect("it is in the example")
}

fn topology_text(name: &str, change: impl Fn(&mut Vec<Value>)) -> String {
    let (mut items, kinds) = example();
    change(&mut items);
    let key = ObjectKey::new("Topology", "openstack", name);
    topology::render(&topology::explain(&Objects::from_items(items), &key, &kinds).expect("it can be read"))
}

fn glance_text(kind: &str, name: &str, change: impl Fn(&mut Vec<Value>)) -> String {
    let (mut items, kinds) = example();
    change(&mut items);
    let key = ObjectKey::new(kind, "openstack", name);
    let explained = glance::explain(&Objects::from_items(items), &key, &kinds).expect("it can be read");
    glance::render(&explained.expect("it is there"))
}

/// The lines that have one of the words in them, without their indentation: an expected text has none of its own.
fn lines(text: &str, words: &[&str]) -> String {
    text.lines().filter(|l| words.iter().any(|w| l.contains(w))).map(|l| format!("{}\n", l.trim_start())).collect()
}

fn check(text: &str, words: &[&str], expect: Expect) {
    expect.assert_eq(&lines(text, words));
}

#[test]
fn the_reports_topologies_and_glance() {
    let same = |_: &mut Vec<Value>| ();
    for name in ["glance-default-spread-pods", "glance-azone-node-affinity", "default-sample"] {
        expect_file![format!("golden/topology-{name}.txt")].assert_eq(&topology_text(name, same));
    }
    expect_file!["golden/glance.txt"].assert_eq(&glance_text("Glance", "glance", same));
    expect_file!["golden/glanceapi-azone.txt"].assert_eq(&glance_text("GlanceAPI", "glance-azone-edge", same));
}

#[test]
fn commands_of_waiting_pods_are_written_for_the_client_at_hand() {
    let (items, kinds) = example();
    let key = ObjectKey::new("Topology", "openstack", "glance-default-spread-pods");
    let mut explained = topology::explain(&Objects::from_items(items), &key, &kinds).expect("it can be read");
    let context = Some("prod".to_owned());
    explained.use_client(&ClientAtHand { as_plugin: true, context, ..ClientAtHand::default() });
    check(
        &topology::render(&explained),
        &["stead ", "kubectl "],
        expect![[r#"
            kubectl --context prod -n openstack patch topology glance-default-spread-pods --type=json -p '[{"op":"add","path":"/spec/topologySpreadConstraints/0/whenUnsatisfiable","value":"ScheduleAnyway"}]'
            details by node, and 4 other fixes: kubectl stead explain pod/glance-default-external-api-2 -n openstack --context prod
            kubectl --context prod -n openstack patch topology glance-default-spread-pods --type=json -p '[{"op":"add","path":"/spec/topologySpreadConstraints/0/whenUnsatisfiable","value":"ScheduleAnyway"}]'
            details by node, and 4 other fixes: kubectl stead explain pod/glance-default-internal-api-1 -n openstack --context prod
        "#]],
    );
}

const PLANE: &str = "openstack-control-plane";

/// Takes the default API's own reference away, wherever it was written down.
fn without_own(items: &mut [Value], reference: &Value) {
    let fields = |value: &mut Value| value.as_object_mut().map(|v| v.remove("topologyRef"));
    fields(&mut object(items, "OpenStackControlPlane", PLANE)["spec"]["glance"]["template"]["glanceAPIs"]["default"]);
    fields(&mut object(items, "Glance", "glance")["spec"]["glanceAPIs"]["default"]);
    for api in ["glance-default-external", "glance-default-internal"] {
        object(items, "GlanceAPI", api)["spec"]["topologyRef"] = reference.clone();
    }
}

#[test]
fn the_most_specific_reference_wins() {
    let spread = json!({"name": "glance-default-spread-pods", "namespace": "openstack"});
    let words = ["inherited", "its own", "opted out", "azone", "Also referred", "spec.topologyRef"];
    let of_plane = |items: &mut Vec<Value>| {
        without_own(items, &spread);
        object(items, "OpenStackControlPlane", PLANE)["spec"]["topologyRef"] = spread.clone();
        object(items, "Glance", "glance")["spec"]["topologyRef"] = spread.clone();
    };
    check(
        &glance_text("Glance", "glance", of_plane),
        &words,
        expect![[r#"
            azone     edge       3/3     glance-azone-node-affinity   its own                            10G of lvms-local-storage   ready
            bzone     edge       3/3     glance-bzone-node-affinity   its own                            10G of lvms-local-storage   ready
            czone     edge       3/3     glance-czone-node-affinity   its own                            10G of lvms-local-storage   ready
            default   external   2/3     glance-default-spread-pods   inherited from the control plane   10G of lvms-local-storage   no node can run 1 pod
            default   internal   2/3     glance-default-spread-pods   inherited from the control plane   10G of lvms-local-storage   no node can run 1 pod
        "#]],
    );
    check(
        &topology_text("glance-default-spread-pods", of_plane),
        &words,
        expect![[r#"
            GlanceAPI glance-default-external, inherited from the control plane: OpenStackControlPlane
            openstack-control-plane, spec.topologyRef
            GlanceAPI glance-default-internal, inherited from the control plane: OpenStackControlPlane
            openstack-control-plane, spec.topologyRef
        "#]],
    );
    let of_template = |items: &mut Vec<Value>| {
        of_plane(items);
        object(items, "OpenStackControlPlane", PLANE)["spec"]["topologyRef"] = json!({"name": "default-sample"});
        object(items, "OpenStackControlPlane", PLANE)["spec"]["glance"]["template"]["topologyRef"] = spread.clone();
    };
    check(
        &topology_text("glance-default-spread-pods", of_template),
        &words,
        expect![[r#"
            GlanceAPI glance-default-external, inherited from Glance: OpenStackControlPlane
            GlanceAPI glance-default-internal, inherited from Glance: OpenStackControlPlane
        "#]],
    );
    check(
        &topology_text("default-sample", of_template),
        &words,
        expect![[r#"
            OpenStackControlPlane openstack-control-plane, spec.topologyRef
        "#]],
    );
    let opted_out = |items: &mut Vec<Value>| {
        of_plane(items);
        let out = json!({});
        object(items, "OpenStackControlPlane", PLANE)["spec"]["glance"]["template"]["glanceAPIs"]["default"]["topologyRef"] =
            out.clone();
    };
    check(
        &glance_text("Glance", "glance", opted_out),
        &["default "],
        expect![[r#"
            default   external   2/3     none (opted out)             its own   10G of lvms-local-storage   no node can run 1 pod
            default   internal   2/3     none (opted out)             its own   10G of lvms-local-storage   no node can run 1 pod
        "#]],
    );
    check(
        &topology_text("glance-default-spread-pods", opted_out),
        &["instead", "GlanceAPI", "Also referred", "spec.topologyRef"],
        expect![[r#"
            topology openstack/glance-default-spread-pods: used by 2 GlanceAPIs with 6 pods: 4 ready, 2 that no
            Topology glance-default-spread-pods is also used by: GlanceAPI glance-default-internal
            Topology glance-default-spread-pods is also used by: GlanceAPI glance-default-external
            GlanceAPI glance-default-external, its own: GlanceAPI glance-default-external, spec.topologyRef
            spec.glance.template.glanceAPIs.default.topologyRef refers to no Topology instead, which the
            GlanceAPI does not have yet
            GlanceAPI glance-default-internal, its own: GlanceAPI glance-default-internal, spec.topologyRef
            spec.glance.template.glanceAPIs.default.topologyRef refers to no Topology instead, which the
            GlanceAPI does not have yet
            OpenStackControlPlane openstack-control-plane, spec.topologyRef
        "#]],
    );
}

#[test]
fn a_topology_that_is_not_there() {
    let gone = |items: &mut Vec<Value>| items.retain(|o| o["metadata"]["name"] != "glance-azone-node-affinity");
    expect![[r#"
        topology openstack/glance-azone-node-affinity: does not exist; everything that refers to it waits
          for it; namespace openstack has default-sample, glance-bzone-node-affinity,
          glance-czone-node-affinity, glance-default-spread-pods

        Used by
          GlanceAPI glance-azone-edge, its own: OpenStackControlPlane openstack-control-plane,
            spec.glance.template.glanceAPIs.azone.topologyRef
            POD                       NODE       ZONE    STATE
            glance-azone-edge-api-0   master-0   zoneA   Ready
            glance-azone-edge-api-1   worker-0   zoneA   Ready
            glance-azone-edge-api-2   master-0   zoneA   Ready
    "#]]
    .assert_eq(&topology_text("glance-azone-node-affinity", gone));
    check(
        &glance_text("Glance", "glance", gone),
        &["azone"],
        expect![[r#"
            azone     edge       3/3     glance-azone-node-affinity   its own   10G of lvms-local-storage   its Topology does not exist
            glance-azone-edge is not ready
            Topology glance-azone-node-affinity does not exist: OpenStackControlPlane openstack-control-plane,
            spec.glance.template.glanceAPIs.azone.topologyRef names it (its own); namespace openstack has
        "#]],
    );
}

#[test]
fn rules_that_are_not_handed_on_yet() {
    let words = ["yet", "    - "];
    let not_in_set = |items: &mut Vec<Value>| {
        object(items, "StatefulSet", "glance-azone-edge-api")["spec"]["template"]["spec"]["affinity"] = json!({});
    };
    check(
        &topology_text("glance-azone-node-affinity", not_in_set),
        &words,
        expect![[r#"
            - StatefulSet glance-azone-edge-api does not have these rules yet
        "#]],
    );
    let not_in_api = |items: &mut Vec<Value>| {
        object(items, "GlanceAPI", "glance-azone-edge")["spec"]["topologyRef"] = Value::Null;
    };
    check(
        &topology_text("glance-azone-node-affinity", not_in_api),
        &words,
        expect![[r#"
            - GlanceAPI glance-azone-edge does not have the reference yet
    "#]],
    );
    let no_set = |items: &mut Vec<Value>| items.retain(|o| o["metadata"]["name"] != "glance-azone-edge-api");
    check(
        &topology_text("glance-azone-node-affinity", no_set),
        &words,
        expect![[r#"
            - GlanceAPI glance-azone-edge has no StatefulSet yet
    "#]],
    );
    let no_api = |items: &mut Vec<Value>| items.retain(|o| o["metadata"]["name"] != "glance-azone-edge");
    check(
        &glance_text("Glance", "glance", no_api),
        &["azone", "GlanceAPI"],
        expect![[r#"
            azone     edge       0/3     -                            -         -                           not ready
            azone is not ready
            no GlanceAPI has been created for it yet
            Topology glance-default-spread-pods is also used by: GlanceAPI glance-default-internal
            Topology glance-default-spread-pods is also used by: GlanceAPI glance-default-external
        "#]],
    );
}

#[test]
fn troubles_are_shown_with_those_who_have_them() {
    let deleted = |items: &mut Vec<Value>| {
        let draft = object(items, "Topology", "glance-default-spread-pods");
        draft["metadata"]["deletionTimestamp"] = json!("2025-01-08T17:00:00Z");
        let mut rules = draft["spec"]["topologySpreadConstraints"].take();
        rules[0]["labelSelector"] = json!({"matchLabels": {"app": "glance"}});
        draft["spec"] = json!({"topologySpreadConstraint": rules});
    };
    check(
        &topology_text("glance-default-spread-pods", deleted),
        &["  - "],
        expect![[r#"
            - NO EFFECT: the spread by the node label zone counts pods with app=glance, but no pod of
            - pods are spread by the node label zone, but 1 of 7 nodes has no such label: no pod that follows
            - spec.topologySpreadConstraint is the draft's spelling of topologySpreadConstraints: Stead
            - it was deleted at 2025-01-08T17:00:00Z and is kept until nobody uses it any more; it is used by
            - pods are spread over the values of the node label zone: none may have more than 1 pod more than
            - StatefulSet glance-default-external-api does not have these rules yet
            glance-default-external-api-2   -          -       Pending
            - StatefulSet glance-default-internal-api does not have these rules yet
            glance-default-internal-api-1   -          -       Pending
        "#]],
    );
}

/// A rule without a selector gets the workload's own: it is still known by whom it was brought.
#[test]
fn a_selector_that_was_filled_in_is_seen_through() {
    let bare = |items: &mut Vec<Value>| {
        let rule = &mut object(items, "Topology", "glance-default-spread-pods")["spec"]["topologySpreadConstraints"][0];
        rule.as_object_mut().expect("a rule").remove("labelSelector");
    };
    let text = topology_text("glance-default-spread-pods", bare);
    check(
        &text,
        &["  by zone", "best way out", "also used", "patch topology", "do not carry"],
        expect![[r#"
            Topology glance-default-spread-pods is also used by: GlanceAPI glance-default-internal
            kubectl -n openstack patch topology glance-default-spread-pods --type=json -p '[{"op":"add","path":"/spec/topologySpreadConstraints/0/whenUnsatisfiable","value":"ScheduleAnyway"}]'
            Topology glance-default-spread-pods is also used by: GlanceAPI glance-default-external
            kubectl -n openstack patch topology glance-default-spread-pods --type=json -p '[{"op":"add","path":"/spec/topologySpreadConstraints/0/whenUnsatisfiable","value":"ScheduleAnyway"}]'
        "#]],
    );
}
