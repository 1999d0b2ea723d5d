//! What is said about Topologies that cannot do what they were written for.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use serde_json::{Value, json};
use stead_explain::topology::{TopologyConsumer, problems};
use stead_model::{ObjectKey, Topology};

fn nodes() -> Vec<(&'static str, BTreeMap<String, String>)> {
    let node = |name: &'static str, labels: Value| (name, serde_json::from_value(labels).expect("labels"));
    vec![
        node("a", json!({"kubernetes.io/hostname": "a", "zone": "zoneA", "example.org/rack": "1"})),
        node("b", json!({"kubernetes.io/hostname": "b", "zone": "zoneB", "example.org/rack": "2"})),
        node("c", json!({"kubernetes.io/hostname": "c"})),
    ]
}

fn consumer(name: &str, labels: Value) -> TopologyConsumer {
    TopologyConsumer {
        key: ObjectKey::new("GlanceAPI", "openstack", name),
        pod_labels: serde_json::from_value(labels).expect("labels"),
        node_selector: Default::default(),
    }
}

fn read(topology: Value) -> Topology {
    serde_json::from_value(topology).expect("a Topology")
}

fn check(topology: Value, expect: Expect) {
    let consumers = [consumer("glance-default-single", json!({"service": "glance", "owner": "glance-default-single"}))];
    let lines = problems(&read(topology), &nodes(), &consumers);
    let lines: Vec<String> =
        lines.iter().map(|t| format!("{} ({:?}): {}\n", t.reason.as_str(), t.effect, t.message)).collect();
    expect.assert_eq(&lines.concat());
}

fn spread(key: &str, when: &str, selector: Value) -> Value {
    json!({"spec": {"topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector}
    ]}})
}

fn pinned(key: &str, values: Value) -> Value {
    json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]}}}}})
}

#[test]
fn what_is_well_is_passed_over() {
    check(spread("kubernetes.io/hostname", "DoNotSchedule", Value::Null), expect![[""]]);
    check(spread("zone", "ScheduleAnyway", json!({"matchLabels": {"service": "glance"}})), expect![[""]]);
    check(pinned("zone", json!(["zoneA"])), expect![[""]]);
}

#[test]
fn keys_that_nodes_do_not_have() {
    check(
        spread("zone", "DoNotSchedule", Value::Null),
        expect![[r#"
            NodesWithoutKey (Note): pods are spread by the node label zone, but 1 of 3 nodes has no such label: no pod that follows it can run on c
        "#]],
    );
    check(
        spread("topology.kubernetes.io/zone", "DoNotSchedule", Value::Null),
        expect![[r#"
            NoNodeHasKey (Blocks): pods are to be spread by the node label topology.kubernetes.io/zone, but no node has the label topology.kubernetes.io/zone (they have zone): no node can run a pod that follows it
        "#]],
    );
    check(
        spread("rack", "ScheduleAnyway", Value::Null),
        expect![[r#"
        NoNodeHasKey (Idle): pods are to be spread by the node label rack, but no node has the label rack (they have example.org/rack): the pods are not spread
    "#]],
    );
    check(
        spread("zoneA", "DoNotSchedule", Value::Null),
        expect![[r#"
            NoNodeHasKey (Blocks): pods are to be spread by the node label zoneA, but no node has the label zoneA (zoneA is a value of the label zone, not a label): no node can run a pod that follows it
        "#]],
    );
    let mut both = pinned("kubernetes.io/hostname", json!(["c"]));
    both["spec"]["topologySpreadConstraints"] =
        spread("zone", "DoNotSchedule", Value::Null)["spec"]["topologySpreadConstraints"].clone();
    check(
        both,
        expect![[r#"
            NoNodeHasKey (Blocks): pods are to be spread by the node label zone, but none of the nodes that the node affinity allows (c) has the label zone: no node can run a pod that follows it
        "#]],
    );
}

#[test]
fn affinity_that_no_node_matches() {
    check(
        pinned("zone", json!(["zonea", "zoneC"])),
        expect![[r#"
            NoNodeMatches (Blocks): no node matches the required node affinity (zone In [zonea, zoneC]), so no node can run a pod that follows it: the nodes' label zone is zoneA, zoneB
        "#]],
    );
    check(
        pinned("topology.kubernetes.io/zone", json!(["zoneA"])),
        expect![[r#"
            NoNodeMatches (Blocks): no node matches the required node affinity (topology.kubernetes.io/zone In [zoneA]), so no node can run a pod that follows it: no node has the label topology.kubernetes.io/zone (they have zone)
        "#]],
    );
    check(
        json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["d"]}]}]}}}}}),
        expect![[r#"
            NoNodeMatches (Blocks): no node matches the required node affinity (metadata.name In [d]), so no node can run a pod that follows it: the nodes are a, b, c
        "#]],
    );
    let pins = consumer("glance-azone-edge", json!({}));
    let pins = TopologyConsumer { node_selector: [("disk".to_owned(), "fast".to_owned())].into(), ..pins };
    let said = problems(&read(pinned("zone", json!(["zoneA"]))), &nodes(), &[pins]);
    expect!["no node matches both the required node affinity (zone In [zoneA]) and the nodeSelector disk=fast of GlanceAPI glance-azone-edge: the affinity allows a"].assert_eq(&said[0].message);
}

#[test]
fn selectors_that_match_nothing() {
    check(
        spread("kubernetes.io/hostname", "DoNotSchedule", json!({"matchLabels": {"app": "glance"}})),
        expect![[r#"
            SelectorMatchesNothing (Idle): the spread by the node label kubernetes.io/hostname counts pods with app=glance, but no pod of GlanceAPI glance-default-single has these labels, so they are not spread: they have owner=glance-default-single,service=glance
        "#]],
    );
    check(spread("kubernetes.io/hostname", "DoNotSchedule", json!({})), expect![[""]]);
    let consumers = [
        consumer("glance-azone-edge", json!({"service": "glance", "owner": "glance-azone-edge"})),
        consumer("glance-bzone-edge", json!({"service": "glance", "owner": "glance-bzone-edge"})),
        consumer("glance-default-single", json!({"service": "glance", "owner": "glance-default-single"})),
    ];
    let selector = json!({"matchLabels": {"owner": "glance-default-single"}});
    let said = problems(&read(spread("kubernetes.io/hostname", "DoNotSchedule", selector)), &nodes(), &consumers);
    expect!["the spread by the node label kubernetes.io/hostname counts pods with owner=glance-default-single, but no pod of GlanceAPI glance-azone-edge and GlanceAPI glance-bzone-edge has these labels, so they are not spread: those of GlanceAPI glance-azone-edge have owner=glance-azone-edge,service=glance"].assert_eq(&said[0].message);
}

#[test]
fn rules_about_other_pods() {
    let rule = |field: &str, term: Value| json!({"spec": {"affinity": {field: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}});
    let selector = json!({"matchLabels": {"service": "glance"}});
    check(
        rule("podAffinity", json!({"topologyKey": "row", "labelSelector": selector})),
        expect![[r#"
            NoNodeHasKey (Blocks): the required pod affinity uses the node label row, but no node has it: no node can run a pod that follows it
        "#]],
    );
    check(
        rule("podAntiAffinity", json!({"topologyKey": "row", "labelSelector": selector})),
        expect![[r#"
            NoNodeHasKey (Idle): the required pod anti-affinity uses the node label row, but no node has it: the rule has no effect
        "#]],
    );
    check(
        rule("podAntiAffinity", json!({"topologyKey": "kubernetes.io/hostname"})),
        expect![[r#"
            SelectorMissing (Idle): the required pod anti-affinity by the node label kubernetes.io/hostname has no labelSelector, which selects no pods: the rule has no effect
        "#]],
    );
    check(
        rule("podAffinity", json!({"topologyKey": "kubernetes.io/hostname"})),
        expect![[r#"
            SelectorMissing (Blocks): the required pod affinity by the node label kubernetes.io/hostname has no labelSelector, which selects no pods: no node can run a pod that follows it
        "#]],
    );
}

#[test]
fn what_kubernetes_refuses() {
    check(
        json!({"spec": {"topologySpreadConstraints": [
            {"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "foo", "minDomains": 0, "nodeTaintsPolicy": "Maybe",
             "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
            {"maxSkew": "1", "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
        ]}}),
        expect![[r#"
            InvalidRule (Blocks): Kubernetes rejects a pod with this rule: spec.topologySpreadConstraints[1].maxSkew: invalid type: string "1", expected i32
        "#]],
    );
    check(
        json!({"spec": {"topologySpreadConstraints": [
            {"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "foo", "minDomains": 0, "nodeTaintsPolicy": "Maybe",
             "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
            {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2},
        ]}}),
        expect![[r#"
            InvalidRule (Blocks): Kubernetes rejects a pod with this rule: spec.topologySpreadConstraints[0].maxSkew: must be greater than zero
            InvalidRule (Blocks): Kubernetes rejects a pod with this rule: spec.topologySpreadConstraints[0].topologyKey: can not be empty
            InvalidRule (Blocks): Kubernetes rejects a pod with this rule: spec.topologySpreadConstraints[0].whenUnsatisfiable: "foo" is neither DoNotSchedule nor ScheduleAnyway
            InvalidRule (Blocks): Kubernetes rejects a pod with this rule: spec.topologySpreadConstraints[0].minDomains: must be greater than zero
            InvalidRule (Blocks): Kubernetes rejects a pod with this rule: spec.topologySpreadConstraints[0].nodeTaintsPolicy: "Maybe" is neither Honor nor Ignore
            InvalidRule (Blocks): Kubernetes rejects a pod with this rule: spec.topologySpreadConstraints[0].labelSelector: matchExpressions[0].operator: "Near" is not a valid label selector operator
            InvalidRule (Blocks): Kubernetes rejects a pod with this rule: spec.topologySpreadConstraints[1].minDomains: can only be used with whenUnsatisfiable: DoNotSchedule
        "#]],
    );
    check(
        json!({"spec": {"affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 101, "preference": {}}]},
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
                [{"weight": 0, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}}]},
        }}}),
        expect![[r#"
            InvalidRule (Blocks): Kubernetes rejects a pod with this rule: spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution: nodeSelectorTerms: Required value: must have at least one node selector term
            InvalidRule (Blocks): Kubernetes rejects a pod with this rule: spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution: [0].weight: Invalid value: 101: must be in the range 1-100
            InvalidRule (Blocks): Kubernetes rejects a pod with this rule: spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: must be in the range 1-100
        "#]],
    );
    check(
        json!({"spec": {"topologySpreadConstraints": "zone"}}),
        expect![[r#"
            InvalidRule (Blocks): Kubernetes rejects a pod with this rule: spec.topologySpreadConstraints: invalid type: string "zone", expected a sequence
        "#]],
    );
}

#[test]
fn what_else_somebody_should_know() {
    check(
        json!({}),
        expect![[r#"
        SaysNothing (Idle): the spec has neither topologySpreadConstraints nor affinity: pods are placed as if there were no Topology
    "#]],
    );
    check(
        json!({"spec": {"affinity": {"nodeAffinity": {}}}}),
        expect![[r#"
        SaysNothing (Idle): the spec has neither topologySpreadConstraints nor affinity: pods are placed as if there were no Topology
    "#]],
    );
    let mut draft = spread("kubernetes.io/hostname", "DoNotSchedule", Value::Null);
    draft["spec"]["topologySpreadConstraint"] = draft["spec"]["topologySpreadConstraints"].take();
    check(
        draft.clone(),
        expect![[r#"
            DraftSpelling (Note): spec.topologySpreadConstraint is the draft's spelling of topologySpreadConstraints: Stead accepts it, the released OpenStack operators do not
        "#]],
    );
    draft["spec"]["topologySpreadConstraints"] = json!([]);
    check(
        draft,
        expect![[r#"
            SaysNothing (Idle): the spec has neither topologySpreadConstraints nor affinity: pods are placed as if there were no Topology
            DraftSpelling (Note): spec.topologySpreadConstraint is the draft's spelling of topologySpreadConstraints: only topologySpreadConstraints counts
        "#]],
    );
    let mut deleted = pinned("zone", json!(["zoneA"]));
    deleted["metadata"] = json!({
        "deletionTimestamp": "2025-01-08T17:00:00Z",
        "finalizers": ["openstack.org/glanceapi-azone", "openstack.org/memcached-memcached", "example.org/keep"],
    });
    check(
        deleted,
        expect![[r#"
            BeingDeleted (Note): it was deleted at 2025-01-08T17:00:00Z and is kept until nobody uses it any more; it is used by Glance API azone (finalizer openstack.org/glanceapi-azone), memcached memcached (finalizer openstack.org/memcached-memcached) and finalizer example.org/keep
        "#]],
    );
}
