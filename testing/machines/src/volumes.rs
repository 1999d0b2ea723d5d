//! The volumes of a pod, as directories on the host.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, KeyToPath, Pod, Volume, VolumeProjection};
use kube::ResourceExt;
use stead_testbed::World;

use crate::environment::{PodLocation, field_value};
use crate::objects::{Objects, Values};
use crate::storage::{DiskUser, Storage};

/// The directories of this cluster.
#[derive(Debug, Clone)]
pub(crate) struct Directories {
    /// The parent of all of them.
    pub(crate) root: PathBuf,
}

impl Directories {
    /// The content of a PersistentVolume.
    pub(crate) fn volume(&self, name: &str) -> PathBuf {
        self.root.join("volumes").join(name)
    }

    /// Where a node mounts a disk.
    pub(crate) fn mount(&self, node: &str, disk: &str) -> PathBuf {
        self.root.join("mounts").join(node).join(disk)
    }

    /// The files of a node, which outlive its pods.
    pub(crate) fn node(&self, node: &str) -> PathBuf {
        self.root.join("nodes").join(node)
    }

    /// The files of a pod, which are removed with it.
    pub(crate) fn pod(&self, uid: &str) -> PathBuf {
        self.root.join("pods").join(uid)
    }

    /// The log file of a container.
    pub(crate) fn log(&self, namespace: &str, pod: &str, container: &str) -> PathBuf {
        self.root.join("logs").join(format!("{namespace}_{pod}_{container}.log"))
    }
}

/// Creates the volumes of a pod.
pub(crate) struct VolumeBuilder<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) world: &'a World,
    pub(crate) directories: &'a Directories,
    pub(crate) location: &'a PodLocation,
    pub(crate) objects: &'a Objects,
    pub(crate) storage: &'a Storage,
    pub(crate) user: &'a DiskUser,
}

impl VolumeBuilder<'_> {
    /// Creates the pod's volumes, and returns their paths by name.
    pub(crate) async fn volumes(&self) -> Result<BTreeMap<String, PathBuf>> {
        let mut paths = BTreeMap::new();
        for volume in self.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let path = self.volume(volume).await.with_context(|| format!("volume {}", volume.name))?;
            paths.insert(volume.name.clone(), path);
        }
        Ok(paths)
    }

    async fn volume(&self, volume: &Volume) -> Result<PathBuf> {
        if volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() {
            let persistent = self.world.volume_of(self.pod, volume).context("its claim is not bound")?;
            let own = directory(self.directories.volume(&persistent.name_any()), 0o777)?;
            let is_disk = self.world.is_disk(&persistent);
            return if is_disk { self.storage.mount(&persistent.name_any(), self.user) } else { Ok(own) };
        }
        if let Some(host) = &volume.host_path {
            return self.host_path(&host.path, host.type_.as_deref());
        }
        let own = self.directories.pod(&self.pod.uid().unwrap_or_default()).join("volumes").join(&volume.name);
        if volume.empty_dir.is_some() {
            return directory(own, 0o777);
        }
        let (files, mode) = if let Some(map) = &volume.config_map {
            let values = self.objects.config_map(&map.name, map.optional.unwrap_or(false)).await?;
            (select(values, map.items.as_deref())?, map.default_mode)
        } else if let Some(secret) = &volume.secret {
            let name = secret.secret_name.as_deref().unwrap_or_default();
            let values = self.objects.secret(name, secret.optional.unwrap_or(false)).await?;
            (select(values, secret.items.as_deref())?, secret.default_mode)
        } else if let Some(downward) = &volume.downward_api {
            (self.downward(downward.items.as_deref().unwrap_or_default())?, downward.default_mode)
        } else if let Some(projected) = &volume.projected {
            let mut files = Values::new();
            for source in projected.sources.iter().flatten() {
                files.extend(self.projection(source).await?);
            }
            (files, projected.default_mode)
        } else {
            bail!("this kind of volume is not supported");
        };
        write(directory(own, 0o755)?, &files, mode.unwrap_or(0o644))
    }

    /// A hostPath volume: in the node's directory, except for paths that only the kernel provides.
    fn host_path(&self, path: &str, kind: Option<&str>) -> Result<PathBuf> {
        if ["/dev", "/sys", "/lib/modules"].iter().any(|top| Path::new(path).starts_with(top)) {
            return Ok(PathBuf::from(path));
        }
        let own = self.directories.node(&self.location.node).join("host").join(path.trim_start_matches('/'));
        if matches!(kind, Some("File" | "FileOrCreate")) {
            if let Some(parent) = own.parent() {
                directory(parent.to_owned(), 0o755)?;
            }
            let file = std::fs::OpenOptions::new().create(true).append(true).open(&own);
            file.with_context(|| format!("creating {}", own.display()))?;
            return Ok(own);
        }
        directory(own, 0o755)
    }

    async fn projection(&self, source: &VolumeProjection) -> Result<Values> {
        if let Some(token) = &source.service_account_token {
            let token_text = self.objects.token(self.pod, token.audience.as_deref(), token.expiration_seconds).await?;
            return Ok([(token.path.clone(), token_text.into_bytes())].into());
        }
        if let Some(map) = &source.config_map {
            let values = self.objects.config_map(&map.name, map.optional.unwrap_or(false)).await?;
            return select(values, map.items.as_deref());
        }
        if let Some(secret) = &source.secret {
            let values = self.objects.secret(&secret.name, secret.optional.unwrap_or(false)).await?;
            return select(values, secret.items.as_deref());
        }
        match &source.downward_api {
            Some(downward) => self.downward(downward.items.as_deref().unwrap_or_default()),
            None => bail!("this kind of projection is not supported"),
        }
    }

    fn downward(&self, items: &[DownwardAPIVolumeFile]) -> Result<Values> {
        items
            .iter()
            .map(|item| {
                let field = item.field_ref.as_ref().context("resourceFieldRef is not supported")?;
                Ok((item.path.clone(), field_value(self.pod, field, self.location)?.into_bytes()))
            })
            .collect()
    }
}

/// Selects the keys in `items` and renames them to their paths; all keys without `items`.
fn select(mut values: Values, items: Option<&[KeyToPath]>) -> Result<Values> {
    let Some(items) = items else { return Ok(values) };
    let take = |item: &KeyToPath| {
        let value = values.remove(&item.key).with_context(|| format!("references non-existent key: {}", item.key))?;
        Ok((item.path.clone(), value))
    };
    items.iter().map(take).collect()
}

fn directory(path: PathBuf, mode: u32) -> Result<PathBuf> {
    if !path.is_dir() {
        std::fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, permissions).with_context(|| format!("the mode of {}", path.display()))?;
    }
    Ok(path)
}

fn write(path: PathBuf, files: &Values, mode: i32) -> Result<PathBuf> {
    for (name, content) in files {
        let file = path.join(name);
        if let Some(parent) = file.parent() {
            directory(parent.to_owned(), 0o755)?;
        }
        std::fs::write(&file, content).with_context(|| format!("writing {}", file.display()))?;
        let permissions = std::fs::Permissions::from_mode(u32::try_from(mode).unwrap_or(0o644));
        std::fs::set_permissions(&file, permissions).with_context(|| format!("the mode of {}", file.display()))?;
    }
    Ok(path)
}
