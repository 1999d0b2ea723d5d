//! Objects as they were read, not parsed yet.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use crate::key::ObjectKey;
use crate::kinds::{KINDS, Kind};
use crate::openshift::renamed_kind;

/// An object with its `apiVersion` and `kind`, to become one of [`Objects`](crate::Objects).
#[derive(Debug, Clone)]
pub enum UnreadObject {
    /// As a value.
    Value(Value),
    /// As JSON text.
    Text(ObjectText),
}

/// The JSON text of an object, and what was read of it to tell which object it is. Items of a typed list do not have
/// `apiVersion` and `kind` in their text.
#[derive(Debug, Clone)]
pub struct ObjectText {
    /// The API group and version.
    pub api_version: Arc<str>,
    /// The kind.
    pub kind: Arc<str>,
    /// The namespace; empty for none.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Box<str>,
    /// The text of the object, which is valid JSON.
    pub text: TextPart,
}

/// A part of a text that is shared.
#[derive(Clone)]
pub struct TextPart {
    whole: Arc<String>,
    part: Range<usize>,
}

impl TextPart {
    /// The part of a text; none if it has no such part.
    pub fn new(whole: &Arc<String>, part: Range<usize>) -> Option<TextPart> {
        whole.get(part.clone())?;
        Some(TextPart { whole: Arc::clone(whole), part })
    }

    /// The part.
    pub fn as_str(&self) -> &str {
        &self.whole[self.part.clone()]
    }
}

impl fmt::Debug for TextPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<Value> for UnreadObject {
    fn from(value: Value) -> UnreadObject {
        UnreadObject::Value(value)
    }
}

impl ObjectText {
    /// The whole object, with `apiVersion` and `kind`. A text that serde_json cannot represent, such as one that is nested
    /// too deeply, is an object with nothing else.
    pub fn value(&self) -> Value {
        let mut value: Value = serde_json::from_str(self.text.as_str()).unwrap_or_default();
        if !value.is_object() {
            value = serde_json::json!({ "metadata": { "name": self.name, "namespace": *self.namespace } });
        }
        value["apiVersion"] = (*self.api_version).into();
        value["kind"] = (*self.kind).into();
        value
    }

    /// Calls `visit` with each field whose value ends in `Z`, as a time in UTC does. The text is searched, not parsed: neither
    /// a time nor the name of its field has a character that JSON would escape.
    pub(crate) fn each_time(&self, visit: &mut dyn FnMut(&str, &str)) {
        let text = self.text.as_str();
        for (at, _) in text.match_indices('Z').filter(|(at, _)| text.as_bytes().get(at + 1) == Some(&b'"')) {
            let field = text[..at].rsplit_once('"').and_then(|(before, value)| {
                let name = before.trim_end().strip_suffix(':')?.trim_end().strip_suffix('"')?;
                Some((name.rsplit_once('"')?.1, &text[at - value.len()..=at]))
            });
            if let Some((field, value)) = field {
                visit(field, value);
            }
        }
    }

    fn key(&self) -> ObjectKey {
        let namespace = match Kind::named(&self.kind).map(|kind| kind.namespaced) {
            Some(false) => "",
            Some(true) if self.namespace.is_empty() => "default",
            _ => &*self.namespace,
        };
        ObjectKey::new(&self.kind, namespace, &self.name)
    }
}

impl UnreadObject {
    /// The whole object.
    pub fn into_value(self) -> Value {
        match self {
            UnreadObject::Value(value) => value,
            UnreadObject::Text(text) => text.value(),
        }
    }

    /// The kind.
    pub fn kind(&self) -> &str {
        match self {
            UnreadObject::Value(value) => value["kind"].as_str().unwrap_or_default(),
            UnreadObject::Text(text) => &text.kind,
        }
    }

    fn api_version(&self) -> &str {
        match self {
            UnreadObject::Value(value) => value["apiVersion"].as_str().unwrap_or("v1"),
            UnreadObject::Text(text) => &text.api_version,
        }
    }

    /// The object under its key, in the version that its kind is read as. None for an object without a name, and for one of
    /// another API group that has the name of a known kind, apart from OpenShift's configuration of nodes.
    pub(crate) fn normalized(self) -> Option<(ObjectKey, UnreadObject)> {
        let key = match &self {
            UnreadObject::Value(value) => ObjectKey::of(value)?,
            UnreadObject::Text(text) => text.key(),
        };
        if let Some(kind) = renamed_kind(self.api_version(), &key.kind) {
            return Some((ObjectKey::new(kind, "", &key.name), self));
        }
        if !KINDS.iter().any(|kind| kind.kind == key.kind) {
            return Some((key, self));
        }
        let version = self.api_version();
        let read_as = Kind::find(version, &key.kind)?.api_version;
        if version == read_as {
            return Some((key, self));
        }
        let mut value = self.into_value();
        value["apiVersion"] = read_as.into();
        Some((key, UnreadObject::Value(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Objects;
    use k8s_openapi::api::core::v1::Pod;

    fn text(api_version: &str, kind: &str, text: &str) -> UnreadObject {
        let whole = Arc::new(text.to_owned());
        UnreadObject::Text(ObjectText {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: "n".into(),
            name: "p".into(),
            text: TextPart::new(&whole, 0..whole.len()).expect("the whole text"),
        })
    }

    #[test]
    fn a_text_is_read_as_a_value_is() {
        let key = ObjectKey::pod("n", "p");
        let json = r#"{"metadata":{"name":"p","namespace":"n","ownerReferences":[{"apiVersion":"v1","kind":"K","name":"o",
            "uid":"u","controller":true}]},"spec":{"nodeName":"a\u0062","containers":[]},"status":{"phase":"Running"}}"#;
        let of_text = Objects::from_items([text("v1", "Pod", json)]);
        let mut value: Value = serde_json::from_str(json).expect("valid JSON");
        value["apiVersion"] = "v1".into();
        value["kind"] = "Pod".into();
        let of_value = Objects::from_items([value.clone()]);
        assert_eq!(of_text.get::<Pod>(&key), of_value.get::<Pod>(&key));
        let outline = |objects: &Objects| objects.object(&key).expect("it is there").outline().clone();
        assert_eq!(outline(&of_text), outline(&of_value));
        assert_eq!(outline(&of_text).node(), Some("ab"));
        assert_eq!(outline(&of_text).controller(), Some(("K", "o")));
        assert_eq!(of_text.raw(&key), Some(&value));
    }

    #[test]
    fn times_are_found_without_parsing() {
        let json =
            r#"{"a":"2026-01-01T00:00:00Z", "b" : [{"c":"2026-01-02T00:00:00.5Z"}],"Z":"Z","d":["Z"],"e":"x Z\\"Z"}"#;
        let UnreadObject::Text(text) = text("v1", "Pod", json) else { panic!("a text") };
        let mut found = Vec::new();
        text.each_time(&mut |field, value| found.push(format!("{field}={value}")));
        assert_eq!(found[..3], ["a=2026-01-01T00:00:00Z", "c=2026-01-02T00:00:00.5Z", "Z=Z"]);
    }

    #[test]
    fn a_text_that_no_value_represents_is_an_error_that_names_the_object() {
        let deep = format!(r#"{{"metadata":{{"name":"p"}},"spec":{}{}}}"#, "[".repeat(200), "]".repeat(200));
        for json in [r#"{"metadata":{"name":"p"},"spec":{"priority":1e999}}"#, &deep] {
            let objects = Objects::from_items([text("v1", "Pod", json)]);
            let error = objects.get::<Pod>(&ObjectKey::pod("n", "p")).expect_err("it is malformed").to_string();
            assert!(error.starts_with("pod n/p: "), "{error}");
            assert_eq!(objects.warnings().len(), 1);
        }
    }

    #[test]
    fn an_older_version_is_read_as_the_present_one() {
        let json = r#"{"apiVersion":"policy/v1beta1","kind":"PodDisruptionBudget","metadata":{"name":"p"}}"#;
        let objects = Objects::from_items([text("policy/v1beta1", "PodDisruptionBudget", json)]);
        let key = ObjectKey::new("PodDisruptionBudget", "n", "p");
        assert_eq!(objects.raw(&key).and_then(|raw| raw["apiVersion"].as_str()), Some("policy/v1"));
        let other = Objects::from_items([text("example.org/v1", "Pod", r#"{"metadata":{"name":"p"}}"#)]);
        assert!(other.has_none("Pod"));
    }
}
