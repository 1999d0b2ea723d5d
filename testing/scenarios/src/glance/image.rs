//! The files of Glance's container image, and what its start script does.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::glance::kubelet::{Container, write};
use crate::glance::prerequisites::Glance;

/// Replaces the image's init process: runs its arguments.
const INIT: &str = r#"#!/bin/bash
while [[ $1 == --?* ]]; do shift; done
[[ $1 == -- ]] && shift
exec "$@"
"#;

/// Replaces the image's start script after the files are in place. It traces its commands, as the newest script does.
const START: &str = r#"#!/bin/bash
set -o errexit -o pipefail -o nounset -o xtrace
CMD=$(cat /run_command)
. /usr/local/bin/kolla_extend_start
exec ${CMD}
"#;

/// Writes the files of the image for a replica that listens at an address.
pub(crate) fn write_files(glance: &Glance, files: &Path, address: &str, hosts: &str) -> Result<()> {
    let programs = glance.environment.join("bin");
    for name in ["glance-manage", "glance-cache-cleaner", "glance-cache-pruner"] {
        let script = format!("#!/bin/bash\nexec {} \"$@\"\n", programs.join(name).display());
        write(&files.join("usr/bin").join(name), script.as_bytes(), 0o755)?;
    }
    // Since Glance 32, `glance-api` is no longer a server: a WSGI server replaces it.
    let server = format!(
        "#!/bin/bash\nexec {} --bind {address}:9292 --workers 1 --threads 4 glance.wsgi.api:application\n",
        programs.join("gunicorn").display(),
    );
    for (path, content) in
        [("usr/bin/glance-api", server.as_str()), ("usr/bin/dumb-init", INIT), ("usr/local/bin/kolla_start", START)]
    {
        write(&files.join(path), content.as_bytes(), 0o755)?;
    }
    write(&files.join("etc/hosts"), hosts.as_bytes(), 0o644)?;
    copy(&glance.environment.join("etc/glance"), &files.join("etc/glance"))
}

/// Copies a folder recursively.
fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in std::fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            write(&target, &std::fs::read(entry.path())?, 0o644)?;
        }
    }
    Ok(())
}

/// Copies the files that the start script's configuration lists, and writes the command file that the script reads.
pub(crate) fn configure(files: &Path, container: &Container) -> Result<()> {
    let path = "var/lib/kolla/config_files/config.json";
    let config = std::fs::read(files.join(path)).with_context(|| format!("reading /{path}"))?;
    let config: Value = serde_json::from_slice(&config).with_context(|| format!("reading /{path}"))?;
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let owner = |value: &Value| if text(value, "owner").starts_with("root") { 0 } else { container.user };
    let inside = |path: &str| files.join(path.trim_start_matches('/'));
    for file in config["config_files"].as_array().into_iter().flatten() {
        let (source, target) = (text(file, "source"), text(file, "dest"));
        let mode = u32::from_str_radix(&text(file, "perm"), 8).with_context(|| format!("the mode of {target}"))?;
        for found in matching(&inside(&source))? {
            let mut target = inside(&target);
            if source.ends_with('*') {
                target.push(found.file_name().context("a path without a file name")?);
            }
            write(&target, &std::fs::read(&found)?, mode)?;
            chown(&target, Some(owner(file)), Some(owner(file)))?;
        }
        anyhow::ensure!(file["optional"] == true || !matching(&inside(&source))?.is_empty(), "{source}: no such file");
    }
    for folder in config["permissions"].as_array().into_iter().flatten() {
        let path = text(folder, "path");
        let mounted = container.mounts.iter().find(|(_, target)| *target == path);
        let folder_path = mounted.map_or_else(|| inside(&path), |(source, _)| source.clone());
        std::fs::create_dir_all(&folder_path).with_context(|| format!("creating {}", folder_path.display()))?;
        chown(&folder_path, Some(owner(folder)), Some(owner(folder)))?;
        std::fs::set_permissions(&folder_path, PermissionsExt::from_mode(0o755))?;
    }
    write(&files.join("run_command"), text(&config, "command").as_bytes(), 0o644)
}

/// Returns the file with this path, or all files of the folder if the file name is `*`.
fn matching(path: &Path) -> Result<Vec<PathBuf>> {
    if path.file_name().is_some_and(|name| name == "*") {
        let folder = path.parent().context("a path without a parent folder")?;
        let Ok(entries) = std::fs::read_dir(folder) else { return Ok(Vec::new()) };
        return entries.map(|entry| Ok(entry?.path())).collect();
    }
    Ok(if path.is_file() { vec![path.to_owned()] } else { Vec::new() })
}
