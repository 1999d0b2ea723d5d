//! The resources of pods and nodes.
//!
//! Amounts are stored in thousandths, as integers: kube-apiserver rounds every amount of a pod up to that precision, so
//! their sums are exact.

use std::collections::BTreeMap;
use std::fmt::Display;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as RawQuantity;
use stead_semantics::quantity::Quantity;

use crate::error::{FieldError, FieldResult, Under};
use crate::version_rules::VersionRules;

/// The cpu that kube-scheduler assumes for a container without a cpu request when it scores (100m).
const DEFAULT_MILLI_CPU: i128 = 100;
/// The memory that kube-scheduler assumes for a container without a memory request when it scores (200Mi).
const DEFAULT_MEMORY: i128 = 200 * 1024 * 1024 * 1000;

/// Amounts by resource name, in thousandths, sorted by name. There are few names and many sums, so this is a list with
/// borrowed names instead of a map.
#[derive(Debug, Clone, Default)]
struct Amounts<'a>(Vec<(&'a str, i128)>);

impl<'a> Amounts<'a> {
    fn get(&self, name: &str) -> Option<i128> {
        self.0.iter().find(|(n, _)| *n == name).map(|(_, amount)| *amount)
    }

    /// A mutable reference to the amount of a resource, inserted if absent.
    fn or_insert(&mut self, name: &'a str, amount: i128) -> &mut i128 {
        let at = self.0.binary_search_by_key(&name, |(n, _)| n).unwrap_or_else(|at| {
            self.0.insert(at, (name, amount));
            at
        });
        &mut self.0[at].1
    }

    /// Adds the amounts of another list.
    fn add(&mut self, more: &Amounts<'a>) {
        for (name, amount) in &more.0 {
            *self.or_insert(name, 0) += amount;
        }
    }

    /// Takes the larger of each amount.
    fn max(&mut self, other: &Amounts<'a>) {
        for (name, amount) in &other.0 {
            let own = self.or_insert(name, *amount);
            *own = (*own).max(*amount);
        }
    }
}

type RawList = BTreeMap<String, RawQuantity>;

/// Amounts of the resources that kube-scheduler counts (its `framework.Resource`).
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resources {
    /// Thousandths of a cpu.
    pub milli_cpu: i64,
    /// Bytes of memory.
    pub memory: i64,
    /// Bytes of local disk.
    pub ephemeral_storage: i64,
    /// Extended resources, huge pages and other scalar resources, sorted by name.
    pub scalars: Vec<(Box<str>, i64)>,
}

/// A resource that kube-scheduler counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceName {
    /// `cpu`.
    Cpu,
    /// `memory`.
    Memory,
    /// `ephemeral-storage`.
    EphemeralStorage,
    /// An extended resource, huge pages or another scalar resource.
    Scalar(Box<str>),
}

impl ResourceName {
    /// The name as in a pod's requests.
    pub fn as_str(&self) -> &str {
        match self {
            ResourceName::Cpu => "cpu",
            ResourceName::Memory => "memory",
            ResourceName::EphemeralStorage => "ephemeral-storage",
            ResourceName::Scalar(name) => name,
        }
    }
}

impl Display for ResourceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Resources {
    /// The amount of a resource: thousandths of a cpu, bytes, or a number.
    pub fn amount(&self, name: &ResourceName) -> i64 {
        match name {
            ResourceName::Cpu => self.milli_cpu,
            ResourceName::Memory => self.memory,
            ResourceName::EphemeralStorage => self.ephemeral_storage,
            ResourceName::Scalar(name) => self.scalar(name),
        }
    }

    /// The amount of a scalar resource; zero if absent.
    pub fn scalar(&self, name: &str) -> i64 {
        self.scalars.binary_search_by(|(n, _)| (**n).cmp(name)).map_or(0, |i| self.scalars[i].1)
    }

    /// Whether all amounts are zero.
    pub fn is_zero(&self) -> bool {
        self.milli_cpu == 0 && self.memory == 0 && self.ephemeral_storage == 0 && self.scalars.is_empty()
    }

    pub(crate) fn add(&mut self, other: &Resources, sign: i64) {
        self.milli_cpu = self.milli_cpu.wrapping_add(sign * other.milli_cpu);
        self.memory = self.memory.wrapping_add(sign * other.memory);
        self.ephemeral_storage = self.ephemeral_storage.wrapping_add(sign * other.ephemeral_storage);
        for (name, amount) in &other.scalars {
            match self.scalars.binary_search_by(|(n, _)| n.cmp(name)) {
                Ok(i) => self.scalars[i].1 = self.scalars[i].1.wrapping_add(sign * amount),
                Err(i) => self.scalars.insert(i, (name.clone(), sign * amount)),
            }
        }
    }

    fn from_amounts(amounts: &Amounts<'_>) -> Resources {
        let mut out = Resources::default();
        for (name, amount) in &amounts.0 {
            match *name {
                "cpu" => out.milli_cpu = clamp(*amount),
                "memory" => out.memory = whole(*amount),
                "ephemeral-storage" => out.ephemeral_storage = whole(*amount),
                other if is_scalar(other) => out.scalars.push((other.into(), whole(*amount))),
                _ => {}
            }
        }
        out
    }
}

/// A pod's resources as the filter, the accounting of its node, and the score plugins see them.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodResources {
    /// What NodeResourcesFit compares with a node's free resources.
    pub requests: Resources,
    /// What the pod uses on its node; differs from `requests` during a resize.
    pub taken: Resources,
    /// Thousandths of a cpu for NodeResourcesFit's score; never zero for a container.
    pub taken_nonzero_cpu: i64,
    /// Bytes of memory for NodeResourcesFit's score; never zero for a container.
    pub taken_nonzero_memory: i64,
    /// Cpu and memory as NodeResourcesFit's score sees the pod before it is placed.
    pub fit_score: (i64, i64),
    /// Cpu and memory as NodeResourcesBalancedAllocation sees the pod before it is placed.
    pub balance_score: (i64, i64),
}

fn clamp(n: i128) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Whole units, rounded up.
fn whole(milli: i128) -> i64 {
    clamp(milli.div_euclid(1000) + i128::from(milli.rem_euclid(1000) != 0))
}

/// Whether kube-scheduler counts the resource as a scalar (`IsScalarResourceName`).
fn is_scalar(name: &str) -> bool {
    name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-")
        || name.contains("kubernetes.io/")
        || (name.contains('/') && !name.starts_with("requests."))
}

pub(crate) fn quantity(q: &RawQuantity, field: impl std::fmt::Display) -> FieldResult<Quantity> {
    Quantity::parse(&q.0).map_err(|e| FieldError::new(field.to_string(), format!("{:?}: {e}", q.0)))
}

fn amounts<'a>(list: Option<&'a RawList>, field: &str) -> FieldResult<Amounts<'a>> {
    let mut out = Vec::with_capacity(list.map_or(0, BTreeMap::len));
    for (name, raw) in list.into_iter().flatten() {
        let q = quantity(raw, format_args!("{field}[{name}]"))?;
        if q.signum() < 0 {
            return Err(FieldError::new(
                format!("{field}[{name}]"),
                format!("Invalid value: {:?}: must be greater than or equal to 0", raw.0),
            ));
        }
        let value = i128::from(q.value());
        // Larger amounts in thousandths exceed Kubernetes' 64 bits; Kubernetes then uses whole units.
        let milli = if value > i128::from(i64::MAX / 1000) { value * 1000 } else { i128::from(q.milli_value()) };
        out.push((name.as_str(), milli));
    }
    Ok(Amounts(out))
}

/// A node's allocatable resources and its maximum number of pods.
pub(crate) fn allocatable(list: Option<&RawList>) -> FieldResult<(Resources, i64)> {
    let amounts = amounts(list, "allocatable").under("status")?;
    Ok((Resources::from_amounts(&amounts), amounts.get("pods").map_or(0, whole)))
}

/// A container's resources, with kube-apiserver's defaults applied.
struct Share<'a> {
    requests: Amounts<'a>,
    limits: Amounts<'a>,
    /// What the kubelet reports: resources in effect and allocated resources.
    reported: Option<(Amounts<'a>, Amounts<'a>)>,
    sidecar: bool,
}

fn share<'a>(c: &'a Container, field: impl Display, statuses: &[&'a ContainerStatus]) -> FieldResult<Share<'a>> {
    let r = c.resources.as_ref();
    let limits = amounts(r.and_then(|r| r.limits.as_ref()), "limits").under("resources").under(&field)?;
    let mut requests = amounts(r.and_then(|r| r.requests.as_ref()), "requests").under("resources").under(field)?;
    // kube-apiserver: a limit without a request is also the request.
    for (name, amount) in &limits.0 {
        requests.or_insert(name, *amount);
    }
    let reported = match statuses.iter().rfind(|s| s.name == c.name).and_then(|s| s.resources.as_ref().map(|r| (s, r)))
    {
        None => None,
        Some((s, r)) => Some((
            amounts(r.requests.as_ref(), "requests")
                .under(format_args!("status.containerStatuses[{}].resources", c.name))?,
            amounts(s.allocated_resources.as_ref(), "allocatedResources")
                .under(format_args!("status.containerStatuses[{}]", c.name))?,
        )),
    };
    Ok(Share { requests, limits, reported, sidecar: c.restart_policy.as_deref() == Some("Always") })
}

/// How a pod's requests are summed (`PodResourcesOptions` of Kubernetes' resource helpers).
#[derive(Clone, Copy, Default)]
struct Options {
    /// Use the resources that the kubelet reports, for pods during a resize.
    use_status: bool,
    /// Ignore pod-level resources.
    skip_pod_level: bool,
    /// Use defaults for containers without a cpu or memory request.
    default_cpu: bool,
    default_memory: bool,
}

struct Shares<'a> {
    containers: Vec<Share<'a>>,
    init: Vec<Share<'a>>,
    /// Pod-level requests, with the values that the kubelet reports.
    whole: Option<Amounts<'a>>,
    whole_reported: Option<(Amounts<'a>, Amounts<'a>)>,
    overhead: Amounts<'a>,
    resize_infeasible: bool,
}

impl<'a> Shares<'a> {
    fn effective(&self, spec: &Amounts<'a>, reported: Option<&(Amounts<'a>, Amounts<'a>)>, o: Options) -> Amounts<'a> {
        match reported {
            Some((actual, granted)) if o.use_status => {
                let mut list = actual.clone();
                list.max(granted);
                if !self.resize_infeasible {
                    list.max(spec);
                }
                list
            }
            _ => spec.clone(),
        }
    }

    fn of_container(&self, s: &Share<'a>, o: Options) -> Amounts<'a> {
        // The status of an init container counts only for sidecars.
        let mut list = self.effective(&s.requests, s.reported.as_ref(), o);
        if o.default_cpu {
            list.or_insert("cpu", DEFAULT_MILLI_CPU);
        }
        if o.default_memory {
            list.or_insert("memory", DEFAULT_MEMORY);
        }
        list
    }

    /// The sum over containers and sidecars, or the maximum of an init container if that is larger.
    fn of_containers(&self, o: Options) -> Amounts<'a> {
        let mut total = Amounts::default();
        for s in &self.containers {
            total.add(&self.of_container(s, o));
        }
        let (mut sidecars, mut starting) = (Amounts::default(), Amounts::default());
        for s in &self.init {
            if s.sidecar {
                let own = self.of_container(s, o);
                total.add(&own);
                sidecars.add(&own);
                starting.max(&sidecars);
            } else {
                let mut own = self.of_container(s, Options { use_status: false, ..o });
                own.add(&sidecars);
                starting.max(&own);
            }
        }
        total.max(&starting);
        total
    }

    /// Cpu and memory of the containers or of an init container if that is larger, with a default for each that has no
    /// request. Sidecars count only beside init containers.
    fn nonzero_without_sidecars(&self) -> (i64, i64) {
        let nonzero = |list: &Amounts<'_>| {
            let (cpu, memory) = (list.get("cpu"), list.get("memory"));
            (clamp(cpu.unwrap_or(DEFAULT_MILLI_CPU)), whole(memory.unwrap_or(DEFAULT_MEMORY)))
        };
        let (mut cpu, mut memory) = (0_i64, 0_i64);
        for s in &self.containers {
            let own = nonzero(&s.requests);
            (cpu, memory) = (cpu.wrapping_add(own.0), memory.wrapping_add(own.1));
        }
        let mut sidecars = Amounts::default();
        for s in &self.init {
            let mut own = s.requests.clone();
            own.add(&sidecars);
            if s.sidecar {
                sidecars = own.clone();
            }
            let own = nonzero(&own);
            (cpu, memory) = (cpu.max(own.0), memory.max(own.1));
        }
        let extra = |name: &str| self.overhead.get(name).unwrap_or(0);
        (cpu.wrapping_add(clamp(extra("cpu"))), memory.wrapping_add(whole(extra("memory"))))
    }

    fn total(&self, o: Options) -> Amounts<'a> {
        let mut total = self.of_containers(o);
        if let (Some(whole), false) = (&self.whole, o.skip_pod_level) {
            let effective = self.effective(whole, self.whole_reported.as_ref(), o);
            for (name, _) in whole.0.iter().filter(|(n, _)| is_pod_level(n)) {
                *total.or_insert(name, 0) = effective.get(name).unwrap_or(0);
            }
        }
        total.add(&self.overhead);
        total
    }
}

/// The resources that are supported at pod level.
fn is_pod_level(name: &str) -> bool {
    name == "cpu" || name == "memory" || name.starts_with("hugepages-")
}

/// The resources of a pod.
pub(crate) fn of_pod<'a>(pod: &'a Pod, rules: &VersionRules) -> FieldResult<PodResources> {
    let Some(spec) = &pod.spec else { return Ok(PodResources::default()) };
    let status = pod.status.as_ref();
    let statuses: Vec<&ContainerStatus> = status
        .iter()
        .flat_map(|s| s.container_statuses.iter().flatten().chain(s.init_container_statuses.iter().flatten()))
        .collect();
    let list = |containers: &'a [Container], name: &str| -> FieldResult<Vec<Share<'a>>> {
        containers.iter().enumerate().map(|(i, c)| share(c, format_args!("spec.{name}[{i}]"), &statuses)).collect()
    };
    let mut shares = Shares {
        containers: list(&spec.containers, "containers")?,
        init: list(spec.init_containers.as_deref().unwrap_or_default(), "initContainers")?,
        whole: None,
        whole_reported: None,
        overhead: amounts(spec.overhead.as_ref(), "spec.overhead")?,
        resize_infeasible: status
            .and_then(|s| s.conditions.as_ref()?.iter().find(|c| c.type_ == "PodResizePending"))
            .is_some_and(|c| c.reason.as_deref() == Some("Infeasible")),
    };
    if let Some(r) = spec.resources.as_ref().filter(|_| rules.pod_level_resources) {
        let mut requests = amounts(r.requests.as_ref(), "spec.resources.requests")?;
        let limits = amounts(r.limits.as_ref(), "spec.resources.limits")?;
        default_pod_level(&shares, &mut requests, limits);
        if requests.0.iter().any(|(n, _)| is_pod_level(n)) {
            shares.whole = Some(requests);
        }
        if let Some(s) = status.filter(|s| s.resources.is_some() && rules.pod_level_report) {
            let actual = s.resources.as_ref().and_then(|r| r.requests.as_ref());
            shares.whole_reported = Some((
                amounts(actual, "status.resources.requests")?,
                amounts(s.allocated_resources.as_ref(), "status.allocatedResources")?,
            ));
        }
    }
    let cpu_memory = |list: &Amounts<'_>| (clamp(list.get("cpu").unwrap_or(0)), whole(list.get("memory").unwrap_or(0)));
    let use_status = rules.resize_report;
    let taken = shares.total(Options { use_status, ..Options::default() });
    let nonzero = shares.total(Options {
        use_status,
        default_cpu: shares.whole.is_none() || taken.get("cpu").is_none(),
        default_memory: shares.whole.is_none() || taken.get("memory").is_none(),
        ..Options::default()
    });
    let (taken_nonzero_cpu, taken_nonzero_memory) =
        if rules.scores_sidecars { cpu_memory(&nonzero) } else { shares.nonzero_without_sidecars() };
    Ok(PodResources {
        requests: Resources::from_amounts(&shares.total(Options::default())),
        // NodeResourcesFit's scorer is created without the pod-level feature, so it uses only the containers.
        fit_score: cpu_memory(&shares.total(Options {
            skip_pod_level: true,
            default_cpu: true,
            default_memory: true,
            use_status: false,
        })),
        balance_score: cpu_memory(&taken),
        taken: Resources::from_amounts(&taken),
        taken_nonzero_cpu,
        taken_nonzero_memory,
    })
}

/// kube-apiserver's defaults for pod-level resources: limits of huge pages from the containers, and requests from the
/// containers or else from the limits.
fn default_pod_level<'a>(shares: &Shares<'a>, requests: &mut Amounts<'a>, mut limits: Amounts<'a>) {
    if requests.0.is_empty() && limits.0.is_empty() {
        return;
    }
    for (name, amount) in container_limits(shares).0 {
        if name.starts_with("hugepages-") && requests.get(name).is_none() {
            limits.or_insert(name, amount);
        }
    }
    if limits.0.is_empty() {
        return;
    }
    for (name, amount) in shares.of_containers(Options::default()).0 {
        if name == "cpu" || name == "memory" {
            requests.or_insert(name, amount);
        }
    }
    for (name, amount) in limits.0 {
        if is_pod_level(name) {
            requests.or_insert(name, amount);
        }
    }
}

fn container_limits<'a>(shares: &Shares<'a>) -> Amounts<'a> {
    let mut total = Amounts::default();
    for s in &shares.containers {
        total.add(&s.limits);
    }
    let (mut sidecars, mut starting) = (Amounts::default(), Amounts::default());
    for s in &shares.init {
        let mut own = s.limits.clone();
        if s.sidecar {
            total.add(&own);
            sidecars.add(&own);
            own = sidecars.clone();
        } else {
            own.add(&sidecars);
        }
        starting.max(&own);
    }
    total.max(&starting);
    total
}

/// The storage of a claim or a volume, exactly.
pub(crate) fn storage(list: Option<&RawList>, field: &str) -> FieldResult<Option<Quantity>> {
    list.and_then(|l| l.get("storage")).map(|q| quantity(q, format_args!("{field}[storage]"))).transpose()
}
