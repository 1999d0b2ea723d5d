//! Writes the events of YAML as JSON text, without building a value.

use std::ops::Range;

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, options};

use crate::error::{YamlError, YamlProblem};
use crate::scalar;
use crate::yaml::{MAX_DEPTH, at, is_plain, scan_error};

/// The most keys of a mapping that are compared with each other one by one.
const MAX_KEYS: usize = 512;

/// How far a text was written.
pub(crate) enum Written {
    /// To its end.
    Everything,
    /// Up to a document with an anchor, an alias or a merge key, or one with a very large mapping.
    NotAnchors,
}

/// Calls `document` with the JSON text of each document that is not empty.
pub(crate) fn documents<E>(
    text: &str,
    error: &impl Fn(usize, YamlError) -> E,
    document: &mut impl FnMut(usize, String) -> Result<(), E>,
) -> Result<Written, E> {
    let parser = Parser::new_from_str_with_options(text, options! { emit_comments: false });
    let mut number = 0;
    let mut writer = Writer::default();
    for next in parser {
        let (event, span) = next.map_err(|e| error(number.max(1), scan_error(&e)))?;
        match event {
            Event::DocumentStart(..) => {
                number += 1;
                writer = Writer::default();
            }
            Event::DocumentEnd => {
                let json = std::mem::take(&mut writer.json);
                // Only JSON is written, which is UTF-8.
                let json = String::from_utf8(json).unwrap_or_default();
                if !json.is_empty() && json != "null" {
                    document(number, json)?;
                }
            }
            event => match writer.event(event) {
                Ok(()) => {}
                Err(Stop::Anchors) => return Ok(Written::NotAnchors),
                Err(Stop::Problem(problem)) => return Err(error(number.max(1), at(&span.start, problem))),
            },
        }
    }
    Ok(Written::Everything)
}

/// Why a document is not written to its end.
enum Stop {
    /// It has to be built as a value.
    Anchors,
    Problem(YamlProblem),
}

/// A collection whose end has not been read yet.
struct Open {
    is_mapping: bool,
    /// Where its keys are in the text.
    keys: Vec<Range<usize>>,
    /// Whether a key waits for its value.
    has_key: bool,
    is_empty: bool,
}

#[derive(Default)]
struct Writer {
    json: Vec<u8>,
    open: Vec<Open>,
}

impl Writer {
    fn event(&mut self, event: Event<'_>) -> Result<(), Stop> {
        match event {
            Event::Scalar(_, _, anchor, _) | Event::SequenceStart(_, anchor, _) | Event::MappingStart(_, anchor, _)
                if anchor != 0 =>
            {
                Err(Stop::Anchors)
            }
            Event::Alias(_) => Err(Stop::Anchors),
            Event::Scalar(text, style, _, tag) => {
                if self.expects_key() {
                    return self.key(&text, matches!(style, ScalarStyle::Plain) && tag.is_none());
                }
                self.before_value()?;
                let literal = if is_plain(style, tag.as_deref()) { scalar::literal(&text) } else { None };
                match literal {
                    Some(literal) => self.json.extend_from_slice(literal.to_string().as_bytes()),
                    None => self.string(&text),
                }
                Ok(())
            }
            Event::SequenceStart(..) => self.start(false),
            Event::MappingStart(..) => self.start(true),
            Event::SequenceEnd => self.end(b']'),
            Event::MappingEnd => self.end(b'}'),
            _ => Ok(()),
        }
    }

    fn expects_key(&self) -> bool {
        self.open.last().is_some_and(|open| open.is_mapping && !open.has_key)
    }

    fn key(&mut self, text: &str, is_plain: bool) -> Result<(), Stop> {
        if text == "<<" && is_plain {
            return Err(Stop::Anchors);
        }
        if self.open.last().is_some_and(|open| !open.is_empty) {
            self.json.push(b',');
        }
        let start = self.json.len();
        self.string(text);
        let end = self.json.len();
        self.json.push(b':');
        if let Some(open) = self.open.last_mut() {
            open.keys.push(start..end);
            open.has_key = true;
            open.is_empty = false;
        }
        Ok(())
    }

    fn string(&mut self, text: &str) {
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(&mut self.json, text);
    }

    /// Writes what separates a value from the one before it.
    fn before_value(&mut self) -> Result<(), Stop> {
        let Some(open) = self.open.last_mut() else { return Ok(()) };
        if open.is_mapping {
            open.has_key = false;
            return self.check_last_key();
        }
        if !open.is_empty {
            self.json.push(b',');
        }
        open.is_empty = false;
        Ok(())
    }

    /// A mapping has each key once.
    fn check_last_key(&self) -> Result<(), Stop> {
        let Some((last, others)) = self.open.last().and_then(|open| open.keys.split_last()) else { return Ok(()) };
        if others.len() > MAX_KEYS {
            return Err(Stop::Anchors);
        }
        let key = &self.json[last.clone()];
        if others.iter().any(|other| &self.json[other.clone()] == key) {
            let key = serde_json::from_slice(key).unwrap_or_default();
            return Err(Stop::Problem(YamlProblem::DuplicateKey(key)));
        }
        Ok(())
    }

    fn start(&mut self, is_mapping: bool) -> Result<(), Stop> {
        if self.expects_key() {
            return Err(Stop::Problem(YamlProblem::KeyNotString));
        }
        if self.open.len() == MAX_DEPTH {
            return Err(Stop::Problem(YamlProblem::TooDeep));
        }
        self.before_value()?;
        self.json.push(if is_mapping { b'{' } else { b'[' });
        self.open.push(Open { is_mapping, keys: Vec::new(), has_key: false, is_empty: true });
        Ok(())
    }

    fn end(&mut self, end: u8) -> Result<(), Stop> {
        self.open.pop();
        self.json.push(end);
        Ok(())
    }
}
