//! YAML files that people write, with the place of each field: for errors that name it.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_saphyr::granit_parser::{Event, Marker, Parser, options};

use crate::error::YamlError;
use crate::yaml::{built_documents, scan_error};

/// A place in a file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// A document of a YAML file.
#[derive(Debug, Clone, PartialEq)]
pub struct LocatedDocument {
    /// Its content.
    pub value: Value,
    positions: BTreeMap<String, Position>,
}

impl LocatedDocument {
    /// Where a field such as `steps[3].run` is. Of a field that is missing, the place of what it is missing in.
    pub fn position(&self, field: &str) -> Position {
        let mut field = field;
        loop {
            if let Some(position) = self.positions.get(field) {
                return *position;
            }
            match field.rfind(['.', '[']) {
                Some(end) => field = &field[..end],
                None if field.is_empty() => return Position { line: 1, column: 1 },
                None => field = "",
            }
        }
    }
}

/// The documents of a YAML or JSON text, without empty ones.
///
/// # Errors
/// If the text is not YAML, or YAML that no JSON corresponds to.
pub fn located_documents(text: &str) -> Result<Vec<LocatedDocument>, YamlError> {
    let mut positions = positions(text)?;
    let mut documents = Vec::new();
    let problem = |_, error| error;
    built_documents(text, problem, |number, value| {
        let positions = positions.get_mut(number - 1).map(std::mem::take).unwrap_or_default();
        documents.push(LocatedDocument { value, positions });
        Ok(())
    })?;
    Ok(documents)
}

/// The places of the fields of each document.
fn positions(text: &str) -> Result<Vec<BTreeMap<String, Position>>, YamlError> {
    let mut all = Vec::new();
    let mut walk = Walk::default();
    for next in Parser::new_from_str_with_options(text, options! { emit_comments: false }) {
        let (event, span) = next.map_err(|error| scan_error(&error))?;
        match event {
            Event::DocumentStart(..) => walk = Walk::default(),
            Event::DocumentEnd => all.push(std::mem::take(&mut walk.positions)),
            Event::Scalar(text, ..) if walk.key(&text, &span.start) => {}
            Event::Scalar(..) | Event::Alias(_) => drop(walk.node(&span.start)),
            Event::SequenceStart(..) => walk.open(false, &span.start),
            Event::MappingStart(..) => walk.open(true, &span.start),
            Event::SequenceEnd | Event::MappingEnd => drop(walk.open.pop()),
            _ => {}
        }
    }
    Ok(all)
}

#[derive(Default)]
struct Walk {
    positions: BTreeMap<String, Position>,
    open: Vec<Open>,
}

/// A collection whose end has not been read yet.
struct Open {
    field: String,
    is_mapping: bool,
    /// The key that waits for its value.
    key: Option<String>,
    items: usize,
}

impl Walk {
    /// Takes a scalar as the key of the next value. Gives whether it is one.
    fn key(&mut self, text: &str, at: &Marker) -> bool {
        let Some(open) = self.open.last_mut().filter(|open| open.is_mapping && open.key.is_none()) else {
            return false;
        };
        open.key = Some(text.to_owned());
        let field = if open.field.is_empty() { text.to_owned() } else { format!("{}.{text}", open.field) };
        self.positions.insert(field, position(at));
        true
    }

    /// The field of the node that begins here. That of a key keeps the place of the key.
    fn node(&mut self, at: &Marker) -> String {
        let field = match self.open.last_mut() {
            None => String::new(),
            Some(open) if open.is_mapping => {
                let key = open.key.take().unwrap_or_default();
                return if open.field.is_empty() { key } else { format!("{}.{key}", open.field) };
            }
            Some(open) => {
                open.items += 1;
                format!("{}[{}]", open.field, open.items - 1)
            }
        };
        self.positions.insert(field.clone(), position(at));
        field
    }

    fn open(&mut self, is_mapping: bool, at: &Marker) {
        let field = self.node(at);
        self.open.push(Open { field, is_mapping, key: None, items: 0 });
    }
}

fn position(at: &Marker) -> Position {
    Position { line: at.line(), column: at.col() + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_places() {
        let text = "# a comment\na: 1\nsteps:\n- run: x\n- expect: {pods: y}\n---\nb: &x [1, 2]\nc: *x\n";
        let documents = located_documents(text).expect("YAML");
        let at = |document: usize, field: &str| {
            let Position { line, column } = documents[document].position(field);
            (line, column)
        };
        for (document, field, expected) in [
            (0, "a", (2, 1)),
            (0, "steps", (3, 1)),
            (0, "steps[0].run", (4, 3)),
            (0, "steps[1]", (5, 3)),
            (0, "steps[1].expect.pods", (5, 12)),
            (0, "steps[1].expect.missing.more", (5, 3)),
            (0, "missing", (2, 1)),
            (1, "b[1]", (7, 11)),
            (1, "c", (8, 1)),
        ] {
            assert_eq!(at(document, field), expected, "{field}");
        }
        assert_eq!(documents[1].value["c"][1], 2);
        assert!(located_documents("a: [").is_err());
    }
}
