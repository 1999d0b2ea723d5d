//! The archive for people: the program, its licence, manual pages and shell completions.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::archive::{ArchiveFile, gzip, tar};
use crate::release::{Release, VERSION};

/// The name of the archive.
pub(crate) fn file_name() -> String {
    format!("stead-{VERSION}-x86_64-linux-musl.tar.gz")
}

/// Where each shell looks for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/stead"),
    ("zsh", "share/zsh/site-functions/_stead"),
    ("fish", "share/fish/vendor_completions.d/stead.fish"),
];

/// zsh reads the file when something is completed for the first time; the script alone would only prepare the next time.
const ZSH_FIRST_CALL: &str = "[[ ${funcstack[1]} != _stead ]] || _clap_dynamic_completer_stead \"$@\"\n";

/// kubectl runs this to complete `kubectl stead`. The plugin is the program under another name.
const KUBECTL_COMPLETE: &str = "#!/bin/sh\nexec kubectl-stead complete -- \"$@\"\n";

/// Creates the archive.
pub(crate) fn archive(program: &Path, release: &Release) -> Result<Vec<u8>> {
    let read = |path: &Path| std::fs::read(path).with_context(|| format!("reading {}", path.display()));
    let mut files = vec![
        ArchiveFile::executable("stead", read(program)?),
        ArchiveFile::executable("kubectl_complete-stead", KUBECTL_COMPLETE),
        ArchiveFile::new("LICENSE", release.read("LICENSE")?),
        ArchiveFile::new("README.md", release.read("README.md")?),
    ];
    for (shell, path) in COMPLETIONS {
        let mut script = run(program, &["completions".as_ref(), shell.as_ref()])?;
        if shell == "zsh" {
            script.extend(ZSH_FIRST_CALL.as_bytes());
        }
        files.push(ArchiveFile::new(path, script));
    }
    files.extend(manual_pages(program)?);
    gzip(&tar(&files, release.time.as_second())?)
}

/// The manual pages, as the program writes them.
fn manual_pages(program: &Path) -> Result<Vec<ArchiveFile>> {
    let folder = std::env::temp_dir().join(format!("stead-man-{}", std::process::id()));
    run(program, &["man".as_ref(), folder.as_os_str()])?;
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let content = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        pages.push(ArchiveFile::new(format!("share/man/man1/{name}"), content));
    }
    std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    pages.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(pages)
}

/// What a program prints.
fn run(program: &Path, args: &[&std::ffi::OsStr]) -> Result<Vec<u8>> {
    let output = Command::new(program).args(args).output();
    let output = output.with_context(|| format!("running {}", program.display()))?;
    ensure!(output.status.success(), "{}: {}", program.display(), String::from_utf8_lossy(&output.stderr).trim());
    Ok(output.stdout)
}
