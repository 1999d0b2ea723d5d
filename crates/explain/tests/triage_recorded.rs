//! Triage of a recording of the real control plane, Kubernetes 1.36.4: a dead node with volumes, a blocked drain, quotas, claims,
//! rejected pods, gates, finalizers, unschedulable pods, and healthy workloads between them.

use std::collections::BTreeSet;
use std::io::Read;

use expect_test::{Expect, expect};
use flate2::read::GzDecoder;
use serde_json::Value;
use stead_explain::outage::{Clock, newest};
use stead_explain::triage::{RootCause, Thresholds, Triage, TriageScope, render, triage};
use stead_model::Objects;

const RECORDING: &[u8] = include_bytes!("../../../testdata/triage/faults-1.36.4.json.gz");

fn recording() -> Vec<Value> {
    let mut text = String::new();
    GzDecoder::new(RECORDING).read_to_string(&mut text).expect("the recording is compressed");
    let mut list: Value = serde_json::from_str(&text).expect("the recording is JSON");
    serde_json::from_value(list["items"].take()).expect("a list")
}

/// Triage of the recording without these kinds, as of when it was made.
fn without(kinds: &[&str], scope: &TriageScope) -> Triage {
    let now = newest(&Objects::from_items(recording())).expect("it has times");
    let items: Vec<Value> =
        recording().into_iter().filter(|item| !kinds.iter().any(|kind| item["kind"] == *kind)).collect();
    let read: BTreeSet<String> = items.iter().filter_map(|item| item["kind"].as_str().map(str::to_owned)).collect();
    triage(&Objects::from_items(items), &read, &Clock::at(now), &Thresholds::default(), scope)
}

fn lines(found: &Triage) -> Vec<String> {
    let line = |cause: &RootCause| format!("{:?} {}: {}\n", cause.cause, cause.about, cause.objects.join(" "));
    found.causes.iter().map(line).collect()
}

fn check(found: &Triage, expected: &Expect) {
    expected.assert_eq(&lines(found).concat());
}

#[test]
fn each_stuck_object_is_under_its_cause() {
    check(
        &without(&[], &TriageScope::default()),
        &expect![[r#"
        NodeUnreachable node/n1: deployment/dead/app job/dead/work node/n1 persistentvolume/pvc-09a8a2df-b341-4ebf-8b79-da3e20bf6ff0 persistentvolume/pvc-1b9373d4-a5c7-45c0-9441-8d77f8b161e4 persistentvolume/pvc-b70c7455-b405-4258-bc35-7edb5ef6ec87 persistentvolumeclaim/ok/used pod/dead/agent-6dfvt pod/dead/app-786dd967c-57qxz pod/dead/app-786dd967c-rgb57 pod/dead/db-1 pod/dead/work-7zwjq pod/dead/work-mwtrp pod/ok/held pod/ok/user pod/q/web-5b5dd97578-lmm6q statefulset/dead/db
        MissingReference storageclass/nosuch: persistentvolumeclaim/claims/missing-class persistentvolumeclaim/claims/p-ephemeral-data pod/claims/p-ephemeral pod/claims/p-missing-class
        Unschedulable deployment/sched/big: deployment/sched/big pod/sched/big-757cc45fff-hzrdw pod/sched/big-757cc45fff-mlmf6
        Unschedulable deployment/sched/spread: deployment/sched/spread pod/sched/spread-9cffc6b85-2sscb pod/sched/spread-9cffc6b85-7482g
        QuotaExceeded resourcequota/q/small: daemonset/q/qd deployment/q/web statefulset/q/qs
        ClaimUnbound persistentvolumeclaim/claims/local: persistentvolumeclaim/claims/local pod/claims/p-local
        ClaimUnbound persistentvolumeclaim/claims/lost: persistentvolumeclaim/claims/lost pod/claims/p-lost
        ClaimUnbound persistentvolumeclaim/claims/no-class: persistentvolumeclaim/claims/no-class pod/claims/p-no-class
        FinalizerBlocks configmap/gone/kept: configmap/gone/kept namespace/gone
        Unschedulable pod/sched/nosel: pod/sched/nosel
        Unschedulable pod/sched/other: pod/sched/other
        MissingReference persistentvolumeclaim/claims/nosuch: pod/claims/p-nosuch
        MissingReference priorityclass/missing: deployment/rej/nopc
        MissingReference runtimeclass/missing: deployment/rej/norc
        MissingReference serviceaccount/rej/missing: deployment/rej/nosa
        CreateRejected deployment/rej/limit: deployment/rej/limit
        BudgetBlocks poddisruptionbudget/pdb/web: poddisruptionbudget/pdb/web
        SchedulingGated pod/sched/gated: pod/sched/gated
    "#]],
    );
}

#[test]
fn the_answer_does_not_depend_on_events_and_leases() {
    let all: BTreeSet<String> = lines(&without(&[], &TriageScope::default())).into_iter().collect();
    let without_events: BTreeSet<String> =
        lines(&without(&["Event", "Lease"], &TriageScope::default())).into_iter().collect();
    let difference: Vec<&String> = all.symmetric_difference(&without_events).collect();
    assert_eq!(difference, [""; 0]);
}

#[test]
fn a_kind_that_was_not_read_is_named_once() {
    let found = without(&["Node", "PersistentVolumeClaim"], &TriageScope::default());
    let note =
        "no objects of kind Node, PersistentVolumeClaim were read: not checked: unreachable nodes, unbound claims";
    assert_eq!(found.note.as_deref(), Some(note));
    assert!(!lines(&found).iter().any(|line| line.starts_with("Node")), "whether a node exists is unknown");
}

#[test]
fn the_list_fits_on_a_screen() {
    let text = render(&without(&[], &TriageScope::default()));
    assert!(text.lines().count() <= 24 && !text.contains('…'), "{text}");
    expect![[r#"
        47 objects are stuck for 18 causes, 1 of them critical
        critical NodeUnreachable (17 objects): node n1 is unreachable: no heartbeat for 11m37s
                 stead explain node/n1
        warning  MissingReference (4 objects): storage class nosuch does not exist
                 create storage class nosuch, or correct the reference to it
        warning  Unschedulable (3 objects): no node can run deployment sched/big (2 pods)
                 stead explain pod/big-757cc45fff-hzrdw -n sched
        warning  Unschedulable (3 objects): no node can run deployment sched/spread (2 pods)
                 stead explain pod/spread-9cffc6b85-2sscb -n sched
        warning  QuotaExceeded (3 objects): quota q/small allows no more pods
                 raise the quota or delete pods: kubectl -n q describe resourcequota small
        warning  ClaimUnbound (2 objects): claim claims/local has no volume
                 kubectl -n claims describe persistentvolumeclaim local
        warning  ClaimUnbound (2 objects): claim claims/lost has no volume
                 kubectl -n claims describe persistentvolumeclaim lost
        warning  ClaimUnbound (2 objects): claim claims/no-class has no volume
                 kubectl -n claims describe persistentvolumeclaim no-class
        warning  FinalizerBlocks (2 objects): configmap gone/kept is deleted but kept by finalizers
                 find what removes the finalizer: kubectl -n gone describe configmap kept
        warning  Unschedulable (1 object): no node can run pod sched/nosel
                 stead explain pod/nosel -n sched
        warning  Unschedulable (1 object): pod sched/other is not scheduled
                 stead explain pod/other -n sched
        and 7 more causes: -o wide
    "#]]
    .assert_eq(&text);
}

#[test]
fn one_namespace() {
    let scope = TriageScope { namespace: Some("pdb".into()), ..TriageScope::default() };
    expect![[r#"
        2 objects are stuck for 2 causes, 1 of them critical
        critical NodeUnreachable (1 object): node n1 is unreachable: no heartbeat for 11m37s
                 stead explain node/n1
        warning  BudgetBlocks (1 object): budget pdb/web allows no eviction: pod web-5786956b74-58llh on
                 cordoned node n5 cannot be evicted
                 add replicas or relax the budget: kubectl -n pdb describe poddisruptionbudget web
    "#]]
    .assert_eq(&render(&without(&[], &scope)));
}
