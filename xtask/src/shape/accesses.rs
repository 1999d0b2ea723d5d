//! Accesses to JSON by field names in strings.
//!
//! Counted are `value["name"]`, `.get("name")` and `.get_mut("name")`, every `.pointer(…)` and `.pointer_mut(…)`, and
//! calls of helpers with a JSON pointer or a field name in a string. A helper is a function of the crate that takes JSON
//! and a `&str` named `pointer`, `field`, `parent` or `key`. JSON that is written (`json!`) is not counted.

use proc_macro2::{Delimiter, Group, TokenTree};

use super::Figures;

/// The names of parameters by which a helper is told.
const PARAMETERS: [&str; 5] = ["pointer", "field", "fields", "parent", "key"];

/// What a JSON pointer into a Kubernetes object starts with.
const POINTERS: [&str; 6] = ["/metadata", "/spec", "/status", "/data", "/stringData", "/involvedObject"];

/// Words before `["…"]` that make it an array, not an access.
const KEYWORDS: [&str; 11] = ["in", "return", "match", "if", "else", "while", "break", "mut", "ref", "move", "as"];

/// The names of the helpers that are defined here.
pub(super) fn helpers(tokens: &[TokenTree]) -> Vec<String> {
    let mut found = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        if let TokenTree::Group(group) = token {
            found.extend(helpers(&trees(group)));
        }
        if !is_ident(tokens.get(i), "fn") {
            continue;
        }
        let Some(TokenTree::Ident(name)) = tokens.get(i + 1) else { continue };
        // Behind the name there may be generics.
        let parameters = tokens[i + 2..].iter().find_map(|token| parentheses(Some(token)));
        let Some(parameters) = parameters.map(trees) else { continue };
        let takes_json = parameters.iter().any(|token| is_ident(Some(token), "Value") || is_ident(Some(token), "Map"));
        let named = parameters.windows(3).any(|window| {
            PARAMETERS.iter().any(|name| is_ident(window.first(), name))
                && is_punct(window.get(1), ':')
                && is_punct(window.get(2), '&')
        });
        if takes_json && named {
            found.push(name.to_string());
        }
    }
    found
}

/// The figures of some tokens, lines aside.
pub(super) fn count(tokens: &[TokenTree], helpers: &[String]) -> Figures {
    let mut figures = Figures::default();
    for (i, token) in tokens.iter().enumerate() {
        let before = |n: usize| i.checked_sub(n).and_then(|i| tokens.get(i));
        figures.string_errors += usize::from(is_string_error(&tokens[i..]));
        let TokenTree::Group(group) = token else { continue };
        let inner = trees(group);
        figures.add(&count(&inner, helpers));
        match group.delimiter() {
            Delimiter::Bracket if matches!(&inner[..], [name] if text(name).is_some()) && can_be_indexed(before(1)) => {
                figures.indexed += 1;
            }
            Delimiter::Parenthesis => {
                let Some(TokenTree::Ident(name)) = before(1) else { continue };
                let name = name.to_string();
                let texts: Vec<String> = inner.iter().filter_map(text).collect();
                let first = inner.first().and_then(text).is_some();
                let is_method = is_punct(before(2), '.');
                if is_method && (name == "pointer" || name == "pointer_mut") {
                    figures.pointers += 1;
                } else if is_method && (name == "get" || name == "get_mut") && first {
                    figures.gets += 1;
                } else if is_ident(before(2), "fn") {
                    // A definition, not a call.
                } else if helpers.contains(&name) && !texts.is_empty() || texts.iter().any(|text| is_pointer(text)) {
                    figures.helpers += 1;
                }
            }
            _ => {}
        }
    }
    figures
}

fn trees(group: &Group) -> Vec<TokenTree> {
    group.stream().into_iter().collect()
}

fn parentheses(token: Option<&TokenTree>) -> Option<&Group> {
    match token {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => Some(group),
        _ => None,
    }
}

/// The content of a string literal.
fn text(token: &TokenTree) -> Option<String> {
    let TokenTree::Literal(literal) = token else { return None };
    let literal = literal.to_string();
    let start = literal.find('"').filter(|start| literal[..*start].chars().all(|c| c == 'r' || c == '#'))?;
    Some(literal[start..].trim_matches(|c| c == '"' || c == '#').to_owned())
}

fn is_pointer(text: &str) -> bool {
    POINTERS.iter().any(|start| text.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// Whether brackets behind this token are an access: behind a name, a call, another access or `?`.
fn can_be_indexed(token: Option<&TokenTree>) -> bool {
    match token {
        Some(TokenTree::Ident(name)) => !KEYWORDS.iter().any(|keyword| name == keyword),
        Some(TokenTree::Group(group)) => group.delimiter() != Delimiter::Brace,
        Some(TokenTree::Punct(punct)) => punct.as_char() == '?',
        _ => false,
    }
}

fn is_ident(token: Option<&TokenTree>, word: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(ident)) if ident == word)
}

fn is_punct(token: Option<&TokenTree>, character: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == character)
}

/// Whether these tokens begin with `Result<…, String>`.
fn is_string_error(tokens: &[TokenTree]) -> bool {
    if !is_ident(tokens.first(), "Result") || !is_punct(tokens.get(1), '<') {
        return false;
    }
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate().skip(1) {
        if is_punct(Some(token), '<') {
            depth += 1;
        } else if is_punct(Some(token), '>') && !is_punct(tokens.get(i - 1), '-') {
            depth -= 1;
        } else if depth == 1 && is_punct(Some(token), ',') {
            return is_ident(tokens.get(i + 1), "String") && is_punct(tokens.get(i + 2), '>');
        }
        if depth == 0 {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use proc_macro2::TokenStream;

    use super::*;

    fn tokens(code: &str) -> Vec<TokenTree> {
        code.parse::<TokenStream>().expect("it is Rust").into_iter().collect()
    }

    #[test]
    fn accesses_are_counted() {
        let helpers = ["helper".to_owned()];
        for (code, expected) in [
            (r#"a["b"]["c"]"#, [2, 0, 0, 0]),
            (r#"f()["b"]; a?["c"]"#, [2, 0, 0, 0]),
            (r#"for x in ["a"] { return ["b"] }"#, [0, 0, 0, 0]),
            (r#"let a = ["b"]; vec!["c"]; &["d"]; a[0]; a[name]"#, [0, 0, 0, 0]),
            (r##"a[r#"b"#]"##, [1, 0, 0, 0]),
            (r#"a.get("b").get_mut("c"); a.get(0); a.get(name)"#, [0, 2, 0, 0]),
            (r#"a.pointer("/spec/b").pointer_mut(p)"#, [0, 0, 2, 0]),
            (r#"helper(a, "b"); helper(a, b); other(a, "b")"#, [0, 0, 0, 1]),
            (r#"other(a, "/spec/b"); other("/specs"); route("/healthz")"#, [0, 0, 0, 1]),
            (r#"json!({"path": "/spec/b", "c": a["d"]})"#, [1, 0, 0, 0]),
            (r#"if let Some(x) = a["b"].as_str() { c.iter().any(|d| d["e"] == "f") }"#, [2, 0, 0, 0]),
        ] {
            let Figures { indexed, gets, pointers, helpers, .. } = count(&tokens(code), &helpers);
            assert_eq!([indexed, gets, pointers, helpers], expected, "{code}");
        }
    }

    #[test]
    fn helpers_are_told_by_their_parameters() {
        for (code, expected) in [
            ("fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {}", true),
            ("mod m { pub(crate) fn set(parent: &mut Map<String, Value>, field: &str) {} }", true),
            ("fn set_in(object: &Value, parent: &[&str]) {}", true),
            ("fn named(object: &Value, name: &str) {}", false),
            ("fn label(&self, key: &str) {}", false),
        ] {
            assert_eq!(!helpers(&tokens(code)).is_empty(), expected, "{code}");
        }
    }

    #[test]
    fn errors_that_are_strings_are_counted() {
        for (code, expected) in [
            ("fn a() -> Result<u8, String> {}", 1),
            ("fn a() -> Result<Vec<(u8, u8)>, String> {}", 1),
            ("fn a() -> Result<Result<u8, String>, Error> {}", 1),
            ("fn a() -> Result<String, Error> {}", 0),
            ("fn a() -> Result<BTreeMap<u8, String>, Error> {}", 0),
            ("fn a() -> Result<String> {}", 0),
            ("fn a(f: fn(u8) -> Result<impl Fn() -> u8, String>) {}", 1),
        ] {
            assert_eq!(count(&tokens(code), &[]).string_errors, expected, "{code}");
        }
    }
}
