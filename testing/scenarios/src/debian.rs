//! Debian packages that a scenario needs.

use std::process::{Command, Stdio};

/// Whether a program is installed.
pub(crate) fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok()
}

/// Whether a program is installed. If not, and the user is root, installs its Debian package.
pub(crate) fn ensure_installed(program: &str, package: &str) -> bool {
    if is_installed(program) {
        return true;
    }
    let root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    if !root {
        return false;
    }
    println!("installing {package}");
    let apt = |args: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.args(args).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
        apt.status().is_ok_and(|status| status.success())
    };
    let install = ["install", "--yes", "--no-install-recommends", package];
    (apt(&install) || (apt(&["update"]) && apt(&install))) && is_installed(program)
}
