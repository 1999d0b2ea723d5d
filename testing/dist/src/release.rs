//! What is released: version, commit, time, and where it will be published.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;

/// The version of all crates.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// One line about the project.
pub(crate) const SUMMARY: &str = "Explains stuck stateful workloads, and moves them off dead nodes";

/// The address of the archives if none is given. No such host exists.
pub(crate) const NO_ADDRESS: &str = "https://downloads.invalid/stead";

/// A release.
pub(crate) struct Release {
    /// The folder of the sources.
    pub(crate) root: PathBuf,
    /// The commit; `-dirty` at its end means that files were changed.
    pub(crate) commit: String,
    /// The time of the commit: the only time in the artifacts.
    pub(crate) time: Timestamp,
    /// The repository of the image, if it will be published.
    pub(crate) repository: Option<String>,
    /// The address of the folder with the archives.
    pub(crate) base_url: String,
    /// The page about the project, if there is one.
    pub(crate) homepage: Option<String>,
}

impl Release {
    /// The release of these sources, not published anywhere. `STEAD_COMMIT` and `SOURCE_DATE_EPOCH` replace what git says, for sources without
    /// a repository.
    pub(crate) fn of(root: &Path) -> Result<Release> {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let commit = match set("STEAD_COMMIT") {
            Some(commit) => commit,
            None => commit(root)?,
        };
        let epoch = match set("SOURCE_DATE_EPOCH") {
            Some(epoch) => epoch,
            None => git(root, &["log", "-1", "--format=%ct"])?,
        };
        let seconds = epoch.parse().with_context(|| format!("SOURCE_DATE_EPOCH: {epoch:?} is not a number"))?;
        let time = Timestamp::from_second(seconds).context("SOURCE_DATE_EPOCH")?;
        let base_url = NO_ADDRESS.to_owned();
        Ok(Release { root: root.to_owned(), commit, time, repository: None, base_url, homepage: None })
    }

    /// The same release, built in another folder.
    pub(crate) fn in_folder(&self, root: &Path) -> Release {
        Release {
            root: root.to_owned(),
            commit: self.commit.clone(),
            time: self.time,
            repository: self.repository.clone(),
            base_url: self.base_url.clone(),
            homepage: self.homepage.clone(),
        }
    }

    /// The image with its tag, if it will be published.
    pub(crate) fn image(&self) -> Option<String> {
        self.repository.as_ref().map(|repository| format!("{repository}:{VERSION}"))
    }

    /// The time of the commit, as text.
    pub(crate) fn created(&self) -> String {
        self.time.to_string()
    }

    /// Reads a file of the sources.
    pub(crate) fn read(&self, path: &str) -> Result<Vec<u8>> {
        std::fs::read(self.root.join(path)).with_context(|| format!("reading {path}"))
    }
}

fn commit(root: &Path) -> Result<String> {
    let commit = git(root, &["rev-parse", "HEAD"])?;
    let changes = git(root, &["status", "--porcelain"])?;
    Ok(if changes.is_empty() { commit } else { format!("{commit}-dirty") })
}

/// What git prints.
pub(crate) fn git(root: &Path, args: &[&str]) -> Result<String> {
    let output = Command::new("git").args(args).current_dir(root).output().context("running git")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "git {}: {}; without a repository, set STEAD_COMMIT and SOURCE_DATE_EPOCH",
        args.join(" "),
        error.trim()
    );
    Ok(String::from_utf8(output.stdout).context("the output of git")?.trim().to_owned())
}

/// Parses the repository of an image: without a tag and without a digest, which follow from the release.
pub(crate) fn repository(text: &str) -> Result<String> {
    let path = text.rsplit('/').next().unwrap_or_default();
    ensure!(
        !path.is_empty() && !path.contains([':', '@']),
        "{text:?} is not a repository such as registry.example/stead"
    );
    ensure!(!text.contains(char::is_whitespace), "{text:?} has white space in it");
    Ok(text.to_owned())
}

/// Parses an address.
pub(crate) fn address(text: &str) -> Result<String> {
    ensure!(text.starts_with("https://") || text.starts_with("http://"), "{text:?} does not begin with https://");
    Ok(text.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_have_no_tag() {
        for text in ["stead", "registry.example/stead", "registry.example:5000/a/stead"] {
            assert_eq!(repository(text).ok().as_deref(), Some(text));
        }
        for text in ["", "registry.example/stead:1", "stead@sha256:0", "registry.example/", "a b"] {
            assert!(repository(text).is_err(), "{text}");
        }
    }

    #[test]
    fn addresses_begin_with_a_scheme() {
        assert_eq!(address("https://a.example/v1/").ok().as_deref(), Some("https://a.example/v1"));
        assert!(address("a.example").is_err());
    }
}
