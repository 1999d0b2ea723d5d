//! The words of a line, as a shell separates them.

use crate::KubectlError;

/// Splits a line into words. Single quotes keep everything, double quotes keep everything but backslashes.
pub fn split(line: &str) -> Result<Vec<String>, KubectlError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('\'') => break,
                        Some(c) => word.push(c),
                        None => return Err(KubectlError(format!("missing closing ' in: {line}"))),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('"') => break,
                        Some('\\') => match chars.next() {
                            Some(c @ ('"' | '\\' | '$' | '`')) => word.push(c),
                            Some('\n') => {}
                            Some(c) => word.extend(['\\', c]),
                            None => return Err(KubectlError(format!("missing closing \" in: {line}"))),
                        },
                        Some(c) => word.push(c),
                        None => return Err(KubectlError(format!("missing closing \" in: {line}"))),
                    }
                }
            }
            '\\' => match chars.next() {
                Some('\n') => {}
                Some(c) => word.get_or_insert_default().push(c),
                None => word.get_or_insert_default().push('\\'),
            },
            '|' | ';' | '&' | '<' | '>' | '`' => {
                return Err(KubectlError(format!("{c:?} is not supported: a line is one command, without a shell")));
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_separated_as_in_a_shell() {
        for (line, words) in [
            ("kubectl get  pods", &["kubectl", "get", "pods"][..]),
            (r#"a -p '{"x": "y z"}'"#, &["a", "-p", r#"{"x": "y z"}"#]),
            (r#"a "b \"c\" \n" d\ e"#, &["a", r#"b "c" \n"#, "d e"]),
            ("a '' b''c", &["a", "", "bc"]),
            ("a \\\n b", &["a", "b"]),
            ("", &[]),
        ] {
            assert_eq!(split(line).expect(line), words, "{line}");
        }
        for line in ["a 'b", "a \"b", "a | b", "a && b", "a > b"] {
            assert!(split(line).is_err(), "{line}");
        }
    }
}
