//! The volumes of a pod, as directories of the host.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, KeyToPath, Pod, Volume, VolumeProjection};
use kube::ResourceExt;
use stead_testbed::World;

use crate::environment::{Whereabouts, field_value};
use crate::objects::{Objects, Values};
use crate::storage::{Storage, Tenant};

/// Where directories of this cluster are.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// All of them.
    pub(crate) root: PathBuf,
}

impl Places {
    /// The directory that is a PersistentVolume.
    pub(crate) fn volume(&self, name: &str) -> PathBuf {
        self.root.join("volumes").join(name)
    }

    /// Where a node mounts a disk.
    pub(crate) fn mount(&self, node: &str, disk: &str) -> PathBuf {
        self.root.join("mounts").join(node).join(disk)
    }

    /// What a node has of its own, which outlives its pods.
    pub(crate) fn node(&self, node: &str) -> PathBuf {
        self.root.join("nodes").join(node)
    }

    /// What is a pod's and goes with it.
    pub(crate) fn pod(&self, uid: &str) -> PathBuf {
        self.root.join("pods").join(uid)
    }

    /// What a container has said.
    pub(crate) fn log(&self, namespace: &str, pod: &str, container: &str) -> PathBuf {
        self.root.join("logs").join(format!("{namespace}_{pod}_{container}.log"))
    }
}

/// What is known of a pod when its volumes are made.
pub(crate) struct Ground<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) world: &'a World,
    pub(crate) places: &'a Places,
    pub(crate) whereabouts: &'a Whereabouts,
    pub(crate) objects: &'a Objects,
    pub(crate) storage: &'a Storage,
    pub(crate) tenant: &'a Tenant,
}

impl Ground<'_> {
    /// Makes the pod's volumes, and says where each is.
    pub(crate) async fn volumes(&self) -> Result<BTreeMap<String, PathBuf>> {
        let mut made = BTreeMap::new();
        for volume in self.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let path = self.volume(volume).await.with_context(|| format!("volume {}", volume.name))?;
            made.insert(volume.name.clone(), path);
        }
        Ok(made)
    }

    async fn volume(&self, volume: &Volume) -> Result<PathBuf> {
        if volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() {
            let persistent = self.world.volume_of(self.pod, volume).context("its claim is not bound")?;
            let own = directory(self.places.volume(&persistent.name_any()), 0o777)?;
            let is_disk = self.world.is_disk(&persistent);
            return if is_disk { self.storage.mount(&persistent.name_any(), self.tenant) } else { Ok(own) };
        }
        if let Some(host) = &volume.host_path {
            return self.host_path(&host.path, host.type_.as_deref());
        }
        let own = self.places.pod(&self.pod.uid().unwrap_or_default()).join("volumes").join(&volume.name);
        if volume.empty_dir.is_some() {
            return directory(own, 0o777);
        }
        let (files, mode) = if let Some(map) = &volume.config_map {
            let values = self.objects.config_map(&map.name, map.optional.unwrap_or(false)).await?;
            (chosen(values, map.items.as_deref())?, map.default_mode)
        } else if let Some(secret) = &volume.secret {
            let name = secret.secret_name.as_deref().unwrap_or_default();
            let values = self.objects.secret(name, secret.optional.unwrap_or(false)).await?;
            (chosen(values, secret.items.as_deref())?, secret.default_mode)
        } else if let Some(downward) = &volume.downward_api {
            (self.downward(downward.items.as_deref().unwrap_or_default())?, downward.default_mode)
        } else if let Some(projected) = &volume.projected {
            let mut files = Values::new();
            for source in projected.sources.iter().flatten() {
                files.extend(self.projection(source).await?);
            }
            (files, projected.default_mode)
        } else {
            bail!("this kind of volume is not supported here");
        };
        write(directory(own, 0o755)?, &files, mode.unwrap_or(0o644))
    }

    /// A path of the node: in a directory of its own, except for what only a kernel can give.
    fn host_path(&self, path: &str, kind: Option<&str>) -> Result<PathBuf> {
        if ["/dev", "/sys", "/lib/modules"].iter().any(|top| Path::new(path).starts_with(top)) {
            return Ok(PathBuf::from(path));
        }
        let own = self.places.node(&self.whereabouts.node).join("host").join(path.trim_start_matches('/'));
        if matches!(kind, Some("File" | "FileOrCreate")) {
            if let Some(parent) = own.parent() {
                directory(parent.to_owned(), 0o755)?;
            }
            let file = std::fs::OpenOptions::new().create(true).append(true).open(&own);
            file.with_context(|| format!("making {}", own.display()))?;
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
            return chosen(values, map.items.as_deref());
        }
        if let Some(secret) = &source.secret {
            let values = self.objects.secret(&secret.name, secret.optional.unwrap_or(false)).await?;
            return chosen(values, secret.items.as_deref());
        }
        match &source.downward_api {
            Some(downward) => self.downward(downward.items.as_deref().unwrap_or_default()),
            None => bail!("this kind of projection is not supported here"),
        }
    }

    fn downward(&self, items: &[DownwardAPIVolumeFile]) -> Result<Values> {
        items
            .iter()
            .map(|item| {
                let field = item.field_ref.as_ref().context("resourceFieldRef is not supported here")?;
                Ok((item.path.clone(), field_value(self.pod, field, self.whereabouts)?.into_bytes()))
            })
            .collect()
    }
}

/// Those that were asked for, under the paths that they should have.
fn chosen(mut values: Values, items: Option<&[KeyToPath]>) -> Result<Values> {
    let Some(items) = items else { return Ok(values) };
    let take = |item: &KeyToPath| {
        let value = values.remove(&item.key).with_context(|| format!("references non-existent key: {}", item.key))?;
        Ok((item.path.clone(), value))
    };
    items.iter().map(take).collect()
}

fn directory(path: PathBuf, mode: u32) -> Result<PathBuf> {
    if !path.is_dir() {
        std::fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
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
