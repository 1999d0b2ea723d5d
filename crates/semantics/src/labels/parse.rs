//! Selectors as typed by users.
//!
//! Mirrors the lexer and parser of `labels.Parse`: same language, same messages.

use thiserror::Error;

use crate::field_error::{FieldError, FieldErrors};
use crate::labels::requirement::{Operator, Requirement, Spelling, key_error};

/// The operators, as Kubernetes lists them in errors.
const BINARY_OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

/// The path of a label key in an error of the parser, which has no path: how Go prints a nil path.
const NO_PATH: &str = "<nil>";

/// Why a text is not a selector. `Display` is Kubernetes' message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Error)]
#[non_exhaustive]
pub enum SyntaxError {
    /// A token that is not allowed at its position.
    #[error("found '{found}', expected: {expected}")]
    Unexpected {
        /// The token; empty at the end of the text.
        found: String,
        /// What is allowed.
        expected: &'static str,
    },
    /// `in` or `notin` without an opening parenthesis.
    #[error("found '{found}' expected: '('")]
    MissingParenthesis {
        /// The token; empty at the end of the text.
        found: String,
    },
    /// An invalid label key.
    #[error("{0}")]
    Key(FieldError),
    /// Invalid values, or the wrong number of them.
    #[error("{}", .0.kubernetes_message())]
    Fields(FieldErrors),
    /// A requirement that cannot be parsed.
    #[error("unable to parse requirement: {0}")]
    Requirement(Box<SyntaxError>),
}

fn unexpected(found: Token<'_>, expected: &'static str) -> SyntaxError {
    SyntaxError::Unexpected { found: found.text().to_owned(), expected }
}

/// Parses a comma-separated list of requirements, in the order written.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, SyntaxError> {
    let mut parser = Parser { tokens: lex(text), position: 0 };
    let mut found = Vec::new();
    loop {
        match parser.peek() {
            Token::End => return Ok(found),
            token if token.is_identifier() || token == Token::Symbol("!") => {}
            token => {
                return Err(unexpected(token, "!, identifier, or 'end of string'"));
            }
        }
        let requirement = parser.requirement().map_err(|e| SyntaxError::Requirement(Box::new(e)))?;
        found.push(requirement);
        match parser.next() {
            Token::End => return Ok(found),
            Token::Symbol(",") => {
                let after = parser.peek();
                if !after.is_identifier() && after != Token::Symbol("!") {
                    return Err(unexpected(after, "identifier after ','"));
                }
            }
            other => {
                return Err(unexpected(other, "',' or 'end of string'"));
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    /// A key or a value. `in` and `notin` are words too: they are operators only where an operator
    /// is expected.
    Word(&'a str),
    Symbol(&'static str),
    End,
}

impl<'a> Token<'a> {
    fn is_identifier(self) -> bool {
        matches!(self, Token::Word(_))
    }

    fn text(self) -> &'a str {
        match self {
            Token::Word(word) => word,
            Token::Symbol(symbol) => symbol,
            Token::End => "",
        }
    }
}

fn is_blank(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r' | b'\n')
}

/// The longest symbol that `rest` starts with.
fn symbol(rest: &[u8]) -> Option<&'static str> {
    match rest {
        [b'=', b'=', ..] => Some("=="),
        [b'!', b'=', ..] => Some("!="),
        [b'=', ..] => Some("="),
        [b'!', ..] => Some("!"),
        [b'(', ..] => Some("("),
        [b')', ..] => Some(")"),
        [b',', ..] => Some(","),
        [b'>', ..] => Some(">"),
        [b'<', ..] => Some("<"),
        _ => None,
    }
}

fn lex(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        while bytes.get(at).copied().is_some_and(is_blank) {
            at += 1;
        }
        let rest = &bytes[at..];
        // Go's lexer treats a zero byte as the end of the text.
        if matches!(rest.first(), None | Some(0)) {
            tokens.push(Token::End);
            return tokens;
        }
        let token = symbol(rest).map_or_else(|| word(&text[at..]), Token::Symbol);
        tokens.push(token);
        at += token.text().len();
        // A zero byte right behind a token is consumed with it.
        if bytes.get(at) == Some(&0) {
            at += 1;
        }
    }
}

/// The word that `text` starts with.
fn word(text: &str) -> Token<'_> {
    let ends_word = |b: u8| b == 0 || is_blank(b) || symbol(&[b]).is_some();
    let length = text.bytes().position(ends_word).unwrap_or(text.len());
    Token::Word(&text[..length])
}

struct Parser<'a> {
    /// Ends in [`Token::End`].
    tokens: Vec<Token<'a>>,
    position: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.position).copied().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, SyntaxError> {
        let mut token = self.next();
        let negated = token == Token::Symbol("!");
        if negated {
            token = self.next();
        }
        let Token::Word(key) = token else {
            return Err(unexpected(token, "identifier"));
        };
        if let Some(error) = key_error(|| NO_PATH.to_owned(), key) {
            return Err(SyntaxError::Key(error));
        }
        let checked = |operator, spelling, values| {
            Requirement::checked("", key.to_owned(), operator, spelling, Some(values)).map_err(SyntaxError::Fields)
        };
        if negated {
            return checked(Operator::DoesNotExist, Spelling::Word, Vec::new());
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return checked(Operator::Exists, Spelling::Word, Vec::new());
        }
        let (operator, spelling) = self.operator()?;
        let values = match (operator, spelling) {
            (Operator::In | Operator::NotIn, Spelling::Word) => self.value_set()?,
            _ => vec![self.exact_value()?],
        };
        checked(operator, spelling, values)
    }

    fn operator(&mut self) -> Result<(Operator, Spelling), SyntaxError> {
        Ok(match self.next() {
            Token::Word("in") => (Operator::In, Spelling::Word),
            Token::Word("notin") => (Operator::NotIn, Spelling::Word),
            Token::Symbol("=") => (Operator::In, Spelling::Equals),
            Token::Symbol("==") => (Operator::In, Spelling::DoubleEquals),
            Token::Symbol("!=") => (Operator::NotIn, Spelling::NotEquals),
            Token::Symbol(">") => (Operator::Gt, Spelling::Word),
            Token::Symbol("<") => (Operator::Lt, Spelling::Word),
            other => {
                return Err(unexpected(other, BINARY_OPERATORS));
            }
        })
    }

    /// A value for `=`, `!=`, `<` and `>`, which may be empty.
    fn exact_value(&mut self) -> Result<String, SyntaxError> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(String::new());
        }
        match self.next() {
            Token::Word(value) => Ok(value.to_owned()),
            other => Err(unexpected(other, "identifier")),
        }
    }

    /// The values between parentheses, sorted and without duplicates. Values may be empty.
    fn value_set(&mut self) -> Result<Vec<String>, SyntaxError> {
        let open = self.next();
        if open != Token::Symbol("(") {
            return Err(SyntaxError::MissingParenthesis { found: open.text().to_owned() });
        }
        let mut values = match self.peek() {
            Token::Symbol(")") => vec![String::new()],
            Token::Word(_) | Token::Symbol(",") => self.value_list()?,
            other => {
                return Err(unexpected(other, "',', ')' or identifier"));
            }
        };
        // The next token is the closing parenthesis in both cases.
        self.next();
        values.sort_unstable();
        values.dedup();
        Ok(values)
    }

    /// Reads up to the closing parenthesis, without consuming it.
    fn value_list(&mut self) -> Result<Vec<String>, SyntaxError> {
        let mut values = Vec::new();
        loop {
            match self.next() {
                Token::Word(value) => {
                    values.push(value.to_owned());
                    match self.peek() {
                        Token::Symbol(",") => {}
                        Token::Symbol(")") => return Ok(values),
                        other => {
                            return Err(unexpected(other, "',' or ')'"));
                        }
                    }
                }
                Token::Symbol(",") => {
                    let next = self.peek();
                    let ends = next == Token::Symbol(")");
                    if values.is_empty() || ends || next == Token::Symbol(",") {
                        values.push(String::new());
                    }
                    if ends {
                        return Ok(values);
                    }
                }
                other => {
                    return Err(unexpected(other, "',', or identifier"));
                }
            }
        }
    }
}
