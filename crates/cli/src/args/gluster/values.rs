//! The values of a pool, as flags or in a file under the same names.

use std::collections::BTreeMap;
use std::str::FromStr;

use clap::Args;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use stead_manifests::gluster::{Probe, Source};

/// The values of a pool. A missing value has a default.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct PoolValues {
    /// Name of the StatefulSet and its related objects [default: glusterfs]
    #[arg(long, value_name = "NAME", help_heading = "Pool")]
    pub(crate) name: Option<String>,

    /// Namespace of the pool [default: default]
    #[arg(short, long, value_name = "NAMESPACE", help_heading = "Pool")]
    pub(crate) namespace: Option<String>,

    /// Create the namespace too, with permission for privileged pods
    #[arg(long, help_heading = "Pool")]
    pub(crate) create_namespace: bool,

    /// Name of the headless Service [default: the name of the pool]
    #[arg(long, value_name = "NAME", help_heading = "Pool")]
    pub(crate) service: Option<String>,

    /// Number of peers; an odd number is best [default: 3]
    #[arg(long, value_name = "COUNT", help_heading = "Pool")]
    pub(crate) replicas: Option<u32>,

    /// Image with glusterd and gluster, by its version or digest; required
    #[arg(long, value_name = "IMAGE", help_heading = "Pool")]
    pub(crate) image: Option<String>,

    /// Image that the agent is copied from [default: stead:VERSION]
    #[arg(long, value_name = "IMAGE", help_heading = "Pool")]
    pub(crate) stead_image: Option<String>,

    /// DNS domain of the cluster [default: cluster.local]
    #[arg(long, value_name = "DOMAIN", help_heading = "Pool")]
    pub(crate) cluster_domain: Option<String>,

    /// Omit the admission policy, which only a cluster administrator can create
    #[arg(long, help_heading = "Pool")]
    pub(crate) no_policy: bool,

    /// StorageClass of the brick claims [default: the cluster's default class]
    #[arg(long, value_name = "CLASS", help_heading = "Storage")]
    pub(crate) storage_class: Option<String>,

    /// StorageClass of the claims for /var/lib/glusterd [default: the class of the bricks]
    #[arg(long, value_name = "CLASS", help_heading = "Storage")]
    pub(crate) state_storage_class: Option<String>,

    /// Create the StorageClass of the bricks too, with this provisioner
    #[arg(long, value_name = "PROVISIONER", help_heading = "Storage")]
    pub(crate) storage_class_provisioner: Option<String>,

    /// Parameters of the created StorageClass, such as type=gp3,encrypted=true
    #[arg(long, value_name = "KEY=VALUE,...", help_heading = "Storage")]
    pub(crate) storage_class_parameters: Option<Amounts>,

    /// Size of a brick claim [default: 10Gi]
    #[arg(long, value_name = "SIZE", help_heading = "Storage")]
    pub(crate) brick_size: Option<String>,

    /// Size of a claim for /var/lib/glusterd [default: 1Gi]
    #[arg(long, value_name = "SIZE", help_heading = "Storage")]
    pub(crate) state_size: Option<String>,

    /// Name of the claim template for /var/lib/glusterd; a pod's claim is TEMPLATE-POD [default: glusterd]
    #[arg(long, value_name = "NAME", help_heading = "Storage")]
    pub(crate) state_claim: Option<String>,

    /// Name of the claim template for the bricks [default: bricks]
    #[arg(long, value_name = "NAME", help_heading = "Storage")]
    pub(crate) brick_claim: Option<String>,

    /// Mount path of the brick claim [default: /data/bricks]
    #[arg(long, value_name = "FOLDER", help_heading = "Storage")]
    pub(crate) brick_path: Option<String>,

    /// Place the pods by this Topology, which is read from the cluster or, with --from, from a file
    #[arg(long, value_name = "NAME", help_heading = "Placement", conflicts_with = "spread_by")]
    pub(crate) topology: Option<String>,

    /// Spread the pods evenly over the values of a node label, such as topology.kubernetes.io/zone
    #[arg(long, value_name = "LABEL", help_heading = "Placement")]
    pub(crate) spread_by: Option<String>,

    /// Required node labels, such as disk=ssd
    #[arg(long, value_name = "KEY=VALUE,...", help_heading = "Placement")]
    pub(crate) node_selector: Option<Amounts>,

    /// Use the host network, with one pod per node
    #[arg(long, help_heading = "Placement")]
    pub(crate) host_network: bool,

    /// Run the container with capabilities instead of privileged; volumes cannot be mounted inside the pods then
    #[arg(long, help_heading = "Pods")]
    pub(crate) unprivileged: bool,

    /// Let the pods use the OpenShift security context constraint `privileged`
    #[arg(long, help_heading = "Pods")]
    pub(crate) openshift: bool,

    /// Resource requests of a pod [default: cpu=100m,memory=256Mi]
    #[arg(long, value_name = "RESOURCE=AMOUNT,...", help_heading = "Pods")]
    pub(crate) requests: Option<Amounts>,

    /// Resource limits of a pod [default: no limits]
    #[arg(long, value_name = "RESOURCE=AMOUNT,...", help_heading = "Pods")]
    pub(crate) limits: Option<Amounts>,

    /// Startup probe, in seconds [default: delay=0,period=2,timeout=5,failures=60]
    #[arg(long, value_name = "TIMES", help_heading = "Pods")]
    pub(crate) startup: Option<Times>,

    /// Liveness probe, in seconds [default: delay=0,period=10,timeout=5,failures=6]
    #[arg(long, value_name = "TIMES", help_heading = "Pods")]
    pub(crate) liveness: Option<Times>,

    /// Readiness probe, in seconds: the peer is in the pool and no heal is pending [default:
    /// delay=0,period=5,timeout=5,failures=2]
    #[arg(long, value_name = "TIMES", help_heading = "Pods")]
    pub(crate) readiness: Option<Times>,

    /// Termination grace period of a pod, in seconds [default: 120]
    #[arg(long, value_name = "SECONDS", help_heading = "Pods")]
    pub(crate) grace_seconds: Option<u32>,

    /// Port of the agents [default: 24080]
    #[arg(long, value_name = "PORT", help_heading = "Pods")]
    pub(crate) agent_port: Option<u16>,

    /// Who may connect to Gluster's ports: any, none, ranges such as 10.0.0.0/8, namespace/NAME [default: any]
    #[arg(long, value_name = "FROM,...", help_heading = "Network")]
    pub(crate) allow_clients: Option<Sources>,

    /// Who may connect to the agents' port besides the pool: the API server for `stead gluster status`, Prometheus
    /// [default: none]
    #[arg(long, value_name = "FROM,...", help_heading = "Network")]
    pub(crate) allow_agents: Option<Sources>,
}

impl PoolValues {
    /// These values, and `those` where one is missing.
    pub(crate) fn over(self, those: PoolValues) -> PoolValues {
        PoolValues {
            name: self.name.or(those.name),
            namespace: self.namespace.or(those.namespace),
            create_namespace: self.create_namespace || those.create_namespace,
            service: self.service.or(those.service),
            replicas: self.replicas.or(those.replicas),
            image: self.image.or(those.image),
            stead_image: self.stead_image.or(those.stead_image),
            cluster_domain: self.cluster_domain.or(those.cluster_domain),
            no_policy: self.no_policy || those.no_policy,
            storage_class: self.storage_class.or(those.storage_class),
            state_storage_class: self.state_storage_class.or(those.state_storage_class),
            storage_class_provisioner: self.storage_class_provisioner.or(those.storage_class_provisioner),
            storage_class_parameters: self.storage_class_parameters.or(those.storage_class_parameters),
            brick_size: self.brick_size.or(those.brick_size),
            state_size: self.state_size.or(those.state_size),
            state_claim: self.state_claim.or(those.state_claim),
            brick_claim: self.brick_claim.or(those.brick_claim),
            brick_path: self.brick_path.or(those.brick_path),
            topology: self.topology.or(those.topology),
            spread_by: self.spread_by.or(those.spread_by),
            node_selector: self.node_selector.or(those.node_selector),
            host_network: self.host_network || those.host_network,
            unprivileged: self.unprivileged || those.unprivileged,
            openshift: self.openshift || those.openshift,
            requests: self.requests.or(those.requests),
            limits: self.limits.or(those.limits),
            startup: self.startup.or(those.startup),
            liveness: self.liveness.or(those.liveness),
            readiness: self.readiness.or(those.readiness),
            grace_seconds: self.grace_seconds.or(those.grace_seconds),
            agent_port: self.agent_port.or(those.agent_port),
            allow_clients: self.allow_clients.or(those.allow_clients),
            allow_agents: self.allow_agents.or(those.allow_agents),
        }
    }
}

/// Values by name: `cpu=500m,memory=1Gi`, or in a file a map.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Amounts(pub(crate) BTreeMap<String, String>);

impl FromStr for Amounts {
    type Err = String;

    fn from_str(text: &str) -> Result<Amounts, String> {
        pairs(text).map(Amounts)
    }
}

impl<'de> Deserialize<'de> for Amounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Amounts, D::Error> {
        let map: BTreeMap<String, Value> = BTreeMap::deserialize(deserializer)?;
        let text = |(key, value): (String, Value)| match value {
            Value::String(text) => Ok((key, text)),
            // `cpu: 2` and `encrypted: true` are strings to Kubernetes.
            Value::Number(number) => Ok((key, number.to_string())),
            Value::Bool(flag) => Ok((key, flag.to_string())),
            other => Err(serde::de::Error::custom(format!("{key}: {other} is not a string"))),
        };
        map.into_iter().map(text).collect::<Result<_, _>>().map(Amounts)
    }
}

/// The times of a probe: `period=30,failures=4`, or in a file a map. Missing ones keep their default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Times {
    delay: Option<u32>,
    period: Option<u32>,
    timeout: Option<u32>,
    failures: Option<u32>,
}

impl Times {
    /// The probe with these times.
    pub(crate) fn over(self, probe: Probe) -> Probe {
        Probe {
            delay: self.delay.unwrap_or(probe.delay),
            period: self.period.unwrap_or(probe.period),
            timeout: self.timeout.unwrap_or(probe.timeout),
            failures: self.failures.unwrap_or(probe.failures),
        }
    }
}

impl FromStr for Times {
    type Err = String;

    fn from_str(text: &str) -> Result<Times, String> {
        let mut times = Times::default();
        for (name, value) in pairs(text)? {
            let field = match name.as_str() {
                "delay" => &mut times.delay,
                "period" => &mut times.period,
                "timeout" => &mut times.timeout,
                "failures" => &mut times.failures,
                _ => return Err(format!("{name} is none of delay, period, timeout, failures")),
            };
            *field = Some(value.parse().map_err(|_| format!("{name}={value} is not a number"))?);
        }
        Ok(times)
    }
}

fn pairs(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut map = BTreeMap::new();
    for pair in text.split(',') {
        let (key, value) = pair
            .split_once('=')
            .filter(|(k, _)| !k.is_empty())
            .ok_or(format!("{pair:?} is not of the form KEY=VALUE"))?;
        if map.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(format!("{key} is given twice"));
        }
    }
    Ok(map)
}

/// Where connections may come from: a list, or a text with commas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sources(pub(crate) Vec<Source>);

impl FromStr for Sources {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Sources, Self::Err> {
        Ok(Sources::of(text.split(',')))
    }
}

impl Sources {
    fn of<'a>(texts: impl Iterator<Item = &'a str>) -> Sources {
        let source = |text: &str| match text.split_once("namespace/") {
            Some(("", name)) => Source::Namespace(name.to_owned()),
            _ if text == "any" => Source::Any,
            _ => Source::Addresses(text.to_owned()),
        };
        Sources(texts.map(str::trim).filter(|text| *text != "none").map(source).collect())
    }
}

impl<'de> Deserialize<'de> for Sources {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Sources, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Text(String),
            List(Vec<String>),
        }
        Ok(match Form::deserialize(deserializer)? {
            Form::Text(text) => Sources::of(text.split(',')),
            Form::List(list) => Sources::of(list.iter().map(String::as_str)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_times_are_parsed() {
        let times = Probe { delay: 1, period: 2, timeout: 3, failures: 4 };
        let read = |text: &str| text.parse::<Times>().map(|t| t.over(times));
        assert_eq!(read("period=30"), Ok(Probe { period: 30, ..times }));
        assert_eq!(read("delay=120,failures=9"), Ok(Probe { delay: 120, failures: 9, ..times }));
        for (text, error) in [
            ("perod=1", "perod is none of delay, period, timeout, failures"),
            ("period", "\"period\" is not of the form KEY=VALUE"),
            ("period=x", "period=x is not a number"),
            ("period=1,period=2", "period is given twice"),
            ("", "\"\" is not of the form KEY=VALUE"),
        ] {
            assert_eq!(read(text), Err(error.to_owned()));
        }
    }

    #[test]
    fn sources_are_read_from_flags_and_files() {
        let both = |text: &str, yaml: &str| {
            let flag: Sources = text.parse().expect("it never fails");
            let file: PoolValues = serde_saphyr::from_str(yaml).expect("it can be read");
            assert_eq!(Some(&flag), file.allow_clients.as_ref(), "{text}");
            flag.0
        };
        assert_eq!(both("any", "allow-clients: any"), [Source::Any]);
        assert_eq!(both("none", "allow-clients: []"), Vec::<Source>::new());
        assert_eq!(
            both("10.0.0.0/8,namespace/apps", "allow-clients: [10.0.0.0/8, namespace/apps]"),
            [Source::Addresses("10.0.0.0/8".to_owned()), Source::Namespace("apps".to_owned())]
        );
    }

    #[test]
    fn flags_override_a_file() {
        let file: PoolValues = serde_saphyr::from_str(
            "name: a\nreplicas: 5\nhost-network: true\nrequests: {cpu: 2, memory: 1Gi}\nliveness: {period: 30}",
        )
        .expect("it can be read");
        let flags = PoolValues { name: Some("b".to_owned()), ..PoolValues::default() };
        let both = flags.over(file);
        assert_eq!((both.name.as_deref(), both.replicas, both.host_network), (Some("b"), Some(5), true));
        assert_eq!(both.requests, "cpu=2,memory=1Gi".parse().ok());
        assert_eq!(both.liveness, "period=30".parse().ok());
        for (wrong, said) in [("replica: 5", "replica"), ("liveness: {perod: 1}", "perod"), ("replicas: five", "five")]
        {
            let error = serde_saphyr::from_str::<PoolValues>(wrong).expect_err("it is wrong").to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
