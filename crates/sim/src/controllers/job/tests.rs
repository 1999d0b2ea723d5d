use super::*;
use crate::controllers::alone::Alone;
use crate::step::DeletePropagation;
use crate::step::DeleteOptions;
use serde_json::{Value, json};
use stead_model::KubernetesVersion;

type Cluster = Alone<Jobs>;

fn create_job(cluster: &mut Cluster, spec: Value) -> SimKey {
    let template = json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "c" }] } });
    let mut spec = spec;
    spec.as_object_mut().expect("an object").entry("template").or_insert(template);
    let key = cluster.create(json!({ "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": "j", "namespace": "n" }, "spec": spec }));
    cluster.run(10);
    key
}

/// The pods of the Job that have not ended and are not being deleted, the oldest name first.
fn active(cluster: &Cluster) -> Vec<SimKey> {
    let is_there = |key: &SimKey| cluster.store().at::<Pod>(key).is_some_and(|pod| crate::pods::is_active(pod));
    cluster.pods().into_iter().filter(is_there).collect()
}

/// Binds a pod and gives it a phase.
fn set_phase(cluster: &mut Cluster, key: &SimKey, phase: &str, exit_code: i32) {
    bind(cluster, key);
    let ready = json!([{ "type": "Ready", "status": if phase == "Running" { "True" } else { "False" } }]);
    let state = match phase {
        "Succeeded" | "Failed" => {
            let finished = crate::api::whole_seconds(cluster.now);
            json!({ "terminated": { "exitCode": exit_code, "finishedAt": finished } })
        }
        _ => json!({ "running": {} }),
    };
    let container =
        json!({ "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state });
    cluster.set_pod(key, json!({ "phase": phase, "conditions": ready, "containerStatuses": [container] }));
}

fn bind(cluster: &mut Cluster, key: &SimKey) {
    if cluster.json(key, "/spec/nodeName").is_null() {
        let uid = cluster.json(key, "/metadata/uid").as_str().expect("a uid").to_owned();
        cluster.request(Write::Bind { pod: key.clone(), uid, node: "a".into() }).expect("bound");
    }
}

/// All active pods end, and the Job is looked at.
fn end_all(cluster: &mut Cluster, phase: &str) {
    for key in active(cluster) {
        set_phase(cluster, &key, phase, 1);
    }
    cluster.run(1_100);
}

/// Active, ready, terminating, succeeded, failed; and the true conditions with their reasons.
fn status(cluster: &Cluster, key: &SimKey) -> (Vec<i64>, Vec<String>) {
    let status = cluster.json(key, "/status");
    let counters = ["active", "ready", "terminating", "succeeded", "failed"];
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let conditions = conditions.iter().filter(|it| it["status"] == "True").map(|it| {
        let reason = it["reason"].as_str().unwrap_or("-");
        format!("{} {reason}", it["type"].as_str().expect("a type"))
    });
    (counters.iter().map(|name| status[name].as_i64().unwrap_or_default()).collect(), conditions.collect())
}

/// The completion indexes of the active pods.
fn indexes(cluster: &Cluster) -> Vec<i64> {
    let index = |key: &SimKey| {
        let annotations = cluster.json(key, "/metadata/annotations");
        annotations[indexes::INDEX].as_str().and_then(|it| it.parse().ok()).expect("an index")
    };
    let mut found: Vec<i64> = active(cluster).iter().map(index).collect();
    found.sort_unstable();
    found
}

fn pod_of_index(cluster: &Cluster, index: i64) -> SimKey {
    let name = format!("j-{index}-");
    active(cluster).into_iter().find(|key| key.name.starts_with(&name)).expect("a pod")
}

#[test]
fn a_job_runs_to_its_completion() {
    let mut cluster = Cluster::new();
    let job = create_job(&mut cluster, json!({ "completions": 3, "parallelism": 2 }));
    let pods = active(&cluster);
    assert_eq!(pods.len(), 2);
    assert_eq!(status(&cluster, &job), (vec![2, 0, 0, 0, 0], vec![]));
    assert_eq!(cluster.json(&pods[0], "/metadata/finalizers"), json!([TRACKING]));
    assert_eq!(cluster.json(&pods[0], "/metadata/labels/job-name"), "j");
    pods.iter().for_each(|key| set_phase(&mut cluster, key, "Running", 0));
    cluster.run(900);
    assert_eq!(status(&cluster, &job).0, [2, 0, 0, 0, 0], "changes are collected for a second");
    cluster.run(200);
    assert_eq!(status(&cluster, &job).0, [2, 2, 0, 0, 0]);
    end_all(&mut cluster, "Succeeded");
    assert_eq!(status(&cluster, &job), (vec![1, 0, 0, 2, 0], vec![]));
    assert_eq!(cluster.json(&pods[0], "/metadata/finalizers"), Value::Null);
    end_all(&mut cluster, "Succeeded");
    let ends = vec!["SuccessCriteriaMet CompletionsReached".to_owned(), "Complete CompletionsReached".to_owned()];
    assert_eq!(status(&cluster, &job), (vec![0, 0, 0, 3, 0], ends));
    assert_eq!(cluster.json(&job, "/status/uncountedTerminatedPods"), json!({}));
    assert_eq!(cluster.take_events().last().map(String::as_str), Some("Normal Completed Job completed"));
    cluster.run(10_000);
    assert_eq!(cluster.next_at(), None);
}

#[test]
fn a_pod_is_counted_before_it_loses_its_finalizer() {
    let mut cluster = Cluster::new();
    create_job(&mut cluster, json!({}));
    let pod = active(&cluster)[0].clone();
    let uid = cluster.json(&pod, "/metadata/uid");
    cluster.run(2_000);
    cluster.take_writes();
    set_phase(&mut cluster, &pod, "Succeeded", 0);
    cluster.run(1_100);
    let written: Vec<Value> = cluster
        .take_writes()
        .iter()
        .map(|write| match write {
            Write::Status(object) => object.to_json()["status"]["uncountedTerminatedPods"].clone(),
            Write::Replace(object) => object.to_json()["metadata"]["finalizers"].clone(),
            _ => json!("another write"),
        })
        .collect();
    assert_eq!(written, [json!({ "succeeded": [uid] }), Value::Null, json!({})]);
}

#[test]
fn failed_pods_are_replaced_with_back_off_until_the_limit() {
    let mut cluster = Cluster::new();
    let job = create_job(&mut cluster, json!({ "backoffLimit": 2 }));
    for (failures, delay) in [(1, 10), (2, 20)] {
        let before = cluster.pods().len();
        end_all(&mut cluster, "Failed");
        assert_eq!(status(&cluster, &job).0, [0, 0, 0, 0, failures]);
        cluster.run(delay * 1_000 - 2_200);
        assert_eq!(cluster.pods().len(), before, "{failures}");
        cluster.run(2_000);
        assert_eq!(cluster.pods().len(), before + 1, "{failures}");
        cluster.run(2_000);
    }
    end_all(&mut cluster, "Failed");
    let ends = vec!["FailureTarget BackoffLimitExceeded".to_owned(), "Failed BackoffLimitExceeded".to_owned()];
    assert_eq!(status(&cluster, &job), (vec![0, 0, 0, 0, 3], ends));
    let last = cluster.take_events().pop().expect("an event");
    assert_eq!(last, "Warning BackoffLimitExceeded Job has reached the specified backoff limit");
    cluster.run(10_000);
    assert_eq!((cluster.next_at(), cluster.pods().len()), (None, 3));
}

#[test]
fn a_job_waits_for_pods_that_are_being_deleted() {
    for (version, ends_early) in [(30, true), (31, false), (36, false)] {
        let mut cluster = Cluster::new();
        cluster.settings = crate::settings::Settings::of(KubernetesVersion::minor(version));
        let job = create_job(&mut cluster, json!({ "activeDeadlineSeconds": 30 }));
        let pod = active(&cluster)[0].clone();
        set_phase(&mut cluster, &pod, "Running", 0);
        cluster.run(29_000);
        assert!(status(&cluster, &job).1.is_empty());
        cluster.run(5_000);
        let (counters, ends) = status(&cluster, &job);
        assert_eq!(counters[4], 1);
        if ends_early {
            assert_eq!(ends, ["Failed DeadlineExceeded"], "1.{version}");
            continue;
        }
        assert_eq!((counters, ends), (vec![0, 0, 1, 0, 1], vec!["FailureTarget DeadlineExceeded".to_owned()]));
        cluster.run(300_000);
        assert_eq!(status(&cluster, &job).1.len(), 1);
        cluster.delete(&pod, Some(0));
        cluster.run(1_100);
        assert_eq!(status(&cluster, &job).1, ["FailureTarget DeadlineExceeded", "Failed DeadlineExceeded"]);
    }
}

#[test]
fn a_pod_that_is_being_deleted_is_replaced_at_once_or_when_it_has_ended() {
    for (policy, replaced) in [("TerminatingOrFailed", true), ("Failed", false)] {
        let mut cluster = Cluster::new();
        let job = create_job(&mut cluster, json!({ "podReplacementPolicy": policy }));
        let pod = active(&cluster)[0].clone();
        set_phase(&mut cluster, &pod, "Running", 0);
        cluster.run(2_000);
        cluster.delete(&pod, None);
        cluster.run(15_000);
        let counters = status(&cluster, &job).0;
        assert_eq!(active(&cluster).len(), usize::from(replaced), "{policy}");
        assert_eq!(counters[2..], [1, 0, i64::from(replaced)], "{policy}");
        set_phase(&mut cluster, &pod, "Failed", 1);
        cluster.run(15_000);
        assert_eq!(active(&cluster).len(), 1, "{policy}");
        assert_eq!(status(&cluster, &job).0[4], 1, "{policy}");
    }
}

#[test]
fn a_suspended_job_has_no_pods() {
    let mut cluster = Cluster::new();
    let job = create_job(&mut cluster, json!({ "parallelism": 2 }));
    for key in active(&cluster) {
        set_phase(&mut cluster, &key, "Running", 0);
    }
    cluster.run(2_000);
    cluster.take_events();
    let suspend = |cluster: &mut Cluster, suspend: bool| {
        cluster.change::<Job>(&job, |job| job.spec.as_mut().expect("a spec").suspend = Some(suspend));
        cluster.run(10);
    };
    suspend(&mut cluster, true);
    assert_eq!(active(&cluster).len(), 0);
    assert_eq!(status(&cluster, &job), (vec![0, 0, 2, 0, 0], vec!["Suspended JobSuspended".to_owned()]));
    assert_eq!(cluster.json(&job, "/status/startTime"), Value::Null);
    for key in cluster.pods() {
        cluster.delete(&key, Some(0));
    }
    cluster.run(60_000);
    assert_eq!(status(&cluster, &job).0, [0, 0, 0, 0, 0], "they do not count as failed");
    suspend(&mut cluster, false);
    assert_eq!(active(&cluster).len(), 2);
    assert_eq!(cluster.json(&job, "/status/startTime"), json!(crate::api::whole_seconds(cluster.now)));
    let events = cluster.take_events();
    let told: Vec<&String> = events.iter().filter(|event| !event.contains("pod:")).collect();
    assert_eq!(told, ["Normal Suspended Job suspended", "Normal Resumed Job resumed"]);
}

#[test]
fn fewer_parallel_pods_delete_those_that_have_done_least() {
    let mut cluster = Cluster::new();
    let job = create_job(&mut cluster, json!({ "parallelism": 3 }));
    let running = active(&cluster)[1].clone();
    set_phase(&mut cluster, &running, "Running", 0);
    cluster.run(2_000);
    cluster.change::<Job>(&job, |job| job.spec.as_mut().expect("a spec").parallelism = Some(1));
    cluster.run(10);
    assert_eq!(cluster.pods(), [running]);
    cluster.run(2_000);
    assert_eq!(status(&cluster, &job).0, [1, 1, 0, 0, 0]);
}

#[test]
fn an_indexed_job_completes_each_index_once() {
    let mut cluster = Cluster::new();
    let spec = json!({ "completionMode": "Indexed", "completions": 4, "parallelism": 2 });
    let job = create_job(&mut cluster, spec);
    assert_eq!(indexes(&cluster), [0, 1]);
    let pod = pod_of_index(&cluster, 1);
    assert_eq!(cluster.json(&pod, "/spec/hostname"), "j-1");
    assert_eq!(cluster.json(&pod, "/metadata/labels/batch.kubernetes.io~1job-completion-index"), "1");
    assert_eq!(cluster.json(&pod, "/spec/containers/0/env/0/name"), "JOB_COMPLETION_INDEX");
    set_phase(&mut cluster, &pod, "Succeeded", 0);
    cluster.run(1_100);
    assert_eq!(indexes(&cluster), [0, 2]);
    assert_eq!(cluster.json(&job, "/status/completedIndexes"), "1");
    let failed = pod_of_index(&cluster, 0);
    set_phase(&mut cluster, &failed, "Failed", 1);
    cluster.run(15_000);
    assert_eq!(indexes(&cluster), [0, 2], "the lowest index first");
    end_all(&mut cluster, "Succeeded");
    end_all(&mut cluster, "Succeeded");
    assert_eq!(cluster.json(&job, "/status/completedIndexes"), "0-3");
    assert_eq!(status(&cluster, &job).0, [0, 0, 0, 4, 1]);
    assert_eq!(status(&cluster, &job).1.last().map(String::as_str), Some("Complete CompletionsReached"));
}

#[test]
fn each_index_has_its_own_limit() {
    let mut cluster = Cluster::new();
    let spec = json!({ "completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 1 });
    let job = create_job(&mut cluster, spec);
    let first = pod_of_index(&cluster, 0);
    set_phase(&mut cluster, &first, "Failed", 1);
    cluster.run(1_100);
    assert_eq!(indexes(&cluster), [1]);
    assert_eq!(cluster.json(&first, "/metadata/finalizers"), json!([TRACKING]), "it waits for its replacement");
    cluster.run(12_000);
    assert_eq!(indexes(&cluster), [0, 1]);
    assert_eq!(cluster.json(&first, "/metadata/finalizers"), Value::Null);
    let second = pod_of_index(&cluster, 0);
    assert_eq!(cluster.json(&second, "/metadata/annotations/batch.kubernetes.io~1job-index-failure-count"), "1");
    set_phase(&mut cluster, &second, "Failed", 1);
    cluster.run(60_000);
    assert_eq!(indexes(&cluster), [1]);
    assert_eq!(cluster.json(&job, "/status/failedIndexes"), "0");
    end_all(&mut cluster, "Succeeded");
    assert_eq!(status(&cluster, &job), (
        vec![0, 0, 0, 1, 2],
        vec!["FailureTarget FailedIndexes".to_owned(), "Failed FailedIndexes".to_owned()]
    ));
}

#[test]
fn a_success_policy_ends_a_job_and_its_other_pods() {
    let mut cluster = Cluster::new();
    let policy = json!({ "rules": [{ "succeededIndexes": "0" }] });
    let spec = json!({ "completionMode": "Indexed", "completions": 3, "parallelism": 3, "successPolicy": policy });
    let job = create_job(&mut cluster, spec);
    for index in [1, 2] {
        let key = pod_of_index(&cluster, index);
        set_phase(&mut cluster, &key, "Running", 0);
    }
    let leader = pod_of_index(&cluster, 0);
    set_phase(&mut cluster, &leader, "Succeeded", 0);
    cluster.run(3_000);
    assert_eq!(status(&cluster, &job), (vec![0, 0, 2, 1, 0], vec!["SuccessCriteriaMet SuccessPolicy".to_owned()]));
    for key in cluster.pods() {
        cluster.delete(&key, Some(0));
    }
    cluster.run(1_100);
    assert_eq!(status(&cluster, &job).1[1], "Complete SuccessPolicy");
}

#[test]
fn a_pod_failure_policy_ignores_disruptions() {
    let mut cluster = Cluster::new();
    let rules = json!([
        { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget" }] },
        { "action": "FailJob", "onExitCodes": { "operator": "In", "values": [42] } },
    ]);
    let job = create_job(&mut cluster, json!({ "backoffLimit": 0, "podFailurePolicy": { "rules": rules } }));
    let pod = active(&cluster)[0].clone();
    bind(&mut cluster, &pod);
    cluster.set_pod(&pod, json!({ "phase": "Failed", "conditions": [{ "type": "DisruptionTarget", "status": "True" }] }));
    cluster.run(15_000);
    assert_eq!(status(&cluster, &job), (vec![1, 0, 0, 0, 0], vec![]));
    let pod = active(&cluster)[0].clone();
    set_phase(&mut cluster, &pod, "Failed", 42);
    cluster.run(1_100);
    assert_eq!(status(&cluster, &job).1, ["FailureTarget PodFailurePolicy", "Failed PodFailurePolicy"]);
    let message = format!("Container c for pod n/{} failed with exit code 42 matching FailJob rule at index 1", pod.name);
    assert_eq!(cluster.take_events().pop(), Some(format!("Warning PodFailurePolicy {message}")));
}

#[test]
fn restarts_count_if_containers_are_restarted() {
    let mut cluster = Cluster::new();
    let template = json!({ "spec": { "restartPolicy": "OnFailure", "containers": [{ "name": "c" }] } });
    let job = create_job(&mut cluster, json!({ "backoffLimit": 2, "template": template }));
    let pod = active(&cluster)[0].clone();
    bind(&mut cluster, &pod);
    for (restarts, fails) in [(1, false), (2, true)] {
        let container = json!({ "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": restarts });
        cluster.set_pod(&pod, json!({ "phase": "Running", "containerStatuses": [container] }));
        cluster.run(1_100);
        assert_eq!(!status(&cluster, &job).1.is_empty(), fails, "{restarts}");
    }
}

#[test]
fn the_pods_of_a_deleted_job_lose_their_finalizer() {
    for propagation in [DeletePropagation::Background, DeletePropagation::Foreground] {
        let mut cluster = Cluster::new();
        let job = create_job(&mut cluster, json!({ "parallelism": 2 }));
        let options = DeleteOptions { propagation, ..DeleteOptions::default() };
        cluster.request(Write::Delete(job, options)).expect("deleted");
        cluster.run(2_000);
        let held = cluster.store().all::<Pod>().filter(|pod| is_tracked(pod)).count();
        assert_eq!((cluster.pods().len(), held), (2, 0), "{propagation:?}");
    }
}

#[test]
fn a_resumed_controller_knows_the_back_off() {
    let mut cluster = Cluster::new();
    create_job(&mut cluster, json!({}));
    end_all(&mut cluster, "Failed");
    cluster.run(15_000);
    end_all(&mut cluster, "Failed");
    // The second failure is counted: its replacement comes 20 seconds after it.
    cluster.resume();
    cluster.run(17_000);
    assert_eq!(cluster.pods().len(), 2);
    cluster.run(3_000);
    assert_eq!(cluster.pods().len(), 3);
}

/// The failed pods are gone, but their number is not.
#[test]
fn a_resumed_controller_counts_pods_that_are_gone() {
    let mut cluster = Cluster::new();
    create_job(&mut cluster, json!({}));
    for _ in 0..2 {
        end_all(&mut cluster, "Failed");
        cluster.run(25_000);
    }
    let left = active(&cluster);
    for key in cluster.pods().into_iter().filter(|key| !left.contains(key)) {
        cluster.delete(&key, Some(0));
    }
    cluster.resume();
    end_all(&mut cluster, "Failed");
    // The third failure: its replacement comes 40 seconds after it.
    cluster.run(38_000);
    assert_eq!(active(&cluster).len(), 0);
    cluster.run(4_000);
    assert_eq!(active(&cluster).len(), 1);
}

#[test]
fn nothing_is_created_in_a_namespace_that_is_being_deleted() {
    let mut cluster = Cluster::new();
    let namespace = cluster.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "n" },
        "spec": { "finalizers": ["kubernetes"] } }));
    create_job(&mut cluster, json!({}));
    cluster.delete(&namespace, None);
    let key = active(&cluster)[0].clone();
    cluster.delete(&key, Some(0));
    cluster.run(60_000);
    assert!(cluster.pods().is_empty());
    assert_eq!(cluster.next_at(), None);
}
