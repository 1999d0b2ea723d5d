//! Validates the values of a pool before anything is applied.

use std::collections::BTreeMap;

use serde_json::Value;
use stead_semantics::validation;

use super::values::{Network, Pool, Probe, Source, Spread};

/// An invalid value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The name of the value, as a flag and in a values file.
    pub flag: &'static str,
    /// The problem.
    pub text: String,
}

/// The result of a successful check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// The pods of a StatefulSet have `NAME-HASH` as a label value, and the hash has up to ten characters.
const MAX_NAME: usize = validation::LABEL_MAX_LENGTH - 11;

/// glusterd keeps each brick in files named for volume, host and directory (`VOLUME.HOST.DIRECTORY.vol`). A file name
/// has at most 255 bytes; glusterd refuses to create a volume that would need more. This many are reserved for volume
/// and directory.
const RESERVED_FOR_BRICK: usize = 75;
const MAX_FILE_NAME: usize = 255;

/// An upper limit: every peer of a pool talks to every other, so no pool is this large.
const MAX_REPLICAS: u32 = 1000;

/// Half of the grace period is for leaving the pool. In the other half the Lease is released (5 s), then glusterd stops
/// (10 s) and the bricks stop (12 s).
const MIN_GRACE_SECONDS: u32 = 60;

/// One day.
const MAX_SECONDS: u32 = 86_400;

/// Checks the values of a pool. Returns the first problem, with the value to change.
pub fn check(pool: &Pool) -> Result<Checked, Fault> {
    check_names(pool)?;
    if pool.replicas == 0 {
        return Err(fault("replicas", "0 is no pool: a pool has at least one peer"));
    }
    if pool.replicas > MAX_REPLICAS {
        return Err(fault("replicas", &format!("{} is more than {MAX_REPLICAS}", pool.replicas)));
    }
    check_storage(pool)?;
    for (flag, map) in [("requests", &pool.requests), ("limits", &pool.limits)] {
        for (resource, amount) in map {
            parse_quantity(flag, &format!("{resource}="), amount)?;
        }
    }
    check_node_labels(pool)?;
    for (flag, probe) in [("startup", pool.startup), ("liveness", pool.liveness), ("readiness", pool.readiness)] {
        check_probe(flag, probe)?;
    }
    if !(MIN_GRACE_SECONDS..=MAX_SECONDS).contains(&pool.grace_seconds) {
        let text = format!("{} is not between {MIN_GRACE_SECONDS} and {MAX_SECONDS}", pool.grace_seconds);
        return Err(fault("grace-seconds", &text));
    }
    if pool.agent_port < 1024 || (24007..=24009).contains(&pool.agent_port) || pool.agent_port >= 49152 {
        let text = format!(
            "{} is not between 1024 and 49151, or it is one of glusterd's own (24007 to 24009)",
            pool.agent_port
        );
        return Err(fault("agent-port", &text));
    }
    if pool.image.is_empty() {
        let text = "name an image that contains glusterd and gluster, by its version or digest";
        return Err(fault("image", text));
    }
    for (flag, image) in [("image", &pool.image), ("stead-image", &pool.stead_image)] {
        if image.is_empty() || image.contains(char::is_whitespace) {
            return Err(fault(flag, &format!("{image:?} is not the name of an image")));
        }
    }
    for (flag, sources) in [("allow-clients", &pool.allow_clients), ("allow-agents", &pool.allow_agents)] {
        check_sources(flag, sources)?;
    }
    check_topology(pool)?;
    Ok(Checked { warnings: warnings(pool) })
}

fn fault(flag: &'static str, text: &str) -> Fault {
    Fault { flag, text: text.to_owned() }
}

fn check_names(pool: &Pool) -> Result<(), Fault> {
    check_label("name", &pool.name)?;
    if pool.name.len() > MAX_NAME {
        let text = format!(
            "{:?} has {} characters; a StatefulSet's pods need a name of at most {MAX_NAME}",
            pool.name,
            pool.name.len()
        );
        return Err(fault("name", &text));
    }
    check_label("namespace", &pool.namespace)?;
    check_label("service", &pool.service)?;
    if pool.service.starts_with(|c: char| c.is_ascii_digit()) {
        // Older API servers require names of Services to follow RFC 1035.
        return Err(fault(
            if pool.service == pool.name { "name" } else { "service" },
            &format!("{:?} begins with a digit, which a Service's name must not", pool.service),
        ));
    }
    check_subdomain("cluster-domain", &pool.cluster_domain)?;
    let host = longest_host(pool);
    let limit = MAX_FILE_NAME - RESERVED_FOR_BRICK;
    if host.len() > limit {
        let longest = [
            ("name", &pool.name),
            ("namespace", &pool.namespace),
            ("service", &pool.service),
            ("cluster-domain", &pool.cluster_domain),
        ]
        .into_iter()
        .rev()
        .max_by_key(|(_, text)| text.len())
        .map_or("name", |(flag, _)| flag);
        let text = format!(
            "the host names of peers would be as long as {host}, {} characters: glusterd uses them in file names, \
             together with volume and brick directory, and has room for a host of {limit}",
            host.len()
        );
        return Err(fault(longest, &text));
    }
    Ok(())
}

/// The longest host name of a pool, with at least two digits for the ordinal: a pool may grow.
fn longest_host(pool: &Pool) -> String {
    format!("{}-{}.{}", pool.name, pool.replicas.saturating_sub(1).max(99), pool.domain())
}

fn check_label(flag: &'static str, text: &str) -> Result<(), Fault> {
    valid(flag, text, validation::check_dns1123_label(text))
}

fn check_subdomain(flag: &'static str, text: &str) -> Result<(), Fault> {
    valid(flag, text, validation::check_dns1123_subdomain(text))
}

fn valid(flag: &'static str, text: &str, problems: Vec<String>) -> Result<(), Fault> {
    match problems.first() {
        Some(problem) => Err(Fault { flag, text: format!("{text:?}: {problem}") }),
        None => Ok(()),
    }
}

fn check_storage(pool: &Pool) -> Result<(), Fault> {
    for (flag, class) in [("storage-class", &pool.storage_class), ("state-storage-class", &pool.state_storage_class)] {
        if let Some(class) = class {
            check_subdomain(flag, class)?;
        }
    }
    if let Some(new) = &pool.new_class {
        if pool.storage_class.is_none() {
            return Err(fault("storage-class", "a class to make needs a name: say how it is called"));
        }
        let name = new.provisioner.to_lowercase();
        if new.provisioner.is_empty() || !validation::check_label_key(&name).is_empty() {
            return Err(fault(
                "storage-class-provisioner",
                &format!("{:?} is not the name of a provisioner", new.provisioner),
            ));
        }
    }
    for (flag, claim) in [("state-claim", &pool.state_claim), ("brick-claim", &pool.brick_claim)] {
        check_label(flag, claim)?;
        if claim == super::pod::PROGRAM_VOLUME {
            return Err(fault(flag, &format!("{claim} is the name of the volume with the agent's program")));
        }
    }
    if pool.state_claim == pool.brick_claim {
        return Err(fault("brick-claim", &format!("{} is the name of the other claim", pool.brick_claim)));
    }
    check_brick_path(&pool.brick_path)?;
    check_positive("brick-size", &pool.brick_size)?;
    check_positive("state-size", &pool.state_size)
}

/// Checks that the bricks' claim is not mounted over the state or the agent's program, nor within them.
fn check_brick_path(path: &str) -> Result<(), Fault> {
    let folders: Vec<&str> = path.split('/').filter(|f| !f.is_empty() && *f != ".").collect();
    let is_in = |taken: &str| {
        let taken: Vec<&str> = taken.split('/').filter(|f| !f.is_empty()).collect();
        folders.starts_with(&taken) || taken.starts_with(&folders)
    };
    let taken = [super::STATE_PATH, super::pod::PROGRAM_FOLDER].into_iter().any(is_in);
    if !path.starts_with('/') || folders.contains(&"..") || path.contains([':', ' ']) || taken {
        return Err(fault("brick-path", &format!("{path:?} cannot be the directory for bricks")));
    }
    Ok(())
}

fn parse_quantity(flag: &'static str, what: &str, text: &str) -> Result<stead_semantics::Quantity, Fault> {
    let unreadable = |error| Fault { flag, text: format!("{what}{text} cannot be read: {error}") };
    // `Quantity` accepts an empty number as zero; that is never intended.
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '+') {
        return Err(fault(flag, &format!("{what}{text:?} is not a quantity such as 10Gi or 500m")));
    }
    stead_semantics::Quantity::parse(text).map_err(unreadable)
}

fn check_positive(flag: &'static str, text: &str) -> Result<(), Fault> {
    if parse_quantity(flag, "", text)?.is_zero() {
        return Err(fault(flag, &format!("{text}: must be greater than zero")));
    }
    Ok(())
}

fn check_sources(flag: &'static str, sources: &[Source]) -> Result<(), Fault> {
    for source in sources {
        match source {
            Source::Any => {}
            Source::Namespace(name) => check_label(flag, name)?,
            Source::Addresses(cidr) if is_cidr(cidr) => {}
            Source::Addresses(cidr) => {
                let text = format!("{cidr:?} is not one of: any, a range such as 10.0.0.0/8, namespace/NAME");
                return Err(fault(flag, &text));
            }
        }
    }
    Ok(())
}

fn is_cidr(text: &str) -> bool {
    let parts = text
        .split_once('/')
        .and_then(|(address, length)| Some((address.parse::<std::net::IpAddr>().ok()?, length.parse::<u8>().ok()?)));
    parts.is_some_and(|(address, length)| length <= if address.is_ipv4() { 32 } else { 128 })
}

/// Whether an image is named by its digest, or by a tag that is not `latest`.
fn is_pinned(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or(image);
    let tag = name.split_once(':').map(|(_, tag)| tag);
    image.contains("@sha256:") || tag.is_some_and(|tag| tag != "latest")
}

fn check_node_labels(pool: &Pool) -> Result<(), Fault> {
    let selector: &BTreeMap<String, String> = &pool.node_selector;
    for (key, value) in selector {
        valid("node-selector", key, validation::check_label_key(key))?;
        valid("node-selector", value, validation::check_label_value(value))?;
    }
    if let Spread::Label(key) = &pool.spread {
        valid("spread-by", key, validation::check_label_key(key))?;
    }
    Ok(())
}

fn check_probe(flag: &'static str, probe: Probe) -> Result<(), Fault> {
    let Probe { delay, period, timeout, failures } = probe;
    for (name, number, least) in
        [("delay", delay, 0), ("period", period, 1), ("timeout", timeout, 1), ("failures", failures, 1)]
    {
        if !(least..=MAX_SECONDS).contains(&number) {
            return Err(fault(flag, &format!("{name}={number} is not between {least} and {MAX_SECONDS}")));
        }
    }
    Ok(())
}

fn check_topology(pool: &Pool) -> Result<(), Fault> {
    let Spread::Topology(spec) = &pool.spread else { return Ok(()) };
    let wrong = |text: &str| Err(fault("topology", text));
    let constraints = super::placement::constraints(spec);
    let nothing = constraints.is_none_or(|c| c.as_array().is_some_and(Vec::is_empty));
    if nothing && spec["affinity"].is_null() {
        return wrong("it has neither topologySpreadConstraints nor affinity");
    }
    if constraints.is_some_and(|c| !c.is_array() || c.as_array().is_some_and(|all| !all.iter().all(Value::is_object))) {
        return wrong("spec.topologySpreadConstraints is not a list of constraints");
    }
    Ok(())
}

fn warnings(pool: &Pool) -> Vec<String> {
    let mut all = Vec::new();
    if !is_pinned(&pool.image) {
        all.push(format!(
            "image: {} has no fixed version: pods that start later may run a different version; specify a version or a digest",
            pool.image
        ));
    }
    if pool.network == Network::Host {
        all.push(
            "host-network: network policies do not apply to pods on the nodes' network; protect their ports with a firewall"
                .to_owned(),
        );
    }
    if pool.replicas.is_multiple_of(2) {
        all.push(format!(
            "replicas: {} is even: if the network splits the pool into halves, neither is a majority and nothing is \
             repaired until they are connected again; {} peers tolerate as many failures",
            pool.replicas,
            pool.replicas - 1
        ));
    }
    if let Spread::Topology(spec) = &pool.spread {
        let constraints = super::placement::constraints(spec).and_then(Value::as_array);
        all.extend(constraints.into_iter().flatten().filter_map(|c| warn_of_other_pods(c, pool)));
    }
    all
}

/// Returns a warning about a constraint that was written for another service: it counts that service's pods, and would
/// allow all pods of the pool in one place.
fn warn_of_other_pods(constraint: &Value, pool: &Pool) -> Option<String> {
    let own = stead_pool::config_map::labels(&pool.name);
    let wanted = constraint["labelSelector"]["matchLabels"].as_object()?;
    let (key, value) = wanted.iter().find(|(key, value)| own.get(*key).map(String::as_str) != value.as_str())?;
    let by = constraint["topologyKey"].as_str().unwrap_or_default();
    Some(format!(
        "topology: the spread by {by} counts pods with {key}={}, not the pool's pods; remove its labelSelector to \
         count the pool's pods",
        value.as_str().unwrap_or_default()
    ))
}
