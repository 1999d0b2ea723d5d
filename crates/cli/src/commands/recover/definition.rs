//! The definition of NodeRecovery, which a recovery brings with it where it is not there, or is an older one that would
//! drop a part of the record.

use std::time::{Duration, Instant};

use anyhow::bail;
use serde_json::Value;
use stead_manifests::{Manifest, is_ours, recovery};

use crate::output;
use crate::server::Server;

/// How often it is looked at.
const PACE: Duration = Duration::from_millis(100);

/// The definition, and how it stands in the cluster.
pub(super) struct Definition {
    manifest: Manifest,
    standing: Standing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Missing,
    Older,
    /// As ours is, or newer.
    Fine,
}

pub(super) async fn look(server: &Server) -> anyhow::Result<Definition> {
    let manifest = recovery();
    let there = server.get(&manifest.path()).await?;
    if there.as_ref().is_some_and(|there| !is_ours(there)) {
        bail!("{manifest} belongs to somebody else: Stead cannot keep its record there, and does nothing without one");
    }
    let standing = match there {
        None => Standing::Missing,
        Some(there) if keeps(schema(&there), schema(&manifest.object)) => Standing::Fine,
        Some(_) => Standing::Older,
    };
    Ok(Definition { manifest, standing })
}

/// What a definition says of the one version that there is.
fn schema(definition: &Value) -> &Value {
    &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

/// Whether a schema keeps all that another one allows. It may keep more: that of a newer Stead does.
fn keeps(there: &Value, ours: &Value) -> bool {
    if there["x-kubernetes-preserve-unknown-fields"] == true {
        return true;
    }
    let fields = ours["properties"].as_object().into_iter().flatten();
    let words = ours["enum"].as_array().into_iter().flatten();
    there["type"] == ours["type"]
        && ours["x-kubernetes-preserve-unknown-fields"] != true
        && fields.into_iter().all(|(name, ours)| keeps(&there["properties"][name], ours))
        && (ours["items"].is_null() || keeps(&there["items"], &ours["items"]))
        && (there["enum"].is_null() || words.into_iter().all(|word| has(&there["enum"], word)))
}

fn has(list: &Value, word: &Value) -> bool {
    list.as_array().is_some_and(|list| list.contains(word))
}

impl Definition {
    /// Whether it has to be written before a record can be.
    pub(super) fn is_wanting(&self) -> bool {
        self.standing != Standing::Fine
    }

    /// Applies it, and waits until the server has the kind.
    pub(super) async fn bring(&self, server: &Server, timeout: Duration) -> anyhow::Result<()> {
        if self.is_wanting() {
            server.apply(&self.manifest.path(), &self.manifest.object, false).await?;
            let did = if self.standing == Standing::Missing { "created" } else { "brought up to date:" };
            output::complain("note", &format!("{did} {}", self.manifest));
        }
        let begun = Instant::now();
        loop {
            let live = server.get(&self.manifest.path()).await?.unwrap_or_default();
            let mut conditions = live["status"]["conditions"].as_array().into_iter().flatten();
            if conditions.any(|c| c["type"] == "Established" && c["status"] == "True") {
                return Ok(());
            }
            if begun.elapsed() >= timeout {
                bail!("{} is not established after {}s", self.manifest, timeout.as_secs());
            }
            tokio::time::sleep(PACE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use stead_recovery::NodeRecovery;

    /// A record that has all that a record can have.
    fn full() -> Value {
        let time = "2026-01-01T00:00:00Z";
        let said = json!({ "by": "me", "at": time, "words": "off" });
        json!({
            "apiVersion": "stead.dev/v1alpha1", "kind": "NodeRecovery", "metadata": { "name": "a-1" },
            "spec": {
                "node": { "name": "a", "uid": "u", "bootID": "b", "providerID": "p", "zone": "z" },
                "evidence": [{ "kind": "Person", "by": "me", "at": time, "words": "off", "poweredOff": true,
                               "pods": ["u"] }],
                "heard": { "lease": time, "heartbeat": time, "silent": time },
                "plan": {
                    "pods": [{ "namespace": "n", "name": "p", "uid": "u", "owner": "StatefulSet/p", "volumes": ["v"],
                               "terminating": true, "tolerates": false, "taken": true, "target": { "nodes": ["b"] },
                               "feasibleNodes": 4 }],
                    "leftAlone": [{ "what": "pod n/q", "why": "local", "uid": "u", "passing": true, "shield": {
                        "namespace": "n", "name": "q", "before": [{ "key": "k" }], "after": [{ "key": "k" }] } }],
                    "volumes": ["w"],
                },
                "abort": said,
            },
            "status": { "phase": "Fenced", "steps": [{ "at": time, "what": "planned" }], "message": "waits",
                        "noReturnSince": time },
        })
    }

    /// What of a value the API server would drop, or refuse, by a schema.
    fn dropped(value: &Value, schema: &Value, path: &str, out: &mut Vec<String>) {
        if schema["x-kubernetes-preserve-unknown-fields"] == true {
            return;
        }
        match value {
            Value::Object(fields) => {
                for (name, inner) in fields {
                    match schema["properties"].get(name) {
                        Some(schema) => dropped(inner, schema, &format!("{path}.{name}"), out),
                        None => out.push(format!("{path}.{name}")),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|i| dropped(i, &schema["items"], &format!("{path}[]"), out)),
            Value::String(text) => {
                let allowed = schema["enum"].as_array();
                if schema["type"] != "string" || allowed.is_some_and(|all| !all.iter().any(|a| a == text)) {
                    out.push(format!("{path}: {text}"));
                }
            }
            _ => {}
        }
    }

    #[test]
    fn an_older_definition_is_told_from_a_newer_one() {
        let ours = recovery().object;
        let changed = |change: &dyn Fn(&mut Value)| {
            let mut other = schema(&ours).clone();
            change(&mut other);
            keeps(&other, schema(&ours))
        };
        assert!(changed(&|_| {}));
        assert!(changed(&|other| other["properties"]["spec"]["properties"]["more"] = json!({ "type": "string" })));
        assert!(
            changed(&|other| other["properties"]["spec"] = json!({ "x-kubernetes-preserve-unknown-fields": true }))
        );
        let phases = |other: &mut Value, words: &[&str]| {
            let phase = &mut other["properties"]["status"]["properties"]["phase"]["enum"];
            let known = phase.as_array().into_iter().flatten().take(8).cloned();
            *phase = known.chain(words.iter().map(|word| json!(word))).collect();
        };
        assert!(changed(&|other| phases(other, &["Another"])));
        assert!(!changed(&|other| other["properties"]["status"]["properties"]["phase"]["enum"] = json!(["Planned"])));
        assert!(!changed(&|other| {
            let evidence = &mut other["properties"]["spec"]["properties"]["evidence"]["items"];
            evidence["properties"] = json!({ "kind": evidence["properties"]["kind"] });
        }));
        assert!(!keeps(&Value::Null, schema(&ours)));
    }

    #[test]
    fn the_schema_keeps_all_of_a_record() {
        let record: NodeRecovery = serde_json::from_value(full()).expect("a record");
        let written = serde_json::to_value(&record).expect("a record can be written");
        assert_eq!(written, full(), "the record here is not a full one any more");
        let definition = recovery().object;
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let mut out = Vec::new();
        for part in ["spec", "status"] {
            dropped(&written[part], &schema["properties"][part], part, &mut out);
        }
        assert_eq!(out, Vec::<String>::new());
        use stead_recovery::{EvidenceKind, Phase};
        let phases = [Phase::Planned, Phase::Held, Phase::Fenced, Phase::Released, Phase::Recovered, Phase::Returned];
        let phases = phases.into_iter().chain([Phase::Undone, Phase::Void]).map(|p| json!(p)).collect::<Vec<_>>();
        assert_eq!(schema["properties"]["status"]["properties"]["phase"]["enum"], json!(phases));
        let kinds = [EvidenceKind::Person, EvidenceKind::CloudShutdown, EvidenceKind::BootIdChanged];
        let evidence = &schema["properties"]["spec"]["properties"]["evidence"]["items"]["properties"];
        assert_eq!(evidence["kind"]["enum"], json!(kinds));
    }
}
