//! The definition of NodeRecovery. A recovery installs it if it is missing, or if it is an older one that would drop a part of
//! the record.

use std::time::{Duration, Instant};

use anyhow::bail;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use serde_json::Value;
use stead_manifests::{Manifest, is_ours, recovery};

use crate::output;
use crate::server::Server;

/// How often the definition is read while waiting for it.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The definition, and its state in the cluster.
pub(super) struct Definition {
    manifest: Manifest,
    state: DefinitionState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DefinitionState {
    Missing,
    Older,
    /// The same as ours, or newer.
    Current,
}

pub(super) async fn look(server: &Server) -> anyhow::Result<Definition> {
    let manifest = recovery();
    let state = match server.get(&manifest.path()).await? {
        None => DefinitionState::Missing,
        Some(existing) if !is_ours(&existing) => {
            bail!(
                "{manifest} does not belong to Stead: there is no place for the record, and nothing is done without it"
            )
        }
        Some(existing) => {
            let (existing, ours) = (schema(&existing)?, schema(&manifest.object)?);
            let keeps = existing.zip(ours).is_some_and(|(existing, ours)| keeps(&existing, &ours));
            if keeps { DefinitionState::Current } else { DefinitionState::Older }
        }
    };
    Ok(Definition { manifest, state })
}

/// The schema of the only version of a definition.
fn schema(definition: &Value) -> anyhow::Result<Option<JSONSchemaProps>> {
    let definition: CustomResourceDefinition = stead_model::parse("the definition of NodeRecovery", definition)?;
    let version = definition.spec.versions.into_iter().next();
    Ok(version.and_then(|version| version.schema?.open_api_v3_schema))
}

/// Whether a schema keeps everything that another one allows. It may keep more, as the schema of a newer Stead does.
fn keeps(existing: &JSONSchemaProps, ours: &JSONSchemaProps) -> bool {
    if existing.x_kubernetes_preserve_unknown_fields == Some(true) {
        return true;
    }
    let keeps_field = |(name, ours): (&String, &JSONSchemaProps)| {
        existing.properties.as_ref().and_then(|fields| fields.get(name)).is_some_and(|existing| keeps(existing, ours))
    };
    let keeps_items = match (&existing.items, &ours.items) {
        (_, None) => true,
        (Some(JSONSchemaPropsOrArray::Schema(existing)), Some(JSONSchemaPropsOrArray::Schema(ours))) => {
            keeps(existing, ours)
        }
        _ => false,
    };
    let allows = |value| existing.enum_.as_ref().is_none_or(|allowed| allowed.contains(value));
    existing.type_ == ours.type_
        && ours.x_kubernetes_preserve_unknown_fields != Some(true)
        && ours.properties.iter().flatten().all(keeps_field)
        && keeps_items
        && ours.enum_.iter().flatten().all(allows)
}

impl Definition {
    /// Whether it has to be applied before a record can be written.
    pub(super) fn must_be_applied(&self) -> bool {
        self.state != DefinitionState::Current
    }

    /// Applies it if that is needed, and waits until the server serves the kind.
    pub(super) async fn apply(&self, server: &Server, timeout: Duration) -> anyhow::Result<()> {
        if self.must_be_applied() {
            server.apply(&self.manifest.path(), &self.manifest.object, false).await?;
            let did = if self.state == DefinitionState::Missing { "created" } else { "updated" };
            output::complain("note", &format!("{did} {}", self.manifest));
        }
        let begun = Instant::now();
        loop {
            let live = server.get(&self.manifest.path()).await?;
            if live.is_some_and(|live| is_established(&live)) {
                return Ok(());
            }
            if begun.elapsed() >= timeout {
                bail!("{} is not established after {}s", self.manifest, timeout.as_secs());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Whether the server serves the kind of a definition.
fn is_established(definition: &Value) -> bool {
    let definition = stead_model::parse::<CustomResourceDefinition>("definition", definition).ok();
    let conditions = definition.and_then(|definition| definition.status?.conditions).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use stead_recovery::NodeRecovery;

    /// A record with every field.
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

    /// The parts of a value that an API server with this schema would drop or refuse.
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
    fn an_older_definition_does_not_keep_everything() {
        let ours = schema(&recovery().object).expect("a definition").expect("a schema");
        let changed = |change: &dyn Fn(&mut Value)| {
            let mut other = serde_json::to_value(&ours).expect("a schema can be written");
            change(&mut other);
            keeps(&serde_json::from_value(other).expect("a schema"), &ours)
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
        assert!(!keeps(&JSONSchemaProps::default(), &ours));
    }

    #[test]
    fn the_schema_keeps_every_field_of_a_record() {
        let record: NodeRecovery = serde_json::from_value(full()).expect("a record");
        let written = serde_json::to_value(&record).expect("a record can be written");
        assert_eq!(written, full(), "the record in this test lacks a field");
        let definition = recovery().object;
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let mut out = Vec::new();
        for part in ["spec", "status"] {
            dropped(&written[part], &schema["properties"][part], part, &mut out);
        }
        assert_eq!(out, Vec::<String>::new());
        use stead_recovery::EvidenceKind;
        use stead_recovery::RecoveryPhase::{Fenced, Held, Planned, Recovered, Released, Returned, Undone, Void};
        let phases = [Planned, Held, Fenced, Released, Recovered, Returned, Undone, Void].map(|phase| json!(phase));
        assert_eq!(schema["properties"]["status"]["properties"]["phase"]["enum"], json!(phases));
        let kinds = [EvidenceKind::Person, EvidenceKind::CloudShutdown, EvidenceKind::BootIdChanged];
        let evidence = &schema["properties"]["spec"]["properties"]["evidence"]["items"]["properties"];
        assert_eq!(evidence["kind"]["enum"], json!(kinds));
    }
}
