//! Texts in which `*` stands for any text.

/// A pattern.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pattern<'a>(&'a str);

impl<'a> Pattern<'a> {
    pub(crate) fn new(text: &'a str) -> Pattern<'a> {
        Pattern(text)
    }

    /// Whether a text matches.
    pub(crate) fn matches(self, text: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = text.strip_prefix(first) else { return false };
        let mut last = None;
        for part in parts {
            // The part before this one can be anywhere, as early as possible.
            if let Some(part) = last.replace(part) {
                let Some(at) = rest.find(part) else { return false };
                rest = &rest[at + part.len()..];
            }
        }
        last.map_or(rest.is_empty(), |part| rest.ends_with(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, matches) in [
            ("web-0", "web-0", true),
            ("web-0", "web-01", false),
            ("web-*", "web-0", true),
            ("*", "", true),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "acb", false),
            ("*aab", "aaab", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(Pattern::new(pattern).matches(text), matches, "{pattern} {text}");
        }
    }
}
