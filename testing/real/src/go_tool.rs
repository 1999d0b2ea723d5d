//! Tools of other projects, built from Go's module registry by name and exact version.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::Binaries;
use crate::skip::skip;

/// A tool that judges what we release.
#[derive(Debug, Clone, Copy)]
pub struct GoTool {
    /// The module.
    pub module: &'static str,
    /// The exact version: the registry does not list versions for every module.
    pub version: &'static str,
    /// The package of the program, within the module.
    pub package: &'static str,
}

/// Helm 3.
pub const HELM_3: GoTool = GoTool { module: "helm.sh/helm/v3", version: "v3.22.0", package: "cmd/helm" };
/// Helm 4.
pub const HELM_4: GoTool = GoTool { module: "helm.sh/helm/v4", version: "v4.3.1", package: "cmd/helm" };
/// The check of krew's plugin index.
pub const KREW_VALIDATOR: GoTool =
    GoTool { module: "sigs.k8s.io/krew", version: "v0.5.0", package: "cmd/validate-krew-manifest" };
/// The check of bundles for the Operator Lifecycle Manager.
pub const OPERATOR_VERIFY: GoTool =
    GoTool { module: "github.com/operator-framework/api", version: "v0.44.0", package: "cmd/operator-verify" };
/// A reader of images and layouts.
pub const CRANE: GoTool =
    GoTool { module: "github.com/google/go-containerregistry", version: "v0.22.1", package: "cmd/crane" };

impl GoTool {
    /// The name of the program.
    pub fn name(&self) -> &'static str {
        self.package.rsplit('/').next().unwrap_or(self.package)
    }

    /// Returns the program, built into the folder of the real components if it is not there yet. Without Go, it reports
    /// that the current test is skipped; the test then returns.
    pub fn find_or_skip(&self) -> Option<PathBuf> {
        let folder = Binaries::directory()?.join("tools").join(format!("{}-{}", self.name(), self.version));
        let program = folder.join(self.name());
        if program.is_file() {
            return Some(program);
        }
        if Command::new("go").arg("version").output().is_err() {
            skip(&format!("Go is not installed: it builds {} {}", self.name(), self.version));
            return None;
        }
        // Tests of one process ask for the same tool at the same time.
        static BUILDING: Mutex<()> = Mutex::new(());
        let _one_at_a_time = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
        if program.is_file() {
            return Some(program);
        }
        match self.build(&folder) {
            Ok(()) => Some(program),
            Err(error) => {
                skip(&format!("{} {} cannot be built: {error}", self.name(), self.version));
                None
            }
        }
    }

    /// Builds in a module of our own: `go install` asks for the list of versions, which is not always served.
    fn build(&self, folder: &Path) -> std::io::Result<()> {
        let work = folder.with_extension(format!("build-{}", std::process::id()));
        std::fs::create_dir_all(&work)?;
        // From Go 1.17 on, only the modules that are compiled are read: some of the others are not served.
        let module = format!("module tools\n\ngo 1.26.0\n\nrequire {} {}\n", self.module, self.version);
        std::fs::write(work.join("go.mod"), module)?;
        let package = format!("{}/{}", self.module, self.package);
        let output = Command::new("go")
            .args(["build", "-mod=mod", "-trimpath", "-o", self.name(), &package])
            .current_dir(&work)
            .env("CGO_ENABLED", "0")
            .output()?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let last = text.lines().last().unwrap_or_default().to_owned();
            std::fs::remove_dir_all(&work)?;
            return Err(std::io::Error::other(last));
        }
        // Another process may have built it meanwhile.
        std::fs::create_dir_all(folder)?;
        std::fs::rename(work.join(self.name()), folder.join(self.name()))?;
        std::fs::remove_dir_all(&work)
    }
}
