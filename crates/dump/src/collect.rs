//! Documents to objects: takes lists apart and keeps each wanted object once.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::{Dump, DumpError, Item, Source, Wanted, yaml};

/// How a text came to be read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strictness {
    /// The user named it: everything in it has to be an object.
    Named,
    /// It was found in a folder or an archive: a document that is no object is passed over.
    Found,
}

/// What makes two objects the same one. The order is the order of a dump's items.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    group: String,
    kind: String,
    namespace: String,
    name: String,
}

/// The `apiVersion` and `kind` that a typed list's items have without saying so.
#[derive(Clone, Copy)]
struct ListOf<'a> {
    version: &'a str,
    kind: &'a str,
}

pub(crate) struct Collector<'a> {
    pub(crate) wanted: Wanted<'a>,
    pub(crate) warnings: Vec<String>,
    items: BTreeMap<Identity, Item>,
    kinds: BTreeSet<String>,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(wanted: Wanted<'a>) -> Self {
        Self { wanted, warnings: Vec::new(), items: BTreeMap::new(), kinds: BTreeSet::new() }
    }

    pub(crate) fn finish(self) -> Dump {
        Dump { items: self.items.into_values().collect(), kinds: self.kinds, warnings: self.warnings }
    }

    /// Takes in one text. Returns what in it is no Kubernetes object at all, if that is no error.
    pub(crate) fn text(
        &mut self,
        file: &Arc<str>,
        text: &str,
        strictness: Strictness,
    ) -> Result<Vec<DumpError>, DumpError> {
        let mut documents = 0;
        let mut strangers = Vec::new();
        let mut take = |document: usize, value: Value| {
            documents += 1;
            let at = Source { file: Arc::clone(file), document, item: None };
            if strictness == Strictness::Found
                && let Some(stranger) = stranger(&value, &at)
            {
                strangers.push(stranger);
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
            match strictness {
                Strictness::Named => return Err(empty),
                Strictness::Found => strangers.push(empty),
            }
        }
        Ok(strangers)
    }

    fn document(&mut self, value: Value, at: &Source) -> Result<(), DumpError> {
        match value {
            // What `jq .items` leaves of a list.
            Value::Array(values) => self.items(values, at, None),
            value => self.object(value, at, None),
        }
    }

    fn items(&mut self, values: Vec<Value>, list: &Source, of: Option<ListOf<'_>>) -> Result<(), DumpError> {
        for (index, value) in values.into_iter().enumerate() {
            let at = Source { item: Some(index + 1), ..list.clone() };
            self.object(value, &at, of)?;
        }
        Ok(())
    }

    fn object(&mut self, value: Value, at: &Source, of: Option<ListOf<'_>>) -> Result<(), DumpError> {
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

    /// A kind may end in `List` without being one; a list has `items`, and a wanted one has to.
    fn is_list(&self, object: &Map<String, Value>, version: &str, kind: &str) -> bool {
        kind.strip_suffix("List")
            .is_some_and(|item| item.is_empty() || object.contains_key("items") || (self.wanted)(version, item))
    }

    fn list(
        &mut self,
        mut object: Map<String, Value>,
        version: &str,
        kind: &str,
        at: &Source,
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
            // How Go prints a list that was never filled.
            Some(Value::Null) => Ok(()),
            Some(other) => Err(DumpError::Object {
                at: at.clone(),
                field: "items",
                problem: format!("is {}, not a list", name_of(&other)),
            }),
            None => Err(missing(at, "items")),
        }
    }

    /// Of two copies the one with the higher resource version stays, else the later one. Copies
    /// of equal version are the same state, so it does not matter if one was printed with fewer
    /// fields; where versions do not decide, a difference is worth a warning.
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

/// Tells JSON from YAML in flow style, where keys need no quotes.
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
    let fault = |document, source| DumpError::Yaml { file: file.to_string(), document, source };
    yaml::documents(text, fault, take)
}

/// A document that does not even claim to be a Kubernetes object, as an error.
fn stranger(document: &Value, at: &Source) -> Option<DumpError> {
    match document {
        Value::Object(object) if object.contains_key("kind") => None,
        // A typed list that was cut short has no kind yet.
        Value::Object(object) if object.contains_key("apiVersion") => None,
        Value::Object(_) => Some(missing(at, "kind")),
        Value::Array(values) if values.iter().all(|value| value.get("kind").is_some()) => None,
        other => Some(DumpError::NotAnObject { at: at.clone(), found: name_of(other) }),
    }
}

fn identity(object: &Map<String, Value>, version: &str, kind: &str, at: &Source) -> Result<Identity, DumpError> {
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

/// Compares the resource versions of two copies, as decimal numbers of any length.
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
    at: &Source,
) -> Result<Option<&'a str>, DumpError> {
    text_field_as(object, field, field, at)
}

/// A string field; absent, null and empty are one, as they are for the API server.
fn text_field_as<'a>(
    object: &'a Map<String, Value>,
    key: &str,
    field: &'static str,
    at: &Source,
) -> Result<Option<&'a str>, DumpError> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        Some(other) => {
            Err(DumpError::Object { at: at.clone(), field, problem: format!("is {}, not a string", name_of(other)) })
        }
    }
}

fn missing(at: &Source, field: &'static str) -> DumpError {
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
