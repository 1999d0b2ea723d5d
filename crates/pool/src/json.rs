//! JSON from elsewhere, read with errors that name the field.

use serde::de::DeserializeOwned;

/// JSON that is not what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct FieldError {
    /// The path of the field, such as `peers[0].uuid`; `.` is the whole text, and `?` a place that has no name.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.field.as_str() {
            "." | "?" => f.write_str(&self.problem),
            field => write!(f, "{field}: {}", self.problem),
        }
    }
}

/// Reads a value.
pub(crate) fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, FieldError> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| FieldError { field: error.path().to_string(), problem: error.inner().to_string() })?;
    let rest = deserializer.end();
    rest.map_err(|error| FieldError { field: ".".to_owned(), problem: error.to_string() })?;
    Ok(value)
}
