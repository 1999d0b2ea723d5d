//! Schemas that are put together from named pieces, so that what occurs in several places is written once.
//!
//! A piece is used by `$use: NAME`; what stands beside it is laid over it, and a `null` there takes something away.
//! `$rules: NAME` stands for a list of CEL rules.

use serde_json::{Map, Value};

/// The pieces, by name.
const PIECES: &[(&str, &str)] = &[
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

/// A line that names backends, as a CEL regular expression. Short, as the server counts its letters as cost.
const BACKENDS: &str = r"r'(?m)^\s*enabled_backends\s*=.*\w'";
/// The same, where one of the backends is a file.
const FILE: &str = r"r'(?m)^\s*enabled_backends\s*=.*:file\s*(,|$)'";
/// The configuration of the API that a rule looks at, and of the whole Glance.
const OWN: &str = "{spec}.glanceAPIs[api].customServiceConfig";
const TOP: &str = "{spec}.customServiceConfig";

/// What the words in braces of a rule stand for.
type Words = &'static [(&'static str, &'static str)];

/// A list of rules by name: texts, and what their words stand for there.
fn rules(name: &str) -> Option<Vec<(&'static str, Words)>> {
    let glance: Words = &[
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
    let glance_names: Words = &[
        ("{apis}", "self.spec.glanceAPIs"),
        ("{name}", "size(self.metadata.name)"),
        ("{guard}", "!has(self.spec) || "),
        ("{at}", ".spec"),
    ];
    // A section that is switched off is not looked at.
    let plane: Words = &[
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
    // The control plane's Glance is named glance, with a dash and five letters where its name is to be unique.
    let plane_names: Words = &[
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

/// A value with all of its pieces put in.
pub(crate) fn expand(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(expand).collect()),
        Value::Object(mut fields) => {
            let piece = fields.remove("$use");
            let list = fields.remove("$rules");
            let own: Map<String, Value> = fields.into_iter().map(|(name, value)| (name, expand(value))).collect();
            let mut whole = match piece {
                Some(name) => expand(found(&name)),
                None => Value::Object(Map::new()),
            };
            lay_over(&mut whole, Value::Object(own));
            if let Some(name) = list {
                whole["x-kubernetes-validations"] = Value::Array(rule_list(&name));
            }
            whole
        }
        other => other,
    }
}

fn found(name: &Value) -> Value {
    let text = PIECES.iter().find(|(n, _)| name == n).map(|(_, text)| *text);
    super::read(text.unwrap_or_else(|| panic!("a schema uses the piece {name}, which is not there")))
}

fn rule_list(name: &Value) -> Vec<Value> {
    let lists = name.as_str().and_then(rules);
    let lists = lists.unwrap_or_else(|| panic!("a schema has the rules {name}, which are not there"));
    let put_in = |text: &str, words: Words| {
        let text = words.iter().fold(text.to_owned(), |text, (word, meaning)| text.replace(word, meaning));
        match super::read(&text) {
            Value::Array(rules) => rules,
            _ => Vec::new(),
        }
    };
    lists.into_iter().flat_map(|(text, words)| put_in(text, words)).collect()
}

/// Lays one value over another: fields over fields, anything else in place of what was there.
fn lay_over(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (name, value) in over {
                if value.is_null() {
                    under.remove(&name);
                } else {
                    lay_over(under.entry(name).or_insert(Value::Null), value);
                }
            }
        }
        (under, over) => *under = over,
    }
}
