//! JSON that was read, as a value or as tokens of a text: the form that the Kubernetes types are read from.
//!
//! Both have one type, so that the parsers of the Kubernetes types are compiled once.

use serde_json::{Number, Value};

use crate::tokens::Token;

/// A value, or a part of one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum JsonRef<'t> {
    Value(&'t Value),
    Token {
        /// The tokens of a whole text.
        tokens: &'t [Token<'t>],
        /// The first token of the value.
        at: usize,
    },
}

/// A value with what is in it.
pub(crate) enum Json<'t> {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(&'t str),
    Array(Items<'t>),
    Object(Fields<'t>),
}

impl Json<'static> {
    fn of_number(number: &Number) -> Json<'static> {
        match (number.as_u64(), number.as_i64()) {
            (Some(value), _) => Json::Unsigned(value),
            (None, Some(value)) => Json::Signed(value),
            (None, None) => Json::Float(number.as_f64().unwrap_or(f64::NAN)),
        }
    }
}

impl<'t> JsonRef<'t> {
    /// What it is.
    pub(crate) fn read(self) -> Json<'t> {
        match self {
            JsonRef::Value(value) => match value {
                Value::Null => Json::Null,
                Value::Bool(value) => Json::Bool(*value),
                Value::Number(number) => Json::of_number(number),
                Value::String(text) => Json::Text(text),
                Value::Array(items) => Json::Array(Items::Values(items.iter())),
                Value::Object(fields) => Json::Object(Fields::Values(fields.iter())),
            },
            JsonRef::Token { tokens, at } => match &tokens[at] {
                Token::Array(end) => Json::Array(Items::Tokens { tokens, at: at + 1, end: *end }),
                Token::Object(end) => Json::Object(Fields::Tokens { tokens, at: at + 1, end: *end }),
                token => scalar(token),
            },
        }
    }

    /// Its text, if it is one.
    pub(crate) fn text(self) -> Option<&'t str> {
        match self {
            JsonRef::Value(value) => value.as_str(),
            JsonRef::Token { tokens, at } => match &tokens[at] {
                Token::Text(text) => Some(text),
                _ => None,
            },
        }
    }

    pub(crate) fn is_true(self) -> bool {
        matches!(self.read(), Json::Bool(true))
    }

    pub(crate) fn is_object(self) -> bool {
        matches!(self.read(), Json::Object(_))
    }

    /// A field, if it is an object that has it; the last one where the text has it more than once.
    pub(crate) fn field(self, name: &str) -> Option<JsonRef<'t>> {
        match self {
            JsonRef::Value(value) => value.get(name).map(JsonRef::Value),
            JsonRef::Token { .. } => self.fields().filter(|(key, _)| *key == name).last().map(|(_, value)| value),
        }
    }

    /// Its items; none if it is not an array.
    pub(crate) fn items(self) -> Items<'t> {
        match self.read() {
            Json::Array(items) => items,
            _ => Items::Values([].iter()),
        }
    }

    /// Its fields; none if it is not an object.
    pub(crate) fn fields(self) -> Fields<'t> {
        match self.read() {
            Json::Object(fields) => fields,
            _ => Fields::Tokens { tokens: &[], at: 0, end: 0 },
        }
    }

    /// Calls `visit` with each field that is a text, at any depth.
    pub(crate) fn each_text(self, visit: &mut dyn FnMut(&str, &str)) {
        for (name, value) in self.fields() {
            match value.text() {
                Some(text) => visit(name, text),
                None => value.each_text(visit),
            }
        }
        for item in self.items() {
            item.each_text(visit);
        }
    }
}

fn scalar<'t>(token: &'t Token<'t>) -> Json<'t> {
    match token {
        Token::Bool(value) => Json::Bool(*value),
        Token::Unsigned(value) => Json::Unsigned(*value),
        Token::Signed(value) => Json::Signed(*value),
        Token::Float(value) => Json::Float(*value),
        Token::Text(text) => Json::Text(text),
        Token::Null | Token::Array(_) | Token::Object(_) => Json::Null,
    }
}

/// The items of an array.
pub(crate) enum Items<'t> {
    Values(std::slice::Iter<'t, Value>),
    Tokens { tokens: &'t [Token<'t>], at: usize, end: usize },
}

impl<'t> Iterator for Items<'t> {
    type Item = JsonRef<'t>;

    fn next(&mut self) -> Option<JsonRef<'t>> {
        match self {
            Items::Values(values) => values.next().map(JsonRef::Value),
            Items::Tokens { tokens, at, end } => {
                let item = (*at < *end).then_some(*at)?;
                *at = after(tokens, item);
                Some(JsonRef::Token { tokens, at: item })
            }
        }
    }
}

/// The fields of an object.
pub(crate) enum Fields<'t> {
    Values(serde_json::map::Iter<'t>),
    Tokens { tokens: &'t [Token<'t>], at: usize, end: usize },
}

impl<'t> Iterator for Fields<'t> {
    type Item = (&'t str, JsonRef<'t>);

    fn next(&mut self) -> Option<(&'t str, JsonRef<'t>)> {
        match self {
            Fields::Values(values) => values.next().map(|(name, value)| (name.as_str(), JsonRef::Value(value))),
            Fields::Tokens { tokens, at, end } => {
                let key = (*at < *end).then_some(*at)?;
                *at = after(tokens, key + 1);
                let Token::Text(name) = &tokens[key] else { return None };
                Some((name, JsonRef::Token { tokens, at: key + 1 }))
            }
        }
    }
}

/// The index of the first token after a value.
fn after(tokens: &[Token<'_>], at: usize) -> usize {
    match &tokens[at] {
        Token::Array(end) | Token::Object(end) => *end,
        _ => at + 1,
    }
}
