//! Reads a type out of JSON, and says where a wrong value is.
//!
//! The path is put together from the error on its way out, so that the parsers of the Kubernetes types are compiled for
//! this one reader and nothing else. A reader that wraps another one to record the path, compiled for every field of
//! every kind, took most of the build.

use std::fmt::{self, Display, Write};

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use crate::json::{Fields, Items, Json, JsonRef};

/// Reads a value into a type.
pub(crate) fn read<T: DeserializeOwned>(value: JsonRef<'_>) -> Result<T, ReadError> {
    T::deserialize(Reader(value))
}

/// What is wrong, and where.
#[derive(Debug)]
pub(crate) struct ReadError {
    /// From the wrong value outwards.
    path: Vec<Segment>,
    reason: String,
}

#[derive(Debug)]
enum Segment {
    Field(String),
    Item(usize),
}

impl ReadError {
    fn at(mut self, segment: Segment) -> ReadError {
        self.path.push(segment);
        self
    }

    /// The field, such as `spec.containers[0].image`; `.` for the whole value.
    pub(crate) fn field(&self) -> String {
        let mut field = String::new();
        for segment in self.path.iter().rev() {
            let _ = match segment {
                Segment::Field(name) if field.is_empty() => write!(field, "{name}"),
                Segment::Field(name) => write!(field, ".{name}"),
                Segment::Item(index) => write!(field, "[{index}]"),
            };
        }
        if field.is_empty() { ".".to_owned() } else { field }
    }
}

impl Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for ReadError {}

impl Error for ReadError {
    fn custom<T: Display>(reason: T) -> ReadError {
        ReadError { path: Vec::new(), reason: reason.to_string() }
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> ReadError {
        match unexpected {
            Unexpected::Unit => Error::custom(format_args!("invalid type: null, expected {expected}")),
            other => Error::custom(format_args!("invalid type: {other}, expected {expected}")),
        }
    }
}

struct Reader<'de>(JsonRef<'de>);

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.0.read() {
            Json::Null => visitor.visit_unit(),
            Json::Bool(value) => visitor.visit_bool(value),
            Json::Unsigned(value) => visitor.visit_u64(value),
            Json::Signed(value) => visitor.visit_i64(value),
            Json::Float(value) => visitor.visit_f64(value),
            Json::Text(text) => visitor.visit_borrowed_str(text),
            Json::Array(items) => visitor.visit_seq(ItemReader { items, next: 0 }),
            Json::Object(fields) => visitor.visit_map(FieldReader { fields, current: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.0.read() {
            Json::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match self.0.read() {
            Json::Text(variant) => visitor.visit_enum(variant.into_deserializer()),
            Json::Object(fields) => {
                visitor.visit_enum(MapAccessDeserializer::new(FieldReader { fields, current: None }))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

struct ItemReader<'de> {
    items: Items<'de>,
    next: usize,
}

impl<'de> SeqAccess<'de> for ItemReader<'de> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, ReadError> {
        let Some(item) = self.items.next() else { return Ok(None) };
        let index = self.next;
        self.next += 1;
        seed.deserialize(Reader(item)).map(Some).map_err(|error| error.at(Segment::Item(index)))
    }
}

struct FieldReader<'de> {
    fields: Fields<'de>,
    current: Option<(&'de str, JsonRef<'de>)>,
}

impl<'de> MapAccess<'de> for FieldReader<'de> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ReadError> {
        self.current = self.fields.next();
        let Some((name, _)) = self.current else { return Ok(None) };
        seed.deserialize(name.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ReadError> {
        let Some((name, value)) = self.current.take() else { return Err(Error::custom("a value without a key")) };
        seed.deserialize(Reader(value)).map_err(|error| error.at(Segment::Field(name.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;
    use crate::tokens::Tokens;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "camelCase")]
    enum Mode {
        Off,
        Every(u32),
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Part {
        name: String,
        #[serde(default)]
        count: Option<i32>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Whole {
        #[serde(default)]
        parts: Vec<Part>,
        #[serde(default)]
        modes: BTreeMap<String, Mode>,
        #[serde(default)]
        share: f64,
    }

    /// The reader and serde_json, with a path from serde_path_to_error, give the same result for the same value.
    fn compare(value: &Value) -> Result<Whole, (String, String)> {
        let expected = serde_path_to_error::deserialize(value);
        let expected = expected
            .map_err(|e: serde_path_to_error::Error<serde_json::Error>| (e.path().to_string(), e.inner().to_string()));
        let found = read::<Whole>(JsonRef::Value(value)).map_err(|e| (e.field(), e.to_string()));
        assert_eq!(found, expected, "{value}");
        let text = value.to_string();
        let of_text = read::<Whole>(Tokens::of_text(&text, |_, _| false).expect("valid JSON").root());
        assert_eq!(of_text.map_err(|e| (e.field(), e.to_string())), expected, "{text}");
        found
    }

    #[test]
    fn values_are_read_as_serde_json_reads_them() {
        let value = json!({
            "parts": [{ "name": "a", "count": -3, "unknown": [1, { "x": null }] }, { "name": "b", "count": null }],
            "modes": { "x": "off", "y": { "every": 5 } },
            "share": 0.5,
        });
        assert_eq!(compare(&value).expect("a value").parts.len(), 2);
        assert!(compare(&json!({ "share": 3 })).is_ok());
        assert!(compare(&json!({})).is_ok());
    }

    #[test]
    fn an_error_names_the_field_and_what_is_wrong_as_serde_json_does() {
        let wrong = [
            json!({ "parts": [{ "name": "a" }, { "name": 7 }] }),
            json!({ "parts": [{ "count": 1 }] }),
            json!({ "parts": [{ "name": "a", "count": "1" }] }),
            json!({ "parts": [{ "name": "a", "count": 1.5 }] }),
            json!({ "parts": [{ "name": "a", "count": 3_000_000_000_i64 }] }),
            json!({ "parts": [{ "name": null }] }),
            json!({ "parts": null }),
            json!({ "parts": { "name": "a" } }),
            json!({ "share": true }),
            json!("text"),
            json!(null),
        ];
        for value in &wrong {
            assert!(compare(value).is_err(), "{value}");
        }
    }
}
