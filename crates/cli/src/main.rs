//! The `stead` binary: what people type and what they see.
//!
//! `args` holds the command line and nothing else, `commands` has a file for each command, `output` knows how
//! answers and complaints are printed, `connect` finds the cluster. What a command says comes from the libraries; this
//! crate reads, asks and prints.

mod args;
mod cluster;
mod commands;
mod connect;
mod consent;
mod output;
mod server;
mod workload;

use std::process::ExitCode;

fn main() -> ExitCode {
    output::finish(commands::run(args::parse()))
}
