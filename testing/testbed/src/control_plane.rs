//! Runs a Kubernetes control plane.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::audit::{self, AuditEvent};
use crate::guard::Guard;
use crate::kubectl::{self, KubectlOutput};
use crate::{Binaries, Options, User, kubeconfig};

/// The cluster administrator: user name and token.
const ADMIN: (&str, &str) = ("admin", "admintoken");

/// Timeout for a program that runs but does not respond. Far longer than it takes on a busy machine: a program that
/// terminates is noticed at once.
const START_TIMEOUT: Duration = Duration::from_secs(900);

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The socket of the egress proxy.
const EGRESS: &str = "egress.sock";

/// An API server with etcd, a controller manager and a scheduler, on free ports of loopback. All programs are stopped
/// when this value is dropped or this process dies.
pub struct ControlPlane {
    guard: Guard,
    binaries: Binaries,
    has_egress: bool,
    server: String,
    client: Client,
}

impl ControlPlane {
    /// Starts the control plane and waits until it can be used: the API server is ready, and the namespace `default`
    /// has its service account, without which no pod is accepted. (With [`Options::bare`] there is none.)
    pub async fn start(binaries: &Binaries, options: Options) -> Result<ControlPlane> {
        for _ in 0..3 {
            match ControlPlane::try_start(binaries, &options).await {
                // Another process took a port that was free a moment ago, or kube-apiserver terminated because it could
                // not write its default roles within 30 s, which happens on a very busy machine.
                Err(e) if format!("{e:#}").contains(" ended with ") => {
                    let _ = writeln!(std::io::stderr(), "retrying to start the control plane: {e:#}");
                }
                plane => return plane,
            }
        }
        ControlPlane::try_start(binaries, &options).await
    }

    async fn try_start(binaries: &Binaries, options: &Options) -> Result<ControlPlane> {
        let mut guard = Guard::new()?;
        let [port, etcd, peer] = free_ports()?;
        let server = format!("https://127.0.0.1:{port}");
        write_files(guard.folder(), options, &server)?;
        guard.spawn("etcd", &binaries.program("etcd"), &etcd_args(etcd, peer), &[])?;
        wait_for_etcd(&mut guard, etcd).await?;
        let args = api_server_args(port, etcd, options);
        guard.spawn("kube-apiserver", &binaries.program("kube-apiserver"), &args, &[])?;
        let client = wait_for_api_server(&mut guard).await?;
        let has_egress = options.egress;
        let mut plane = ControlPlane { guard, binaries: binaries.clone(), has_egress, server, client };
        if !options.bare {
            plane.start_controllers(options).await?;
        }
        Ok(plane)
    }

    async fn start_controllers(&mut self, options: &Options) -> Result<()> {
        let (mut name, mut args, mut env) = ("kube-controller-manager", controller_args(), vec![]);
        if options.fast {
            name = "kcm-fast";
            args.extend(flags(["--node-monitor-grace-period=8s", "--node-monitor-period=500ms"]));
            env.push(("STEAD_FORCE_DETACH", "36s"));
        }
        args.extend(options.controller_manager.iter().cloned());
        let program = self.binaries.program(name);
        ensure!(program.is_file(), "{} does not exist; `cargo xtask kubernetes` builds it", program.display());
        self.guard.spawn(name, &program, &args, &env)?;
        let args = flags(["--kubeconfig=kubeconfig", "--leader-elect=false", "--secure-port=0"]);
        self.guard.spawn("kube-scheduler", &self.binaries.program("kube-scheduler"), &args, &[])?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), "default");
        let end = Instant::now() + START_TIMEOUT;
        while accounts.get_opt("default").await.context("service account default/default")?.is_none() {
            self.guard.check_running()?;
            ensure!(Instant::now() < end, "service account default/default does not exist after {START_TIMEOUT:?}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// The socket of the HTTP CONNECT proxy that the API server uses with [`Options::egress`].
    pub fn egress(&self) -> PathBuf {
        self.folder().join(EGRESS)
    }

    /// Whether the API server uses the proxy: [`Options::egress`].
    pub fn has_egress(&self) -> bool {
        self.has_egress
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.guard.folder().join("kubeconfig")
    }

    /// Writes a kubeconfig for the user with this token.
    pub fn kubeconfig_for(&self, user: &str, token: &str) -> Result<PathBuf> {
        let path = self.guard.folder().join(format!("kubeconfig-{}", user.replace([':', '/'], "-")));
        kubeconfig::write(&path, &self.server, Some(&authority(self.guard.folder())), user, token)?;
        Ok(path)
    }

    /// The API server's address.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The administrator's token.
    pub fn token(&self) -> &str {
        ADMIN.1
    }

    /// The CA certificate of the API server, as PEM.
    pub fn authority(&self) -> PathBuf {
        authority(self.guard.folder())
    }

    /// A client with the administrator's permissions.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The administrator's client configuration.
    pub async fn config(&self) -> Result<Config> {
        config(&self.kubeconfig()).await
    }

    /// A client for the user with this token.
    pub async fn client_for(&self, user: &str, token: &str) -> Result<Client> {
        client(&self.kubeconfig_for(user, token)?).await
    }

    /// Requests a token of an existing service account.
    pub async fn service_account_token(&self, namespace: &str, name: &str) -> Result<String> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let spec = TokenRequestSpec { expiration_seconds: Some(24 * 3600), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
        let answer = answer.with_context(|| format!("a token of service account {namespace}/{name}"))?;
        answer.status.and_then(|status| status.token).context("a token request without a token")
    }

    /// Runs kubectl as the administrator.
    pub async fn kubectl(&self, args: &[&str]) -> Result<KubectlOutput> {
        self.kubectl_with(args, "").await
    }

    /// Runs kubectl with a standard input, for `-f -`.
    pub async fn kubectl_with(&self, args: &[&str], input: &str) -> Result<KubectlOutput> {
        let cache = self.guard.folder().join("cache");
        kubectl::run(&self.binaries.program("kubectl"), &self.kubeconfig(), &cache, args, input).await
    }

    /// The audit log, one JSON object per line. It exists only with [`Options::audit`].
    pub fn audit(&self) -> PathBuf {
        self.guard.folder().join("audit.log")
    }

    /// Reads the audit log.
    pub fn audit_events(&self) -> Result<Vec<AuditEvent>> {
        audit::read(&self.audit())
    }

    /// The directory with the programs' logs. It is removed when this value is dropped.
    pub fn folder(&self) -> &Path {
        self.guard.folder()
    }

    /// Fails if one of the programs has terminated, with the end of its log.
    pub fn check_running(&mut self) -> Result<()> {
        self.guard.check_running()
    }

    /// Stops all programs and removes their files. Dropping the value does the same.
    pub fn stop(self) {}
}

fn flags<const N: usize>(flags: [&str; N]) -> Vec<String> {
    flags.map(str::to_owned).to_vec()
}

fn etcd_args(client: u16, peer: u16) -> Vec<String> {
    let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    vec![
        "--data-dir=etcd".to_owned(),
        "--unsafe-no-fsync".to_owned(),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
    ]
}

fn api_server_args(port: u16, etcd: u16, options: &Options) -> Vec<String> {
    let tolerate = if options.fast { 30 } else { 300 };
    let mut args = flags([
        "--bind-address=127.0.0.1",
        "--cert-dir=certs",
        "--service-account-key-file=sa.pub",
        "--service-account-signing-key-file=sa.key",
        "--service-account-issuer=https://kubernetes.default",
        "--token-auth-file=tokens.csv",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--allow-privileged",
        // Stand-in kubelets that serve requests have a loopback ExternalIP.
        "--kubelet-preferred-address-types=ExternalIP,InternalIP",
    ]);
    args.push(format!("--etcd-servers=http://127.0.0.1:{etcd}"));
    args.push(format!("--secure-port={port}"));
    args.push(format!("--default-not-ready-toleration-seconds={tolerate}"));
    args.push(format!("--default-unreachable-toleration-seconds={tolerate}"));
    if options.audit {
        args.extend(flags(["--audit-policy-file=audit-policy.yaml", "--audit-log-path=audit.log"]));
        // In megabytes: large enough that the log is never rotated.
        args.push("--audit-log-maxsize=10000".to_owned());
    }
    if options.egress {
        args.push("--egress-selector-config-file=egress.yaml".to_owned());
    }
    if !options.admission.is_empty() {
        args.push(format!("--enable-admission-plugins={}", options.admission.join(",")));
    }
    args.extend(options.api_server.iter().cloned());
    args
}

fn controller_args() -> Vec<String> {
    flags([
        "--kubeconfig=kubeconfig",
        "--service-account-private-key-file=sa.key",
        "--root-ca-file=certs/apiserver.crt",
        "--leader-elect=false",
        "--secure-port=0",
    ])
}

/// The API server creates its own certificate, and stores it with the signing CA in this file.
fn authority(folder: &Path) -> PathBuf {
    folder.join("certs/apiserver.crt")
}

fn write_files(folder: &Path, options: &Options, server: &str) -> Result<()> {
    let write = |name: &str, content: String| {
        std::fs::write(folder.join(name), content).with_context(|| format!("writing {name} of the control plane"))
    };
    let (private, public) = service_account_keys()?;
    write("sa.key", private)?;
    write("sa.pub", public)?;
    write("tokens.csv", tokens(&options.users))?;
    write("audit-policy.yaml", audit::POLICY.to_owned())?;
    write("egress.yaml", egress_config(folder))?;
    kubeconfig::write(&folder.join("kubeconfig"), server, Some(&authority(folder)), ADMIN.0, ADMIN.1)
}

/// The API server's configuration of the egress proxy.
fn egress_config(folder: &Path) -> String {
    let socket = folder.join(EGRESS);
    format!(
        "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n\
         - name: cluster\n  connection:\n    proxyProtocol: HTTPConnect\n    transport:\n      uds:\n        udsName: {}\n",
        socket.display()
    )
}

/// The DER prefix that makes a point of the curve P-256 an X.509 public key (RFC 5480).
const P256_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// Creates the private and public key for service account tokens. Elliptic curve keys are fast to create.
fn service_account_keys() -> Result<(String, String)> {
    let (random, curve) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
    let error = || anyhow!("cannot create the key for service accounts");
    let private = EcdsaKeyPair::generate_pkcs8(curve, &random).map_err(|_| error())?;
    let pair = EcdsaKeyPair::from_pkcs8(curve, private.as_ref(), &random).map_err(|_| error())?;
    let public = [&P256_PREFIX, pair.public_key().as_ref()].concat();
    let encode = |kind: &str, content: &[u8]| pem::encode(&pem::Pem::new(kind, content));
    Ok((encode("PRIVATE KEY", private.as_ref()), encode("PUBLIC KEY", &public)))
}

/// The API server's list of tokens: token, user, uid, groups.
fn tokens(users: &[User]) -> String {
    let mut text = format!("{},{},1,\"system:masters\"\n", ADMIN.1, ADMIN.0);
    for (i, user) in users.iter().enumerate() {
        text += &format!("{},{},{},\"{}\"\n", user.token, user.name, i + 2, user.groups.join(","));
    }
    text
}

/// Returns free ports. All are kept open until the last is found, so that they differ.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut listeners = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on loopback")?;
        *port = listener.local_addr().context("the address of a port")?.port();
        listeners.push(listener);
    }
    Ok(ports)
}

/// Waits until etcd has a leader. kube-apiserver waits for it only for a limited time.
async fn wait_for_etcd(guard: &mut Guard, port: u16) -> Result<()> {
    let end = Instant::now() + START_TIMEOUT;
    loop {
        guard.check_running()?;
        if etcd_health(port).await.is_ok_and(|answer| answer.contains(r#""health":"true""#)) {
            return Ok(());
        }
        ensure!(Instant::now() < end, "etcd is not healthy after {START_TIMEOUT:?}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn etcd_health(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(b"GET /health HTTP/1.0\r\nHost: etcd\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Waits until the API server is ready, and returns a client for it.
async fn wait_for_api_server(guard: &mut Guard) -> Result<Client> {
    let end = Instant::now() + START_TIMEOUT;
    let mut last = anyhow!("no certificate yet");
    loop {
        guard.check_running()?;
        if authority(guard.folder()).is_file() {
            match connect_when_ready(&guard.folder().join("kubeconfig")).await {
                Ok(client) => return Ok(client),
                Err(e) => last = e,
            }
        }
        if Instant::now() > end {
            bail!("kube-apiserver is not ready after {START_TIMEOUT:?}: {last:#}");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn connect_when_ready(kubeconfig: &Path) -> Result<Client> {
    let client = client(kubeconfig).await?;
    let request = http::Request::get("/readyz").body(Vec::new()).context("a request for /readyz")?;
    client.request_text(request).await.context("/readyz")?;
    Ok(client)
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    Client::try_from(config(kubeconfig).await?).context("a client for the control plane")
}

async fn config(kubeconfig: &Path) -> Result<Config> {
    let file = Kubeconfig::read_from(kubeconfig).context("the control plane's kubeconfig")?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    config.context("the control plane's kubeconfig")
}
