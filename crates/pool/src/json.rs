//! Reads JSON with errors that name the field.

use serde::de::DeserializeOwned;

/// An invalid value in JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct JsonFieldError {
    /// The path of the field, such as `peers[0].uuid`; `.` for the whole text, and `?` for a place without a name.
    pub field: String,
    /// The problem.
    pub problem: String,
}

impl std::fmt::Display for JsonFieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.field.as_str() {
            "." | "?" => f.write_str(&self.problem),
            field => write!(f, "{field}: {}", self.problem),
        }
    }
}

/// Reads a value from a complete JSON text.
pub(crate) fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, JsonFieldError> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| JsonFieldError { field: error.path().to_string(), problem: error.inner().to_string() })?;
    let rest = deserializer.end();
    rest.map_err(|error| JsonFieldError { field: ".".to_owned(), problem: error.to_string() })?;
    Ok(value)
}
