//! The rows in the file.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rusqlite::Connection;
use serde::Deserialize;

/// How long to wait for a lock on the file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum length of a name and of an address, in bytes.
const MAX_LENGTH: usize = 200;

/// A person with an email address.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) email: String,
}

impl Row {
    /// An error if a field is empty, too long, or contains a separator of the page.
    pub(crate) fn check(&self) -> Result<()> {
        for (field, value) in [("name", &self.name), ("email", &self.email)] {
            if value.trim().is_empty() || value.len() > MAX_LENGTH {
                bail!("{field} must have 1 to {MAX_LENGTH} bytes");
            }
            if value.contains(['|', '\n', '\r']) {
                bail!("{field} must not contain '|' or a line break");
            }
        }
        Ok(())
    }
}

/// A file of rows. It is opened on first use, stays open, and is reopened after an error.
pub(crate) struct Rows {
    path: PathBuf,
    open: Mutex<Option<Connection>>,
}

impl Rows {
    pub(crate) fn new(path: PathBuf) -> Rows {
        Rows { path, open: Mutex::default() }
    }

    /// All rows, in the order in which they were added.
    pub(crate) fn all(&self) -> Result<Vec<Row>> {
        self.with(|file| {
            let mut query = file.prepare_cached("SELECT name, email FROM people ORDER BY id")?;
            let rows = query.query_map([], |row| Ok(Row { name: row.get(0)?, email: row.get(1)? }))?;
            rows.collect()
        })
        .with_context(|| self.failure("reading"))
    }

    /// Adds a row. When this returns, it is in the file.
    pub(crate) fn add(&self, row: &Row) -> Result<()> {
        self.with(|file| {
            let mut insert = file.prepare_cached("INSERT INTO people (name, email) VALUES (?1, ?2)")?;
            insert.execute([&row.name, &row.email]).map(drop)
        })
        .with_context(|| self.failure("adding a row to"))
    }

    /// Describes a failed operation, and says if the volume is gone, which SQLite does not report.
    fn failure(&self, what: &str) -> String {
        let folder = self.path.parent().unwrap_or(&self.path);
        match std::fs::read_dir(folder) {
            Ok(_) => format!("{what} {}", self.path.display()),
            Err(e) => format!("the volume at {} is gone: {e}: {what} {}", folder.display(), self.path.display()),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = match open.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let done = act(&connection)?;
        *open = Some(connection);
        Ok(done)
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open(&self.path)?;
        connection.busy_timeout(LOCK_TIMEOUT)?;
        connection.execute(
            "CREATE TABLE IF NOT EXISTS people (id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL)",
            [],
        )?;
        Ok(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_stored_and_a_missing_volume_is_named() {
        let folder = std::env::temp_dir().join(format!("cinder-demo-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let row = |name: &str| Row { name: name.to_owned(), email: format!("{name}@example.com") };
        let rows = Rows::new(folder.join("test.db"));
        rows.add(&row("foo")).unwrap();
        rows.add(&row("bar")).unwrap();
        assert_eq!(Rows::new(folder.join("test.db")).all().unwrap(), [row("foo"), row("bar")]);
        std::fs::remove_dir_all(&folder).unwrap();
        let message = format!("{:#}", Rows::new(folder.join("test.db")).all().unwrap_err());
        assert!(message.starts_with(&format!("the volume at {} is gone: ", folder.display())), "{message}");
        assert!(message.contains("unable to open database file"), "{message}");
    }

    #[test]
    fn rows_that_would_break_the_page_are_rejected() {
        for (name, email, is_valid) in
            [("foo", "foo@example.com", true), (" ", "x", false), ("a|b", "x", false), ("a", "x\ny", false)]
        {
            let row = Row { name: name.to_owned(), email: email.to_owned() };
            assert_eq!(row.check().is_ok(), is_valid, "{row:?}");
        }
    }
}
