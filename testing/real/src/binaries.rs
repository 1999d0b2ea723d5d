//! Finds the Kubernetes programs.

use std::path::{Path, PathBuf};

use crate::skip::skip;

/// The programs that a control plane needs.
const NEEDED: [&str; 5] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "etcd"];

/// A directory with the Kubernetes control plane programs, kubectl and etcd.
#[derive(Debug, Clone)]
pub struct Binaries {
    directory: PathBuf,
}

impl Binaries {
    /// The directory that they are built into: `$STEAD_REAL`, or `stead-real` in the user's cache.
    pub fn directory() -> Option<PathBuf> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        set("STEAD_REAL")
            .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("stead-real")))
            .or_else(|| set("HOME").map(|home| home.join(".cache/stead-real")))
    }

    /// Returns the programs, if all of them exist.
    pub fn find() -> Option<Binaries> {
        Binaries::directory().and_then(Binaries::within)
    }

    /// Returns the programs in this directory, if all of them exist.
    pub fn within(directory: PathBuf) -> Option<Binaries> {
        NEEDED.iter().all(|name| directory.join(name).is_file()).then_some(Binaries { directory })
    }

    /// Returns the programs. If they are missing, it reports that the current test is skipped; the test then returns.
    pub fn find_or_skip() -> Option<Binaries> {
        let found = Binaries::find();
        if found.is_none() {
            skip("the real control plane is not built (run `cargo xtask kubernetes`)");
        }
        found
    }

    /// The path of one of the programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The directory that contains them.
    pub fn path(&self) -> &Path {
        &self.directory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_directory_is_not_used() {
        let folder = std::env::temp_dir().join(format!("stead-binaries-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (i, name) in NEEDED.iter().enumerate() {
            assert!(Binaries::within(folder.clone()).is_none(), "{i} of them");
            std::fs::write(folder.join(name), "").unwrap();
        }
        assert_eq!(Binaries::within(folder.clone()).map(|b| b.path().to_owned()), Some(folder.clone()));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
