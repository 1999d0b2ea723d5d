//! What a real Glance needs: its package from Python's registry, a MariaDB from Debian, and the rights to give each
//! replica a root of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use stead_testbed::Binaries;

use crate::debian;

/// The packages of Python's registry, in whichever versions are the newest.
const PACKAGES: [&str; 3] = ["glance", "gunicorn", "pymysql"];
/// What there has to be of a MariaDB.
const DATABASE: [&str; 3] = ["mariadbd", "mariadb-install-db", "mariadb"];
/// What gives a replica its root.
const ROOTS: [&str; 4] = ["unshare", "setpriv", "chroot", "mount"];

/// A Glance that can be run.
pub(crate) struct Glance {
    /// The Python environment that it is installed in.
    pub(crate) environment: PathBuf,
    /// The Python that the environment is made of.
    pub(crate) python: PathBuf,
    /// What was found, in which versions.
    pub(crate) versions: String,
}

/// Finds or gets it all, or says what cannot be had.
pub(crate) fn find() -> Result<Result<Glance, String>> {
    let user = output(Command::new("id").arg("-u")).unwrap_or_default();
    if user != "0" {
        return Ok(Err("only root can give each replica a root file system of its own".into()));
    }
    if let Some(missing) = ROOTS.iter().find(|program| !debian::has(program)) {
        return Ok(Err(format!("there is no {missing}")));
    }
    if DATABASE.iter().any(|program| !debian::has(program)) && !debian::get(DATABASE[0], "mariadb-server") {
        return Ok(Err("there is no MariaDB, and `apt-get install mariadb-server` did not bring one".into()));
    }
    let environment =
        Binaries::directory().context("none of STEAD_REAL, XDG_CACHE_HOME and HOME is set")?.join("glance-venv");
    if !environment.join("bin/glance-manage").is_file() && !install_glance(&environment)? {
        return Ok(Err(format!("pip could not install {}", PACKAGES.join(", "))));
    }
    let python = environment.join("bin/python");
    let home = output(Command::new(&python).args(["-c", "import sys; print(sys.base_prefix)"]))
        .with_context(|| format!("asking {} where it comes from", python.display()))?;
    let versions = versions(&environment)?;
    Ok(Ok(Glance { environment, python: home.into(), versions }))
}

fn install_glance(environment: &Path) -> Result<bool> {
    println!("getting {} from Python's registry into {}", PACKAGES.join(", "), environment.display());
    let made = Command::new("python3").args(["-m", "venv"]).arg(environment).status();
    if !made.is_ok_and(|status| status.success()) {
        return Ok(false);
    }
    let pip = environment.join("bin/pip");
    let mut pip = Command::new(pip);
    pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(PACKAGES);
    Ok(pip.status().context("running pip")?.success())
}

fn versions(environment: &Path) -> Result<String> {
    let script = "import sys, importlib.metadata as m; print(', '.join(f'{n} {m.version(n)}' for n in sys.argv[1:]))";
    let mut python = Command::new(environment.join("bin/python"));
    let packages = output(python.args(["-c", script]).args(PACKAGES)).context("the versions of Python packages")?;
    let database = output(Command::new("mariadbd").arg("--version")).context("the version of MariaDB")?;
    let database = database.split_whitespace().find(|word| word.contains("MariaDB")).unwrap_or("MariaDB").to_owned();
    Ok(format!("{packages}, {database}"))
}

/// What a program prints, without the line's end.
fn output(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::null()).output()?;
    ensure!(output.status.success(), "{}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
