//! A proxy between a client and the API server that injects faults on demand.

mod cache;
mod faults;
mod gate;
mod response;
mod writes;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::{Client, Config};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::{ControlPlane, kubeconfig};
use cache::ResponseCache;
pub use faults::Faults;
use faults::{Fault, Kind, Random};
use gate::Gate;
use response::ResponseBody;
pub use writes::RecordedWrite;

/// Counts of requests and injected faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// All requests, including those with a fault.
    pub requests: u64,
    /// Writes refused with 409.
    pub conflicts: u64,
    /// Requests refused with 429.
    pub too_many: u64,
    /// Requests refused with 500.
    pub internal: u64,
    /// Writes that were applied, but whose response was lost.
    pub lost_answers: u64,
    /// Delayed requests.
    pub delays: u64,
    /// Watches that stall or will stall.
    pub stalls: u64,
    /// Reads with a stale response.
    pub stale: u64,
}

impl Tally {
    /// The number of all faults.
    pub fn faults(&self) -> u64 {
        self.conflicts + self.too_many + self.internal + self.lost_answers + self.delays + self.stalls + self.stale
    }
}

/// A plain HTTP proxy for one API server. It forwards the caller's credentials, and injects no faults until
/// [`FaultProxy::set`] is called. It stops when this value is dropped.
///
/// kubectl sends no token over plain HTTP; kube's client does.
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Aborted on drop.
    _listening: JoinSet<()>,
}

struct Shared {
    server: Client,
    state: Mutex<State>,
    gate: Gate,
    cache: ResponseCache,
}

struct State {
    faults: Faults,
    random: Random,
    tally: Tally,
    /// Major and minor version to report instead of the server's.
    version: Option<(String, String)>,
    written: Vec<RecordedWrite>,
}

impl FaultProxy {
    /// Listens on a free port of loopback. Faults are drawn from the seed, one request after the other.
    pub async fn start(plane: &ControlPlane, seed: u64) -> Result<FaultProxy> {
        let state = State {
            faults: Faults::default(),
            random: Random(seed),
            tally: Tally::default(),
            version: None,
            written: Vec::new(),
        };
        let shared = Shared {
            server: upstream(plane)?,
            state: Mutex::new(state),
            gate: Gate::default(),
            cache: ResponseCache::default(),
        };
        let shared = Arc::new(shared);
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no free port for the proxy")?;
        let address = listener.local_addr().context("the proxy's address")?;
        let mut listening = JoinSet::new();
        listening.spawn(listen(listener, shared.clone()));
        Ok(FaultProxy { address, shared, _listening: listening })
    }

    /// The proxy's URL.
    pub fn server(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the faults from now on. [`Faults::default`] is none; watches that are stalled stay stalled.
    pub fn set(&self, faults: Faults) {
        self.shared.state().faults = faults;
    }

    /// Reports this server version from now on.
    pub fn pretend_version(&self, major: &str, minor: &str) {
        self.shared.state().version = Some((major.to_owned(), minor.to_owned()));
    }

    /// Returns the counts so far.
    pub fn tally(&self) -> Tally {
        self.shared.state().tally
    }

    /// Returns the writes that the API server has answered so far. Reviews are not included.
    pub fn written(&self) -> Vec<RecordedWrite> {
        self.shared.state().written.clone()
    }

    /// Holds all requests after this total number of successful writes: no request gets a response any more, including
    /// the last write, until this is called again. None lets all requests through.
    pub fn hold_after(&self, writes: Option<u64>) {
        self.shared.gate.close_after(writes);
    }

    /// Waits until requests are held ([`FaultProxy::hold_after`]).
    pub async fn wait_until_held(&self) {
        self.shared.gate.wait_until_closed().await;
    }

    /// Writes a kubeconfig that uses the proxy, for the user with this token.
    pub fn kubeconfig(&self, folder: &Path, user: &str, token: &str) -> Result<PathBuf> {
        let path = folder.join(format!("kubeconfig-proxy-{}", self.address.port()));
        kubeconfig::write(&path, &self.server(), None, user, token)?;
        Ok(path)
    }

    /// A client that uses the proxy, for the user with this token. It does not retry.
    pub fn client(&self, token: &str) -> Result<Client> {
        let mut config = Config::new(self.server().parse().context("the proxy's address")?);
        config.auth_info.token = Some(token.to_owned().into());
        config.default_retry = false;
        Client::try_from(config).context("a client for the proxy")
    }
}

/// A client for the API server without a token and without retries.
fn upstream(plane: &ControlPlane) -> Result<Client> {
    let mut config = Config::new(plane.server().parse().context("the API server's address")?);
    config.root_cert_file = Some(plane.authority());
    config.default_retry = false;
    config.read_timeout = None;
    Client::try_from(config).context("a client for the API server")
}

async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => drop(connections.spawn(connection(stream, shared.clone()))),
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let handler = service_fn(move |request| {
        let shared = shared.clone();
        async move { shared.handle(request).await }
    });
    // The client sees a broken connection; some are broken on purpose.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), handler).await;
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws the fault of this request, and counts it.
    fn draw(&self, kind: Kind) -> Option<Fault> {
        let mut state = self.state();
        let State { faults, random, tally, .. } = &mut *state;
        tally.requests += 1;
        let fault = faults.draw(kind, random);
        match fault {
            Some(Fault::Conflict) => tally.conflicts += 1,
            Some(Fault::TooMany) => tally.too_many += 1,
            Some(Fault::Internal) => tally.internal += 1,
            Some(Fault::LostAnswer) => tally.lost_answers += 1,
            Some(Fault::Delay(_)) => tally.delays += 1,
            Some(Fault::Stall(_)) => tally.stalls += 1,
            // Counted when a cached response is found.
            Some(Fault::Stale) | None => {}
        }
        fault
    }

    /// Handles a request. An error closes the connection without a response.
    async fn handle(&self, request: Request<Incoming>) -> Result<Response<ResponseBody>> {
        self.gate.wait_until_open().await;
        let (stall_for, stale_by) = {
            let faults = &self.state().faults;
            (faults.stall_for, (faults.stale > 0.0).then_some(faults.stale_by))
        };
        let (uri, kind) = (request.uri().clone(), Kind::of(request.method(), request.uri()));
        let path = uri.path();
        let version = self.state().version.clone().filter(|_| path == "/version");
        if let Some((major, minor)) = version {
            return response::version(&major, &minor);
        }
        let fault = self.draw(kind);
        match fault {
            Some(Fault::Conflict) => return response::conflict(path),
            Some(Fault::TooMany) => return response::too_many(),
            Some(Fault::Internal) => return response::internal(),
            Some(Fault::Delay(time)) => tokio::time::sleep(time).await,
            Some(Fault::Stale) => {
                if let Some(response) = stale_by.and_then(|by| self.cache.stale(&uri, by)) {
                    self.state().tally.stale += 1;
                    return Ok(response.map(ResponseBody::complete));
                }
            }
            Some(Fault::LostAnswer | Fault::Stall(_)) | None => {}
        }
        let response = self.forward(request, kind).await?;
        let response = match stale_by.filter(|_| kind == Kind::Read && cache::is_cacheable(&uri)) {
            Some(_) => self.cache.store(&uri, response).await?,
            None => response,
        };
        match fault {
            Some(Fault::LostAnswer) => {
                // The API server has responded, so the write was applied or refused.
                anyhow::bail!("the response to {path} is lost");
            }
            Some(Fault::Stall(after)) => Ok(response.map(|body| ResponseBody::stalling(body, after, stall_for))),
            _ => Ok(response.map(ResponseBody::complete)),
        }
    }

    async fn forward(&self, request: Request<Incoming>, kind: Kind) -> Result<Response<Body>> {
        let (mut parts, body) = request.into_parts();
        // Hop-by-hop headers.
        parts.headers.remove(http::header::HOST);
        parts.headers.remove(http::header::CONNECTION);
        parts.headers.remove(http::header::TRANSFER_ENCODING);
        let body = body.collect().await.context("a request's body")?.to_bytes();
        let write = (kind == Kind::Write).then(|| RecordedWrite::new(&parts.method, parts.uri.path(), &body)).flatten();
        let mut forward = Request::new(Body::from(body));
        *forward.method_mut() = parts.method;
        *forward.uri_mut() = parts.uri;
        *forward.headers_mut() = parts.headers;
        let mut response = self.server.send(forward).await.context("the API server")?;
        response.headers_mut().remove(http::header::TRANSFER_ENCODING);
        response.headers_mut().remove(http::header::CONNECTION);
        if let Some(write) = write {
            let written = write.with_code(response.status().as_u16());
            let applied = {
                let mut state = self.state();
                state.written.push(written);
                state.written.iter().filter(|write| write.succeeded()).count()
            };
            self.gate.set_writes(applied as u64);
            self.gate.wait_until_open().await;
        }
        Ok(response)
    }
}
