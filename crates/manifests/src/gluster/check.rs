//! What is wrong with a pool, before anything is applied.

use std::collections::BTreeMap;

use serde_json::Value;
use stead_semantics::validation;

use super::values::{Network, Pool, Probe, Source, Spread};

/// What is wrong, and with which value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The value's name, on the command line and in a file of values.
    pub flag: &'static str,
    /// What is wrong with it.
    pub text: String,
}

/// What is worth saying of a pool that can be made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// What somebody should know.
    pub warnings: Vec<String>,
}

/// A StatefulSet's pods carry `NAME-HASH` as the value of a label, and a hash has up to ten letters.
const LONGEST_NAME: usize = validation::LABEL_MAX_LENGTH - 11;

/// glusterd keeps each brick in files that are named for volume, host and directory
/// (`VOLUME.HOST.DIRECTORY.vol`), and a file's name has 255 bytes: where it would have more, it refuses to make the volume.
/// This much is left for volume and directory.
const BRICK_FILES: usize = 75;
const LONGEST_FILE_NAME: usize = 255;

/// No pool of glusterds is so large: every peer talks to every other.
const MOST_REPLICAS: u32 = 1000;

/// Half of it is for leaving the pool. In the other half the Lease is given back (5 s), then glusterd ends (10 s) and the
/// bricks do (12 s).
const SHORTEST_GRACE: u32 = 60;

/// Nobody waits for more than a day.
const LONGEST_TIME: u32 = 86_400;

/// Says what is wrong with a pool: the first thing, with the value to change.
pub fn check(pool: &Pool) -> Result<Checked, Fault> {
    names(pool)?;
    if pool.replicas == 0 {
        return Err(fault("replicas", "0 is no pool: a pool has at least one peer"));
    }
    if pool.replicas > MOST_REPLICAS {
        return Err(fault("replicas", &format!("{} is more than {MOST_REPLICAS}", pool.replicas)));
    }
    storage(pool)?;
    for (flag, map) in [("requests", &pool.requests), ("limits", &pool.limits)] {
        for (resource, amount) in map {
            quantity(flag, &format!("{resource}="), amount)?;
        }
    }
    node_labels(pool)?;
    for (flag, probe) in [("startup", pool.startup), ("liveness", pool.liveness), ("readiness", pool.readiness)] {
        times(flag, probe)?;
    }
    if !(SHORTEST_GRACE..=LONGEST_TIME).contains(&pool.grace_seconds) {
        let text = format!("{} is not between {SHORTEST_GRACE} and {LONGEST_TIME}", pool.grace_seconds);
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
            return Err(fault(flag, &format!("{image:?} is no image")));
        }
    }
    for (flag, sources) in [("allow-clients", &pool.allow_clients), ("allow-agents", &pool.allow_agents)] {
        allowed(flag, sources)?;
    }
    topology(pool)?;
    Ok(Checked { warnings: warnings(pool) })
}

fn fault(flag: &'static str, text: &str) -> Fault {
    Fault { flag, text: text.to_owned() }
}

fn names(pool: &Pool) -> Result<(), Fault> {
    label("name", &pool.name)?;
    if pool.name.len() > LONGEST_NAME {
        let text = format!(
            "{:?} has {} characters; a StatefulSet's pods need a name of at most {LONGEST_NAME}",
            pool.name,
            pool.name.len()
        );
        return Err(fault("name", &text));
    }
    label("namespace", &pool.namespace)?;
    label("service", &pool.service)?;
    if pool.service.starts_with(|c: char| c.is_ascii_digit()) {
        // Older API servers hold Services to RFC 1035.
        return Err(fault(
            if pool.service == pool.name { "name" } else { "service" },
            &format!("{:?} begins with a digit, which a Service's name must not", pool.service),
        ));
    }
    subdomain("cluster-domain", &pool.cluster_domain)?;
    let host = longest_host(pool);
    let limit = LONGEST_FILE_NAME - BRICK_FILES;
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
            "peers would be called {host}, {} characters: glusterd names files for a host, a volume and a brick's directory, \
             and has room for a host of {limit}",
            host.len()
        );
        return Err(fault(longest, &text));
    }
    Ok(())
}

/// A pool grows: two digits are for those who come later.
fn longest_host(pool: &Pool) -> String {
    format!("{}-{}.{}", pool.name, pool.replicas.saturating_sub(1).max(99), pool.domain())
}

fn label(flag: &'static str, text: &str) -> Result<(), Fault> {
    valid(flag, text, validation::check_dns1123_label(text))
}

fn subdomain(flag: &'static str, text: &str) -> Result<(), Fault> {
    valid(flag, text, validation::check_dns1123_subdomain(text))
}

fn valid(flag: &'static str, text: &str, problems: Vec<String>) -> Result<(), Fault> {
    match problems.first() {
        Some(problem) => Err(Fault { flag, text: format!("{text:?}: {problem}") }),
        None => Ok(()),
    }
}

fn storage(pool: &Pool) -> Result<(), Fault> {
    for (flag, class) in [("storage-class", &pool.storage_class), ("state-storage-class", &pool.state_storage_class)] {
        if let Some(class) = class {
            subdomain(flag, class)?;
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
                &format!("{:?} is no name of a provisioner", new.provisioner),
            ));
        }
    }
    for (flag, claim) in [("state-claim", &pool.state_claim), ("brick-claim", &pool.brick_claim)] {
        label(flag, claim)?;
        if claim == super::pod::PROGRAM_VOLUME {
            return Err(fault(flag, &format!("{claim} is the name of the volume that the agent comes in")));
        }
    }
    if pool.state_claim == pool.brick_claim {
        return Err(fault("brick-claim", &format!("{} is the name of the other claim", pool.brick_claim)));
    }
    brick_path(&pool.brick_path)?;
    positive("brick-size", &pool.brick_size)?;
    positive("state-size", &pool.state_size)
}

/// The bricks' claim is mounted where nothing else is: not over the state or the agent's program, nor within them.
fn brick_path(path: &str) -> Result<(), Fault> {
    let folders: Vec<&str> = path.split('/').filter(|f| !f.is_empty() && *f != ".").collect();
    let is_in = |taken: &str| {
        let taken: Vec<&str> = taken.split('/').filter(|f| !f.is_empty()).collect();
        folders.starts_with(&taken) || taken.starts_with(&folders)
    };
    let taken = [super::STATE_PATH, super::pod::PROGRAM_FOLDER].into_iter().any(is_in);
    if !path.starts_with('/') || folders.contains(&"..") || path.contains([':', ' ']) || taken {
        return Err(fault("brick-path", &format!("{path:?} is no folder for bricks")));
    }
    Ok(())
}

fn quantity(flag: &'static str, what: &str, text: &str) -> Result<stead_semantics::Quantity, Fault> {
    let unreadable = |error| Fault { flag, text: format!("{what}{text} cannot be read: {error}") };
    // The language of quantities takes an empty number for zero; nobody means that.
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '+') {
        return Err(fault(flag, &format!("{what}{text:?} is no quantity such as 10Gi or 500m")));
    }
    stead_semantics::Quantity::parse(text).map_err(unreadable)
}

fn positive(flag: &'static str, text: &str) -> Result<(), Fault> {
    if quantity(flag, "", text)?.is_zero() {
        return Err(fault(flag, &format!("{text} is nothing")));
    }
    Ok(())
}

fn allowed(flag: &'static str, sources: &[Source]) -> Result<(), Fault> {
    for source in sources {
        match source {
            Source::Any => {}
            Source::Namespace(name) => label(flag, name)?,
            Source::Addresses(cidr) if is_cidr(cidr) => {}
            Source::Addresses(cidr) => {
                let text = format!("{cidr:?} is none of: any, a range such as 10.0.0.0/8, namespace/NAME");
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

fn node_labels(pool: &Pool) -> Result<(), Fault> {
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

fn times(flag: &'static str, probe: Probe) -> Result<(), Fault> {
    let Probe { delay, period, timeout, failures } = probe;
    for (name, number, least) in
        [("delay", delay, 0), ("period", period, 1), ("timeout", timeout, 1), ("failures", failures, 1)]
    {
        if !(least..=LONGEST_TIME).contains(&number) {
            return Err(fault(flag, &format!("{name}={number} is not between {least} and {LONGEST_TIME}")));
        }
    }
    Ok(())
}

fn topology(pool: &Pool) -> Result<(), Fault> {
    let Spread::Topology(spec) = &pool.spread else { return Ok(()) };
    let wrong = |text: &str| Err(fault("topology", text));
    let constraints = super::placement::constraints(spec);
    let nothing = constraints.is_none_or(|c| c.as_array().is_some_and(Vec::is_empty));
    if nothing && spec["affinity"].is_null() {
        return wrong("it says nothing: it has neither topologySpreadConstraints nor affinity");
    }
    if constraints.is_some_and(|c| !c.is_array() || c.as_array().is_some_and(|all| !all.iter().all(Value::is_object))) {
        return wrong("spec.topologySpreadConstraints is no list of constraints");
    }
    Ok(())
}

fn warnings(pool: &Pool) -> Vec<String> {
    let mut all = Vec::new();
    if !is_pinned(&pool.image) {
        all.push(format!(
            "image: {} has no fixed version: pods that start later may run another one; name a version or a digest",
            pool.image
        ));
    }
    if pool.network == Network::Host {
        all.push(
            "host-network: network policies do not apply to pods on the nodes' network; let a firewall protect their ports"
                .to_owned(),
        );
    }
    if pool.replicas.is_multiple_of(2) {
        all.push(format!(
            "replicas: {} is even: if the pool is cut in halves, neither is a majority and nothing is repaired until \
             they meet again; {} peers outlive as many losses",
            pool.replicas,
            pool.replicas - 1
        ));
    }
    if let Spread::Topology(spec) = &pool.spread {
        let constraints = super::placement::constraints(spec).and_then(Value::as_array);
        all.extend(constraints.into_iter().flatten().filter_map(|c| counts_others(c, pool)));
    }
    all
}

/// A constraint that was written for another service counts that one's pods, and lets all of ours stand in one place.
fn counts_others(constraint: &Value, pool: &Pool) -> Option<String> {
    let own = stead_pool::config_map::labels(&pool.name);
    let wanted = constraint["labelSelector"]["matchLabels"].as_object()?;
    let (key, value) = wanted.iter().find(|(key, value)| own.get(*key).map(String::as_str) != value.as_str())?;
    let by = constraint["topologyKey"].as_str().unwrap_or_default();
    Some(format!(
        "topology: the spread by {by} counts pods with {key}={}, and the pool's pods are none of those: without a \
         labelSelector it would count them",
        value.as_str().unwrap_or_default()
    ))
}
