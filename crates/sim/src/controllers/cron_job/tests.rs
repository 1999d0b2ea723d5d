use super::*;
use crate::controllers::alone::Alone;
use crate::controllers::job_end::end_of;
use crate::pods::controller_reference;
use crate::{Choices, Settings, SimObject, Simulation};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

type Cluster = Alone<CronJobs>;

/// A cluster at ten o'clock.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.now = "2026-01-05T10:00:00Z".parse().expect("a time");
    cluster
}

fn create(cluster: &mut Cluster, schedule: &str, more: Value) -> SimKey {
    let mut spec = json!({ "schedule": schedule, "jobTemplate": { "spec": { "template": {} } } });
    spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let key = cluster.create(json!({ "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": { "name": "c", "namespace": "n" }, "spec": spec }));
    cluster.run(10);
    key
}

fn run_until(cluster: &mut Cluster, time: &str) {
    cluster.run_until(format!("2026-01-05T{time}Z").parse().expect("a time"));
}

/// The times that the Jobs were scheduled for.
fn jobs(cluster: &Cluster) -> Vec<String> {
    let scheduled = |job: &Arc<Job>| {
        let annotations = job.metadata.annotations.clone().unwrap_or_default();
        annotations[SCHEDULED].trim_start_matches("2026-01-05T").trim_end_matches('Z').to_owned()
    };
    cluster.store().all::<Job>().map(scheduled).collect()
}

fn active(cluster: &Cluster, key: &SimKey) -> Vec<String> {
    let active = cluster.json(key, "/status/active");
    active.as_array().into_iter().flatten().map(|job| job["name"].as_str().expect("a name").to_owned()).collect()
}

/// Ends all Jobs that have not ended.
fn end_jobs(cluster: &mut Cluster, end: &str) {
    let open: Vec<Job> =
        cluster.store().all::<Job>().filter(|job| end_of(job).is_none()).map(|job| Job::clone(job)).collect();
    for mut job in open {
        let now = crate::api::whole_seconds(cluster.now);
        let completed = (end == "Complete").then_some(&now);
        job.status = Some(
            serde_json::from_value(json!({ "startTime": job.metadata.creation_timestamp, "completionTime": completed,
                "conditions": [{ "type": end, "status": "True", "lastTransitionTime": now }] }))
            .expect("a status"),
        );
        cluster.request(Write::Status(job.into())).expect("changed");
    }
    cluster.run(10);
}

#[test]
fn a_job_is_created_a_tenth_of_a_second_after_its_time() {
    let mut cluster = cluster();
    let key = create(&mut cluster, "*/30 * * * *", json!({}));
    run_until(&mut cluster, "10:30:00.09");
    assert_eq!(jobs(&cluster), Vec::<String>::new());
    run_until(&mut cluster, "10:30:00.11");
    assert_eq!(jobs(&cluster), ["10:30:00"]);
    // Minutes since 1970.
    let name = format!("c-{}", cluster.now.as_second() / 60);
    assert_eq!(active(&cluster, &key).join(" "), name);
    let job = SimKey::new(ObjectKind::Job, "n", &name);
    assert_eq!(cluster.json(&key, "/status/active/0/uid"), cluster.json(&job, "/metadata/uid"));
    assert_eq!(cluster.json(&key, "/status/lastScheduleTime"), "2026-01-05T10:30:00Z");
    run_until(&mut cluster, "10:30:10");
    end_jobs(&mut cluster, "Complete");
    assert_eq!(active(&cluster, &key), Vec::<String>::new());
    assert_eq!(cluster.json(&key, "/status/lastSuccessfulTime"), "2026-01-05T10:30:10Z");
    assert_eq!(
        cluster.take_events(),
        [
            format!("Normal SuccessfulCreate Created job {name}"),
            format!("Normal SawCompletedJob Saw completed job: {name}, condition: Complete"),
        ]
    );
    run_until(&mut cluster, "12:10:00");
    assert_eq!(jobs(&cluster), ["10:30:00", "11:00:00", "11:30:00", "12:00:00"]);
    assert_eq!(cluster.next_at().expect("a time").to_string(), "2026-01-05T12:30:00.1Z");
}

#[test]
fn the_concurrency_policy_decides_about_a_job_that_still_runs() {
    for (policy, expected, active_jobs, event) in [
        ("Allow", vec!["10:01:00", "10:02:00"], 2, "Normal SuccessfulCreate Created job c-29460122"),
        (
            "Forbid",
            vec!["10:01:00"],
            1,
            "Normal JobAlreadyActive Not starting job because prior execution is running and concurrency policy is Forbid",
        ),
        ("Replace", vec!["10:02:00"], 1, "Normal SuccessfulCreate Created job c-29460122"),
    ] {
        let mut cluster = cluster();
        let key = create(&mut cluster, "* * * * *", json!({ "concurrencyPolicy": policy }));
        run_until(&mut cluster, "10:02:30");
        assert_eq!(jobs(&cluster), expected, "{policy}");
        assert_eq!(active(&cluster, &key).len(), active_jobs, "{policy}");
        assert_eq!(cluster.take_events().pop().as_deref(), Some(event), "{policy}");
    }
    // As soon as the Job has ended, the missed time is made up for.
    let mut cluster = cluster();
    create(&mut cluster, "* * * * *", json!({ "concurrencyPolicy": "Forbid" }));
    run_until(&mut cluster, "10:04:30");
    end_jobs(&mut cluster, "Failed");
    assert_eq!(jobs(&cluster), ["10:01:00", "10:04:00"]);
}

#[test]
fn only_the_latest_missed_time_is_made_up_for() {
    for (deadline, resumed, expected, event) in [
        (None, "12:30:00", vec!["12:00:00"], "Normal SuccessfulCreate Created job c-29460240"),
        (Some(3600), "12:30:00", vec!["12:00:00"], "Normal SuccessfulCreate Created job c-29460240"),
        (Some(60), "12:30:00", vec![], ""),
        (Some(60), "12:00:30", vec!["12:00:00"], "Normal SuccessfulCreate Created job c-29460240"),
    ] {
        let mut cluster = cluster();
        let key = create(&mut cluster, "0 * * * *", json!({ "suspend": true, "startingDeadlineSeconds": deadline }));
        run_until(&mut cluster, resumed);
        assert_eq!((jobs(&cluster), cluster.next_at()), (vec![], None));
        cluster.change::<CronJob>(&key, |cron_job| cron_job.spec.suspend = Some(false));
        cluster.run(10);
        assert_eq!(jobs(&cluster), expected, "{deadline:?} {resumed}");
        assert_eq!(cluster.take_events().pop().unwrap_or_default(), event, "{deadline:?} {resumed}");
    }
    let mut cluster = cluster();
    let key = create(&mut cluster, "* * * * *", json!({ "suspend": true }));
    run_until(&mut cluster, "12:00:30");
    cluster.change::<CronJob>(&key, |cron_job| cron_job.spec.suspend = Some(false));
    cluster.run(10);
    assert_eq!(jobs(&cluster), ["12:00:00"]);
    let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
    assert_eq!(cluster.take_events()[0], format!("Warning TooManyMissedTimes {message}"));
}

#[test]
fn finished_jobs_over_the_limits_are_deleted() {
    let mut cluster = cluster();
    create(&mut cluster, "*/10 * * * *", json!({ "successfulJobsHistoryLimit": 2, "failedJobsHistoryLimit": 1 }));
    for (time, end) in [("10:11", "Complete"), ("10:21", "Failed"), ("10:31", "Complete"), ("10:41", "Failed"), ("10:51", "Complete")] {
        run_until(&mut cluster, &format!("{time}:00"));
        end_jobs(&mut cluster, end);
    }
    assert_eq!(jobs(&cluster), ["10:30:00", "10:40:00", "10:50:00"]);
    let events = cluster.take_events();
    assert_eq!(events.iter().filter(|event| event.starts_with("Normal SuccessfulDelete Deleted job c-")).count(), 2);
}

#[test]
fn another_schedule_counts_from_its_next_time() {
    let mut cluster = cluster();
    let key = create(&mut cluster, "0 12 * * *", json!({}));
    run_until(&mut cluster, "10:20:00");
    cluster.change::<CronJob>(&key, |cron_job| cron_job.spec.schedule = "*/15 * * * *".into());
    run_until(&mut cluster, "10:29:59");
    assert_eq!(jobs(&cluster), Vec::<String>::new());
    run_until(&mut cluster, "10:30:01");
    assert_eq!(jobs(&cluster), ["10:30:00"]);
}

#[test]
fn jobs_that_vanish_or_appear_are_reported() {
    let mut cluster = cluster();
    let key = create(&mut cluster, "0 * * * *", json!({}));
    run_until(&mut cluster, "11:01:00");
    let job = SimKey::new(ObjectKind::Job, "n", &active(&cluster, &key)[0]);
    cluster.take_events();
    cluster.delete(&job, None);
    cluster.run(10);
    assert_eq!(cluster.take_events(), [format!("Normal MissingJob Active job went missing: {}", job.name)]);
    assert_eq!(cluster.json(&key, "/status"), json!({ "lastScheduleTime": "2026-01-05T11:00:00Z" }));
    let owner = controller_reference(cluster.store().object(&key).expect("a CronJob"));
    cluster.create(json!({ "apiVersion": "batch/v1", "kind": "Job", "spec": { "template": {} },
        "metadata": { "name": "other", "namespace": "n", "ownerReferences": [owner] } }));
    cluster.run(10);
    let message = "Warning UnexpectedJob Saw a job that the controller did not create or forgot: other";
    assert_eq!(cluster.take_events(), [message]);
}

#[test]
fn other_time_zones_are_not_guessed() {
    for (zone, expected) in [("UTC", 1), ("Etc/UTC", 1), ("Europe/Berlin", 0)] {
        let mut cluster = cluster();
        create(&mut cluster, "30 10 * * *", json!({ "timeZone": zone }));
        run_until(&mut cluster, "10:31:00");
        assert_eq!(jobs(&cluster).len(), expected, "{zone}");
        if expected == 0 {
            let message = "Warning TimeZoneNotModelled time zone \"Europe/Berlin\" is not modelled: only UTC is";
            assert_eq!((cluster.take_events(), cluster.next_at()), (vec![message.to_owned()], None));
        }
    }
}

#[test]
fn in_a_cluster_a_cron_job_leads_to_pods() {
    let object = json!({ "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "c", "namespace": "n" },
        "spec": { "schedule": "*/5 * * * *", "jobTemplate": { "spec": { "template": { "spec": { "containers": [] } } } } } });
    let start: Timestamp = "2026-01-05T10:00:00Z".parse().expect("a time");
    let mut simulation = Simulation::new(start, Settings::default(), Choices::seeded(1));
    simulation.request(Write::Create(SimObject::from_json(&object).expect("a CronJob"))).expect("created");
    simulation.run_until(start + SignedDuration::from_mins(11)).expect("within limits");
    let jobs: Vec<SimKey> = simulation.store().of_kind(ObjectKind::Job).map(|(key, _)| key.clone()).collect();
    assert_eq!(jobs.iter().map(|key| &*key.name).collect::<Vec<_>>(), ["c-29460125", "c-29460130"]);
    for job in &jobs {
        let uid = simulation.store().object(job).expect("a Job").uid();
        assert_eq!(simulation.store().all_owned_by::<Pod>(uid).count(), 1, "{job}");
    }
    let fork = simulation.clone();
    simulation.run_for(SignedDuration::from_mins(5)).expect("within limits");
    assert_eq!(fork.store().all::<Job>().count(), 2);
    assert_eq!(simulation.store().all::<Job>().count(), 3);
}
