//! Metrics for Prometheus.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use stead_explain::topology::ServiceStatus;
use stead_loops::Store;
use stead_model::reported_conditions;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKind {
    kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result {
    kind: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Written {
    kind: String,
    verb: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    verb: &'static str,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Condition {
    kind: String,
    condition: String,
    status: String,
}

/// Pods of a service in a zone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InZone {
    namespace: String,
    kind: String,
    name: String,
    zone: String,
}

/// The Topology of a service.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UsedTopology {
    namespace: String,
    kind: String,
    name: String,
    topology: String,
}

/// Stuck pods of a service.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StuckPods {
    namespace: String,
    kind: String,
    name: String,
    cause: String,
}

/// The most services, and the most zones of a service, that metrics name: their number is limited whatever the cluster has.
const MAX_SERVICES: usize = 300;
const MAX_ZONES: usize = 16;

/// The upper bounds of the buckets of durations, in seconds.
const BUCKETS: [f64; 10] = [0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// All metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    reconciles: Family<Result, Counter>,
    errors: Family<ByKind, Counter>,
    durations: Family<ByKind, Histogram, fn() -> Histogram>,
    writes: Family<Written, Counter>,
    requests: Family<Answered, Counter>,
    queue: Gauge,
    leader: Gauge,
    objects: Family<Condition, Gauge>,
    companion: Family<ByKind, Gauge>,
    service_pods: Family<InZone, Gauge>,
    service_satisfiable: Family<UsedTopology, Gauge>,
    service_stuck: Family<StuckPods, Gauge>,
    services_left_out: Gauge,
    services_observed: Gauge,
}

impl Metrics {
    /// Metrics that count from zero.
    pub(crate) fn new() -> Metrics {
        let mut metrics = Metrics {
            registry: Registry::with_prefix("stead"),
            reconciles: Family::default(),
            errors: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            writes: Family::default(),
            requests: Family::default(),
            queue: Gauge::default(),
            leader: Gauge::default(),
            objects: Family::default(),
            companion: Family::default(),
            service_pods: Family::default(),
            service_satisfiable: Family::default(),
            service_stuck: Family::default(),
            services_left_out: Gauge::default(),
            services_observed: Gauge::default(),
        };
        let r = &mut metrics.registry;
        r.register("reconciles", "Reconciliations by result", metrics.reconciles.clone());
        r.register("errors", "Reconciliations that ended with a failed request", metrics.errors.clone());
        r.register(
            "reconcile_duration_seconds",
            "Duration of reconciliations, writes included",
            metrics.durations.clone(),
        );
        r.register("writes", "Writes that changed something, by kind", metrics.writes.clone());
        r.register("requests", "Requests by status code; 0 for no response", metrics.requests.clone());
        r.register("queue_length", "Objects that are due", metrics.queue.clone());
        r.register("leader", "Whether this process leads", metrics.leader.clone());
        r.register("objects", "Objects by condition and status", metrics.objects.clone());
        r.register("companion", "Kinds whose CRD belongs to somebody else", metrics.companion.clone());
        r.register("service_pods", "Pods of a service that have a node, by zone", metrics.service_pods.clone());
        r.register(
            "service_topology_satisfiable",
            "Whether the nodes can satisfy the Topology that a service uses",
            metrics.service_satisfiable.clone(),
        );
        r.register("service_stuck_pods", "Stuck pods of a service, by cause", metrics.service_stuck.clone());
        r.register(
            "services_left_out",
            "Services beyond the number that metrics name",
            metrics.services_left_out.clone(),
        );
        r.register(
            "services_observed_timestamp_seconds",
            "When services were last observed; 0 if this process does not observe them",
            metrics.services_observed.clone(),
        );
        let info = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        r.register("build", "Version", info);
        metrics
    }

    /// A reconciliation ended.
    pub(crate) fn reconciled(&self, kind: &str, result: &'static str, took: Duration) {
        let kind = kind.to_owned();
        if result == "error" {
            self.errors.get_or_create(&ByKind { kind: kind.clone() }).inc();
        }
        self.durations.get_or_create(&ByKind { kind: kind.clone() }).observe(took.as_secs_f64());
        self.reconciles.get_or_create(&Result { kind, result }).inc();
    }

    /// Something was written.
    pub(crate) fn wrote(&self, kind: &str, verb: &'static str) {
        self.writes.get_or_create(&Written { kind: kind.to_owned(), verb }).inc();
    }

    /// A request was answered, or failed.
    pub(crate) fn answered(&self, verb: &'static str, code: u16) {
        self.requests.get_or_create(&Answered { verb, code }).inc();
    }

    /// Whether a kind's CRD belongs to somebody else.
    pub(crate) fn companion(&self, kind: &str, foreign: bool) {
        self.companion.get_or_create(&ByKind { kind: kind.to_owned() }).set(foreign.into());
    }

    /// The services that use a Topology were observed.
    pub(crate) fn services(&self, services: &[ServiceStatus], now: Timestamp) {
        self.no_services();
        let (named, left_out) = services.split_at(services.len().min(MAX_SERVICES));
        for status in named {
            let ServiceStatus { service, topology, satisfiable, pods_by_zone, stuck_pods } = status;
            let (namespace, kind, name) = (&service.namespace, &service.kind, &service.name);
            for (at, (zone, pods)) in pods_by_zone.iter().enumerate() {
                let zone = if at < MAX_ZONES { zone.clone() } else { "other".to_owned() };
                let labels = InZone { namespace: namespace.clone(), kind: kind.clone(), name: name.clone(), zone };
                self.service_pods.get_or_create(&labels).inc_by(i64::try_from(*pods).unwrap_or(i64::MAX));
            }
            for (cause, pods) in stuck_pods {
                let cause = format!("{cause:?}");
                let labels = StuckPods { namespace: namespace.clone(), kind: kind.clone(), name: name.clone(), cause };
                self.service_stuck.get_or_create(&labels).set(i64::try_from(*pods).unwrap_or(i64::MAX));
            }
            let labels = UsedTopology {
                namespace: namespace.clone(),
                kind: kind.clone(),
                name: name.clone(),
                topology: topology.clone(),
            };
            self.service_satisfiable.get_or_create(&labels).set((*satisfiable).into());
        }
        self.services_left_out.set(i64::try_from(left_out.len()).unwrap_or(i64::MAX));
        self.services_observed.set(now.as_second());
    }

    /// No service is observed by this process.
    pub(crate) fn no_services(&self) {
        self.service_pods.clear();
        self.service_satisfiable.clear();
        self.service_stuck.clear();
        self.services_left_out.set(0);
        self.services_observed.set(0);
    }

    /// All metrics as text, with the present values of the gauges.
    pub(crate) fn text(&self, kinds: &[&str], store: &Store, queue: usize, leads: bool) -> String {
        self.queue.set(queue.try_into().unwrap_or(i64::MAX));
        self.leader.set(leads.into());
        let mut counts: BTreeMap<(&str, String, String), i64> = BTreeMap::new();
        for kind in kinds {
            for object in store.of_kind(kind) {
                for condition in reported_conditions(object) {
                    *counts.entry((kind, condition.r#type, condition.status)).or_default() += 1;
                }
            }
        }
        self.objects.clear();
        for ((kind, condition, status), count) in counts {
            let labels = Condition { kind: kind.into(), condition, status };
            self.objects.get_or_create(&labels).set(count);
        }
        let mut out = String::new();
        match text::encode(&mut out, &self.registry) {
            Ok(()) => out,
            Err(std::fmt::Error) => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};
    use stead_explain::triage::StuckCause;
    use stead_model::ObjectKey;

    use super::*;

    #[test]
    fn metrics_have_their_promised_names() {
        let metrics = Metrics::new();
        metrics.reconciled("Glance", "ok", Duration::from_millis(3));
        metrics.reconciled("Glance", "error", Duration::from_millis(3));
        metrics.wrote("StatefulSet", "apply");
        metrics.answered("apply", 200);
        metrics.companion("Topology", true);
        let mut store = Store::new();
        store.put(json!({"apiVersion": "x", "kind": "Glance", "metadata": {"name": "a", "namespace": "n"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
        let text = metrics.text(&["Glance"], &store, 2, true);
        for line in [
            "stead_reconciles_total{kind=\"Glance\",result=\"ok\"} 1",
            "stead_errors_total{kind=\"Glance\"} 1",
            "stead_reconcile_duration_seconds_count{kind=\"Glance\"} 2",
            "stead_writes_total{kind=\"StatefulSet\",verb=\"apply\"} 1",
            "stead_requests_total{verb=\"apply\",code=\"200\"} 1",
            "stead_queue_length 2",
            "stead_leader 1",
            "stead_objects{kind=\"Glance\",condition=\"Ready\",status=\"True\"} 1",
            "stead_companion{kind=\"Topology\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert!(text.contains("stead_build_info{version="), "{text}");
    }

    fn service(name: &str, zones: usize) -> ServiceStatus {
        ServiceStatus {
            service: ObjectKey::new("CinderVolume", "openstack", name),
            topology: "zones".into(),
            satisfiable: false,
            pods_by_zone: (0..zones).map(|zone| (format!("zone{zone:02}"), 2)).collect(),
            stuck_pods: [(StuckCause::VolumeHeld, 1)].into(),
        }
    }

    #[test]
    fn services_are_named_up_to_a_number() {
        let metrics = Metrics::new();
        let text = || metrics.text(&[], &Store::new(), 0, true);
        let lines = |name: &str| text().lines().filter(|line| line.starts_with(&format!("{name}{{"))).count();
        metrics.services(&[service("lvm", 20)], Timestamp::UNIX_EPOCH);
        for line in [
            "stead_service_pods{namespace=\"openstack\",kind=\"CinderVolume\",name=\"lvm\",zone=\"zone00\"} 2",
            "stead_service_pods{namespace=\"openstack\",kind=\"CinderVolume\",name=\"lvm\",zone=\"other\"} 8",
            "stead_service_topology_satisfiable{namespace=\"openstack\",kind=\"CinderVolume\",name=\"lvm\",\
             topology=\"zones\"} 0",
            "stead_service_stuck_pods{namespace=\"openstack\",kind=\"CinderVolume\",name=\"lvm\",cause=\"VolumeHeld\"} 1",
        ] {
            assert!(text().lines().any(|l| l == line), "{line} in\n{}", text());
        }
        let many: Vec<ServiceStatus> = (0..400).map(|i| service(&i.to_string(), 1)).collect();
        metrics.services(&many, Timestamp::UNIX_EPOCH);
        assert_eq!(lines("stead_service_pods"), 300);
        assert!(text().contains("stead_services_left_out 100"), "{}", text());
        metrics.no_services();
        assert_eq!(lines("stead_service_pods") + lines("stead_service_stuck_pods"), 0);
    }

    /// The names of all metrics that are registered, as Prometheus stores their series.
    fn exported() -> BTreeSet<String> {
        let metrics = Metrics::new();
        // A family without a series is left out of the text.
        metrics.reconciled("Glance", "error", Duration::ZERO);
        metrics.wrote("Glance", "apply");
        metrics.answered("get", 200);
        metrics.companion("Topology", true);
        metrics.services(&[service("lvm", 1)], Timestamp::UNIX_EPOCH);
        let mut store = Store::new();
        store.put(json!({"apiVersion": "x", "kind": "Glance", "metadata": {"name": "a", "namespace": "n"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
        let text = metrics.text(&["Glance"], &store, 0, true);
        let described = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let series = described.flat_map(|line| {
            let (name, kind) = line.split_once(' ').expect("a name and a type");
            let endings: &[&str] = match kind {
                "counter" => &["_total"],
                "histogram" => &["_bucket", "_count", "_sum"],
                "info" => &["_info"],
                _ => &[""],
            };
            endings.iter().map(move |ending| format!("{name}{ending}"))
        });
        series.collect()
    }

    /// The metrics that a text names.
    fn named(text: &str) -> BTreeSet<String> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = text.split(|c: char| !is_name(c)).filter(|word| word.starts_with("stead_"));
        words.map(str::to_owned).collect()
    }

    #[test]
    fn dashboard_alerts_and_docs_name_metrics_that_exist() {
        let exported = exported();
        let dashboard = include_str!("../../../examples/monitoring/dashboard.json");
        let _: Value = serde_json::from_str(dashboard).expect("the dashboard is JSON");
        let alerts = include_str!("../../../examples/monitoring/alerts.yaml");
        let docs = include_str!("../../../docs/OPERATOR-REFERENCE.md");
        for (file, text) in [("dashboard.json", dashboard), ("alerts.yaml", alerts), ("OPERATOR-REFERENCE.md", docs)] {
            let unknown: Vec<String> = named(text)
                .into_iter()
                .filter(|name| !exported.contains(name) && name != "stead_reconcile_duration_seconds")
                .collect();
            assert!(unknown.is_empty(), "{file} names {unknown:?}, exported are {exported:?}");
            assert!(named(text).len() > 3, "{file}");
        }
        for name in &exported {
            let base = name.trim_end_matches("_bucket").trim_end_matches("_count").trim_end_matches("_sum");
            assert!(docs.contains(base), "docs/OPERATOR-REFERENCE.md does not have {base}");
        }
    }
}
