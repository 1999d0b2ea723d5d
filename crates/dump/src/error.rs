use std::fmt;
use std::io;
use std::str::Utf8Error;

use crate::ItemSource;
use crate::write::FORMAT;
use crate::yaml::MAX_DEPTH;

/// Why a dump could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// The file system, or the decompression of a file, failed.
    #[error("cannot read {file}")]
    Read {
        /// The file.
        file: String,
        /// The cause.
        source: io::Error,
    },
    /// A path leads to something that could block or never end.
    #[error("{path} is a {kind}: only files and directories are read (use - for standard input)")]
    SpecialFile {
        /// The path.
        path: String,
        /// What it is.
        kind: FileKind,
    },
    /// A file is compressed in a way that is not read.
    #[error("{file} is compressed with {format}, which is not read: unpack it, and use --from with the folder")]
    OtherCompression {
        /// The file.
        file: String,
        /// The compression.
        format: &'static str,
    },
    /// A tar archive is invalid or truncated.
    #[error("cannot unpack {archive}")]
    Unpack {
        /// The archive.
        archive: String,
        /// The cause.
        source: io::Error,
    },
    /// The files together are larger, when decompressed, than the caller allows.
    #[error("the dump is larger than {limit} bytes when decompressed (reached in {file})")]
    TooLarge {
        /// The file in which the limit was reached.
        file: String,
        /// The limit.
        limit: u64,
    },
    /// A newer version of Stead wrote the dump.
    #[error("{file} has format {format} of {tool}, and this version reads formats up to {FORMAT}: update Stead")]
    NewerFormat {
        /// The file.
        file: String,
        /// Its format.
        format: u64,
        /// The program that wrote it.
        tool: String,
    },
    /// A dump of `stead dump` has no last line.
    #[error("{file} is incomplete: its last line is missing, so writing or copying it was interrupted")]
    Truncated {
        /// The file.
        file: String,
    },
    /// A file is not text.
    #[error("{file} is not UTF-8 text")]
    NotText {
        /// The file.
        file: String,
        /// Where the text ends.
        source: Utf8Error,
    },
    /// A directory or an archive has no file that could hold objects.
    #[error("{path} contains no .yaml, .yml or .json file")]
    NoFiles {
        /// The directory or the archive.
        path: String,
    },
    /// A file has no document, or only comments.
    #[error("{file} is empty: expected Kubernetes objects in YAML or JSON")]
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
        /// The cause, with line and column.
        source: serde_json::Error,
    },
    /// A text is not YAML, or YAML that has no equivalent in JSON.
    #[error("{file}, document {document}: invalid YAML")]
    Yaml {
        /// The file.
        file: String,
        /// The document, counted from 1.
        document: usize,
        /// The cause, with line and column.
        source: YamlError,
    },
    /// A document or an item is not a Kubernetes object.
    #[error("{at}: {field} {problem}")]
    Object {
        /// The document or the item.
        at: ItemSource,
        /// The field in it, such as `metadata.name`.
        field: &'static str,
        /// What is wrong with the field, such as `is missing`.
        problem: String,
    },
    /// A document or an item is not a mapping.
    #[error("{at} is {found}, not an object")]
    NotAnObject {
        /// The document or the item.
        at: ItemSource,
        /// What it is instead.
        found: &'static str,
    },
}

/// A kind of file that is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A block or character device, or anything else that is not a regular file.
    Device,
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileKind::Fifo => "FIFO",
            FileKind::Socket => "socket",
            FileKind::Device => "device",
        })
    }
}

/// A problem in YAML text and its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at line {line} column {column}")]
pub struct YamlError {
    /// The problem.
    pub problem: YamlProblem,
    /// The line, counted from 1.
    pub line: usize,
    /// The column, counted from 1.
    pub column: usize,
}

/// What is wrong with YAML text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum YamlProblem {
    /// The parser rejects it.
    #[error("{0}")]
    Syntax(String),
    /// A key of a mapping is a list or a mapping.
    #[error("a key is not a string")]
    KeyNotString,
    /// A mapping has a key twice.
    #[error("duplicate key {0:?}")]
    DuplicateKey(String),
    /// Collections are nested too deeply.
    #[error("nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
    /// An alias refers to a collection that contains it.
    #[error("an alias refers to a value that contains it")]
    RecursiveAlias,
    /// The aliases of a file expand to too much data.
    #[error("the aliases of the file expand to too much data")]
    AliasesTooLarge,
    /// The value of a merge key is not a mapping.
    #[error("a merge key (<<) needs a mapping or a list of mappings")]
    InvalidMerge,
}
