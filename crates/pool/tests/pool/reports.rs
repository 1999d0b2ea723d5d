//! Reading reports of other agents.

use stead_pool::{Daemon, PeerState, Report};

/// A report of an agent.
const REPORT: &str = r#"{
  "ordinal": 1, "pod": "uid-1", "address": "10.0.0.1", "daemon": "Running",
  "uuid": "edb18957-b7f5-468d-baf8-19e0e02d20c7", "operatingVersion": 100000,
  "peers": [
    {"uuid": "d77f225f-14f9-4028-9ed1-02eff28cbc4c", "hosts": ["g-0.g.n.svc.d", "10.0.0.9"], "state": "Befriended", "connected": true},
    {"uuid": "", "hosts": ["g-2.g.n.svc.d"], "state": "Default", "connected": false}
  ],
  "volumes": [
    {"name": "gv0", "version": 2, "checksum": "12", "started": true,
     "bricks": [{"host": "g-1.g.n.svc.d", "uuid": null, "path": "/data/bricks/gv0"}]}
  ],
  "heals": 0, "done": null, "doing": "line 1\nline\u001b[2J 2"
}"#;

#[test]
fn reports_are_compatible_with_older_agents() {
    let report = Report::from_json(REPORT.as_bytes()).unwrap();
    assert_eq!((report.daemon, report.peers[0].state), (Daemon::Running, PeerState::Befriended));
    assert_eq!((report.peers[0].uuid.is_some(), report.peers[1].uuid), (true, None));
    assert_eq!(report.doing.as_deref(), Some("line 1 line [2J 2"));
    let (sent, known) = (serde_json::to_value(&report).unwrap(), serde_json::from_str::<serde_json::Value>(REPORT));
    for (key, value) in known.unwrap().as_object().unwrap() {
        assert!(key == "doing" || sent[key] == *value, "{key}: {value} became {}", sent[key]);
    }
}

#[test]
fn an_invalid_value_is_rejected_with_its_field() {
    for (valid, invalid, field) in [
        ("edb18957-b7f5-468d-baf8-19e0e02d20c7", "../../../../../etc/cron.d/x", "uuid"),
        ("d77f225f-14f9-4028-9ed1-02eff28cbc4c", "../../../../../etc/cron.d/x", "peers[0].uuid"),
        ("g-0.g.n.svc.d", "x\\nstate=3", "peers[0].hosts[0]"),
        ("10.0.0.9", "--remote-host=x", "peers[0].hosts[1]"),
        ("\"address\": \"10.0.0.1\"", "\"address\": \"\"", "address"),
        ("\"gv0\"", "\"gv0\\n0 gv1\"", "volumes[0].name"),
        ("\"g-1.g.n.svc.d\"", "\"a/b\"", "volumes[0].bricks[0].host"),
        ("/data/bricks/gv0", "/data/../../etc", "volumes[0].bricks[0].path"),
        ("\"ordinal\": 1", "\"ordinal\": -1", "ordinal"),
    ] {
        assert!(REPORT.contains(valid), "{valid}");
        let error = Report::from_json(REPORT.replace(valid, invalid).as_bytes()).unwrap_err();
        assert_eq!(error.field, field, "{error}");
    }
}
