//! The prerequisites of a real Glance: its package from PyPI, MariaDB from Debian, and the permission to give each
//! replica a separate root directory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use stead_testbed::Binaries;

use crate::debian;

/// The packages from PyPI, in their newest versions.
const PACKAGES: [&str; 3] = ["glance", "gunicorn", "pymysql"];
/// The programs of MariaDB.
const DATABASE_PROGRAMS: [&str; 3] = ["mariadbd", "mariadb-install-db", "mariadb"];
/// The programs that set up the root directory of a replica.
const ROOT_PROGRAMS: [&str; 4] = ["unshare", "setpriv", "chroot", "mount"];

/// An installed Glance.
pub(crate) struct Glance {
    /// The virtual environment in which Glance is installed.
    pub(crate) environment: PathBuf,
    /// The installation prefix of the Python of the environment.
    pub(crate) python: PathBuf,
    /// The versions of the packages and of MariaDB.
    pub(crate) versions: String,
}

/// Finds or installs all prerequisites; the inner error is what is missing.
pub(crate) fn find() -> Result<Result<Glance, String>> {
    let user = output(Command::new("id").arg("-u")).unwrap_or_default();
    if user != "0" {
        return Ok(Err("only root can give each replica a separate root directory".into()));
    }
    if let Some(missing) = ROOT_PROGRAMS.iter().find(|program| !debian::is_installed(program)) {
        return Ok(Err(format!("{missing} is not installed")));
    }
    if DATABASE_PROGRAMS.iter().any(|program| !debian::is_installed(program))
        && !debian::ensure_installed(DATABASE_PROGRAMS[0], "mariadb-server")
    {
        return Ok(Err("MariaDB is not installed, and `apt-get install mariadb-server` failed".into()));
    }
    let environment =
        Binaries::directory().context("none of STEAD_REAL, XDG_CACHE_HOME and HOME is set")?.join("glance-venv");
    if !environment.join("bin/glance-manage").is_file() && !install_glance(&environment)? {
        return Ok(Err(format!("pip could not install {}", PACKAGES.join(", "))));
    }
    let python = environment.join("bin/python");
    let home = output(Command::new(&python).args(["-c", "import sys; print(sys.base_prefix)"]))
        .with_context(|| format!("reading the prefix of {}", python.display()))?;
    let versions = versions(&environment)?;
    Ok(Ok(Glance { environment, python: home.into(), versions }))
}

fn install_glance(environment: &Path) -> Result<bool> {
    println!("installing {} from PyPI into {}", PACKAGES.join(", "), environment.display());
    let created = Command::new("python3").args(["-m", "venv"]).arg(environment).status();
    if !created.is_ok_and(|status| status.success()) {
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

/// Returns the trimmed standard output of a program.
fn output(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::null()).output()?;
    ensure!(output.status.success(), "{}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
