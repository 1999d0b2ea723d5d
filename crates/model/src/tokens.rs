//! JSON text as a flat list of tokens.
//!
//! Tokens refer to the text, and take one allocation for the whole object, where a value takes one for each field.
//! `tokenizer.rs` makes them of text as Kubernetes writes it. Any other text, such as one that is nested deeply, is left to
//! serde_json, which also says what is wrong with it.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::json::JsonRef;
use crate::tokenizer::tokenize;

/// A token. Collections are followed by their content, objects by keys and values in turn.
#[derive(Debug, Clone, PartialEq)]
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

/// The tokens of one JSON text.
#[derive(Debug)]
pub(crate) struct Tokens<'a>(Vec<Token<'a>>);

impl<'a> Tokens<'a> {
    /// The tokens of a text. Fields that are not needed, by depth and name, may be null.
    pub(crate) fn of_text(
        text: &'a str,
        is_not_needed: impl Fn(usize, &str) -> bool,
    ) -> serde_json::Result<Tokens<'a>> {
        match tokenize(text, |depth, name| is_left_out(name) || is_not_needed(depth, name)) {
            Some(tokens) => Ok(Tokens(tokens)),
            None => Tokens::by_serde_json(text),
        }
    }

    fn by_serde_json(text: &'a str) -> serde_json::Result<Tokens<'a>> {
        let mut tokens = Vec::new();
        let mut reader = serde_json::Deserializer::from_str(text);
        Append(&mut tokens).deserialize(&mut reader)?;
        reader.end()?;
        Ok(Tokens(tokens))
    }

    /// The whole value.
    pub(crate) fn root(&self) -> JsonRef<'_> {
        JsonRef::Token { tokens: &self.0, at: 0 }
    }
}

/// Half of an object as a rule, and no type keeps it.
fn is_left_out(name: &str) -> bool {
    name == "fieldsV1"
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
            if matches!(self.0.last(), Some(Token::Text(key)) if is_left_out(key)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tokenizer_and_serde_json_make_the_same_tokens() {
        for text in [
            r#"{"a":"b","c":[1,-2,3.5,1e3,0,-0,18446744073709551615,18446744073709551616,12345678901234567890]}"#,
            r#" { "a" : [ true , false , null , { } , [ ] , "" ] , "b" : { "c" : "d" } } "#,
            "{\n  \"metadata\": {\n    \"name\": \"x\"\n  }\n}\n",
            r#"{"a":"quote \" backslash \\ unicode \u00e9 \ud83d\ude00 slash \/ end\\","ä":"ö\n"}"#,
            r#"{"fieldsV1":{"f:a":{"k:{\"x\":\"}\"}":{}},"b":[1,{"c":"]"}]},"after":1,"x":{"fieldsV1":"text"},"y":{"fieldsV1":-1}}"#,
            r#"{"a":1,"a":2}"#,
            r#""text""#,
            "[]",
            "-17",
        ] {
            let fast = tokenize(text, |_, name| is_left_out(name));
            let expected = Tokens::by_serde_json(text).expect("valid JSON").0;
            assert_eq!(fast, Some(expected), "{text}");
        }
    }

    #[test]
    fn what_the_tokenizer_does_not_know_is_left_to_serde_json() {
        let deep = format!("{}{}", "[".repeat(110), "]".repeat(110));
        let too_deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert_eq!(tokenize(&deep, |_, _| false), None);
        assert!(Tokens::of_text(&deep, |_, _| false).is_ok());
        for text in [
            &too_deep,
            "",
            "{",
            "[1",
            "[1,]",
            "[1 2]",
            r#"{"a"}"#,
            r#"{"a":1,}"#,
            r#"{1:2}"#,
            "tru",
            "nul",
            "01",
            "1.",
            "1e999",
            "-",
            "+1",
            "1x",
            "{} {}",
            "\"a\nb\"",
            r#""\x""#,
            r#""\ud800""#,
            "\"open",
            r#""\"#,
            "{\"a\":1]",
            "[1}",
        ] {
            assert_eq!(tokenize(text, |_, name| is_left_out(name)), None, "{text}");
            assert!(Tokens::of_text(text, |_, _| false).is_err(), "{text}");
        }
    }
}
