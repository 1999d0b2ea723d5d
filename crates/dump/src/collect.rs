//! Documents to objects: splits lists into items and keeps each wanted object once.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::{Dump, DumpError, Item, ItemSource, KindFilter, yaml};

/// Where a text comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A file that the user named: everything in it has to be an object.
    Named,
    /// A file in a directory or an archive: a document that is not an object is skipped.
    Found,
}

/// Identifies an object. The order is the order of a dump's items.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    group: String,
    kind: String,
    namespace: String,
    name: String,
}

/// The `apiVersion` and `kind` of a typed list's items, which omit them.
#[derive(Clone, Copy)]
struct ListOf<'a> {
    version: &'a str,
    kind: &'a str,
}

pub(crate) struct Collector<'a> {
    pub(crate) wanted: KindFilter<'a>,
    pub(crate) warnings: Vec<String>,
    items: BTreeMap<Identity, Item>,
    kinds: BTreeSet<String>,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(wanted: KindFilter<'a>) -> Self {
        Self { wanted, warnings: Vec::new(), items: BTreeMap::new(), kinds: BTreeSet::new() }
    }

    pub(crate) fn finish(self) -> Dump {
        Dump { items: self.items.into_values().collect(), kinds: self.kinds, warnings: self.warnings }
    }

    /// Adds the objects of one text. Returns an error for each document that is not a Kubernetes
    /// object, where such documents are allowed.
    pub(crate) fn text(&mut self, file: &Arc<str>, text: &str, origin: Origin) -> Result<Vec<DumpError>, DumpError> {
        let mut documents = 0;
        let mut not_objects = Vec::new();
        let mut take = |document: usize, value: Value| {
            documents += 1;
            let at = ItemSource { file: Arc::clone(file), document, item: None };
            if origin == Origin::Found
                && let Some(error) = not_an_object(&value, &at)
            {
                not_objects.push(error);
                return Ok(());
            }
            self.document(value, &at)
        };
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if is_json(text) {
            json_documents(file, text, &mut take)?;
        } else {
            yaml_documents(file, text, &mut take)?;
        }
        if documents == 0 {
            let empty = DumpError::Empty { file: file.to_string() };
            match origin {
                Origin::Named => return Err(empty),
                Origin::Found => not_objects.push(empty),
            }
        }
        Ok(not_objects)
    }

    fn document(&mut self, value: Value, at: &ItemSource) -> Result<(), DumpError> {
        match value {
            // The output of `jq .items`.
            Value::Array(values) => self.items(values, at, None),
            value => self.object(value, at, None),
        }
    }

    fn items(&mut self, values: Vec<Value>, list: &ItemSource, of: Option<ListOf<'_>>) -> Result<(), DumpError> {
        for (index, value) in values.into_iter().enumerate() {
            let at = ItemSource { item: Some(index + 1), ..list.clone() };
            self.object(value, &at, of)?;
        }
        Ok(())
    }

    fn object(&mut self, value: Value, at: &ItemSource, of: Option<ListOf<'_>>) -> Result<(), DumpError> {
        let Value::Object(mut object) = value else {
            return Err(DumpError::NotAnObject { at: at.clone(), found: name_of(&value) });
        };
        let version = text_field(&object, "apiVersion", at)?.or(of.map(|of| of.version));
        let kind = text_field(&object, "kind", at)?.or(of.map(|of| of.kind));
        let kind = kind.ok_or_else(|| missing(at, "kind"))?.to_owned();
        let version = version.ok_or_else(|| missing(at, "apiVersion"))?.to_owned();
        if self.is_list(&object, &version, &kind) {
            return self.list(object, &version, &kind, at);
        }
        if !(self.wanted)(&version, &kind) {
            return Ok(());
        }
        let identity = identity(&object, &version, &kind, at)?;
        object.insert("apiVersion".to_owned(), Value::String(version));
        object.insert("kind".to_owned(), Value::String(kind));
        self.add(identity, Item { value: Value::Object(object), source: at.clone() });
        Ok(())
    }

    /// Whether an object is a list. A kind can end in `List` without being one; a list has `items`,
    /// and a list of a wanted kind must have them.
    fn is_list(&self, object: &Map<String, Value>, version: &str, kind: &str) -> bool {
        kind.strip_suffix("List")
            .is_some_and(|item| item.is_empty() || object.contains_key("items") || (self.wanted)(version, item))
    }

    fn list(
        &mut self,
        mut object: Map<String, Value>,
        version: &str,
        kind: &str,
        at: &ItemSource,
    ) -> Result<(), DumpError> {
        let item = kind.strip_suffix("List").unwrap_or_default();
        let of = (!item.is_empty()).then_some(ListOf { version, kind: item });
        if of.is_some() {
            if !(self.wanted)(version, item) {
                return Ok(());
            }
            self.kinds.insert(item.to_owned());
        }
        match object.remove("items") {
            Some(Value::Array(values)) => self.items(values, at, of),
            // How Go prints a nil slice.
            Some(Value::Null) => Ok(()),
            Some(other) => Err(DumpError::Object {
                at: at.clone(),
                field: "items",
                problem: format!("is {}, not a list", name_of(&other)),
            }),
            None => Err(missing(at, "items")),
        }
    }

    /// Keeps the copy with the higher resource version, or the later one. Copies of the same
    /// version are the same state, even if one was printed with fewer fields; where versions cannot
    /// be compared, a difference is a warning.
    fn add(&mut self, identity: Identity, item: Item) {
        let mut entry = match self.items.entry(identity) {
            Entry::Vacant(entry) => {
                self.kinds.insert(entry.key().kind.clone());
                entry.insert(item);
                return;
            }
            Entry::Occupied(entry) => entry,
        };
        match compare_versions(&entry.get().value, &item.value) {
            Some(Ordering::Greater) => return,
            Some(Ordering::Equal | Ordering::Less) => {}
            None if entry.get().value == item.value => {}
            None => {
                let Identity { kind, namespace, name, .. } = entry.key();
                let slash = if namespace.is_empty() { "" } else { "/" };
                self.warnings.push(format!(
                    "{kind} {namespace}{slash}{name} differs between {} and {}; the latter is used",
                    entry.get().source,
                    item.source
                ));
            }
        }
        entry.insert(item);
    }
}

/// Distinguishes JSON from YAML in flow style, where keys need no quotes.
fn is_json(text: &str) -> bool {
    let text = text.trim_start();
    let inside = text.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '{' | '['));
    text.starts_with(['{', '[']) && (inside.is_empty() || inside.starts_with(['"', '}', ']']))
}

fn json_documents(
    file: &Arc<str>,
    text: &str,
    take: &mut dyn FnMut(usize, Value) -> Result<(), DumpError>,
) -> Result<(), DumpError> {
    let values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    for (document, value) in (1..).zip(values) {
        let value = value.map_err(|source| DumpError::Json { file: file.to_string(), document, source })?;
        if !value.is_null() {
            take(document, value)?;
        }
    }
    Ok(())
}

fn yaml_documents(
    file: &Arc<str>,
    text: &str,
    take: &mut dyn FnMut(usize, Value) -> Result<(), DumpError>,
) -> Result<(), DumpError> {
    let error = |document, source| DumpError::Yaml { file: file.to_string(), document, source };
    yaml::documents(text, error, take)
}

/// The error for a document that does not look like a Kubernetes object.
fn not_an_object(document: &Value, at: &ItemSource) -> Option<DumpError> {
    match document {
        Value::Object(object) if object.contains_key("kind") => None,
        // A truncated typed list has no kind yet.
        Value::Object(object) if object.contains_key("apiVersion") => None,
        Value::Object(_) => Some(missing(at, "kind")),
        Value::Array(values) if values.iter().all(|value| value.get("kind").is_some()) => None,
        other => Some(DumpError::NotAnObject { at: at.clone(), found: name_of(other) }),
    }
}

fn identity(object: &Map<String, Value>, version: &str, kind: &str, at: &ItemSource) -> Result<Identity, DumpError> {
    let metadata = match object.get("metadata") {
        Some(Value::Object(metadata)) => metadata,
        None | Some(Value::Null) => return Err(missing(at, "metadata")),
        Some(other) => {
            let problem = format!("is {}, not an object", name_of(other));
            return Err(DumpError::Object { at: at.clone(), field: "metadata", problem });
        }
    };
    let name = text_field_as(metadata, "name", "metadata.name", at)?;
    let namespace = text_field_as(metadata, "namespace", "metadata.namespace", at)?;
    Ok(Identity {
        group: version.split_once('/').map_or("", |(group, _)| group).to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.unwrap_or_default().to_owned(),
        name: name.ok_or_else(|| missing(at, "metadata.name"))?.to_owned(),
    })
}

/// Compares the resource versions of two copies as decimal numbers of any length.
fn compare_versions(one: &Value, other: &Value) -> Option<Ordering> {
    let (one, other) = (resource_version(one)?, resource_version(other)?);
    Some(one.len().cmp(&other.len()).then_with(|| one.cmp(other)))
}

fn resource_version(value: &Value) -> Option<&str> {
    let text = value.get("metadata")?.get("resourceVersion")?.as_str()?;
    let digits = text.trim_start_matches('0');
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then_some(digits)
}

fn text_field<'a>(
    object: &'a Map<String, Value>,
    field: &'static str,
    at: &ItemSource,
) -> Result<Option<&'a str>, DumpError> {
    text_field_as(object, field, field, at)
}

/// A string field. Absent, null and empty mean the same, as for the API server.
fn text_field_as<'a>(
    object: &'a Map<String, Value>,
    key: &str,
    field: &'static str,
    at: &ItemSource,
) -> Result<Option<&'a str>, DumpError> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        Some(other) => {
            Err(DumpError::Object { at: at.clone(), field, problem: format!("is {}, not a string", name_of(other)) })
        }
    }
}

fn missing(at: &ItemSource, field: &'static str) -> DumpError {
    DumpError::Object { at: at.clone(), field, problem: "is missing".to_owned() }
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
