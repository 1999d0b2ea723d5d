//! The `stead` binary.
//!
//! `args` defines the command line, `commands` has one file per command, `output` prints results and errors, `connect`
//! finds the cluster, `cluster` reads its objects, `complete` answers shells, `workload` builds the pod that
//! `stead place -f` places, `build_info` says what was built. The libraries compute the answers; this crate reads, asks and
//! prints.

mod args;
mod build_info;
mod client_at_hand;
mod cluster;
mod commands;
mod complete;
mod connect;
mod consent;
mod live_object;
mod output;
mod scheduler;
mod server;
mod stop_signal;
mod version;
mod workload;

use std::process::ExitCode;

/// A large cluster consists of millions of small texts. glibc's allocator takes twice as long for them, and musl's has one
/// lock for all threads.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    complete::answer_shell();
    output::finish(commands::run(args::parse()))
}
