//! The Topology that places the pods of a pool.

use std::path::PathBuf;

use anyhow::anyhow;
use serde_json::Value;

use crate::args::DumpLimitArgs;
use crate::cluster::read_dump;
use crate::connect::{ConnectArgs, connect};
use crate::live_object::LiveObject;
use crate::output::Hinted;
use crate::server::{self, Server};

/// Where a Topology is read from: files, if there are any, or else the cluster.
pub(crate) struct Place<'a> {
    pub(crate) from: &'a [PathBuf],
    pub(crate) limit: DumpLimitArgs,
    pub(crate) connect: &'a ConnectArgs,
}

/// The spec of a Topology.
pub(crate) fn read(name: &str, namespace: &str, place: &Place<'_>) -> anyhow::Result<Value> {
    let live = || live(name, namespace, place.connect);
    let mut topology = if place.from.is_empty() { live()? } else { dumped(name, namespace, place)? };
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
        hint: "use --from FILE for a Topology in a file, or --spread-by LABEL without a Topology".to_owned(),
    };
    let found = found.map_err(|error| missing(format!("{error:#}")))?;
    found.ok_or_else(|| missing(format!("namespace {namespace} has no Topology {name}")).into())
}

fn dumped(name: &str, namespace: &str, place: &Place<'_>) -> anyhow::Result<Value> {
    let dump = read_dump(place.from, place.limit, &|_, kind| kind == "Topology")?;
    // A file written by hand may omit the namespace; a dump does not.
    let is_wanted = |value: &Value| {
        let object = LiveObject::read("topology", value);
        object.is_ok_and(|o| o.name() == name && o.metadata.namespace.as_deref().unwrap_or(namespace) == namespace)
    };
    let found = dump.items.into_iter().map(|item| item.value()).rfind(is_wanted);
    found.ok_or_else(|| anyhow!("--topology: the files have no Topology {name} for namespace {namespace}"))
}
