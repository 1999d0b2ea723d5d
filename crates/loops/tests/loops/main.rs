//! The loops against an API server that is a map.
#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "a test reads its cases from a file")]

mod fake;
mod malformed;
mod ownership;
mod recordings;
mod topology_refs;
