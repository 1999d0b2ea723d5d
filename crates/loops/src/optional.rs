//! Optional texts of a spec: an empty one counts as absent.

/// The text; none where it is empty.
pub(crate) fn non_empty(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

/// The text; empty where there is none.
pub(crate) fn text(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or_default()
}

/// Replaces an absent or empty text.
pub(crate) fn set_default(text: &mut Option<String>, default: &str) {
    if non_empty(text).is_none() {
        *text = Some(default.to_owned());
    }
}
