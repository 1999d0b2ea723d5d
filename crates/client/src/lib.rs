//! Talks to a Kubernetes API server. Every other crate that needs one goes through this crate.
//!
//! [`ClientConfig`] finds the cluster as kubectl does and makes a [`Client`]. An [`ApiRequest`] is one request as data,
//! so that a caller can log, count or fake it; [`ApiPath`] says where the objects of a kind are. [`Client::send`] sends
//! a request within a deadline; [`Client::list`] reads a list in pages; [`Client::watch`] follows a list for as long as
//! it is polled. Every failure is an [`Error`], which keeps the Kubernetes `Status`.
//!
//! This crate does not know what objects mean, and it never repeats a write on its own unless the configuration says so.

mod client;
mod config;
mod error;
mod list;
mod path;
mod request;
mod watch;

pub use client::Client;
pub use config::{ClientConfig, ConfigError};
pub use error::{ApiStatus, Error};
pub use list::{List, ListPage};
pub use path::ApiPath;
pub use request::{ApiRequest, DeletePolicy, Preconditions, Verb};
pub use watch::{Watch, WatchEvent, WatchOptions};
