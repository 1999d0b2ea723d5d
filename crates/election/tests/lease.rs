//! A candidate and its Lease, against a server on loopback.

#[path = "../../client/tests/stub/mod.rs"]
mod stub;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stead_client::ClientConfig;
use stead_election::{Candidate, Leadership, LeaseName, LeaseTiming, MonotonicClock, run_candidate};
use stub::{StubServer, status};
use tokio::sync::{oneshot, watch};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/n/leases";

/// A Lease that is created becomes this process's, and is released at the end.
#[tokio::test]
async fn a_missing_lease_is_created_and_released() {
    let exists = Mutex::new(false);
    let server = StubServer::start(move |asked| {
        let mut exists = exists.lock().expect("no panic before");
        let lease = r#"{"metadata":{"name":"l","namespace":"n","resourceVersion":"1"},"spec":{"holderIdentity":"a"}}"#;
        match asked.split(' ').next() {
            Some("POST") => *exists = true,
            Some("GET") if !*exists => return status(404, "NotFound", "not found"),
            _ => {}
        }
        (200, lease.to_owned())
    })
    .await;
    let client = ClientConfig::from_url(&server.url).expect("a URL").connect().expect("a client");
    let leadership = Arc::new(Leadership::new());
    let (_takes_part, receiver) = watch::channel(true);
    let (stop, stopped) = oneshot::channel();
    let name = LeaseName { namespace: "n".into(), name: "l".into() };
    // Nothing expires, however slow the machine is.
    let hour = Duration::from_secs(3600);
    let timing = LeaseTiming { duration: hour, work: hour, renew: hour, ..LeaseTiming::DEFAULT };
    let candidate = Candidate::new("a".into(), timing);
    let clock = MonotonicClock::new();
    let election = tokio::spawn(run_candidate(client, name, candidate, clock, leadership.clone(), receiver, stopped));
    leadership.subscribe().wait_for(|leads| *leads).await.expect("the election goes on");
    stop.send(()).expect("the election goes on");
    election.await.expect("no panic");
    assert!(!leadership.leads());
    let asked = server.asked();
    assert_eq!(asked.first(), Some(&format!("GET {LEASES}/l")));
    assert!(asked.contains(&format!("POST {LEASES}?fieldManager=stead")), "{asked:?}");
    assert_eq!(asked.last(), Some(&format!("PUT {LEASES}/l?fieldManager=stead")), "{asked:?}");
}
