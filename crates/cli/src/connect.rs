//! The cluster that kubectl would talk to.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

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
}

/// A cluster to talk to.
#[derive(Clone)]
pub(crate) struct Connection {
    /// The client.
    pub(crate) client: Client,
    /// The namespace of those who name none.
    pub(crate) namespace: String,
    /// What to call the cluster in messages: its server, and the context that led there.
    pub(crate) name: String,
}

/// How long to wait for a server that does not answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long to wait for the next part of an answer.
const SILENCE: Duration = Duration::from_secs(30);

/// Finds the cluster and makes a client for it. No request is made yet.
pub(crate) async fn connect(args: &ConnectArgs) -> anyhow::Result<Connection> {
    connect_with(args, |_| {}).await
}

/// The same, with a client that repeats nothing by itself: what was decided from what was read then may be wrong by the
/// time that a server which would not do it at first does it. Nor does it wait for ever for one that has fallen silent.
pub(crate) async fn connect_for_writes(args: &ConnectArgs) -> anyhow::Result<Connection> {
    let change = |config: &mut Config| {
        config.default_retry = false;
        config.read_timeout = Some(SILENCE);
        config.reset_reader_on_write = true;
    };
    connect_with(args, change).await
}

async fn connect_with(args: &ConnectArgs, change: impl FnOnce(&mut Config)) -> anyhow::Result<Connection> {
    let (mut config, name) = config(args).await?;
    change(&mut config);
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).with_context(|| format!("cannot talk to {name}"))?;
    Ok(Connection { client, namespace, name })
}

/// Finds the cluster as kubectl does: the kubeconfig that is named, those of $KUBECONFIG, the one in the home folder,
/// or the cluster that this runs in. Gives what to call it, too.
pub(crate) async fn config(args: &ConnectArgs) -> anyhow::Result<(Config, String)> {
    let (mut config, context) = match kubeconfig(args)? {
        Some(kubeconfig) => {
            let context = args.context.clone().or_else(|| kubeconfig.current_context.clone());
            let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
            let known: Vec<String> = kubeconfig.contexts.iter().map(|c| c.name.clone()).collect();
            let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
            (config.map_err(|e| wrong_context(&e, context.as_deref(), &known))?, context)
        }
        None => (Config::incluster().map_err(|_| no_kubeconfig())?, None),
    };
    config.connect_timeout = Some(PATIENCE);
    let name = match context {
        Some(context) => format!("{}, context {context}", config.cluster_url),
        None => config.cluster_url.to_string(),
    };
    Ok((config, name))
}

fn kubeconfig(args: &ConnectArgs) -> anyhow::Result<Option<Kubeconfig>> {
    if let Some(path) = &args.kubeconfig {
        return Ok(Some(read(path)?));
    }
    let listed = std::env::var_os("KUBECONFIG").filter(|l| !l.is_empty());
    let paths: Vec<PathBuf> = match listed {
        Some(list) => std::env::split_paths(&list).filter(|p| !p.as_os_str().is_empty()).collect(),
        None => std::env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect(),
    };
    let mut merged: Option<Kubeconfig> = None;
    // As for kubectl, a file that is not there is no fault, and the first to say something is right.
    for path in paths.iter().filter(|p| p.exists()) {
        let next = read(path)?;
        merged = Some(match merged {
            Some(before) => before.merge(next).with_context(|| format!("cannot use kubeconfig {}", path.display()))?,
            None => next,
        });
    }
    Ok(merged)
}

fn read(path: &Path) -> anyhow::Result<Kubeconfig> {
    // The error says what it comes from by itself.
    Kubeconfig::read_from(path).map_err(|e| match e {
        KubeconfigError::ReadConfig(cause, _) => anyhow!("cannot read kubeconfig {}: {cause}", path.display()),
        other => anyhow!("cannot use kubeconfig {}: {other}", path.display()),
    })
}

fn no_kubeconfig() -> anyhow::Error {
    Hinted {
        message: "no cluster to talk to: there is no kubeconfig, and this does not run in a cluster".into(),
        hint:
            "set KUBECONFIG or give --kubeconfig FILE; `stead explain` and `stead place` also take a dump: --from PATH"
                .into(),
    }
    .into()
}

fn wrong_context(error: &KubeconfigError, context: Option<&str>, known: &[String]) -> anyhow::Error {
    let message = match context {
        Some(context) if !known.iter().any(|k| k == context) => format!("the kubeconfig has no context {context}"),
        Some(context) => format!("cannot use context {context} of the kubeconfig: {error}"),
        None => "the kubeconfig has no current context".into(),
    };
    let hint = match known {
        [] => "the kubeconfig has no contexts at all".into(),
        known => format!("choose one with --context: {}", known.join(", ")),
    };
    Hinted { message, hint }.into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that is never there for anybody, and counts who asks.
    async fn unavailable() -> anyhow::Result<(String, Arc<AtomicU32>)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (url, asked) = (format!("http://{}", listener.local_addr()?), Arc::new(AtomicU32::new(0)));
        let count = asked.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 4096];
                if stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                    count.fetch_add(1, Ordering::Relaxed);
                    let answer = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                    let _ = stream.write_all(answer).await;
                }
            }
        });
        Ok((url, asked))
    }

    #[tokio::test]
    async fn a_write_is_made_once() -> anyhow::Result<()> {
        let (url, asked) = unavailable().await?;
        let path = std::env::temp_dir().join(format!("stead-kubeconfig-{}", std::process::id()));
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": url } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
            "users": [{ "name": "u", "user": {} }],
        });
        std::fs::write(&path, kubeconfig.to_string())?;
        let args = ConnectArgs { kubeconfig: Some(path.clone()), ..ConnectArgs::default() };
        let connection = connect_for_writes(&args).await;
        std::fs::remove_file(path)?;
        let request = http::Request::patch("/api/v1/nodes/a").body(Vec::new())?;
        assert!(connection?.client.request_text(request).await.is_err());
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        Ok(())
    }
}
