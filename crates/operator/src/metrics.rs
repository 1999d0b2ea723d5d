//! Metrics for Prometheus.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
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
    use serde_json::json;

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
}
