//! YAML to JSON text, for YAML as kubectl and must-gathers write it.
//!
//! That are documents in block style with plain, quoted and literal scalars, and neither anchors nor tags. It is read line by
//! line, at many times the speed of a YAML parser. Whatever is not written like that is left to the parser, which also says
//! what is wrong with it.

use std::borrow::Cow;
use std::ops::Range;

use crate::scalar;

/// Objects are nested less deeply.
const MAX_DEPTH: usize = 100;

/// The most keys of a mapping that are compared with each other one by one.
const MAX_KEYS: usize = 512;

/// The documents of a text as JSON; none where only a YAML parser can tell.
pub(crate) fn documents(text: &str) -> Option<Vec<String>> {
    // A literal scalar at the end of a text without a newline has none either.
    let text = text.strip_prefix("---\n").unwrap_or(text).strip_suffix('\n')?;
    text.split("\n---\n").map(json).collect()
}

fn json(text: &str) -> Option<String> {
    let mut reader = Reader { rest: Some(text), line: None, json: Vec::with_capacity(text.len()), keys: Vec::new() };
    reader.advance()?;
    let root = reader.line.filter(|line| line.indent == 0)?;
    if !is_item(root.content) {
        entry(root.content)?;
    }
    reader.collection(0)?;
    (reader.line.is_none() && reader.rest.is_none()).then_some(())?;
    String::from_utf8(reader.json).ok()
}

/// A line, or what follows the dash of a list item, which counts as a line of its own.
#[derive(Clone, Copy)]
struct Line<'a> {
    indent: usize,
    content: &'a str,
}

impl<'a> Line<'a> {
    fn of(raw: &'a str) -> Line<'a> {
        let content = raw.trim_start_matches(' ');
        Line { indent: raw.len() - content.len(), content }
    }
}

struct Reader<'a> {
    /// What comes after the present line; none at the end.
    rest: Option<&'a str>,
    /// The present line.
    line: Option<Line<'a>>,
    json: Vec<u8>,
    /// Where the keys of the open mappings are in the JSON.
    keys: Vec<Range<usize>>,
}

impl<'a> Reader<'a> {
    fn raw_line(&mut self) -> Option<&'a str> {
        let rest = self.rest?;
        let (line, rest) = rest.split_once('\n').map_or((rest, None), |(line, rest)| (line, Some(rest)));
        self.rest = rest;
        Some(line)
    }

    /// Goes to the next line that is neither empty nor a comment. None for the start or end of a document.
    fn advance(&mut self) -> Option<()> {
        loop {
            let Some(raw) = self.raw_line() else {
                self.line = None;
                return Some(());
            };
            let line = Line::of(raw);
            if line.content.is_empty() || line.content.starts_with('#') {
                continue;
            }
            if line.indent == 0 && (line.content.starts_with("---") || line.content.starts_with("...")) {
                return None;
            }
            self.line = Some(line);
            return Some(());
        }
    }

    /// The collection that starts in the present line.
    fn collection(&mut self, depth: usize) -> Option<()> {
        (depth < MAX_DEPTH).then_some(())?;
        let line = self.line?;
        match is_item(line.content) {
            true => self.list(line.indent, depth),
            false => self.mapping(line.indent, depth),
        }
    }

    fn list(&mut self, indent: usize, depth: usize) -> Option<()> {
        self.json.push(b'[');
        let mut is_first = true;
        while let Some(line) = self.line.filter(|line| line.indent == indent && is_item(line.content)) {
            if !std::mem::take(&mut is_first) {
                self.json.push(b',');
            }
            let after = line.content[2..].trim_start_matches(' ');
            let item = Line { indent: indent + line.content.len() - after.len(), content: after };
            if is_item(after) || entry(after).is_some() {
                self.line = Some(item);
                self.collection(depth + 1)?;
            } else {
                self.scalar(after, indent)?;
            }
        }
        self.json.push(b']');
        self.line.is_none_or(|line| line.indent <= indent).then_some(())
    }

    fn mapping(&mut self, indent: usize, depth: usize) -> Option<()> {
        self.json.push(b'{');
        let first_key = self.keys.len();
        while let Some(line) = self.line.filter(|line| line.indent == indent && !is_item(line.content)) {
            if self.keys.len() > first_key {
                self.json.push(b',');
            }
            let (key, value) = entry(line.content)?;
            self.key(&key, first_key)?;
            if value.is_empty() {
                self.advance()?;
                let is_nested = |next: Line<'_>| next.indent > indent || next.indent == indent && is_item(next.content);
                match self.line.is_some_and(is_nested) {
                    true => self.nested(depth)?,
                    false => self.json.extend_from_slice(b"null"),
                }
            } else {
                self.scalar(value, indent)?;
            }
        }
        self.keys.truncate(first_key);
        self.json.push(b'}');
        self.line.is_none_or(|line| line.indent < indent).then_some(())
    }

    /// The collection below a key. A scalar there is unusual.
    fn nested(&mut self, depth: usize) -> Option<()> {
        let line = self.line?;
        if !is_item(line.content) {
            entry(line.content)?;
        }
        self.collection(depth + 1)
    }

    fn key(&mut self, key: &str, first: usize) -> Option<()> {
        let start = self.json.len();
        self.string(key);
        let written = start..self.json.len();
        let others = &self.keys[first..];
        let is_repeated = others.iter().any(|other| self.json[other.clone()] == self.json[written.clone()]);
        (!is_repeated && others.len() < MAX_KEYS).then_some(())?;
        self.keys.push(written);
        self.json.push(b':');
        Some(())
    }

    fn string(&mut self, text: &str) {
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(&mut self.json, text);
    }

    /// Writes a scalar that starts in the present line, and goes past it. The lines that continue it are indented more than
    /// its parent.
    fn scalar(&mut self, start: &'a str, parent: usize) -> Option<()> {
        match start.as_bytes().first()? {
            b'\'' => self.single_quoted(start, parent),
            b'|' => self.literal(start, parent),
            b'"' => {
                let (text, after) = double_quoted(start)?;
                after.is_empty().then_some(())?;
                self.string(&text);
                self.advance()
            }
            b'{' => self.empty(start, "{}"),
            b'[' => self.empty(start, "[]"),
            _ => self.plain(start, parent),
        }
    }

    fn empty(&mut self, start: &str, expected: &str) -> Option<()> {
        (start == expected).then(|| self.json.extend_from_slice(expected.as_bytes()))?;
        self.advance()
    }

    fn plain(&mut self, start: &'a str, parent: usize) -> Option<()> {
        (starts_plain(start) && is_plain(start)).then_some(())?;
        let mut folded = String::new();
        while let Some(next) = self.next_folded(parent) {
            if folded.is_empty() {
                folded.push_str(start);
            }
            (next.content.as_bytes()[0].is_ascii_alphanumeric() && is_plain(next.content)).then_some(())?;
            folded.push(' ');
            folded.push_str(next.content);
            self.raw_line()?;
        }
        let text = if folded.is_empty() { start } else { &folded };
        match scalar::literal(text) {
            Some(literal) => self.json.extend_from_slice(literal.to_string().as_bytes()),
            None => self.string(text),
        }
        self.after_folded(parent)
    }

    /// The next line, if it continues a scalar.
    fn next_folded(&self, parent: usize) -> Option<Line<'a>> {
        let next = self.rest?.split('\n').next().map(Line::of)?;
        (next.indent > parent && !next.content.is_empty() && !next.content.starts_with('#')).then_some(next)
    }

    /// Goes on after a plain scalar. An empty line or a comment may have been in its middle.
    fn after_folded(&mut self, parent: usize) -> Option<()> {
        self.advance()?;
        self.line.is_none_or(|line| line.indent <= parent).then_some(())
    }

    fn single_quoted(&mut self, start: &'a str, parent: usize) -> Option<()> {
        let mut text = String::new();
        let mut part = &start[1..];
        loop {
            is_printable(part).then_some(())?;
            match part.split_once('\'') {
                None => {
                    text.push_str(part);
                    // A line break and the white space around it are one space.
                    part.ends_with(|c| c != ' ').then_some(())?;
                    text.push(' ');
                    let next = Line::of(self.raw_line()?);
                    (next.indent > parent && !next.content.is_empty()).then_some(())?;
                    part = next.content;
                }
                Some((before, after)) => {
                    text.push_str(before);
                    match after.strip_prefix('\'') {
                        Some(after) => {
                            text.push('\'');
                            part = after;
                            if part.is_empty() {
                                return None;
                            }
                        }
                        None => {
                            after.is_empty().then_some(())?;
                            break;
                        }
                    }
                }
            }
        }
        self.string(&text);
        self.advance()
    }

    /// A literal scalar, `|` or `|-`.
    fn literal(&mut self, start: &str, parent: usize) -> Option<()> {
        let ends_with_newline = match start {
            "|" => true,
            "|-" => false,
            _ => return None,
        };
        let first = Line::of(self.raw_line()?);
        let indent = first.indent;
        (indent > parent && !first.content.is_empty()).then_some(())?;
        let mut text = literal_line(first.content)?.to_owned();
        let mut empty_lines = 0;
        while let Some(raw) = self.rest.and_then(|rest| rest.split('\n').next()) {
            if raw.is_empty() {
                empty_lines += 1;
                self.raw_line()?;
                continue;
            }
            let line = Line::of(raw);
            if line.indent < indent {
                // A line of spaces, or one that belongs to nothing.
                (line.indent <= parent && !line.content.is_empty()).then_some(())?;
                break;
            }
            // Spaces at the end are kept, and whether a line has nothing else is a special case.
            (!line.content.is_empty()).then_some(())?;
            text.extend(std::iter::repeat_n('\n', empty_lines + 1));
            empty_lines = 0;
            text.push_str(literal_line(&raw[indent..])?);
            self.raw_line()?;
        }
        if ends_with_newline {
            text.push('\n');
        }
        self.string(&text);
        self.advance()
    }
}

/// Whether a line is an item of a list.
fn is_item(content: &str) -> bool {
    content.starts_with("- ")
}

/// The key of a line, and what follows its colon; none where the line is not an entry of a mapping.
fn entry(content: &str) -> Option<(Cow<'_, str>, &str)> {
    let first = *content.as_bytes().first()?;
    let (key, after) = if first == b'"' {
        double_quoted(content)?
    } else if first.is_ascii_alphanumeric() || matches!(first, b'_' | b'.' | b'/') {
        let bytes = content.as_bytes();
        let ends = |(at, byte): (usize, &u8)| *byte == b':' && matches!(bytes.get(at + 1), None | Some(b' '));
        let end = bytes.iter().take_while(|byte| **byte != b' ').enumerate().position(ends)?;
        is_printable(&content[..end]).then_some(())?;
        (content[..end].into(), &content[end..])
    } else {
        return None;
    };
    let value = after.strip_prefix(':')?;
    (value.is_empty() || value.starts_with(' ')).then(|| (key, value.trim_start_matches(' ')))
}

/// A double-quoted scalar at the start of a text, with escapes that JSON has too, and what follows it.
fn double_quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let bytes = text.as_bytes();
    let (mut at, mut has_escapes) = (1, false);
    loop {
        match bytes.get(at)? {
            b'"' => break,
            b'\\' => {
                has_escapes = true;
                matches!(bytes.get(at + 1)?, b'"' | b'\\' | b'n' | b't' | b'r').then_some(())?;
                at += 2;
            }
            0x20..0x7f => at += 1,
            _ => return None,
        }
    }
    let after = &text[at + 1..];
    match has_escapes {
        true => Some((serde_json::from_str::<String>(&text[..=at]).ok()?.into(), after)),
        false => Some((text[1..at].into(), after)),
    }
}

/// Whether a plain scalar can start like this.
fn starts_plain(text: &str) -> bool {
    match text.as_bytes() {
        [b'-', second, ..] => second.is_ascii_alphanumeric() || matches!(second, b'-' | b'.' | b'/' | b'_'),
        [first, ..] => {
            first.is_ascii_alphanumeric() || matches!(first, b'_' | b'.' | b'/' | b'+' | b'~' | b'(' | b'<' | b'$')
        }
        [] => false,
    }
}

/// Whether a line of a plain scalar is nothing else: neither has it a comment nor is it an entry of a mapping.
fn is_plain(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_indicator = |pair: &[u8]| matches!(pair, [b':', b' '] | [b' ', b'#']);
    is_printable(text) && !bytes.windows(2).any(is_indicator) && !matches!(bytes.last(), Some(b':' | b' '))
}

fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, 0x20..0x7f))
}

/// A line of a literal scalar, if it has nothing but characters that mean themselves.
fn literal_line(text: &str) -> Option<&str> {
    let is_allowed = |byte: u8| matches!(byte, 0x20..0x7f | b'\t');
    (text.bytes().all(is_allowed) && !text.starts_with('\t')).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::documents;
    use crate::yaml;

    /// What the YAML parser makes of a text; none for an error.
    fn parsed(text: &str) -> Option<Vec<String>> {
        let mut found = Vec::new();
        let collect = |_, json| {
            found.push(json);
            Ok(())
        };
        yaml::parsed_documents(text, |_, error| error, collect).ok().map(|()| found)
    }

    /// The parser says the same, where the text is not left to it.
    fn check(text: &str) -> bool {
        let found = documents(text);
        if found.is_some() {
            assert_eq!(found, parsed(text), "{text}");
        }
        found.is_some()
    }

    fn yaml_files(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                yaml_files(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "yaml") {
                found.push(path);
            }
        }
    }

    fn texts(directory: &str) -> Vec<String> {
        let mut files = Vec::new();
        yaml_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(directory), &mut files);
        files.sort();
        files.iter().filter_map(|file| std::fs::read_to_string(file).ok()).collect()
    }

    #[test]
    fn what_kubectl_prints_is_read() {
        for text in texts("examples/glance-zones") {
            assert!(check(&text), "{text}");
        }
    }

    #[test]
    fn files_are_read_as_the_parser_reads_them() {
        for text in texts("examples").iter().chain(&texts("testdata")).chain(&texts("charts")) {
            check(text);
        }
    }

    const SAMPLE: &str = r##"---
apiVersion: v1
# A comment
kind: Pod
metadata:
  annotations:
    a/b: "true"
    c: |
      {"x": [1, 2],

        "y": "#"}
    d: |-
      one
    "quoted key": 'it''s: # fine'
    e: "tab\t\"quote\" \\"
  creationTimestamp: null
  labels: {}
  managedFields:
  - fieldsV1:
      f:metadata:
        f:labels:
          .: {}
          f:app.kubernetes.io/name: {}
          k:{"type":"Ready"}:
            f:type: {}
  empty:
spec:
  containers:
  - args:
    - --flag=a:b
    - -v
    - http://example.org/x?y#z
    - - nested
      - 5
    command: []
    port: 0644
    size: 1e3
  - name: b
    message: a long text that goes
      on in the next line
    other: 'quoted text: it goes
      on here'
  numbers:
    - 1
    - -2.5
    - 16Gi
    - 2026-01-01T00:00:00Z

last: ~
"##;

    #[test]
    fn a_text_with_everything_that_kubectl_writes() {
        assert!(check(SAMPLE));
        assert!(check("a: 1\n---\nb: 2\n"));
        assert!(check("- a\n- b: c\n"));
    }

    #[test]
    fn what_is_written_otherwise_is_left_to_the_parser() {
        for text in [
            "",
            "\n",
            "text\n",
            "a: 1",
            "a: &x 1\n",
            "a: *x\n",
            "a: !!str 1\n",
            "a: >\n  x\n",
            "a: |+\n  x\n",
            "a: {b: c}\n",
            "a: [1]\n",
            "a: 1 # comment\n",
            "a: b: c\n",
            "a:\n\tb: c\n",
            "a: \"x\n  y\"\n",
            "a: 1\na: 2\n",
            "? a\n: b\n",
            "<<: x\n",
            "a: é\n",
            "a: b\r\n",
            "%YAML 1.2\n---\na: b\n",
            "a: b\n...\n",
            "a: b\n--- c\n",
            "a:\n- b\n c: d\n",
            "a: 'x\n\n  y'\n",
            "a: |\n\n  x\n",
            "a: \"\\x41\"\n",
            "a: x\n\n   y\n",
            "-\n  a\n",
            "a:\n  b\n",
            "a: @x\n",
            "a: `x`\n",
            "a: %x\n",
        ] {
            assert_eq!(documents(text), None, "{text:?}");
        }
    }

    /// Lines that are moved, repeated, left out or cut, and bytes that are replaced, never lead to another answer.
    #[test]
    fn broken_texts_are_read_as_the_parser_reads_them_or_left_to_it() {
        let lines: Vec<&str> = SAMPLE.split_inclusive('\n').collect();
        for at in 0..lines.len() {
            let (before, after) = (lines[..at].concat(), lines[at + 1..].concat());
            let line = lines[at];
            let trimmed = line.trim_start();
            let shorter = line.strip_prefix(' ').unwrap_or(line);
            let variants = [
                String::new(),
                format!("{line}{line}"),
                format!(" {line}"),
                format!("  {line}"),
                format!("- {line}"),
                format!("{line}\n"),
                format!("{line}   \n"),
                format!("{line}# comment\n"),
                format!("{line}      # comment\n"),
                format!("\t{line}"),
                shorter.to_owned(),
                trimmed.to_owned(),
                line.trim_end().to_owned(),
                format!("{} \n", line.trim_end()),
                format!("{}:\n", line.trim_end()),
                format!("{} #x\n", line.trim_end()),
                line.replacen(": ", ":", 1),
                line.replacen(": ", ":  ", 1),
                line.replacen("- ", "-   ", 1),
                line.replacen("- ", "-", 1),
                line.replacen("- ", "- - ", 1),
                line.replacen('\'', "", 1),
                line.replacen('"', "", 1),
            ];
            for variant in variants {
                check(&format!("{before}{variant}{after}"));
            }
            for (column, _) in line.char_indices() {
                for byte in [
                    "", " ", "\n", ":", "#", "-", "'", "\"", "|", "{", "[", "]", "}", ",", "&", "!", "\\", "\t", "0",
                    "é", "?", ">",
                ] {
                    check(&format!("{before}{}{byte}{}{after}", &line[..column], &line[column + 1..]));
                    check(&format!("{before}{}{byte}{}{after}", &line[..column], &line[column..]));
                }
            }
        }
    }
}
