//! YAML text to JSON text.
//!
//! Built on the parser's events rather than on its typed deserializer: a dump has no schema, so the
//! meaning of a plain scalar decides everything (see `scalar`). `yaml_writer` writes events as JSON
//! text as they come; a text with anchors, which no Kubernetes tool prints, is built as a value.
//! `block_yaml` reads what Kubernetes tools print, without the parser.

use std::collections::BTreeMap;

use serde_json::map::Entry;
use serde_json::{Map, Value};
use serde_saphyr::granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag, options};

use crate::block_yaml;
use crate::error::{YamlError, YamlProblem};
use crate::scalar;
use crate::yaml_writer::{self, Written};

/// The deepest nesting, the same as `serde_json`'s for JSON.
pub(crate) const MAX_DEPTH: usize = 127;

/// How much the anchors and aliases of one file may copy, in nodes and bytes of strings. kubectl
/// prints neither, so this is enough for files written by hand and stops alias bombs.
const MAX_COPIED: usize = 4 << 20;

/// Calls `document` with each document of a file's text as JSON, numbered from 1. Empty documents
/// are counted but not passed on.
///
/// # Errors
/// The number of the invalid document and the problem, or the error that `document` returns.
pub(crate) fn documents<E>(
    text: &str,
    error: impl Fn(usize, YamlError) -> E,
    mut document: impl FnMut(usize, String) -> Result<(), E>,
) -> Result<(), E> {
    match block_yaml::documents(text) {
        Some(found) => found.into_iter().zip(1..).try_for_each(|(json, number)| document(number, json)),
        None => parsed_documents(text, error, document),
    }
}

/// The same with a YAML parser.
pub(crate) fn parsed_documents<E>(
    text: &str,
    error: impl Fn(usize, YamlError) -> E,
    mut document: impl FnMut(usize, String) -> Result<(), E>,
) -> Result<(), E> {
    let mut written = 0;
    match yaml_writer::documents(text, &error, &mut |number, json| {
        written = number;
        document(number, json)
    })? {
        Written::Everything => Ok(()),
        // Documents that were written already are passed on once.
        Written::NotAnchors => built_documents(text, error, |number, value| match number > written {
            true => document(number, value.to_string()),
            false => Ok(()),
        }),
    }
}

/// The same with a value of each document, for a text with anchors, aliases and merged mappings.
pub(crate) fn built_documents<E>(
    text: &str,
    error: impl Fn(usize, YamlError) -> E,
    mut document: impl FnMut(usize, Value) -> Result<(), E>,
) -> Result<(), E> {
    let parser = Parser::new_from_str_with_options(text, options! { emit_comments: false });
    let mut number = 0;
    let mut builder = Builder::default();
    for next in parser {
        let (event, span) = next.map_err(|e| error(number.max(1), scan_error(&e)))?;
        match event {
            Event::DocumentStart(..) => {
                number += 1;
                builder = Builder { copied: builder.copied, ..Builder::default() };
            }
            Event::DocumentEnd => {
                if let Some(value) = builder.root.take().filter(|value| !value.is_null()) {
                    document(number, value)?;
                }
            }
            event => builder.event(event).map_err(|problem| error(number.max(1), at(&span.start, problem)))?,
        }
    }
    Ok(())
}

pub(crate) fn scan_error(error: &ScanError) -> YamlError {
    at(error.marker(), YamlProblem::Syntax(error.info()))
}

pub(crate) fn at(mark: &Marker, problem: YamlProblem) -> YamlError {
    YamlError { problem, line: mark.line(), column: mark.col() + 1 }
}

/// A collection whose end has not been read yet.
struct Open {
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Value>),
    Mapping { entries: Map<String, Value>, key: Option<Key>, merged: Vec<Value> },
}

enum Key {
    Name(String),
    /// `<<`: the value's entries are defaults for this mapping's.
    Merge,
}

#[derive(Default)]
struct Builder {
    root: Option<Value>,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Anchored>,
    /// What anchors and aliases have copied so far, in this document and those before it.
    copied: usize,
}

struct Anchored {
    value: Value,
    size: Size,
}

impl Builder {
    fn event(&mut self, event: Event<'_>) -> Result<(), YamlProblem> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                if self.expects_key() {
                    return self.key(&text, style, anchor, tag.is_some());
                }
                let plain = is_plain(style, tag.as_deref());
                let value = if plain { scalar::plain(&text) } else { Value::String(text.into_owned()) };
                self.remember(anchor, &value)?;
                self.put(value)
            }
            Event::SequenceStart(_, anchor, _) => self.start(anchor, Content::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                self.start(anchor, Content::Mapping { entries: Map::new(), key: None, merged: Vec::new() })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => self.alias(anchor),
            _ => Ok(()),
        }
    }

    fn expects_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { content: Content::Mapping { key: None, .. }, .. }))
    }

    fn key(&mut self, text: &str, style: ScalarStyle, anchor: usize, tagged: bool) -> Result<(), YamlProblem> {
        self.remember(anchor, &Value::String(text.to_owned()))?;
        let name = if text == "<<" && matches!(style, ScalarStyle::Plain) && !tagged {
            Key::Merge
        } else {
            Key::Name(text.to_owned())
        };
        if let Some(Open { content: Content::Mapping { key, .. }, .. }) = self.open.last_mut() {
            *key = Some(name);
        }
        Ok(())
    }

    fn start(&mut self, anchor: usize, content: Content) -> Result<(), YamlProblem> {
        if self.expects_key() {
            return Err(YamlProblem::KeyNotString);
        }
        if self.open.len() == MAX_DEPTH {
            return Err(YamlProblem::TooDeep);
        }
        self.open.push(Open { anchor, content });
        Ok(())
    }

    fn end(&mut self) -> Result<(), YamlProblem> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let value = match open.content {
            Content::List(values) => Value::Array(values),
            Content::Mapping { mut entries, merged, .. } => {
                for source in merged {
                    merge(&mut entries, source)?;
                }
                Value::Object(entries)
            }
        };
        self.remember(open.anchor, &value)?;
        self.put(value)
    }

    fn alias(&mut self, anchor: usize) -> Result<(), YamlProblem> {
        let Some(Anchored { value, size }) = self.anchors.get(&anchor) else {
            return Err(YamlProblem::RecursiveAlias);
        };
        if self.open.len() + size.depth > MAX_DEPTH {
            return Err(YamlProblem::TooDeep);
        }
        count_copy(&mut self.copied, size.weight)?;
        let value = value.clone();
        if self.expects_key() {
            return match value {
                Value::String(text) => self.key(&text, ScalarStyle::DoubleQuoted, 0, false),
                _ => Err(YamlProblem::KeyNotString),
            };
        }
        self.put(value)
    }

    fn remember(&mut self, anchor: usize, value: &Value) -> Result<(), YamlProblem> {
        if anchor == 0 {
            return Ok(());
        }
        let size = size(value);
        count_copy(&mut self.copied, size.weight)?;
        self.anchors.insert(anchor, Anchored { value: value.clone(), size });
        Ok(())
    }

    fn put(&mut self, value: Value) -> Result<(), YamlProblem> {
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(value),
            Some(Content::List(values)) => values.push(value),
            Some(Content::Mapping { entries, key, merged }) => match key.take() {
                Some(Key::Merge) => merged.push(value),
                Some(Key::Name(name)) => match entries.entry(name) {
                    Entry::Vacant(entry) => {
                        entry.insert(value);
                    }
                    Entry::Occupied(entry) => {
                        return Err(YamlProblem::DuplicateKey(entry.key().clone()));
                    }
                },
                None => return Err(YamlProblem::KeyNotString),
            },
        }
        Ok(())
    }
}

/// A tag takes precedence over quotes: `!!str 12` is a string, `!!int "12"` is a number.
pub(crate) fn is_plain(style: ScalarStyle, tag: Option<&Tag>) -> bool {
    match tag.map(|tag| (tag.core_suffix(), tag.parts())) {
        Some((Some("str"), _)) | Some((None, ("" | "!", ""))) => false,
        Some((Some("int" | "float" | "bool" | "null"), _)) => true,
        _ => matches!(style, ScalarStyle::Plain),
    }
}

fn merge(entries: &mut Map<String, Value>, source: Value) -> Result<(), YamlProblem> {
    match source {
        Value::Object(defaults) => {
            for (name, value) in defaults {
                entries.entry(name).or_insert(value);
            }
            Ok(())
        }
        Value::Array(sources) if sources.iter().all(Value::is_object) => {
            sources.into_iter().try_for_each(|source| merge(entries, source))
        }
        _ => Err(YamlProblem::InvalidMerge),
    }
}

/// Counts a copy against the file's limit.
fn count_copy(copied: &mut usize, weight: usize) -> Result<(), YamlProblem> {
    *copied = copied.saturating_add(weight);
    if *copied > MAX_COPIED {
        return Err(YamlProblem::AliasesTooLarge);
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Size {
    /// Nodes and bytes of strings.
    weight: usize,
    /// Collections inside each other.
    depth: usize,
}

fn size(value: &Value) -> Size {
    let around = |parts: &mut dyn Iterator<Item = Size>| {
        parts.fold(Size { weight: 1, depth: 1 }, |sum, part| Size {
            weight: sum.weight + part.weight,
            depth: sum.depth.max(part.depth + 1),
        })
    };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Size { weight: 1, depth: 0 },
        Value::String(text) => Size { weight: 1 + text.len(), depth: 0 },
        Value::Array(values) => around(&mut values.iter().map(size)),
        Value::Object(entries) => around(&mut entries.iter().map(|(name, value)| {
            let Size { weight, depth } = size(value);
            Size { weight: weight + name.len(), depth }
        })),
    }
}
