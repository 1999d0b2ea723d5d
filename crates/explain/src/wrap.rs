//! Lines that fit a terminal.

use std::fmt::Write;

/// The longest line, except for commands and single words.
const WIDTH: usize = 100;

/// Writes a text with an indentation; continuation lines are indented by two more.
pub(crate) fn wrapped(out: &mut String, indent: &str, text: &str) {
    hanging(out, indent, &format!("{indent}  "), text);
}

/// Writes a list item.
pub(crate) fn bullet(out: &mut String, text: &str) {
    hanging(out, "  - ", "    ", text);
}

/// Writes a note below everything else.
pub(crate) fn note(out: &mut String, text: &str) {
    out.push('\n');
    hanging(out, "note: ", "  ", text);
}

/// Writes a text; the first line begins with one indentation, the others with another.
pub fn hanging(out: &mut String, first: &str, others: &str, text: &str) {
    let mut line = first.to_owned();
    let mut empty = true;
    for word in text.split(' ') {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(out, "{line}");
            line = others.to_owned();
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    let _ = writeln!(out, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_unless_a_word_does_not() {
        let mut out = String::new();
        bullet(&mut out, &["word"; 40].join(" "));
        bullet(&mut out, &"x".repeat(120));
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), 4, "{out}");
        assert!(lines[..3].iter().all(|line| line.len() <= WIDTH), "{out}");
        assert!(lines[0].starts_with("  - word") && lines[1].starts_with("    word"), "{out}");
    }
}
