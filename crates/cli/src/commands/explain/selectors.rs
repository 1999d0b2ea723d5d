//! `-l` and `--field-selector`, as kubectl and the API server evaluate them.

use anyhow::{Context, bail};
use serde_json::Value;
use stead_model::ObjectRef;
use stead_semantics::labels::{Labels, Selector};

/// Which objects of a kind are meant.
#[derive(Debug)]
pub(super) struct Selectors {
    labels: Selector,
    fields: Vec<FieldTerm>,
}

/// A term of a field selector.
#[derive(Debug)]
struct FieldTerm {
    field: String,
    value: String,
    equal: bool,
}

impl Selectors {
    /// Parses both selectors; an absent one selects everything.
    pub(super) fn parse(labels: Option<&str>, fields: Option<&str>, kind: &str) -> anyhow::Result<Selectors> {
        let labels = match labels {
            Some(text) => Selector::parse(text).context("--selector")?,
            None => Selector::everything(),
        };
        let terms = fields.unwrap_or_default().split(',').filter(|term| !term.is_empty());
        let fields = terms.map(|term| FieldTerm::parse(term, kind)).collect::<anyhow::Result<_>>();
        Ok(Selectors { labels, fields: fields.context("--field-selector")? })
    }

    /// Whether an object is selected.
    pub(super) fn select(&self, object: ObjectRef<'_>) -> bool {
        let labels: Labels = object.metadata().ok().and_then(|metadata| metadata.labels).unwrap_or_default();
        self.labels.matches(&labels) && self.fields.iter().all(|term| term.matches(object.raw()))
    }
}

impl FieldTerm {
    /// Parses `field=value`, `field==value` or `field!=value`.
    fn parse(term: &str, kind: &str) -> anyhow::Result<FieldTerm> {
        let (field, value, equal) = match (term.split_once("!="), term.split_once("=="), term.split_once('=')) {
            (Some((field, value)), _, _) => (field, value, false),
            (_, Some((field, value)), _) | (_, _, Some((field, value))) => (field, value, true),
            _ => bail!("invalid selector: '{term}'; can't understand '{term}'"),
        };
        if !supported(kind).contains(&field) {
            bail!("field label not supported: {field}");
        }
        Ok(FieldTerm { field: field.to_owned(), value: value.to_owned(), equal })
    }

    fn matches(&self, object: &Value) -> bool {
        let found = object.pointer(&format!("/{}", self.field.replace('.', "/")));
        let text = match found {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None if self.field == "spec.unschedulable" || self.field == "spec.hostNetwork" => {
                "false".to_owned()
            }
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_string(),
        };
        (text == self.value) == self.equal
    }
}

/// The fields that the API server can select by.
fn supported(kind: &str) -> &'static [&'static str] {
    match kind {
        "Pod" => &[
            "metadata.name",
            "metadata.namespace",
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        "Node" => &["metadata.name", "spec.unschedulable"],
        "Job" => &["metadata.name", "metadata.namespace", "status.successful"],
        "Namespace" => &["metadata.name", "status.phase"],
        "PersistentVolume" => &["metadata.name"],
        _ => &["metadata.name", "metadata.namespace"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use stead_model::Objects;

    #[test]
    fn fields_and_labels_select_as_the_api_server_does() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "n", "labels": {"app": "web"}},
                         "spec": {"nodeName": "w"}, "status": {"phase": "Running"}});
        let objects = Objects::from_items([pod]);
        let object = objects.iter().next().expect("a pod");
        for (labels, fields, selected) in [
            (None, None, true),
            (Some("app=web"), Some("spec.nodeName=w"), true),
            (Some("app in (db)"), None, false),
            (None, Some("status.phase!=Running"), false),
            (None, Some("status.phase==Running,metadata.name=a"), true),
            (None, Some("spec.hostNetwork=false,status.podIP="), true),
        ] {
            let selectors = Selectors::parse(labels, fields, "Pod").expect("they are valid");
            assert_eq!(selectors.select(object), selected, "{labels:?} {fields:?}");
        }
        for (fields, error) in [
            ("spec.nodename=w", "--field-selector: field label not supported: spec.nodename"),
            ("phase", "--field-selector: invalid selector: 'phase'; can't understand 'phase'"),
        ] {
            let found = Selectors::parse(None, Some(fields), "Pod").expect_err(fields);
            assert_eq!(format!("{found:#}"), error);
        }
    }
}
