//! Checks the objects of a pool with the cluster that they are for. Nothing is changed.

use anyhow::{Context as _, anyhow};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;
use stead_manifests::Manifest;
use stead_manifests::gluster::{self, Pool};
use stead_pool::config_map;

use crate::connect::{ConnectArgs, connect};
use crate::live_object::LiveObject;
use crate::output::{Hinted, complain};
use crate::server::{self, Server};

/// The oldest version of Kubernetes that the manifests are tested with.
const OLDEST: (u32, u32) = (1, 29);

const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

pub(crate) fn run(pool: &Pool, manifests: &[Manifest], args: &ConnectArgs) -> anyhow::Result<()> {
    server::run(async {
        let server = Server::new(connect(args).await?);
        classes(&server, pool).await?;
        let namespace_exists = namespace(&server, pool).await?;
        names(&server, pool, manifests).await?;
        record(&server, pool).await?;
        if namespace_exists {
            dry_run(&server, manifests).await?;
        }
        Ok(())
    })
}

/// The server's version.
pub(crate) fn version(args: &ConnectArgs) -> anyhow::Result<String> {
    server::run(async { Server::new(connect(args).await?).at_least(OLDEST, "a Gluster pool").await })
}

/// The storage classes exist, or are created.
async fn classes(server: &Server, pool: &Pool) -> anyhow::Result<()> {
    let all = server.list("/apis/storage.k8s.io/v1/storageclasses").await?;
    let all: Vec<LiveObject> =
        all.iter().map(|class| LiveObject::read("storageclass", class)).collect::<Result<_, _>>()?;
    let names: Vec<&str> = all.iter().map(LiveObject::name).collect();
    let created = pool.new_class.as_ref().and(pool.storage_class.as_deref());
    for (flag, class) in [("storage-class", &pool.storage_class), ("state-storage-class", &pool.state_storage_class)] {
        let Some(class) = class.as_deref() else { continue };
        if created != Some(class) && !names.contains(&class) {
            return Err(Hinted {
                message: format!("--{flag}: the cluster has no StorageClass {class}"),
                hint: match names.as_slice() {
                    [] => "it has no StorageClass; --storage-class-provisioner creates one".to_owned(),
                    some => format!("it has: {}; --storage-class-provisioner creates one", some.join(", ")),
                },
            }
            .into());
        }
    }
    let is_default = |class: &LiveObject| {
        let annotations = class.metadata.annotations.as_ref();
        annotations.and_then(|annotations| annotations.get(DEFAULT_CLASS)).is_some_and(|value| value == "true")
    };
    let default = all.iter().any(is_default);
    if pool.storage_class.is_none() && !default {
        return Err(anyhow!("--storage-class: the cluster has no default StorageClass: name one"));
    }
    Ok(())
}

/// The namespace admits such pods. False where it does not exist yet and will be created.
async fn namespace(server: &Server, pool: &Pool) -> anyhow::Result<bool> {
    let name = &pool.namespace;
    let Some(live) = server.get(&format!("/api/v1/namespaces/{name}")).await? else {
        return match pool.create_namespace {
            true => Ok(false),
            false => Err(anyhow!("--namespace: namespace {name} does not exist: create it, or use --create-namespace")),
        };
    };
    let labels = LiveObject::read("namespace", &live)?.metadata.labels.unwrap_or_default();
    let enforced = labels.get(ENFORCE).filter(|level| *level != "privileged");
    if let (Some(level), false) = (enforced, pool.create_namespace) {
        return Err(Hinted {
            message: format!("--namespace: {name} admits only {level} pods, and glusterd needs privileged ones"),
            hint: format!("kubectl label namespace {name} --overwrite {ENFORCE}=privileged"),
        }
        .into());
    }
    Ok(true)
}

/// Existing objects with the pool's names belong to the pool.
async fn names(server: &Server, pool: &Pool, manifests: &[Manifest]) -> anyhow::Result<()> {
    let shared = |m: &&Manifest| !matches!(m.kind(), "Namespace" | "StorageClass");
    for manifest in manifests.iter().filter(shared) {
        if let Some(live) = server.get(&manifest.path()).await? {
            own(&live, manifest.kind(), pool, if manifest.kind() == "Service" { "service" } else { "name" })?;
        }
    }
    Ok(())
}

fn own(live: &Value, kind: &str, pool: &Pool, flag: &str) -> anyhow::Result<()> {
    if gluster::is_of(live, &pool.name) {
        return Ok(());
    }
    let name = LiveObject::read(kind, live)?.name().to_owned();
    Err(Hinted {
        message: format!("--{flag}: {kind} {name} exists and does not belong to pool {}", pool.name),
        hint: "choose another name; docs/GLUSTER-MIGRATE.md says how to move an existing pool to Stead".to_owned(),
    }
    .into())
}

/// A record of the same name belongs to the pool; one without its StatefulSet is worth a warning.
async fn record(server: &Server, pool: &Pool) -> anyhow::Result<()> {
    let (namespace, name) = (&pool.namespace, config_map::name(&pool.name));
    let Some(live) = server.get(&format!("/api/v1/namespaces/{namespace}/configmaps/{name}")).await? else {
        return Ok(());
    };
    own(&live, "ConfigMap", pool, "name")?;
    let set = server.get(&format!("/apis/apps/v1/namespaces/{namespace}/statefulsets/{}", pool.name)).await?;
    // A record that was installed and never filled has no data.
    let record: ConfigMap = stead_model::parse("configmap", &live)?;
    if set.is_none() && record.data.is_some() {
        complain(
            "warning",
            &format!(
                "ConfigMap {name} is the record of an earlier pool of this name: the pods will get the identities of its peers; delete it to start a new pool"
            ),
        );
    }
    Ok(())
}

/// The API server accepts every object.
async fn dry_run(server: &Server, manifests: &[Manifest]) -> anyhow::Result<()> {
    for manifest in manifests {
        let answer = server.apply(&manifest.path(), &manifest.object, true).await;
        answer.with_context(|| format!("the API server rejects {manifest}"))?;
    }
    Ok(())
}
