//! The part of the kubelet that Glance's containers need: environment, command and volumes.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use stead_machines::expand;

use crate::glance::rendered::Rendered;

/// A container that can be started.
pub(crate) struct Container {
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) command: Vec<String>,
    pub(crate) user: u32,
    pub(crate) group: u32,
    /// The mounted folders: path on the machine, and path in the container.
    pub(crate) mounts: Vec<(PathBuf, String)>,
}

/// Prepares a container of a pod. Writes the files of Secrets below `files`; `folder` returns the folder of other
/// volumes.
pub(crate) fn container(
    rendered: &Rendered,
    pod: &Value,
    name: &str,
    files: &Path,
    folder: &dyn Fn(&str) -> PathBuf,
) -> Result<Container> {
    let all = pod["containers"].as_array().into_iter().flatten();
    let found = all.clone().find(|c| c["name"] == name).with_context(|| format!("no container {name}"))?;
    let environment = environment(rendered, found)?;
    let words = ["command", "args"].iter().flat_map(|field| found[field].as_array().into_iter().flatten());
    let command = words.filter_map(Value::as_str).map(|word| expand(word, &environment)).collect();
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok()).unwrap_or(0);
    let security = &found["securityContext"];
    let user = id(&security["runAsUser"]);
    // Without runAsGroup the image decides; in Glance's image, group id and user id are the same.
    let group = if security["runAsGroup"].is_null() { user } else { id(&security["runAsGroup"]) };
    let shared = pod["securityContext"]["fsGroup"].is_u64().then(|| id(&pod["securityContext"]["fsGroup"]));
    let mut mounts = Vec::new();
    for mount in found["volumeMounts"].as_array().into_iter().flatten() {
        let (volume, path) = (text(mount, "name")?, text(mount, "mountPath")?);
        let declared = pod["volumes"].as_array().into_iter().flatten().find(|v| v["name"] == volume);
        match declared.map(|v| &v["secret"]).filter(|s| !s.is_null()) {
            Some(secret) => write_secret(rendered, secret, mount, files, path)?,
            None => {
                let folder = folder(volume);
                std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
                if let Some(shared) = shared {
                    chown(&folder, None, Some(shared))?;
                    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o2775))?;
                }
                mounts.push((folder, path.to_owned()));
            }
        }
    }
    Ok(Container { environment, command, user, group, mounts })
}

fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str> {
    value[field].as_str().with_context(|| format!("no {field} in {value}"))
}

fn environment(rendered: &Rendered, container: &Value) -> Result<BTreeMap<String, String>> {
    let mut environment = BTreeMap::new();
    for variable in container["env"].as_array().into_iter().flatten() {
        let name = text(variable, "name")?.to_owned();
        let reference = &variable["valueFrom"]["secretKeyRef"];
        let value = if reference.is_null() {
            expand(variable["value"].as_str().unwrap_or_default(), &environment)
        } else {
            let (secret, key) = (text(reference, "name")?, text(reference, "key")?);
            let value = rendered.secret(secret)?.remove(key);
            String::from_utf8(value.with_context(|| format!("Secret {secret} has no key {key}"))?)?
        };
        environment.insert(name, value);
    }
    Ok(environment)
}

/// Writes the files of a Secret to its mount path.
fn write_secret(rendered: &Rendered, secret: &Value, mount: &Value, files: &Path, path: &str) -> Result<()> {
    let name = text(secret, "secretName")?;
    let mode = secret["defaultMode"].as_u64().and_then(|mode| u32::try_from(mode).ok()).unwrap_or(0o644);
    let data = rendered.secret(name)?;
    let named: BTreeMap<&str, &Vec<u8>> = match secret["items"].as_array() {
        None => data.iter().map(|(key, value)| (key.as_str(), value)).collect(),
        Some(items) => items
            .iter()
            .map(|item| {
                let key = text(item, "key")?;
                Ok((text(item, "path")?, data.get(key).with_context(|| format!("Secret {name} has no key {key}"))?))
            })
            .collect::<Result<_>>()?,
    };
    let target = files.join(path.trim_start_matches('/'));
    if let Some(part) = mount["subPath"].as_str() {
        let Some(content) = named.get(part) else { bail!("Secret {name} has no key {part}") };
        return write(&target, content, mode);
    }
    named.iter().try_for_each(|(file, content)| write(&target.join(file), content, mode))
}

/// Writes a file with a mode, and creates its parent folders.
pub(crate) fn write(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let folder = path.parent().context("a path without a parent folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    std::fs::write(path, content).with_context(|| format!("writing {}", path.display()))?;
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_expanded_as_in_kubernetes() {
        let environment = BTreeMap::from([("A".to_owned(), "x$y".to_owned())]);
        for (text, expected) in [
            ("a $(A) b", "a x$y b"),
            ("$$(A)", "$(A)"),
            ("$(B) $A ${A}", "$(B) $A ${A}"),
            ("$(printf %s \"${A}\")", "$(printf %s \"${A}\")"),
            ("$(A", "$(A"),
            ("$", "$"),
        ] {
            assert_eq!(expand(text, &environment), expected, "{text}");
        }
    }
}
