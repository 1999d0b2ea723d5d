//! A proxy between a client and the API server that injects faults on demand.

mod answer;
mod faults;
mod hold;
mod memory;
mod written;

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
use answer::Answer;
pub use faults::Faults;
use faults::{Fault, Kind, Random};
use hold::Hold;
use memory::Memory;
pub use written::Written;

/// What a proxy has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests that came in, those that met a fault among them.
    pub requests: u64,
    /// Writes refused with 409.
    pub conflicts: u64,
    /// Requests refused with 429.
    pub too_many: u64,
    /// Requests refused with 500.
    pub internal: u64,
    /// Writes that were made, but whose answer was lost.
    pub lost_answers: u64,
    /// Requests held back.
    pub delays: u64,
    /// Watches that fell silent, or will.
    pub stalls: u64,
    /// Reads answered as before.
    pub stale: u64,
}

impl Tally {
    /// All that went wrong.
    pub fn faults(&self) -> u64 {
        self.conflicts + self.too_many + self.internal + self.lost_answers + self.delays + self.stalls + self.stale
    }
}

/// A proxy on plain HTTP for one API server. It hands on who asks, so that rights are those of the caller, and lets
/// everything through until it is told what to spoil. It ends when this value is dropped.
///
/// kubectl sends no token over plain HTTP; kube's client does.
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Aborted when it is dropped.
    _listening: JoinSet<()>,
}

struct Shared {
    server: Client,
    state: Mutex<State>,
    hold: Hold,
    memory: Memory,
}

struct State {
    faults: Faults,
    random: Random,
    tally: Tally,
    /// Major and minor, if the server is to say another version than its own.
    version: Option<(String, String)>,
    written: Vec<Written>,
}

impl FaultProxy {
    /// Listens on a free port of loopback. What goes wrong is drawn from the seed, request by request.
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
            hold: Hold::default(),
            memory: Memory::default(),
        };
        let shared = Arc::new(shared);
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no free port for the proxy")?;
        let address = listener.local_addr().context("the proxy's address")?;
        let mut listening = JoinSet::new();
        listening.spawn(listen(listener, shared.clone()));
        Ok(FaultProxy { address, shared, _listening: listening })
    }

    /// Where clients find it.
    pub fn server(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on these faults. [`Faults::default`] is none; watches that are silent already stay so.
    pub fn set(&self, faults: Faults) {
        self.shared.state().faults = faults;
    }

    /// From now on the server says that it is of this version.
    pub fn pretend_version(&self, major: &str, minor: &str) {
        self.shared.state().version = Some((major.to_owned(), minor.to_owned()));
    }

    /// What it has done so far.
    pub fn tally(&self) -> Tally {
        self.shared.state().tally
    }

    /// The writes that the API server has answered so far. What only asks (reviews) is none.
    pub fn written(&self) -> Vec<Written> {
        self.shared.state().written.clone()
    }

    /// Once so many writes were made in all, nobody gets an answer any more, that of the last of them included, until this
    /// is set anew; none lets all through.
    pub fn hold_after(&self, writes: Option<u64>) {
        self.shared.hold.after(writes);
    }

    /// Waits until everybody waits ([`FaultProxy::hold_after`]).
    pub async fn held(&self) {
        self.shared.hold.held().await;
    }

    /// Writes a file with which a client goes through the proxy, as whoever has this token.
    pub fn kubeconfig(&self, folder: &Path, user: &str, token: &str) -> Result<PathBuf> {
        let path = folder.join(format!("kubeconfig-proxy-{}", self.address.port()));
        kubeconfig::write(&path, &self.server(), None, user, token)?;
        Ok(path)
    }

    /// A client that goes through the proxy, as whoever has this token, and tries nothing again by itself.
    pub fn client(&self, token: &str) -> Result<Client> {
        let mut config = Config::new(self.server().parse().context("the proxy's address")?);
        config.auth_info.token = Some(token.to_owned().into());
        config.default_retry = false;
        Client::try_from(config).context("a client for the proxy")
    }
}

/// A client for the API server that adds nothing of its own: no token, no second try.
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
    // A connection that breaks off is the client's to deal with; some break off on purpose.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), handler).await;
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What befalls this request, which is also counted.
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
            // Counted where there is something to answer with.
            Some(Fault::Stale) | None => {}
        }
        fault
    }

    /// Answers a request. An error ends the connection without an answer.
    async fn handle(&self, request: Request<Incoming>) -> Result<Response<Answer>> {
        self.hold.passes().await;
        let (stall_for, stale_by) = {
            let faults = &self.state().faults;
            (faults.stall_for, (faults.stale > 0.0).then_some(faults.stale_by))
        };
        let (uri, kind) = (request.uri().clone(), Kind::of(request.method(), request.uri()));
        let path = uri.path();
        let version = self.state().version.clone().filter(|_| path == "/version");
        if let Some((major, minor)) = version {
            return answer::version(&major, &minor);
        }
        let fault = self.draw(kind);
        match fault {
            Some(Fault::Conflict) => return answer::conflict(path),
            Some(Fault::TooMany) => return answer::too_many(),
            Some(Fault::Internal) => return answer::internal(),
            Some(Fault::Delay(time)) => tokio::time::sleep(time).await,
            Some(Fault::Stale) => {
                if let Some(answer) = stale_by.and_then(|by| self.memory.recall(&uri, by)) {
                    self.state().tally.stale += 1;
                    return Ok(answer.map(Answer::whole));
                }
            }
            Some(Fault::LostAnswer | Fault::Stall(_)) | None => {}
        }
        let response = self.forward(request, kind).await?;
        let response = match stale_by.filter(|_| kind == Kind::Read && memory::may_be_kept(&uri)) {
            Some(_) => self.memory.keep(&uri, response).await?,
            None => response,
        };
        match fault {
            Some(Fault::LostAnswer) => {
                // The API server has answered, so the write was made, or refused.
                anyhow::bail!("the answer to {path} is lost");
            }
            Some(Fault::Stall(after)) => Ok(response.map(|body| Answer::stalling(body, after, stall_for))),
            _ => Ok(response.map(Answer::whole)),
        }
    }

    async fn forward(&self, request: Request<Incoming>, kind: Kind) -> Result<Response<Body>> {
        let (mut parts, body) = request.into_parts();
        // These are of this connection, not of the next.
        parts.headers.remove(http::header::HOST);
        parts.headers.remove(http::header::CONNECTION);
        parts.headers.remove(http::header::TRANSFER_ENCODING);
        let body = body.collect().await.context("a request's body")?.to_bytes();
        let write = (kind == Kind::Write).then(|| Written::about(&parts.method, parts.uri.path(), &body)).flatten();
        let mut forward = Request::new(Body::from(body));
        *forward.method_mut() = parts.method;
        *forward.uri_mut() = parts.uri;
        *forward.headers_mut() = parts.headers;
        let mut response = self.server.send(forward).await.context("the API server")?;
        response.headers_mut().remove(http::header::TRANSFER_ENCODING);
        response.headers_mut().remove(http::header::CONNECTION);
        if let Some(write) = write {
            let written = write.answered(response.status().as_u16());
            let made = {
                let mut state = self.state();
                state.written.push(written);
                state.written.iter().filter(|write| write.was_made()).count()
            };
            self.hold.wrote(made as u64);
            self.hold.passes().await;
        }
        Ok(response)
    }
}
