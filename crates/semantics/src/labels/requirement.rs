//! One condition on one label.

use std::fmt;

use crate::field_error::{FieldError, FieldErrors, child, json_list, quoted};
use crate::labels::{Labels, SelectorError};
use crate::validation::{check_label_key, check_label_value};

/// How a label's value relates to the values of a [`Requirement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// The label exists and its value is one of the values. `=` and `==` mean the same.
    In,
    /// The label is absent, or its value is none of the values. `!=` means the same.
    NotIn,
    /// The label exists.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The label exists and its value is an integer greater than the single value.
    Gt,
    /// The label exists and its value is an integer less than the single value.
    Lt,
}

/// How a requirement was written. It does not affect what matches, only how it is printed and how
/// many values are allowed: Kubernetes distinguishes `a=b` and `a in (b)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Spelling {
    Word,
    Equals,
    DoubleEquals,
    NotEquals,
}

/// A condition on one label: a key, an operator and the values it compares with
/// (`labels.Requirement`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    key: String,
    operator: Operator,
    spelling: Spelling,
    values: Vec<String>,
}

impl Requirement {
    /// Builds a requirement and checks it by the rules of `labels.NewRequirement`: a valid key, as
    /// many values as the operator takes, integers for `Gt` and `Lt`, and valid label values.
    ///
    /// # Errors
    ///
    /// All errors, with field paths `key` and `values`.
    pub fn new(key: impl Into<String>, operator: Operator, values: Vec<String>) -> Result<Self, SelectorError> {
        Ok(Self::checked("", key.into(), operator, Spelling::Word, Some(values))?)
    }

    /// The requirement `key=value`, unchecked.
    pub fn equals(key: String, value: String) -> Self {
        Self { key, operator: Operator::In, spelling: Spelling::Equals, values: vec![value] }
    }

    /// `labels.NewRequirement` with a field path. Absent values differ from an empty list only in
    /// how an error shows them.
    pub(crate) fn checked_at(
        path: &str,
        key: &str,
        operator: Operator,
        values: Option<&[String]>,
    ) -> Result<Self, FieldErrors> {
        let values = values.map(<[String]>::to_vec);
        Self::checked(path, key.to_owned(), operator, Spelling::Word, values)
    }

    pub(super) fn checked(
        path: &str,
        key: String,
        operator: Operator,
        spelling: Spelling,
        values: Option<Vec<String>>,
    ) -> Result<Self, FieldErrors> {
        // Paths are only built for errors.
        let mut errors = Vec::new();
        errors.extend(key_error(|| child(path, "key"), &key));
        let values_path = || child(path, "values");
        errors.extend(count_error(values_path, operator, spelling, values.as_deref()));
        let mut values = values.unwrap_or_default();
        if matches!(operator, Operator::Gt | Operator::Lt) {
            errors.extend(integer_errors(values_path, &values));
        }
        errors.extend(value_errors(values_path, &key, &values));
        FieldErrors::check(errors)?;

        values.sort_unstable();
        Ok(Self { key, operator, spelling, values })
    }

    /// The label's key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How the label's value must relate to [`Requirement::values`].
    #[must_use]
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// The values to compare with, sorted.
    #[must_use]
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Whether the labels satisfy this requirement.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            Operator::In => value.is_some_and(|v| self.values.contains(v)),
            Operator::NotIn => value.is_none_or(|v| !self.values.contains(v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => self.compare(value).is_some_and(|(label, own)| label > own),
            Operator::Lt => self.compare(value).is_some_and(|(label, own)| label < own),
        }
    }

    /// The label's value and the requirement's, if both are integers.
    fn compare(&self, label: Option<&String>) -> Option<(i64, i64)> {
        let [own] = &self.values[..] else {
            return None;
        };
        Some((label?.parse().ok()?, own.parse().ok()?))
    }
}

impl fmt::Display for Requirement {
    /// As `labels.Requirement.String` prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, .. } = self;
        let values = self.values.join(",");
        match (self.spelling, self.operator) {
            (Spelling::Equals, _) => write!(f, "{key}={values}"),
            (Spelling::DoubleEquals, _) => write!(f, "{key}=={values}"),
            (Spelling::NotEquals, _) => write!(f, "{key}!={values}"),
            (Spelling::Word, Operator::In) => write!(f, "{key} in ({values})"),
            (Spelling::Word, Operator::NotIn) => write!(f, "{key} notin ({values})"),
            (Spelling::Word, Operator::Exists) => write!(f, "{key}"),
            (Spelling::Word, Operator::DoesNotExist) => write!(f, "!{key}"),
            (Spelling::Word, Operator::Gt) => write!(f, "{key}>{values}"),
            (Spelling::Word, Operator::Lt) => write!(f, "{key}<{values}"),
        }
    }
}

/// `validateLabelKey`.
pub(super) fn key_error(path: impl Fn() -> String, key: &str) -> Option<FieldError> {
    let problems = check_label_key(key);
    (!problems.is_empty()).then(|| FieldError::invalid(path(), quoted(key), problems.join("; ")))
}

fn count_error(
    path: impl Fn() -> String,
    operator: Operator,
    spelling: Spelling,
    values: Option<&[String]>,
) -> Option<FieldError> {
    let count = values.map_or(0, <[String]>::len);
    let (allowed, rule) = match (spelling, operator) {
        (Spelling::Equals | Spelling::DoubleEquals | Spelling::NotEquals, _) => {
            (count == 1, "exact-match compatibility requires one single value")
        }
        (Spelling::Word, Operator::In | Operator::NotIn) => {
            (count != 0, "for 'in', 'notin' operators, values set can't be empty")
        }
        (Spelling::Word, Operator::Exists | Operator::DoesNotExist) => {
            (count == 0, "values set must be empty for exists and does not exist")
        }
        (Spelling::Word, Operator::Gt | Operator::Lt) => {
            (count == 1, "for 'Gt', 'Lt' operators, exactly one value is required")
        }
    };
    (!allowed).then(|| FieldError::invalid(path(), json_list(values), rule))
}

fn integer_errors(path: impl Fn() -> String, values: &[String]) -> Vec<FieldError> {
    let not_an_integer = |(_, value): &(usize, &String)| value.parse::<i64>().is_err();
    let error = |(index, value): (usize, &String)| {
        FieldError::invalid(
            format!("{}[{index}]", path()),
            quoted(value),
            "for 'Gt', 'Lt' operators, the value must be an integer",
        )
    };
    values.iter().enumerate().filter(not_an_integer).map(error).collect()
}

/// `validateLabelValue`, whose path ends in the key.
fn value_errors(path: impl Fn() -> String, key: &str, values: &[String]) -> Vec<FieldError> {
    let error = |(index, value): (usize, &String)| {
        let problems = check_label_value(value);
        (!problems.is_empty())
            .then(|| FieldError::invalid(format!("{}[{index}][{key}]", path()), quoted(value), problems.join("; ")))
    };
    values.iter().enumerate().filter_map(error).collect()
}
