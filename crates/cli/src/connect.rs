//! The connection to a live cluster, found as kubectl finds it.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::output::Hinted;

/// Which cluster.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ConnectArgs {
    /// The context of the kubeconfig to use
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) context: Option<String>,

    /// The kubeconfig file to use
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// A connection, and what is known of its other end.
pub(crate) struct Connection {
    pub(crate) client: Client,
    /// The namespace of the context.
    #[expect(dead_code, reason = "read by commands that look into a namespace")]
    pub(crate) namespace: String,
    /// The server's address.
    pub(crate) server: String,
}

/// Connects, by the file that is named, else by KUBECONFIG or the file in the home folder, else as a pod does.
pub(crate) async fn connect(args: &ConnectArgs) -> anyhow::Result<Connection> {
    let options = KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
    let config = match &args.kubeconfig {
        Some(file) => {
            let config = Kubeconfig::read_from(file).with_context(|| format!("reading {}", file.display()))?;
            Config::from_custom_kubeconfig(config, &options).await?
        }
        None if args.context.is_some() => Config::from_kubeconfig(&options).await?,
        None => Config::infer().await.map_err(|_| Hinted {
            message: "no cluster to talk to: there is no kubeconfig, and this is no pod".to_owned(),
            hint: "set KUBECONFIG, or name a file with --kubeconfig".to_owned(),
        })?,
    };
    let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).with_context(|| format!("connecting to {server}"))?;
    Ok(Connection { client, namespace, server })
}
