//! A separate MariaDB server, with its own data directory, socket and address.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::glance::process::Running;

/// A database server that is stopped when this value is dropped.
pub(crate) struct Database {
    socket: PathBuf,
    _server: Running,
}

impl Database {
    /// Starts a server at the standard port.
    pub(crate) fn start(folder: &Path, address: &str) -> Result<Database> {
        let (data, socket) = (folder.join("mysql"), folder.join("mysql.sock"));
        let installed = Command::new("mariadb-install-db")
            .args(["--no-defaults", "--user=root", "--auth-root-authentication-method=normal", "--skip-test-db"])
            .arg(format!("--datadir={}", data.display()))
            .output()
            .context("running mariadb-install-db")?;
        ensure!(installed.status.success(), "mariadb-install-db: {}", String::from_utf8_lossy(&installed.stderr));
        let mut server = Command::new("mariadbd");
        server.args(["--no-defaults", "--user=root", "--port=3306", "--skip-name-resolve"]);
        server.arg(format!("--bind-address={address}"));
        server.arg(format!("--datadir={}", data.display())).arg(format!("--socket={}", socket.display()));
        let mut server = Running::start(&server, &folder.join("mysql.log"))?;
        server.wait_until("the database answers", Duration::from_secs(60), &|| {
            run_statements(&socket, "SELECT 1").is_ok()
        })?;
        Ok(Database { socket, _server: server })
    }

    /// Creates an empty database and its user.
    pub(crate) fn create(&self, name: &str, user: &str, password: &str) -> Result<()> {
        let password = password.replace('\\', "\\\\").replace('\'', "\\'");
        let statements = format!(
            "SET foreign_key_checks = 0;\n\
             CREATE OR REPLACE DATABASE {name} CHARACTER SET utf8mb4;\n\
             CREATE OR REPLACE USER {user}@'%' IDENTIFIED BY '{password}';\n\
             GRANT ALL ON {name}.* TO {user}@'%';\n"
        );
        run_statements(&self.socket, &statements).map(|_| ())
    }

    /// Returns the result of a query, one line per row.
    pub(crate) fn query(&self, query: &str) -> Result<String> {
        run_statements(&self.socket, query)
    }
}

fn run_statements(socket: &Path, statements: &str) -> Result<String> {
    let mut client = Command::new("mariadb")
        .args(["--no-defaults", "--user=root", "--batch", "--skip-column-names", "--default-character-set=utf8mb4"])
        .arg(format!("--socket={}", socket.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("running mariadb")?;
    client.stdin.take().context("no standard input")?.write_all(statements.as_bytes())?;
    let output = client.wait_with_output()?;
    ensure!(output.status.success(), "mariadb: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
