//! What a text is about, told without parsing it.
//!
//! A must-gather is mostly objects that nobody asked for, and some of its files are cut short.
//! A look at the lines that name kinds decides whether a file is worth the parse, and whether a
//! file that does not parse matters.

use std::collections::BTreeSet;

use crate::Wanted;

/// Whether a kind that is wanted is named anywhere in the text, be it YAML or JSON, whole or cut.
pub(crate) fn mentions_wanted(text: &str, wanted: Wanted<'_>) -> bool {
    let versions: BTreeSet<&str> = values_of("apiVersion", text).collect();
    let kinds: BTreeSet<&str> = values_of("kind", text).collect();
    kinds.iter().any(|kind| versions.iter().any(|version| is_wanted(version, kind, wanted)))
}

/// Whether every document of the text says at its top level, in plain block style, that it is of
/// a kind that is not wanted. `false` means "parse it".
pub(crate) fn all_unwanted(text: &str, wanted: Wanted<'_>) -> bool {
    let mut seen = false;
    let mut top = Top::default();
    for line in text.lines() {
        if line.starts_with("---") {
            match top.verdict(wanted) {
                Verdict::Parse => return false,
                Verdict::Skip => seen = true,
                Verdict::Nothing => {}
            }
            top = Top { filled: line.trim_end().len() > 3, ..Top::default() };
        } else {
            top.line(line);
        }
    }
    match top.verdict(wanted) {
        Verdict::Parse => false,
        Verdict::Skip => true,
        Verdict::Nothing => seen,
    }
}

#[derive(Default)]
struct Top<'a> {
    filled: bool,
    version: Option<&'a str>,
    kind: Option<&'a str>,
}

enum Verdict {
    Nothing,
    Skip,
    Parse,
}

impl<'a> Top<'a> {
    fn line(&mut self, line: &'a str) {
        if let Some(value) = line.strip_prefix("apiVersion: ") {
            self.version = word(value);
        } else if let Some(value) = line.strip_prefix("kind: ") {
            self.kind = word(value);
        }
        self.filled |= !line.is_empty() && !line.starts_with('#');
    }

    fn verdict(&self, wanted: Wanted<'_>) -> Verdict {
        match (self.version, self.kind) {
            _ if !self.filled => Verdict::Nothing,
            (Some(version), Some(kind)) if kind != "List" && !is_wanted(version, kind, wanted) => Verdict::Skip,
            _ => Verdict::Parse,
        }
    }
}

fn word(value: &str) -> Option<&str> {
    let value = value.trim_end();
    (!value.is_empty() && value.bytes().all(is_word)).then_some(value)
}

fn is_wanted(version: &str, kind: &str, wanted: Wanted<'_>) -> bool {
    wanted(version, kind) || kind.strip_suffix("List").is_some_and(|item| wanted(version, item))
}

/// The values of `key: value`, with or without quotes, in block style, flow style or JSON.
fn values_of<'a>(key: &'a str, text: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(key).filter_map(move |(at, _)| {
        if text[..at].ends_with(|c: char| c.is_ascii_alphanumeric()) {
            return None;
        }
        let rest = &text[at + key.len()..];
        let rest = rest.strip_prefix(['"', '\'']).unwrap_or(rest);
        let rest = rest.trim_start_matches(' ').strip_prefix(':')?;
        let rest = rest.trim_start_matches(' ');
        let rest = rest.strip_prefix(['"', '\'']).unwrap_or(rest);
        let end = rest.bytes().position(|b| !is_word(b)).unwrap_or(rest.len());
        Some(&rest[..end]).filter(|value| !value.is_empty())
    })
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/' | b'-')
}

#[cfg(test)]
mod tests {
    use super::{all_unwanted, mentions_wanted};

    fn pods(version: &str, kind: &str) -> bool {
        version == "v1" && kind == "Pod"
    }

    #[test]
    fn texts() {
        // text, mentions a pod, may be passed over
        for (text, mentions, skip) in [
            ("", false, false),
            ("# nothing\n", false, false),
            ("apiVersion: v1\nkind: Pod\n", true, false),
            ("apiVersion: v1\nitems: []\nkind: PodList\n", true, false),
            ("apiVersion: v1\nitems: []\nkind: SecretList\n", false, true),
            ("apiVersion: v1\nitems: []\nkind: List\n", false, false),
            ("apiVersion: apps/v1\nkind: Pod\n", false, true),
            ("---\napiVersion: v1\nkind: Secret\n---\n", false, true),
            ("apiVersion: v1\nkind: Secret\n---\napiVersion: v1\nkind: Pod\n", true, false),
            ("apiVersion: v1\nkind: Secret\n---\napiVersion: v1\nitems:\n", false, false),
            ("apiVersion: v1\nkind: Secret\n--- {kind: Pod, apiVersion: v1}\n", true, false),
            ("apiVersion: v1\nkind: \"Secret\"\n", false, false),
            ("{apiVersion: v1, kind: Pod}", true, false),
            (r#"{"apiVersion":"v1","kind":"Pod"}"#, true, false),
            (r#"{"apiVersion": "v1", "kind" : "Secr"#, false, false),
            ("apiVersion: v1\ndata:\n  mankind: Pod\nkind: ConfigMap\n", false, true),
            ("apiVersion: v1\ninvolvedObject:\n  kind: Pod\nkind: Event\n", true, true),
        ] {
            assert_eq!(mentions_wanted(text, &pods), mentions, "{text:?}");
            assert_eq!(all_unwanted(text, &pods), skip, "{text:?}");
        }
    }
}
