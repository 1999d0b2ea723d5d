//! Which kinds a text contains, without parsing it.
//!
//! A must-gather consists mostly of objects that are not wanted, and some of its files are
//! truncated. The lines with kinds show whether a file has to be parsed, and whether a file that
//! cannot be parsed matters.

use std::collections::BTreeSet;

use crate::KindFilter;

/// Whether the text mentions a wanted kind anywhere. It may be YAML or JSON, complete or truncated.
pub(crate) fn mentions_wanted(text: &str, wanted: KindFilter<'_>) -> bool {
    let versions: BTreeSet<&str> = values_of("apiVersion", text).collect();
    let kinds: BTreeSet<&str> = values_of("kind", text).collect();
    kinds.iter().any(|kind| versions.iter().any(|version| is_wanted(version, kind, wanted)))
}

/// Whether every document of the text states at its top level, in block style, a kind that is not
/// wanted. `false` means that the text has to be parsed.
pub(crate) fn all_unwanted(text: &str, wanted: KindFilter<'_>) -> bool {
    let mut seen = false;
    let mut top = Top::default();
    for line in text.lines() {
        if line.starts_with("---") {
            match top.relevance(wanted) {
                Relevance::Unknown => return false,
                Relevance::Unwanted => seen = true,
                Relevance::Empty => {}
            }
            top = Top { filled: line.trim_end().len() > 3, ..Top::default() };
        } else {
            top.line(line);
        }
    }
    match top.relevance(wanted) {
        Relevance::Unknown => false,
        Relevance::Unwanted => true,
        Relevance::Empty => seen,
    }
}

/// The top level of a document, as far as it was read.
#[derive(Default)]
struct Top<'a> {
    filled: bool,
    version: Option<&'a str>,
    kind: Option<&'a str>,
}

/// What the top level of a document shows.
enum Relevance {
    Empty,
    Unwanted,
    /// Only parsing can tell.
    Unknown,
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

    fn relevance(&self, wanted: KindFilter<'_>) -> Relevance {
        match (self.version, self.kind) {
            _ if !self.filled => Relevance::Empty,
            (Some(version), Some(kind)) if kind != "List" && !is_wanted(version, kind, wanted) => Relevance::Unwanted,
            _ => Relevance::Unknown,
        }
    }
}

fn word(value: &str) -> Option<&str> {
    let value = value.trim_end();
    (!value.is_empty() && value.bytes().all(is_word)).then_some(value)
}

fn is_wanted(version: &str, kind: &str, wanted: KindFilter<'_>) -> bool {
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
        // text, mentions a pod, can be skipped
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
