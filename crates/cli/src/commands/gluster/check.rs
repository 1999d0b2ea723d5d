//! A pool's objects, held against the cluster that they are for. Nothing is changed.

use anyhow::{Context as _, anyhow};
use serde_json::Value;
use stead_manifests::Manifest;
use stead_manifests::gluster::{self, Pool};
use stead_pool::config_map;

use crate::connect::{ConnectArgs, connect};
use crate::output::{Hinted, complain};
use crate::server::{self, Server};

const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

pub(crate) fn run(pool: &Pool, manifests: &[Manifest], args: &ConnectArgs) -> anyhow::Result<()> {
    server::run(async {
        let server = Server::new(connect(args).await?);
        classes(&server, pool).await?;
        let there = namespace(&server, pool).await?;
        names(&server, pool, manifests).await?;
        record(&server, pool).await?;
        if there {
            tried(&server, manifests).await?;
        }
        Ok(())
    })
}

/// The classes are there, or are made.
async fn classes(server: &Server, pool: &Pool) -> anyhow::Result<()> {
    let all = server.list("/apis/storage.k8s.io/v1/storageclasses").await?;
    let names: Vec<&str> = all.iter().filter_map(|c| c["metadata"]["name"].as_str()).collect();
    let made = pool.new_class.as_ref().and(pool.storage_class.as_deref());
    for (flag, class) in [("storage-class", &pool.storage_class), ("state-storage-class", &pool.state_storage_class)] {
        let Some(class) = class.as_deref() else { continue };
        if made != Some(class) && !names.contains(&class) {
            return Err(Hinted {
                message: format!("--{flag}: the cluster has no StorageClass {class}"),
                hint: match names.as_slice() {
                    [] => "it has none at all; --storage-class-provisioner makes one".to_owned(),
                    some => format!("it has: {}; --storage-class-provisioner makes one", some.join(", ")),
                },
            }
            .into());
        }
    }
    let default = all.iter().any(|c| c["metadata"]["annotations"][DEFAULT_CLASS] == "true");
    if pool.storage_class.is_none() && !default {
        return Err(anyhow!("--storage-class: the cluster has no default StorageClass: name one"));
    }
    Ok(())
}

/// The namespace is there and lets such pods in. False where it is still to be made.
async fn namespace(server: &Server, pool: &Pool) -> anyhow::Result<bool> {
    let name = &pool.namespace;
    let Some(live) = server.get(&format!("/api/v1/namespaces/{name}")).await? else {
        return match pool.create_namespace {
            true => Ok(false),
            false => Err(anyhow!("--namespace: there is no namespace {name}: make it, or say --create-namespace")),
        };
    };
    let enforced = live["metadata"]["labels"][ENFORCE].as_str().filter(|level| *level != "privileged");
    if let (Some(level), false) = (enforced, pool.create_namespace) {
        return Err(Hinted {
            message: format!("--namespace: {name} lets only {level} pods in, and glusterd needs more"),
            hint: format!("kubectl label namespace {name} --overwrite {ENFORCE}=privileged"),
        }
        .into());
    }
    Ok(true)
}

/// What has one of the pool's names is the pool's own.
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
    let name = live["metadata"]["name"].as_str().unwrap_or_default();
    Err(Hinted {
        message: format!("--{flag}: {kind} {name} is there already, and is not of pool {}", pool.name),
        hint: "choose another name; docs/GLUSTER.md says how a pool that exists comes under Stead".to_owned(),
    }
    .into())
}

/// A record of the same name is the pool's own; one that outlived its StatefulSet is worth a word.
async fn record(server: &Server, pool: &Pool) -> anyhow::Result<()> {
    let (namespace, name) = (&pool.namespace, config_map::name(&pool.name));
    let Some(live) = server.get(&format!("/api/v1/namespaces/{namespace}/configmaps/{name}")).await? else {
        return Ok(());
    };
    own(&live, "ConfigMap", pool, "name")?;
    let set = server.get(&format!("/apis/apps/v1/namespaces/{namespace}/statefulsets/{}", pool.name)).await?;
    // One that was installed and never filled says nothing.
    if set.is_none() && live["data"].is_object() {
        complain(
            "warning",
            &format!(
                "ConfigMap {name} is the record of an earlier pool of this name: the pods will come back as its peers; delete it to begin anew"
            ),
        );
    }
    Ok(())
}

/// The API server takes all of it.
async fn tried(server: &Server, manifests: &[Manifest]) -> anyhow::Result<()> {
    for manifest in manifests {
        let answer = server.apply(&manifest.path(), &manifest.object, true).await;
        answer.with_context(|| format!("the cluster does not take {manifest}"))?;
    }
    Ok(())
}
