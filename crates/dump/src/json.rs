//! Finds the parts of JSON text without building values.
//!
//! Of a large list, most items are only asked for a few fields. `skip` goes past the others.

use std::borrow::Cow;
use std::ops::Range;

use crate::skip;

/// The text is not JSON. Parsing the whole of it again gives the position.
#[derive(Debug)]
pub(crate) struct NotJson;

/// A position in a text.
pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    /// The open brackets of the value that is skipped: memory that is used again.
    open: Vec<u8>,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str, at: usize) -> Scanner<'a> {
        Scanner { text, at, open: Vec::new() }
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// The next character that is not white space; none at the end.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.at..];
        let space = rest.iter().position(|byte| !matches!(byte, b' ' | b'\n' | b'\r' | b'\t'));
        self.at += space.unwrap_or(rest.len());
        self.text.as_bytes().get(self.at).copied()
    }

    /// Goes past this character.
    fn pass(&mut self, byte: u8) -> Result<(), NotJson> {
        if self.peek() != Some(byte) {
            return Err(NotJson);
        }
        self.at += 1;
        Ok(())
    }

    /// Goes past a value, and says where it is.
    pub(crate) fn value(&mut self) -> Result<Range<usize>, NotJson> {
        self.peek();
        let start = self.at;
        self.at = skip::value(self.text.as_bytes(), start, &mut self.open).ok_or(NotJson)?;
        Ok(start..self.at)
    }

    /// Goes past an object; `field` is called with each key, and goes past its value.
    pub(crate) fn object(
        &mut self,
        mut field: impl FnMut(&mut Self, &str) -> Result<(), NotJson>,
    ) -> Result<(), NotJson> {
        self.pass(b'{')?;
        if self.peek() == Some(b'}') {
            return self.pass(b'}');
        }
        loop {
            let key = self.value()?;
            let key = text(&self.text[key]).ok_or(NotJson)?;
            self.pass(b':')?;
            field(self, &key)?;
            match self.peek() {
                Some(b',') => self.pass(b',')?,
                _ => return self.pass(b'}'),
            }
        }
    }

    /// Goes past an array; `item` goes past each of its items.
    pub(crate) fn array<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, NotJson>,
    ) -> Result<Vec<T>, NotJson> {
        let mut items = Vec::new();
        self.pass(b'[')?;
        if self.peek() == Some(b']') {
            return self.pass(b']').map(|()| items);
        }
        loop {
            items.push(item(self)?);
            match self.peek() {
                Some(b',') => self.pass(b',')?,
                _ => return self.pass(b']').map(|()| items),
            }
        }
    }
}

/// The text of a value that is a string.
pub(crate) fn text(value: &str) -> Option<Cow<'_, str>> {
    let inside = value.strip_prefix('"')?.strip_suffix('"')?;
    if inside.contains('\\') {
        return serde_json::from_str(value).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inside))
}

/// The word for the type of a value.
pub(crate) fn type_of(value: &str) -> &'static str {
    match value.as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    }
}
