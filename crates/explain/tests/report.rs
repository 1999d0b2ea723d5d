//! The first field report's two Pending pods, as the repository ships them.

use std::path::PathBuf;

use expect_test::expect_file;
use stead_explain::outage::Clock;
use stead_explain::{Explanation, PodState, explain, render};
use stead_model::{ObjectKey, Objects};

fn explained(pod: &str) -> Explanation {
    let from = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/glance-zones");
    let dump = stead_dump::read(&[from], &|_, _| true, stead_dump::DEFAULT_MAX_SIZE).expect("the example can be read");
    let objects = Objects::from_items(dump.items.into_iter().map(|i| i.value()));
    let key = ObjectKey::new("Pod", "openstack", pod);
    explain(&objects, &key, &dump.kinds, &Clock::at(jiff::Timestamp::UNIX_EPOCH)).expect("the pod is there")
}

#[test]
fn the_two_pending_pods() {
    expect_file!["golden/glance-default-external-api-2.txt"]
        .assert_eq(&render(&explained("glance-default-external-api-2")));
    expect_file!["golden/glance-default-internal-api-1.txt"]
        .assert_eq(&render(&explained("glance-default-internal-api-1")));
}

/// What the report's engineer was not told: the lost label, and that it was not all.
#[test]
fn the_label_is_missing_and_would_not_be_enough() {
    for pod in ["glance-default-external-api-2", "glance-default-internal-api-1"] {
        let e = explained(pod);
        assert_eq!(e.state, PodState::Unschedulable);
        let lost = e.reasons.iter().find(|r| r.reason.contains("missing required label")).expect("the lost label");
        assert_eq!(lost.nodes.len(), 1);
        assert_eq!(lost.nodes[0].name, "worker-3");
        let text: Vec<&str> = lost.because.iter().map(|b| b.text.as_str()).collect();
        assert!(text.iter().any(|t| t.contains("it has no label zone")), "{text:?}");
        assert!(
            text.iter().any(|t| t.starts_with("with zone=zoneA the pod would still not fit")
                && t.contains("zoneA 5, zoneB 4, zoneC 4")),
            "{text:?}"
        );
        let external =
            e.fixes.iter().find(|f| f.text.contains("(external storage, or none)")).expect("external storage");
        assert!(external.commands.iter().any(|c| c.to_string().contains(r#""storage":{"external":true}"#)));
        assert!(e.fixes[0].harm < external.harm, "nothing that leaves data behind comes first");
    }
}
