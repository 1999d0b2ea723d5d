//! What `cargo xtask dist` wrote, read by the ecosystem's own tools. Skipped if there is no `dist/`.

use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;
use stead_real::go_tool::{CRANE, HELM_3, HELM_4, KREW_VALIDATOR, OPERATOR_VERIFY};
use stead_real::skip;

use crate::{root, run};

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn dist() -> Option<PathBuf> {
    let folder = root().join("dist");
    if !folder.join("sha256sums.txt").is_file() {
        skip("there are no artifacts (run `cargo xtask dist`)");
        return None;
    }
    Some(folder)
}

#[test]
fn the_sums_are_right() -> Result<()> {
    let Some(dist) = dist() else { return Ok(()) };
    run(Command::new("sha256sum").args(["--check", "--strict", "sha256sums.txt"]).current_dir(dist))?.ok()?;
    Ok(())
}

#[test]
fn krew_accepts_the_plugin() -> Result<()> {
    let (Some(dist), Some(validator)) = (dist(), KREW_VALIDATOR.find_or_skip()) else { return Ok(()) };
    let manifest = dist.join("krew/stead.yaml");
    run(Command::new(validator).arg("-manifest").arg(&manifest).arg("-skip-install"))?.ok()?;
    let text = std::fs::read_to_string(manifest)?;
    let archive = format!("stead-{VERSION}-x86_64-linux-musl.tar.gz");
    let sum = run(Command::new("sha256sum").arg(dist.join(&archive)))?.ok()?;
    assert!(text.contains(&archive) && text.contains(&sum[..64]), "{text}");
    Ok(())
}

/// operator-verify exits with 0 whatever it finds: what it prints counts.
#[test]
fn operator_verify_finds_nothing_in_the_bundle() -> Result<()> {
    let (Some(dist), Some(verify)) = (dist(), OPERATOR_VERIFY.find_or_skip()) else { return Ok(()) };
    let bundle = dist.join("bundle");
    let mut command = Command::new(&verify);
    let found = run(command.arg("manifests").arg(&bundle).args(["--operatorhub_validate", "--object_validate"]))?;
    let said = format!("{}{}", found.out, found.err);
    assert_eq!(found.code, Some(0), "{said}");
    let complaints = said.lines().filter(|line| line.to_lowercase().contains("error"));
    assert_eq!(complaints.collect::<Vec<_>>(), Vec::<&str>::new());

    // It would find something.
    let broken = std::env::temp_dir().join(format!("stead-bundle-{}", std::process::id()));
    run(Command::new("cp").arg("-r").arg(&bundle).arg(&broken))?.ok()?;
    let file = broken.join("manifests/stead.clusterserviceversion.yaml");
    std::fs::write(&file, std::fs::read_to_string(&file)?.replace("strategy: deployment", "strategy: \"\""))?;
    std::fs::remove_file(broken.join("manifests/noderecoveries.stead.dev.customresourcedefinition.yaml"))?;
    let mut command = Command::new(&verify);
    let found = run(command.arg("manifests").arg(&broken).arg("--object_validate"))?;
    std::fs::remove_dir_all(&broken)?;
    assert!(format!("{}{}", found.out, found.err).to_lowercase().contains("error"), "{found:?}");
    Ok(())
}

/// A registry on loopback, as a private one would be.
struct Registry {
    process: Child,
    address: String,
}

impl Registry {
    fn start(crane: &Path) -> Result<Registry> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let mut command = Command::new(crane);
        command.args(["registry", "serve", "--address", &address]).stdout(Stdio::null()).stderr(Stdio::null());
        let registry = Registry { process: command.spawn()?, address };
        for _ in 0..600 {
            if TcpStream::connect(&registry.address).is_ok() {
                return Ok(registry);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        bail!("the registry does not listen");
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Loads the layout into a registry as docs/INSTALL.md says, and reads it back: crane checks every digest and size.
#[test]
fn crane_reads_the_image() -> Result<()> {
    let (Some(dist), Some(crane)) = (dist(), CRANE.find_or_skip()) else { return Ok(()) };
    let registry = Registry::start(&crane)?;
    let image = format!("{}/stead:{VERSION}", registry.address);
    let crane = |args: &[&str]| run(Command::new(&crane).args(args).current_dir(&dist))?.ok();
    crane(&["push", "image", &image])?;
    crane(&["validate", "--remote", &image])?;
    let config: Value = serde_json::from_str(&crane(&["config", &image])?)?;
    let user = config["config"]["User"].as_str().unwrap_or_default();
    assert!(user.split(':').all(|id| id.parse::<u32>().is_ok_and(|id| id > 0)), "not a numeric user: {user}");
    let label = |name: &str| &config["config"]["Labels"][format!("org.opencontainers.image.{name}")];
    assert_eq!(label("version"), VERSION);
    assert!(label("revision").as_str().is_some_and(|commit| commit.len() >= 40), "{config}");
    let archive = std::env::temp_dir().join(format!("stead-files-{}.tar", std::process::id()));
    let exported = crane(&["export", &image, &archive.to_string_lossy()]);
    let files = run(Command::new("tar").arg("-tf").arg(&archive));
    std::fs::remove_file(&archive)?;
    exported?;
    let files = files?.ok()?;
    let files: BTreeSet<&str> = files.lines().collect();
    assert_eq!(files, BTreeSet::from(["etc/ssl/certs/ca-certificates.crt", "stead"]));
    Ok(())
}

#[test]
fn helm_reads_the_packaged_chart() -> Result<()> {
    let Some(dist) = dist() else { return Ok(()) };
    for tool in [HELM_3, HELM_4] {
        let Some(helm) = tool.find_or_skip() else { return Ok(()) };
        let chart = dist.join(format!("stead-{VERSION}.tgz"));
        let shown = run(Command::new(&helm).args(["show", "chart"]).arg(&chart))?.ok()?;
        assert!(shown.contains(&format!("version: {VERSION}")), "{shown}");
        let image = ["--set", "image.repository=registry.test/stead"];
        run(Command::new(&helm).args(["lint", "--strict"]).arg(&chart).args(image))?.ok()?;
    }
    Ok(())
}

/// The plugin from the archive: it starts, knows its commit, and has its manual pages and completions beside it.
#[test]
fn the_archive_has_what_a_package_needs() -> Result<()> {
    let Some(dist) = dist() else { return Ok(()) };
    let folder = std::env::temp_dir().join(format!("stead-archive-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let archive = dist.join(format!("stead-{VERSION}-x86_64-linux-musl.tar.gz"));
    run(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&folder))?.ok()?;
    for file in [
        "LICENSE",
        "README.md",
        "kubectl_complete-stead",
        "share/man/man1/stead.1",
        "share/man/man1/stead-explain.1",
        "share/bash-completion/completions/stead",
        "share/zsh/site-functions/_stead",
        "share/fish/vendor_completions.d/stead.fish",
    ] {
        assert!(folder.join(file).is_file(), "{file}");
    }
    let size = std::fs::metadata(folder.join("stead"))?.len();
    let version = run(Command::new(folder.join("stead")).args(["version", "-o", "json"]).env_clear());
    std::fs::remove_dir_all(&folder)?;
    let version: Value = serde_json::from_str(&version?.ok()?)?;
    assert_eq!((&version["version"], &version["kubernetes"]["oldest"]), (&VERSION.into(), &"1.29".into()));
    assert!(version["commit"].as_str().is_some_and(|commit| commit.len() >= 40), "{version}");
    assert!(size <= 20_000_000, "{size} bytes");
    Ok(())
}
