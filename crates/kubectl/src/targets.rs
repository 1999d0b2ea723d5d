//! Which objects a command is about.

use stead_model::Kind;
use stead_semantics::labels::Selector;

use crate::KubectlError;
use crate::kinds::kind_named;

/// One object, or all objects of a kind that the selectors choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetName {
    /// The kind.
    pub kind: &'static Kind,
    /// The name; none for those that the selectors choose.
    pub name: Option<String>,
}

/// The objects that a command is about.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Targets {
    /// Objects by kind and name, in the order of the command line.
    pub objects: Vec<TargetName>,
    /// The files of `-f`.
    pub files: Vec<String>,
    /// The label selector of `-l`.
    pub selector: Option<Selector>,
    /// The field selector.
    pub field_selector: Option<String>,
    /// `--all`.
    pub all: bool,
    /// `-A`.
    pub all_namespaces: bool,
}

/// The kind of a resource name.
fn kind_of(text: &str) -> Result<&'static Kind, KubectlError> {
    kind_named(text).ok_or_else(|| KubectlError(format!("there is no resource type {text:?} that Stead knows")))
}

/// Reads `TYPE NAME…`, `TYPE/NAME…`, `TYPE,TYPE NAME…`. With a default kind, all words are names of that kind.
pub(crate) fn objects(words: &[String], default: Option<&'static Kind>) -> Result<Vec<TargetName>, KubectlError> {
    let slashed = words.iter().filter(|word| word.contains('/')).count();
    if slashed > 0 {
        if slashed < words.len() {
            return Err(KubectlError(
                "there is no need to specify a resource type as a separate argument when passing arguments in \
                 resource/name form"
                    .to_owned(),
            ));
        }
        return words.iter().map(|word| slashed_name(word)).collect();
    }
    if let Some(kind) = default {
        return Ok(words.iter().map(|name| TargetName { kind, name: Some(name.clone()) }).collect());
    }
    let Some((types, names)) = words.split_first() else { return Ok(Vec::new()) };
    let kinds = types.split(',').map(kind_of).collect::<Result<Vec<_>, _>>()?;
    let each = |kind| -> Vec<TargetName> {
        if names.is_empty() {
            return vec![TargetName { kind, name: None }];
        }
        names.iter().map(|name| TargetName { kind, name: Some(name.clone()) }).collect()
    };
    Ok(kinds.into_iter().flat_map(each).collect())
}

fn slashed_name(word: &str) -> Result<TargetName, KubectlError> {
    match word.split_once('/') {
        Some((kind, name)) if !name.is_empty() && !name.contains('/') => {
            Ok(TargetName { kind: kind_of(kind)?, name: Some(name.to_owned()) })
        }
        _ => {
            Err(KubectlError(format!("arguments in resource/name form must have a single resource and name: {word:?}")))
        }
    }
}

impl Targets {
    /// Whether it names no object and no file, and selects nothing.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.files.is_empty()
    }

    /// Refuses a kind without a name where nothing selects the objects.
    pub(crate) fn check(self, command: &str) -> Result<Targets, KubectlError> {
        if self.is_empty() {
            return Err(KubectlError(format!("kubectl {command}: which object? Give TYPE/NAME, TYPE NAME or -f FILE")));
        }
        let selects = self.selector.is_some() || self.field_selector.is_some() || self.all;
        let unnamed = self.objects.iter().find(|object| object.name.is_none());
        match unnamed.filter(|_| !selects) {
            Some(object) => Err(KubectlError(format!(
                "kubectl {command} {}: resource(s) were provided, but no name was specified",
                object.kind.kubectl
            ))),
            None if selects && self.objects.iter().any(|object| object.name.is_some()) => {
                Err(KubectlError(format!("kubectl {command}: name cannot be provided when a selector is specified")))
            }
            None => Ok(self),
        }
    }
}
