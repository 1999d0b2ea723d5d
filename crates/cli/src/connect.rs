//! The cluster that a command talks to.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use jiff::SignedDuration;
use stead_client::{Client, ClientConfig, ConfigError};

use crate::output::Hinted;

/// Which cluster.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ConnectArgs {
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) context: Option<String>,

    /// Kubeconfig file [default: $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// User to impersonate
    #[arg(long = "as", value_name = "USER", help_heading = "Connection")]
    pub(crate) as_user: Option<String>,

    /// Group to impersonate; can be given more than once
    #[arg(long, value_name = "GROUP", requires = "as_user", help_heading = "Connection")]
    pub(crate) as_group: Vec<String>,

    /// Maximum time for a request to the server, such as 30s or 2m; 0 means no limit [default: 90s]
    #[arg(long, value_name = "TIME", value_parser = request_timeout, help_heading = "Connection")]
    pub(crate) request_timeout: Option<Duration>,
}

/// No limit: longer than any program runs.
const NO_LIMIT: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Parses a timeout as kubectl does: a number is in seconds, and 0 means no limit.
fn request_timeout(text: &str) -> anyhow::Result<Duration> {
    let limit = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => Duration::try_from(text.parse::<SignedDuration>()?).context("a timeout cannot be negative")?,
    };
    Ok(if limit.is_zero() { NO_LIMIT } else { limit.min(NO_LIMIT) })
}

/// A cluster to talk to.
#[derive(Clone)]
pub(crate) struct Connection {
    /// The client.
    pub(crate) client: Client,
    /// The namespace for commands without `-n`.
    pub(crate) namespace: String,
    /// What to call the cluster in messages: its server, and the context that names it.
    pub(crate) name: String,
}

/// How long to wait for the next part of an answer.
const IDLE: Duration = Duration::from_secs(30);

/// Finds the cluster and makes a client for it. No request is sent yet.
pub(crate) async fn connect(args: &ConnectArgs) -> anyhow::Result<Connection> {
    connection(&config(args).await?)
}

/// The same with a client that retries nothing on its own: a write that was decided from what was read before may be
/// wrong by the time that a retry succeeds.
pub(crate) async fn connect_for_writes(args: &ConnectArgs) -> anyhow::Result<Connection> {
    connection(&config(args).await?.without_retries().idle_timeout(IDLE).idle_from_request())
}

fn connection(config: &ClientConfig) -> anyhow::Result<Connection> {
    let (namespace, name) = (config.namespace().to_owned(), config.server().to_owned());
    Ok(Connection { client: config.connect()?, namespace, name })
}

/// Finds the cluster as kubectl does.
pub(crate) async fn config(args: &ConnectArgs) -> anyhow::Result<ClientConfig> {
    let config = ClientConfig::load(args.kubeconfig.as_deref(), args.context.as_deref()).await;
    let config = config.map(|config| {
        let config = config.impersonate(args.as_user.as_deref(), &args.as_group);
        match args.request_timeout {
            Some(limit) => config.request_timeout(limit),
            None => config,
        }
    });
    config.map_err(|error| {
        let hint = match &error {
            ConfigError::NoCluster => {
                "set KUBECONFIG or use --kubeconfig FILE; `stead explain` and `stead place` can also read a dump: --from PATH"
                    .to_owned()
            }
            ConfigError::Context { known, .. } if known.is_empty() => "the kubeconfig has no contexts".to_owned(),
            ConfigError::Context { known, .. } => format!("choose one with --context: {}", known.join(", ")),
            _ => return error.into(),
        };
        Hinted { message: error.to_string(), hint }.into()
    })
}

#[cfg(test)]
#[path = "../../client/tests/stub/mod.rs"]
mod stub;

#[cfg(test)]
mod tests {
    use stead_client::ApiRequest;

    use super::stub::{StubServer, status};
    use super::*;

    #[tokio::test]
    async fn a_write_is_sent_once() -> anyhow::Result<()> {
        let server = StubServer::start(|_| status(503, "ServiceUnavailable", "later")).await;
        let path = std::env::temp_dir().join(format!("stead-kubeconfig-{}", std::process::id()));
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": server.url } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
            "users": [{ "name": "u", "user": {} }],
        });
        std::fs::write(&path, kubeconfig.to_string())?;
        let args = ConnectArgs { kubeconfig: Some(path.clone()), ..ConnectArgs::default() };
        let connection = connect_for_writes(&args).await;
        std::fs::remove_file(path)?;
        let request = ApiRequest::patch("/api/v1/nodes/a", &serde_json::json!({}));
        let error = connection?.client.send::<serde_json::Value>(request).await.expect_err("unavailable");
        assert_eq!((error.code(), server.asked()), (Some(503), vec!["PATCH /api/v1/nodes/a".to_owned()]));
        Ok(())
    }
}
