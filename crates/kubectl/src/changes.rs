//! Changes of labels, annotations and taints, as they are typed.

use crate::KubectlError;

/// A label or annotation that is set, or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyChange {
    /// The key.
    pub key: String,
    /// The new value; none to remove it.
    pub value: Option<String>,
}

/// A taint that is set, or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaintChange {
    /// `key=value:effect` or `key:effect`.
    Set {
        /// The key.
        key: String,
        /// The value; none if it was not given.
        value: Option<String>,
        /// The effect.
        effect: String,
    },
    /// `key-` or `key:effect-`.
    Remove {
        /// The key.
        key: String,
        /// The effect; none for every effect.
        effect: Option<String>,
    },
}

/// The effects of taints.
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

impl KeyChange {
    /// Whether a word is a change and not the name of an object.
    pub(crate) fn is_one(word: &str) -> bool {
        word.contains('=') || word.ends_with('-')
    }

    pub(crate) fn parse(word: &str) -> Result<KeyChange, KubectlError> {
        let (key, value) = match (word.split_once('='), word.strip_suffix('-')) {
            (Some((key, value)), _) => (key, Some(value.to_owned())),
            (None, Some(key)) => (key, None),
            (None, None) => return Err(KubectlError(format!("{word:?} is neither KEY=VALUE nor KEY-"))),
        };
        if key.is_empty() {
            return Err(KubectlError(format!("{word:?} has no key")));
        }
        Ok(KeyChange { key: key.to_owned(), value })
    }
}

impl TaintChange {
    /// Whether a word is a change and not the name of a node.
    pub(crate) fn is_one(word: &str) -> bool {
        word.contains(':') || word.contains('=') || word.ends_with('-')
    }

    pub(crate) fn parse(word: &str) -> Result<TaintChange, KubectlError> {
        let invalid = |what: &str| KubectlError(format!("taint {word:?}: {what}"));
        let effect = |text: &str| match EFFECTS.contains(&text) {
            true => Ok(text.to_owned()),
            false => Err(invalid("the effect must be NoSchedule, PreferNoSchedule or NoExecute")),
        };
        if let Some(rest) = word.strip_suffix('-') {
            let (rest, effect) = match rest.split_once(':') {
                Some((key, text)) => (key, Some(effect(text)?)),
                None => (rest, None),
            };
            let key = rest.split_once('=').map_or(rest, |(key, _)| key).to_owned();
            return Ok(TaintChange::Remove { key, effect });
        }
        let (rest, text) = word.split_once(':').ok_or_else(|| invalid("KEY=VALUE:EFFECT or KEY:EFFECT is needed"))?;
        let (key, value) = rest.split_once('=').map_or((rest, None), |(key, value)| (key, Some(value.to_owned())));
        if key.is_empty() {
            return Err(invalid("the key is missing"));
        }
        Ok(TaintChange::Set { key: key.to_owned(), value, effect: effect(text)? })
    }
}
