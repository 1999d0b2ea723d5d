//! The log: standard error, for people or for machines.

use anyhow::Context;
use tracing_subscriber::EnvFilter;

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// A line for people.
    Human,
    /// A JSON object a line.
    Json,
}

/// Begins to log, from a level on, such as `info`; or by a filter, such as `info,kube=debug`.
pub fn begin(format: LogFormat, level: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(level).with_context(|| format!("log level {level}"))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let begun = match format {
        LogFormat::Human => log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
    begun.map_err(|e| anyhow::anyhow!("beginning to log: {e}"))
}
