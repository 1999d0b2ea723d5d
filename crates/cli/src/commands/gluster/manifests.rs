//! `stead gluster manifests`: the objects of a pool.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use serde_json::{Value, json};
use stead_manifests::gluster::{self, Network, Pool, PoolStorageClass, Privilege, Spread};

use super::{check, topology};
use crate::args::{GlusterManifestsArgs, ManifestFormat, PoolValues};
use crate::output::{self, Outcome, complain};
use crate::version;

pub(crate) fn run(args: GlusterManifestsArgs) -> anyhow::Result<Outcome> {
    let values = match &args.file {
        Some(path) => args.values.over(read(path)?),
        None => args.values,
    };
    let topology = values.topology.clone();
    let mut pool = pool(values)?;
    if let Some(name) = topology {
        let place = topology::Place { from: &args.from, limit: args.limit, connect: &args.connect };
        pool.spread = Spread::Topology(topology::read(&name, &pool.namespace, &place)?);
    }
    let version = match args.kubernetes {
        None if args.check => version::choose(None, &check::version(&args.connect)?),
        given => given.map(|version| version.used).unwrap_or_default(),
    };
    if pool.policy && !version::has_admission_policies(version) {
        pool.policy = false;
        version::tell_unchecked(version, gluster::UNCHECKED);
    }
    let checked = gluster::check(&pool).map_err(|fault| anyhow!("--{}: {}", fault.flag, fault.text))?;
    for warning in &checked.warnings {
        complain("warning", warning);
    }
    let manifests = gluster::pool(&pool);
    if args.check {
        check::run(&pool, &manifests, &args.connect)?;
    }
    print(manifests.into_iter().map(|m| m.object).collect(), args.output)?;
    Ok(Outcome::Yes)
}

fn read(path: &Path) -> anyhow::Result<PoolValues> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    if text.trim().is_empty() {
        return Ok(PoolValues::default());
    }
    serde_saphyr::from_str(&text)
        .map_err(|error| anyhow!("{}: {}", path.display(), output::first_line(&error.to_string())))
}

fn pool(values: PoolValues) -> anyhow::Result<Pool> {
    let default = Pool::default();
    let name = values.name.unwrap_or(default.name);
    if values.topology.is_some() && values.spread_by.is_some() {
        return Err(anyhow!("--spread-by: cannot be used with --topology, which also spreads the pods"));
    }
    if values.storage_class_parameters.is_some() && values.storage_class_provisioner.is_none() {
        return Err(anyhow!("--storage-class-parameters: needs --storage-class-provisioner, which creates the class"));
    }
    let parameters = values.storage_class_parameters.unwrap_or_default().0;
    Ok(Pool {
        service: values.service.unwrap_or_else(|| name.clone()),
        name,
        namespace: values.namespace.unwrap_or(default.namespace),
        create_namespace: values.create_namespace,
        replicas: values.replicas.unwrap_or(default.replicas),
        image: values.image.unwrap_or(default.image),
        stead_image: values.stead_image.unwrap_or(default.stead_image),
        storage_class: values.storage_class,
        state_storage_class: values.state_storage_class,
        new_class: values.storage_class_provisioner.map(|provisioner| PoolStorageClass { provisioner, parameters }),
        brick_size: values.brick_size.unwrap_or(default.brick_size),
        state_size: values.state_size.unwrap_or(default.state_size),
        state_claim: values.state_claim.unwrap_or(default.state_claim),
        brick_claim: values.brick_claim.unwrap_or(default.brick_claim),
        brick_path: values.brick_path.unwrap_or(default.brick_path),
        spread: values.spread_by.map_or(Spread::Nodes, Spread::Label),
        node_selector: values.node_selector.unwrap_or_default().0,
        network: if values.host_network { Network::Host } else { Network::Pod },
        privilege: if values.unprivileged { Privilege::Capabilities } else { Privilege::Privileged },
        openshift: values.openshift,
        policy: !values.no_policy,
        startup: values.startup.unwrap_or_default().over(default.startup),
        liveness: values.liveness.unwrap_or_default().over(default.liveness),
        readiness: values.readiness.unwrap_or_default().over(default.readiness),
        grace_seconds: values.grace_seconds.unwrap_or(default.grace_seconds),
        requests: values.requests.map_or(default.requests, |amounts| amounts.0),
        limits: values.limits.unwrap_or_default().0,
        cluster_domain: values.cluster_domain.unwrap_or(default.cluster_domain),
        agent_port: values.agent_port.unwrap_or(default.agent_port),
        allow_clients: values.allow_clients.map_or(default.allow_clients, |sources| sources.0),
        allow_agents: values.allow_agents.map_or(default.allow_agents, |sources| sources.0),
    })
}

fn print(objects: Vec<Value>, format: ManifestFormat) -> anyhow::Result<()> {
    match format {
        ManifestFormat::Json => output::json(&json!({"apiVersion": "v1", "kind": "List", "items": objects})),
        ManifestFormat::Yaml => {
            for object in &objects {
                output::text("---\n")?;
                output::yaml(object)?;
            }
            Ok(())
        }
    }
}
