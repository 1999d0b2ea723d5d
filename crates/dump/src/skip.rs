//! Goes past JSON, and checks that it is valid.
//!
//! It accepts what serde_json accepts when it ignores a value, at several times its speed: a large dump consists of values
//! that nobody asks for.

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

/// The end of the value that starts at a position, or after white space there; none where there is no valid value. `open` is
/// working memory.
pub(crate) fn value(text: &[u8], start: usize, open: &mut Vec<u8>) -> Option<usize> {
    open.clear();
    let mut at = space(text, start);
    loop {
        at = match *text.get(at)? {
            b'"' => string(text, at)?,
            start @ (b'{' | b'[') => {
                let end = if start == b'{' { b'}' } else { b']' };
                let first = space(text, at + 1);
                if text.get(first) == Some(&end) {
                    first + 1
                } else {
                    open.push(end);
                    at = if start == b'{' { key(text, first)? } else { first };
                    continue;
                }
            }
            b't' => literal(text, at, b"true")?,
            b'f' => literal(text, at, b"false")?,
            b'n' => literal(text, at, b"null")?,
            _ => number(text, at)?,
        };
        // A value has ended, and maybe what it is in.
        loop {
            let Some(end) = open.last() else { return Some(at) };
            at = space(text, at);
            match *text.get(at)? {
                b',' => {
                    at = space(text, at + 1);
                    if *end == b'}' {
                        at = key(text, at)?;
                    }
                    break;
                }
                byte if byte == *end => {
                    open.pop();
                    at += 1;
                }
                _ => return None,
            }
        }
    }
}

/// The next position that is not white space.
fn space(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = text.get(at) {
        at += 1;
    }
    at
}

/// The start of the value of a field.
fn key(text: &[u8], at: usize) -> Option<usize> {
    (text.get(at) == Some(&b'"')).then_some(())?;
    let colon = space(text, string(text, at)?);
    (text.get(colon) == Some(&b':')).then(|| space(text, colon + 1))
}

fn string(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        at += text.get(at..)?.iter().position(|byte| IS_SPECIAL[usize::from(*byte)])?;
        match text[at] {
            b'"' => return Some(at + 1),
            b'\\' => at = escape(text, at + 1)?,
            _ => return None,
        }
    }
}

fn escape(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 1),
        b'u' => text.get(at + 1..at + 5)?.iter().all(u8::is_ascii_hexdigit).then_some(at + 5),
        _ => None,
    }
}

fn literal(text: &[u8], at: usize, word: &[u8]) -> Option<usize> {
    text[at..].starts_with(word).then_some(at + word.len())
}

fn number(text: &[u8], start: usize) -> Option<usize> {
    let digits = |at: usize| {
        let end = at + text.get(at..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
        (end > at).then_some(end)
    };
    let first = start + usize::from(text.get(start) == Some(&b'-'));
    let mut at = digits(first)?;
    if text[first] == b'0' && at > first + 1 {
        return None;
    }
    if text.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if let Some(b'e' | b'E') = text.get(at) {
        let sign = matches!(text.get(at + 1), Some(b'+' | b'-'));
        at = digits(at + 1 + usize::from(sign))?;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use serde::de::IgnoredAny;

    use super::value;

    /// What serde_json says.
    fn expected(text: &str) -> Option<usize> {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
        values.next()?.ok()?;
        Some(values.byte_offset())
    }

    #[test]
    fn the_same_as_serde_json() {
        let valid = [
            "{}",
            "[]",
            " [ ] ",
            "{ }",
            r#"{"a":1}"#,
            r#"{ "a" : [ 1 , { "b" : null } , [] , "x" ] , "c" : {} } {"#,
            "true",
            "false",
            "null",
            "0",
            "-0",
            "10",
            "-12.50e+3",
            "1E5",
            "0.0",
            r#""""#,
            r#""a\"b\\\/\b\f\n\r\t\u00eF""#,
            "\"ä\"",
            r#""\ud800""#,
            "[[[[]]]]",
            "[true,false]",
            "{\n\t\"a\":\r\n1\n}\n",
        ];
        let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
        let invalid = [
            "",
            " ",
            "{",
            "}",
            "[",
            "]",
            "[1",
            "[1,",
            "[1,]",
            "[,1]",
            "[1 2]",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{"a" 1}"#,
            "{a:1}",
            "{1:2}",
            "[1}",
            r#"{"a":1]"#,
            "tru",
            "nulL",
            "-",
            "+1",
            "01",
            "-01",
            "1.",
            ".5",
            "1.e1",
            "1e",
            "1e+",
            "[1.x]",
            "\"a\nb\"",
            "\"\u{1}\"",
            r#""\x""#,
            r#""\u00g0""#,
            r#""\u00"#,
            "\"open",
            r#""\"#,
            "'a'",
            ",",
            ":",
        ];
        for text in valid.into_iter().chain([deep.as_str()]) {
            let end = expected(text);
            assert!(end.is_some(), "{text}");
            assert_eq!(value(text.as_bytes(), 0, &mut Vec::new()), end, "{text}");
        }
        for text in invalid {
            assert_eq!(expected(text), None, "{text}");
            assert_eq!(value(text.as_bytes(), 0, &mut Vec::new()), None, "{text}");
        }
    }

    /// Every text with one byte replaced or left out is judged alike.
    #[test]
    fn broken_texts_are_judged_as_serde_json_judges_them() {
        let text = r#"{"a":[1,-2.5e1,true,null,"b\u00e9\\"],"c":{"d":{}, "e" : [ ]}}"#;
        for at in 0..text.len() {
            for byte in br#"{}[]:,"\ 0-.etnu"#.iter().map(|byte| char::from(*byte).to_string()).chain([String::new()]) {
                let broken = format!("[{}{byte}{}]", &text[..at], &text[at + 1..]);
                assert_eq!(value(broken.as_bytes(), 0, &mut Vec::new()), expected(&broken), "{broken}");
            }
        }
    }
}
