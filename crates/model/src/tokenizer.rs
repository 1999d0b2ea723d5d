//! Tokens of JSON text as Kubernetes writes it.
//!
//! This looks at each byte once and allocates nothing but the list of tokens. It gives up where it is not sure: serde_json
//! then decides.

use std::borrow::Cow;

use serde_json::Number;

use crate::tokens::Token;

/// Kubernetes objects are nested less deeply. serde_json refuses what is nested more than 127 times.
const MAX_DEPTH: usize = 100;

/// The bytes of a string that mean something else: quotes, backslashes and control characters.
static IS_SPECIAL: [bool; 256] = {
    let mut table = [false; 256];
    let mut control = 0;
    while control < 0x20 {
        table[control] = true;
        control += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table
};

/// The tokens of a text; none where it is not JSON, or unusual. Fields that are left out, by depth and name, are null; what
/// they contain is not checked.
pub(crate) fn tokenize(text: &str, is_left_out: impl Fn(usize, &str) -> bool) -> Option<Vec<Token<'_>>> {
    // A token for every dozen characters is common.
    let tokens = Vec::with_capacity(text.len() / 12 + 8);
    let mut tokenizer = Tokenizer { text, at: 0, tokens, is_left_out };
    tokenizer.value(0)?;
    tokenizer.peek().is_none().then_some(tokenizer.tokens)
}

struct Tokenizer<'a, F> {
    text: &'a str,
    at: usize,
    tokens: Vec<Token<'a>>,
    is_left_out: F,
}

impl<'a, F: Fn(usize, &str) -> bool> Tokenizer<'a, F> {
    /// The next byte that is not white space; none at the end.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    /// Goes past this byte.
    fn pass(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        match self.peek()? {
            b'"' => {
                let text = self.string()?;
                self.tokens.push(Token::Text(text));
            }
            b'{' if depth < MAX_DEPTH => self.object(depth)?,
            b'[' if depth < MAX_DEPTH => self.array(depth)?,
            b't' => self.literal("true", Token::Bool(true))?,
            b'f' => self.literal("false", Token::Bool(false))?,
            b'n' => self.literal("null", Token::Null)?,
            b'-' | b'0'..=b'9' => self.number()?,
            _ => return None,
        }
        Some(())
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        let start = self.tokens.len();
        self.tokens.push(Token::Null);
        self.at += 1;
        if self.peek()? == b'}' {
            self.at += 1;
        } else {
            loop {
                (self.peek()? == b'"').then_some(())?;
                let name = self.string()?;
                let left_out = (self.is_left_out)(depth, &name);
                self.tokens.push(Token::Text(name));
                self.pass(b':')?;
                match left_out {
                    true => self.skip()?,
                    false => self.value(depth + 1)?,
                }
                if self.peek()? == b',' {
                    self.at += 1;
                } else {
                    break self.pass(b'}')?;
                }
            }
        }
        self.tokens[start] = Token::Object(self.tokens.len());
        Some(())
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        let start = self.tokens.len();
        self.tokens.push(Token::Null);
        self.at += 1;
        if self.peek()? == b']' {
            self.at += 1;
        } else {
            loop {
                self.value(depth + 1)?;
                if self.peek()? == b',' {
                    self.at += 1;
                } else {
                    break self.pass(b']')?;
                }
            }
        }
        self.tokens[start] = Token::Array(self.tokens.len());
        Some(())
    }

    fn literal(&mut self, word: &str, token: Token<'a>) -> Option<()> {
        self.text.as_bytes()[self.at..].starts_with(word.as_bytes()).then_some(())?;
        self.at += word.len();
        self.tokens.push(token);
        Some(())
    }

    fn number(&mut self) -> Option<()> {
        let rest = &self.text.as_bytes()[self.at..];
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let length = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        let number: Number = serde_json::from_str(&self.text[self.at..self.at + length]).ok()?;
        self.tokens.push(match (number.as_u64(), number.as_i64()) {
            (Some(value), _) => Token::Unsigned(value),
            (None, Some(value)) => Token::Signed(value),
            (None, None) => Token::Float(number.as_f64()?),
        });
        self.at += length;
        Some(())
    }

    /// Goes past a string. Only one with escapes is copied.
    fn string(&mut self) -> Option<Cow<'a, str>> {
        let start = self.at;
        let (end, escaped) = self.end_of_string()?;
        self.at = end;
        match escaped {
            true => serde_json::from_str(&self.text[start..end]).ok().map(Cow::Owned),
            false => Some(Cow::Borrowed(&self.text[start + 1..end - 1])),
        }
    }

    /// Where the string ends that starts here, and whether it has escapes.
    fn end_of_string(&self) -> Option<(usize, bool)> {
        let bytes = self.text.as_bytes();
        let (mut at, mut escaped) = (self.at + 1, false);
        loop {
            at += bytes.get(at..)?.iter().position(|byte| IS_SPECIAL[usize::from(*byte)])?;
            match bytes[at] {
                b'"' => return Some((at + 1, escaped)),
                b'\\' => {
                    escaped = true;
                    at += 2;
                }
                _ => return None,
            }
        }
    }

    /// Goes past a value that is left out.
    fn skip(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => self.at = self.end_of_string()?.0,
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                    continue;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                b',' | b':' if depth > 0 => {
                    self.at += 1;
                    continue;
                }
                b',' | b':' => return None,
                // A number or a literal.
                _ => {
                    let rest = &self.text.as_bytes()[self.at..];
                    let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
                    self.at += rest.iter().position(ends).unwrap_or(rest.len());
                }
            }
            if depth == 0 {
                self.tokens.push(Token::Null);
                return Some(());
            }
        }
    }
}
