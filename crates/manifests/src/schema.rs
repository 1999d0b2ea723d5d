//! Assembles schemas from named fragments, so that common parts are written once.
//!
//! `$use: NAME` inserts a fragment; fields beside it are merged over it, and a `null` removes a field. `$rules: NAME`
//! inserts a list of CEL rules.

use serde_json::{Map, Value};

/// The fragments, by name.
const FRAGMENTS: &[(&str, &str)] = &[
    ("affinity", include_str!("../schemas/affinity.yaml")),
    ("conditions", include_str!("../schemas/conditions.yaml")),
    ("custom-config", include_str!("../schemas/custom-config.yaml")),
    ("extra-mounts", include_str!("../schemas/extra-mounts.yaml")),
    ("glance-api-template", include_str!("../schemas/glance-api-template.yaml")),
    ("glance-spec", include_str!("../schemas/glance-spec.yaml")),
    ("hashes", include_str!("../schemas/hashes.yaml")),
    ("image-cache", include_str!("../schemas/image-cache.yaml")),
    ("label-key", include_str!("../schemas/label-key.yaml")),
    ("label-selector", include_str!("../schemas/label-selector.yaml")),
    ("label-value", include_str!("../schemas/label-value.yaml")),
    ("node-selector", include_str!("../schemas/node-selector.yaml")),
    ("node-selector-term", include_str!("../schemas/node-selector-term.yaml")),
    ("override", include_str!("../schemas/override.yaml")),
    ("password-selectors", include_str!("../schemas/password-selectors.yaml")),
    ("pod-affinity", include_str!("../schemas/pod-affinity.yaml")),
    ("pod-affinity-term", include_str!("../schemas/pod-affinity-term.yaml")),
    ("probe", include_str!("../schemas/probe.yaml")),
    ("quantities", include_str!("../schemas/quantities.yaml")),
    ("resources", include_str!("../schemas/resources.yaml")),
    ("secret-names", include_str!("../schemas/secret-names.yaml")),
    ("service-override", include_str!("../schemas/service-override.yaml")),
    ("service-section", include_str!("../schemas/service-section.yaml")),
    ("spread", include_str!("../schemas/spread.yaml")),
    ("storage", include_str!("../schemas/storage.yaml")),
    ("texts", include_str!("../schemas/texts.yaml")),
    ("tls", include_str!("../schemas/tls.yaml")),
    ("tls-secret", include_str!("../schemas/tls-secret.yaml")),
    ("topology-ref", include_str!("../schemas/topology-ref.yaml")),
    ("weight", include_str!("../schemas/weight.yaml")),
];

const GLANCE_RULES: &str = include_str!("../rules/glance.yaml");
const NAME_RULES: &str = include_str!("../rules/glance-names.yaml");

/// A CEL regular expression for a line that names backends. It is short because the API server counts its characters as
/// cost.
const BACKENDS: &str = r"r'(?m)^\s*enabled_backends\s*=.*\w'";
/// The same, with a file backend.
const FILE: &str = r"r'(?m)^\s*enabled_backends\s*=.*:file\s*(,|$)'";
/// The configuration of the API that a rule checks, and of the whole Glance.
const OWN: &str = "{spec}.glanceAPIs[api].customServiceConfig";
const TOP: &str = "{spec}.customServiceConfig";

/// The values of the placeholders in a rule.
type Placeholders = &'static [(&'static str, &'static str)];

/// Returns the rules of this name: templates, each with the values of its placeholders.
fn rules(name: &str) -> Option<Vec<(&'static str, Placeholders)>> {
    let glance: Placeholders = &[
        ("{own}", OWN),
        ("{top}", TOP),
        ("{spec}", "self"),
        ("{old}", "oldSelf"),
        ("{guard}", ""),
        ("{old-guard}", ""),
        ("{at}", ""),
        ("{backends}", BACKENDS),
        ("{file}", FILE),
    ];
    let glance_names: Placeholders = &[
        ("{apis}", "self.spec.glanceAPIs"),
        ("{name}", "size(self.metadata.name)"),
        ("{guard}", "!has(self.spec) || "),
        ("{at}", ".spec"),
    ];
    // A disabled section is not checked.
    let plane: Placeholders = &[
        ("{own}", OWN),
        ("{top}", TOP),
        ("{spec}", "self.template"),
        ("{old}", "oldSelf.template"),
        ("{guard}", "!self.enabled || !has(self.template) || "),
        ("{old-guard}", "!has(oldSelf.template) || "),
        ("{at}", ".template"),
        ("{backends}", BACKENDS),
        ("{file}", FILE),
    ];
    // The Glance of a control plane is named glance, with a dash and five characters if names are unique.
    let plane_names: Placeholders = &[
        ("{apis}", "self.template.glanceAPIs"),
        ("{name}", "(self.uniquePodNames ? 12 : 6)"),
        ("{guard}", "!self.enabled || !has(self.template) || "),
        ("{at}", ".template"),
    ];
    match name {
        "glance" => Some(vec![(GLANCE_RULES, glance)]),
        "glance-names" => Some(vec![(NAME_RULES, glance_names)]),
        "plane-glance" => Some(vec![(GLANCE_RULES, plane), (NAME_RULES, plane_names)]),
        _ => None,
    }
}

/// Inserts all fragments into a value.
pub(crate) fn expand(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(expand).collect()),
        Value::Object(mut fields) => {
            let piece = fields.remove("$use");
            let list = fields.remove("$rules");
            let own: Map<String, Value> = fields.into_iter().map(|(name, value)| (name, expand(value))).collect();
            let mut whole = match piece {
                Some(name) => expand(fragment(&name)),
                None => Value::Object(Map::new()),
            };
            merge_over(&mut whole, Value::Object(own));
            if let Some(name) = list {
                whole["x-kubernetes-validations"] = Value::Array(rule_list(&name));
            }
            whole
        }
        other => other,
    }
}

fn fragment(name: &Value) -> Value {
    let text = FRAGMENTS.iter().find(|(n, _)| name == n).map(|(_, text)| *text);
    super::read(text.unwrap_or_else(|| panic!("a schema uses the unknown fragment {name}")))
}

fn rule_list(name: &Value) -> Vec<Value> {
    let lists = name.as_str().and_then(rules);
    let lists = lists.unwrap_or_else(|| panic!("a schema uses the unknown rules {name}"));
    let fill_in = |text: &str, words: Placeholders| {
        let text = words.iter().fold(text.to_owned(), |text, (word, meaning)| text.replace(word, meaning));
        match super::read(&text) {
            Value::Array(rules) => rules,
            _ => Vec::new(),
        }
    };
    lists.into_iter().flat_map(|(text, words)| fill_in(text, words)).collect()
}

/// Merges one value over another: objects field by field, other values replace.
fn merge_over(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (name, value) in over {
                if value.is_null() {
                    under.remove(&name);
                } else {
                    merge_over(under.entry(name).or_insert(Value::Null), value);
                }
            }
        }
        (under, over) => *under = over,
    }
}
