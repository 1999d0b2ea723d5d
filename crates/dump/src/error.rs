use std::io;
use std::str::Utf8Error;

use crate::Source;

/// Why a dump could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// The file system, or the decompression of a gzip file, failed.
    #[error("cannot read {file}")]
    Read {
        /// The file.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// A tar archive is broken or ends early.
    #[error("cannot unpack {archive}")]
    Unpack {
        /// The archive.
        archive: String,
        /// What is wrong with it.
        source: io::Error,
    },
    /// A file is larger, when unpacked, than anything a cluster prints.
    #[error("{file} is larger than {limit} bytes")]
    TooLarge {
        /// The file.
        file: String,
        /// The most that is read.
        limit: u64,
    },
    /// A file is not text.
    #[error("{file} is not UTF-8 text")]
    NotText {
        /// The file.
        file: String,
        /// Where the text ends.
        source: Utf8Error,
    },
    /// A folder or an archive has no file that could be an object.
    #[error("{path} holds no .yaml, .yml or .json file")]
    NoFiles {
        /// The folder or the archive.
        path: String,
    },
    /// A file has no document, or only comments.
    #[error("{file} is empty: it should hold Kubernetes objects in YAML or JSON")]
    Empty {
        /// The file.
        file: String,
    },
    /// A text is not JSON.
    #[error("{file}, document {document}: invalid JSON")]
    Json {
        /// The file.
        file: String,
        /// The document, counted from 1.
        document: usize,
        /// What is wrong, with line and column.
        source: serde_json::Error,
    },
    /// A text is not YAML, or YAML that has no meaning as JSON.
    #[error("{file}, document {document}: invalid YAML")]
    Yaml {
        /// The file.
        file: String,
        /// The document, counted from 1.
        document: usize,
        /// What is wrong, with line and column.
        source: YamlError,
    },
    /// A document or an item is no Kubernetes object.
    #[error("{at}: {field} {problem}")]
    Object {
        /// The document or the item.
        at: Source,
        /// The field in it, such as `metadata.name`.
        field: &'static str,
        /// What is wrong with the field, such as `is missing`.
        problem: String,
    },
    /// A document or an item is not even a mapping.
    #[error("{at} is {found}, not an object")]
    NotAnObject {
        /// The document or the item.
        at: Source,
        /// What it is instead.
        found: &'static str,
    },
}

/// A fault in YAML text and its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} at line {line} column {column}")]
pub struct YamlError {
    /// What is wrong.
    pub message: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The column, counted from 1.
    pub column: usize,
}
