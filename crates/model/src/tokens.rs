//! JSON as a flat list of tokens: the form that the Kubernetes types are read from.
//!
//! Both a text and a value become tokens first, so that the parsers of the Kubernetes types are compiled once. Tokens of a
//! text refer to it, and take one allocation for the whole object, where a value takes one for each field.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

/// A token. Collections are followed by their content, objects by keys and values in turn.
#[derive(Debug)]
pub(crate) enum Token<'a> {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(Cow<'a, str>),
    /// With the index of the first token after it.
    Array(usize),
    /// With the index of the first token after it.
    Object(usize),
}

/// The tokens of one JSON value.
#[derive(Debug)]
pub(crate) struct Tokens<'a>(Vec<Token<'a>>);

impl<'a> Tokens<'a> {
    /// The tokens of a text.
    pub(crate) fn of_text(text: &'a str) -> serde_json::Result<Tokens<'a>> {
        // A token for every dozen characters is common.
        let mut tokens = Tokens(Vec::with_capacity(text.len() / 12 + 8));
        let mut reader = serde_json::Deserializer::from_str(text);
        Append(&mut tokens.0).deserialize(&mut reader)?;
        reader.end()?;
        Ok(tokens)
    }

    /// The tokens of a value.
    pub(crate) fn of_value(value: &'a Value) -> Tokens<'a> {
        // Most objects have fewer: growing step by step would copy them several times.
        let mut tokens = Tokens(Vec::with_capacity(512));
        tokens.push(value);
        tokens
    }

    fn push(&mut self, value: &'a Value) {
        let start = self.0.len();
        match value {
            Value::Null => self.0.push(Token::Null),
            Value::Bool(value) => self.0.push(Token::Bool(*value)),
            Value::Number(number) => self.0.push(number_token(number)),
            Value::String(text) => self.0.push(Token::Text(Cow::Borrowed(text))),
            Value::Array(items) => {
                self.0.push(Token::Null);
                items.iter().for_each(|item| self.push(item));
                self.0[start] = Token::Array(self.0.len());
            }
            Value::Object(fields) => {
                self.0.push(Token::Null);
                for (name, value) in fields {
                    self.0.push(Token::Text(Cow::Borrowed(name)));
                    self.push(value);
                }
                self.0[start] = Token::Object(self.0.len());
            }
        }
    }

    /// The whole value.
    pub(crate) fn root(&self) -> JsonRef<'_> {
        JsonRef { tokens: &self.0, at: 0 }
    }
}

fn number_token(number: &Number) -> Token<'static> {
    match (number.as_u64(), number.as_i64()) {
        (Some(value), _) => Token::Unsigned(value),
        (None, Some(value)) => Token::Signed(value),
        (None, None) => Token::Float(number.as_f64().unwrap_or(f64::NAN)),
    }
}

/// A value, or a part of one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JsonRef<'t> {
    tokens: &'t [Token<'t>],
    at: usize,
}

impl<'t> JsonRef<'t> {
    /// Its first token.
    pub(crate) fn token(self) -> &'t Token<'t> {
        &self.tokens[self.at]
    }

    /// Its text, if it is one.
    pub(crate) fn text(self) -> Option<&'t str> {
        match self.token() {
            Token::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A field, if it is an object that has it; the last one where the text has it more than once.
    pub(crate) fn field(self, name: &str) -> Option<JsonRef<'t>> {
        self.fields().filter(|(key, _)| *key == name).last().map(|(_, value)| value)
    }

    /// Its items; none if it is not an array.
    pub(crate) fn items(self) -> Items<'t> {
        let end = if let Token::Array(end) = self.token() { *end } else { 0 };
        Items { rest: JsonRef { at: self.at + 1, ..self }, end }
    }

    /// Its fields; none if it is not an object.
    pub(crate) fn fields(self) -> Fields<'t> {
        let end = if let Token::Object(end) = self.token() { *end } else { 0 };
        Fields { rest: JsonRef { at: self.at + 1, ..self }, end }
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

    /// What comes after it.
    fn after(self) -> JsonRef<'t> {
        let at = match self.token() {
            Token::Array(end) | Token::Object(end) => *end,
            _ => self.at + 1,
        };
        JsonRef { at, ..self }
    }
}

/// The items of an array.
pub(crate) struct Items<'t> {
    rest: JsonRef<'t>,
    end: usize,
}

impl<'t> Iterator for Items<'t> {
    type Item = JsonRef<'t>;

    fn next(&mut self) -> Option<JsonRef<'t>> {
        let item = (self.rest.at < self.end).then_some(self.rest)?;
        self.rest = item.after();
        Some(item)
    }
}

/// The fields of an object.
pub(crate) struct Fields<'t> {
    rest: JsonRef<'t>,
    end: usize,
}

impl<'t> Iterator for Fields<'t> {
    type Item = (&'t str, JsonRef<'t>);

    fn next(&mut self) -> Option<(&'t str, JsonRef<'t>)> {
        let key = (self.rest.at < self.end).then_some(self.rest)?;
        let value = key.after();
        self.rest = value.after();
        Some((key.text()?, value))
    }
}

/// Appends a value that is being parsed to tokens.
struct Append<'v, 'a>(&'v mut Vec<Token<'a>>);

impl<'a> DeserializeSeed<'a> for Append<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Append<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.0.push(Token::Null);
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.0.push(Token::Bool(value));
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.0.push(Token::Unsigned(value));
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.0.push(Token::Signed(value));
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.0.push(Token::Float(value));
        Ok(())
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<(), E> {
        self.0.push(Token::Text(Cow::Borrowed(text)));
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.push(Token::Text(Cow::Owned(text.to_owned())));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut items: A) -> Result<(), A::Error> {
        let start = self.0.len();
        self.0.push(Token::Null);
        while items.next_element_seed(Append(self.0))?.is_some() {}
        self.0[start] = Token::Array(self.0.len());
        Ok(())
    }

    fn visit_map<A: MapAccess<'a>>(self, mut fields: A) -> Result<(), A::Error> {
        let start = self.0.len();
        self.0.push(Token::Null);
        while fields.next_key_seed(Append(self.0))?.is_some() {
            if matches!(self.0.last(), Some(Token::Text(key)) if key == "fieldsV1") {
                // Half of an object as a rule, and no type keeps it.
                fields.next_value::<IgnoredAny>()?;
                self.0.push(Token::Null);
                continue;
            }
            fields.next_value_seed(Append(self.0))?;
        }
        self.0[start] = Token::Object(self.0.len());
        Ok(())
    }
}
