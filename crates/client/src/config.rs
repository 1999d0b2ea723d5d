//! Which cluster, and how patient to be with it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::BoxFuture;
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::client::Client;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// How long a request may take, its retries included. An API server itself ends a request after 60 seconds.
const REQUEST: Duration = Duration::from_secs(90);

/// The name under which the server sees this program.
const AGENT: &str = concat!("stead/", env!("CARGO_PKG_VERSION"));

/// Why there is no cluster to talk to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is no kubeconfig, and this program does not run in a cluster.
    #[error("no cluster to connect to: there is no kubeconfig, and this program does not run in a cluster")]
    NoCluster,
    /// A kubeconfig cannot be read or used.
    #[error("cannot {verb} kubeconfig {}: {cause}", path.display())]
    Kubeconfig {
        /// `read` or `use`.
        verb: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// The kubeconfig has no such context, or the context cannot be used.
    #[error("{message}")]
    Context {
        /// What is wrong.
        message: String,
        /// The contexts that the kubeconfig has.
        known: Vec<String>,
    },
    /// No client can be made, for example because a certificate is malformed.
    #[error("cannot connect to {server}: {cause}")]
    Client {
        /// The server, and the context if there is one.
        server: String,
        /// Why.
        cause: String,
    },
}

/// A cluster, and how patient to be with it.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    kube: kube::Config,
    server: String,
    request_timeout: Duration,
}

impl ClientConfig {
    /// Finds the cluster as kubectl does: the given kubeconfig, those of `$KUBECONFIG`, `~/.kube/config`, or the cluster
    /// that this program runs in.
    ///
    /// # Errors
    /// If there is no cluster, or the kubeconfig cannot be used.
    pub async fn load(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<ClientConfig, ConfigError> {
        let Some(kubeconfig) = find_kubeconfig(kubeconfig)? else {
            let kube = kube::Config::incluster().map_err(|_| ConfigError::NoCluster)?;
            return Ok(ClientConfig::new(kube, None));
        };
        let context = context.map(str::to_owned).or_else(|| kubeconfig.current_context.clone());
        let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
        let known: Vec<String> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
        let kube = from_kubeconfig(kubeconfig, options).await;
        let kube = kube.map_err(|error| unusable_context(&error, context.as_deref(), known))?;
        Ok(ClientConfig::new(kube, context.as_deref()))
    }

    /// A server without credentials, such as one of a test.
    ///
    /// # Errors
    /// If the URL is malformed.
    pub fn from_url(url: &str) -> Result<ClientConfig, ConfigError> {
        let unusable =
            |error: http::uri::InvalidUri| ConfigError::Client { server: url.into(), cause: error.to_string() };
        Ok(ClientConfig::new(kube::Config::new(url.parse().map_err(unusable)?), None))
    }

    fn new(mut kube: kube::Config, context: Option<&str>) -> ClientConfig {
        kube.connect_timeout = Some(CONNECT);
        kube.headers.push((USER_AGENT, HeaderValue::from_static(AGENT)));
        let server = match context {
            Some(context) => format!("{}, context {context}", kube.cluster_url),
            None => kube.cluster_url.to_string(),
        };
        ClientConfig { kube, server, request_timeout: REQUEST }
    }

    /// The same, without retries by the client itself: a write that was decided from what was read before may be wrong
    /// by the time that a retry succeeds.
    #[must_use]
    pub fn without_retries(mut self) -> ClientConfig {
        self.kube.default_retry = false;
        self
    }

    /// The same with a limit for the time between two parts of an answer. A watch has no other limit.
    #[must_use]
    pub fn idle_timeout(mut self, limit: Duration) -> ClientConfig {
        self.kube.read_timeout = Some(limit);
        self
    }

    /// The same with an idle time that starts anew with every request. Without this, a connection that was unused for the
    /// whole time fails with the next request.
    #[must_use]
    pub fn idle_from_request(mut self) -> ClientConfig {
        self.kube.reset_reader_on_write = true;
        self
    }

    /// The same with another limit for connecting.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> ClientConfig {
        self.kube.connect_timeout = Some(limit);
        self
    }

    /// The same with another limit for a request. It does not hold for watches.
    #[must_use]
    pub fn request_timeout(mut self, limit: Duration) -> ClientConfig {
        self.request_timeout = limit;
        self
    }

    /// The same with requests made as another user, and as a member of these groups. What is not given stays as in the
    /// kubeconfig.
    #[must_use]
    pub fn impersonate(mut self, user: Option<&str>, groups: &[String]) -> ClientConfig {
        if let Some(user) = user {
            self.kube.auth_info.impersonate = Some(user.to_owned());
        }
        if !groups.is_empty() {
            self.kube.auth_info.impersonate_groups = Some(groups.to_vec());
        }
        self
    }

    /// The namespace of the context or, in a cluster, of this pod.
    pub fn namespace(&self) -> &str {
        &self.kube.default_namespace
    }

    /// What to call the cluster in messages: its server, and the context that names it.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Makes a client. No request is sent yet. It has to be called in a tokio runtime.
    ///
    /// # Errors
    /// If certificates or credentials are malformed.
    pub fn connect(&self) -> Result<Client, ConfigError> {
        let unusable =
            |error: kube::Error| ConfigError::Client { server: self.server.clone(), cause: error.to_string() };
        let http = kube::Client::try_from(self.kube.clone()).map_err(unusable)?;
        Ok(Client { http, request_timeout: self.request_timeout })
    }
}

fn find_kubeconfig(given: Option<&Path>) -> Result<Option<Kubeconfig>, ConfigError> {
    if let Some(path) = given {
        return Ok(Some(read(path)?));
    }
    let listed = std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty());
    let paths: Vec<PathBuf> = match listed {
        Some(list) => std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect(),
        None => std::env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect(),
    };
    let mut merged: Option<Kubeconfig> = None;
    // As for kubectl, a file that does not exist is ignored, and the first file that sets a value wins.
    for path in paths.iter().filter(|path| path.exists()) {
        let next = read(path)?;
        merged = Some(match merged {
            Some(before) => before.merge(next).map_err(|error| unusable_file("use", path, &error))?,
            None => next,
        });
    }
    Ok(merged)
}

fn read(path: &Path) -> Result<Kubeconfig, ConfigError> {
    Kubeconfig::read_from(path).map_err(|error| match error {
        KubeconfigError::ReadConfig(cause, _) => unusable_file("read", path, &cause),
        other => unusable_file("use", path, &other),
    })
}

fn unusable_file(verb: &'static str, path: &Path, cause: &dyn std::error::Error) -> ConfigError {
    ConfigError::Kubeconfig { verb, path: path.to_owned(), cause: cause.to_string() }
}

/// Boxed for the same reason as the answer to a request.
fn from_kubeconfig(
    kubeconfig: Kubeconfig,
    options: KubeConfigOptions,
) -> BoxFuture<'static, Result<kube::Config, KubeconfigError>> {
    Box::pin(async move { kube::Config::from_custom_kubeconfig(kubeconfig, &options).await })
}

fn unusable_context(error: &KubeconfigError, context: Option<&str>, known: Vec<String>) -> ConfigError {
    let message = match context {
        Some(context) if !known.iter().any(|other| other == context) => {
            format!("the kubeconfig has no context {context}")
        }
        Some(context) => format!("cannot use context {context} of the kubeconfig: {error}"),
        None => "the kubeconfig has no current context".to_owned(),
    };
    ConfigError::Context { message, known }
}
