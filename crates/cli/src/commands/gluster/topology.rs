//! The Topology that a pool's pods follow.

use std::path::PathBuf;

use anyhow::anyhow;
use serde_json::Value;

use crate::connect::{ConnectArgs, connect};
use crate::output::{Hinted, complain};
use crate::server::{self, Server};

/// The spec of a Topology: from files where some are given, else from the cluster.
pub(crate) fn read(name: &str, namespace: &str, from: &[PathBuf], args: &ConnectArgs) -> anyhow::Result<Value> {
    let mut topology = if from.is_empty() { live(name, namespace, args)? } else { dumped(name, namespace, from)? };
    Ok(topology["spec"].take())
}

fn live(name: &str, namespace: &str, args: &ConnectArgs) -> anyhow::Result<Value> {
    let path = format!("/apis/topology.openstack.org/v1beta1/namespaces/{namespace}/topologies/{name}");
    let found = server::run(async {
        let server = Server::new(connect(args).await?);
        server.get(&path).await
    });
    let missing = |why: String| Hinted {
        message: format!("--topology: {why}"),
        hint: "a Topology in a file is read with --from FILE; --spread-by LABEL needs none".to_owned(),
    };
    let found = found.map_err(|error| missing(format!("{error:#}")))?;
    found.ok_or_else(|| missing(format!("namespace {namespace} has no Topology {name}")).into())
}

fn dumped(name: &str, namespace: &str, from: &[PathBuf]) -> anyhow::Result<Value> {
    let dump = stead_dump::read(from, &|_, kind| kind == "Topology")?;
    for warning in &dump.warnings {
        complain("warning", warning);
    }
    // A file that somebody wrote may leave the namespace out; a dump does not.
    let of = |value: &Value| value["metadata"]["namespace"].as_str().unwrap_or(namespace).to_owned();
    let mut found = dump.items.into_iter().map(|item| item.value);
    let found = found.rfind(|v| v["metadata"]["name"] == name && of(v) == namespace);
    found.ok_or_else(|| anyhow!("--topology: the files have no Topology {name} for namespace {namespace}"))
}
