//! Known defects of the OpenStack operators that change what a Topology does, each where it applies.
//!
//! Read in the operators' sources, releases 18.0 FR2 to FR6 and later. [`DEFECTS`] has a row for each.

use serde::Serialize;
use serde_json::Value;
use stead_model::{ObjectKey, ObjectRef, Objects, Topology, reported_conditions, topology_references};
use stead_semantics::Selector;

use super::rules::Rules;
use super::users::{HolderState, TopologyHolder};
use crate::references::titled;

/// The longest name of a finalizer after its `/`, as kube-apiserver checks it.
const MAX_FINALIZER_NAME: usize = 63;

/// A defect of an operator, or a surprise in what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum UpstreamDefect {
    /// An operator left its finalizer on the Topology.
    LeakedFinalizer,
    /// The spread counts the pods of another service.
    ForeignSelector,
    /// The Topology's affinity does not arrive in the pods.
    AffinityLost,
    /// The object's nodeSelector is not applied because there is a Topology.
    NodeSelectorIgnored,
    /// The Topology's spread constraints do not arrive in all pods.
    SpreadIgnored,
    /// The spread counts the pods of other objects of the same kind.
    SharedSelector,
    /// The default anti-affinity matches none of the object's own pods.
    AntiAffinityDead,
    /// The finalizer would be too long for Kubernetes.
    FinalizerTooLong,
    /// The reference of the service is not inherited.
    NotInherited,
    /// A reference without a name blocks inheritance, and the operator reports an error.
    EmptyReference,
}

impl UpstreamDefect {
    /// The word, which stays the same from release to release.
    pub fn as_str(self) -> &'static str {
        match self {
            UpstreamDefect::LeakedFinalizer => "LeakedFinalizer",
            UpstreamDefect::ForeignSelector => "ForeignSelector",
            UpstreamDefect::AffinityLost => "AffinityLost",
            UpstreamDefect::NodeSelectorIgnored => "NodeSelectorIgnored",
            UpstreamDefect::SpreadIgnored => "SpreadIgnored",
            UpstreamDefect::SharedSelector => "SharedSelector",
            UpstreamDefect::AntiAffinityDead => "AntiAffinityDead",
            UpstreamDefect::FinalizerTooLong => "FinalizerTooLong",
            UpstreamDefect::NotInherited => "NotInherited",
            UpstreamDefect::EmptyReference => "EmptyReference",
        }
    }
}

/// A defect that applies to an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UpstreamFinding {
    /// Which one.
    pub defect: UpstreamDefect,
    /// The object: kind and name.
    pub object: String,
    /// A sentence.
    pub message: String,
}

impl std::fmt::Display for UpstreamFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.message, self.defect.as_str())
    }
}

/// An object that makes pods, and the Topology that they follow.
pub(crate) struct Examined<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) object: ObjectRef<'a>,
    pub(crate) topology: Option<&'a Topology>,
    pub(crate) workloads: &'a [ObjectKey],
}

impl Examined<'_> {
    fn spec(&self) -> &Value {
        &self.object.raw()["spec"]
    }

    fn name(&self) -> &str {
        &self.object.key().name
    }

    /// Whether its pods are placed by the operator's defaults.
    fn follows_none(&self) -> bool {
        self.topology.is_none() && topology_references(self.object.raw()).is_empty()
    }

    fn siblings(&self) -> usize {
        let key = self.object.key();
        self.objects.of_kind_in(&key.kind, &key.namespace).count()
    }

    /// Whether a spread constraint leaves it to the operator which pods are counted.
    fn leaves_selector_open(&self) -> bool {
        self.topology.is_some_and(|t| Rules::of(t).spread.iter().any(|rule| rule.label_selector.is_none()))
    }

    fn has_spread(&self) -> bool {
        self.topology.is_some_and(|topology| !Rules::of(topology).spread.is_empty())
    }

    fn has_affinity(&self) -> bool {
        let affinity = self.topology.and_then(|topology| topology.spec.affinity.as_ref());
        affinity.and_then(Value::as_object).is_some_and(|affinity| !affinity.is_empty())
    }

    /// Whether the pods' own anti-affinity does match pods of the same workload, where the workload is known: then the
    /// operator has been corrected.
    fn avoids_own_pods(&self) -> bool {
        self.workloads.iter().any(|key| {
            let template = self.objects.workload(key).ok().flatten().and_then(|workload| workload.template());
            let labels = template.and_then(|t| t.metadata.as_ref()?.labels.clone()).unwrap_or_default();
            let anti = template.and_then(|t| t.spec.as_ref()?.affinity.as_ref()?.pod_anti_affinity.clone());
            let anti = anti.unwrap_or_default();
            let required = anti.required_during_scheduling_ignored_during_execution.unwrap_or_default();
            let preferred = anti.preferred_during_scheduling_ignored_during_execution.unwrap_or_default();
            let mut terms = required.into_iter().chain(preferred.into_iter().map(|wish| wish.pod_affinity_term));
            terms.any(|term| {
                Selector::from_label_selector(term.label_selector.as_ref()).is_ok_and(|s| s.matches(&labels))
            })
        })
    }
}

/// One defect: for which kinds, when, and what is said about it.
struct Row {
    defect: UpstreamDefect,
    /// Empty for all kinds.
    kinds: &'static [&'static str],
    applies: fn(&Examined<'_>) -> bool,
    message: fn(&Examined<'_>) -> String,
}

const DEFECTS: &[Row] = &[
    Row {
        defect: UpstreamDefect::ForeignSelector,
        kinds: &["WatcherApplier", "WatcherDecisionEngine"],
        applies: |e| e.leaves_selector_open(),
        message: |e| {
            format!(
                "a constraint without a labelSelector counts the pods of the Watcher API (service=watcher-api) instead of \
                 those of {}: set a labelSelector in a Topology of its own",
                titled(e.object.key())
            )
        },
    },
    Row {
        defect: UpstreamDefect::ForeignSelector,
        kinds: &["OVNController"],
        applies: |e| e.leaves_selector_open(),
        message: |_| {
            "a constraint without a labelSelector counts the pods of DaemonSet ovn-controller for DaemonSet \
             ovn-controller-ovs too (service=ovn-controller)"
                .to_owned()
        },
    },
    Row {
        defect: UpstreamDefect::AffinityLost,
        kinds: &["DesignateBackendbind9"],
        applies: |e| e.has_affinity(),
        message: |e| {
            format!(
                "the operator overwrites the Topology's affinity with its default anti-affinity: the pods of {} get only \
                 the spread constraints",
                titled(e.object.key())
            )
        },
    },
    Row {
        defect: UpstreamDefect::NodeSelectorIgnored,
        kinds: &["OctaviaAmphoraController"],
        applies: |e| e.topology.is_some() && e.spec()["nodeSelector"].as_object().is_some_and(|s| !s.is_empty()),
        message: |e| {
            format!(
                "the operator applies spec.nodeSelector of {} only without a Topology: put the labels into the Topology's \
                 node affinity",
                titled(e.object.key())
            )
        },
    },
    Row {
        defect: UpstreamDefect::SpreadIgnored,
        kinds: &["OVNController"],
        applies: |e| e.has_spread(),
        message: |_| {
            "DaemonSets ovn-controller and ovn-controller-metrics get only the Topology's affinity, ovn-controller-ovs \
             gets the spread constraints too, which the scheduler also checks for pods of a DaemonSet"
                .to_owned()
        },
    },
    Row {
        defect: UpstreamDefect::SharedSelector,
        kinds: &["CinderBackup", "OctaviaAPI", "DNSMasq"],
        applies: |e| e.siblings() > 1 && e.leaves_selector_open(),
        message: |e| {
            let (kind, siblings) = (&e.object.key().kind, e.siblings());
            format!(
                "a constraint without a labelSelector counts the pods of all {siblings} {kind} objects together: their \
                 pods have the same labels"
            )
        },
    },
    Row {
        defect: UpstreamDefect::AntiAffinityDead,
        kinds: &["OctaviaAPI", "DesignateAPI", "DesignateUnbound", "NovaConductor", "NovaNoVNCProxy", "NovaCompute"],
        applies: |e| e.follows_none() && !e.avoids_own_pods(),
        message: dead,
    },
    Row {
        defect: UpstreamDefect::AntiAffinityDead,
        kinds: &["NovaMetadata"],
        // The metadata service of a cell is called NOVA-CELL-metadata, that of Nova itself NOVA-metadata.
        applies: |e| e.follows_none() && e.spec()["cellName"].is_string() && !e.avoids_own_pods(),
        message: dead,
    },
    Row {
        defect: UpstreamDefect::AntiAffinityDead,
        kinds: &["Redis"],
        applies: |e| e.follows_none() && e.name() != "redis" && !e.avoids_own_pods(),
        message: dead,
    },
    Row {
        defect: UpstreamDefect::FinalizerTooLong,
        kinds: &[],
        applies: |e| {
            let is_false = |c: &stead_model::Condition| c.r#type == "TopologyReady" && c.status == "False";
            finalizer_name(e).len() > MAX_FINALIZER_NAME && reported_conditions(e.object).iter().any(is_false)
        },
        message: |e| {
            format!(
                "the operator's finalizer openstack.org/{} has more than {MAX_FINALIZER_NAME} characters after the slash: \
                 Kubernetes refuses it, and the Topology is not applied to {}",
                finalizer_name(e),
                titled(e.object.key())
            )
        },
    },
    Row {
        defect: UpstreamDefect::NotInherited,
        kinds: &["CinderBackup"],
        applies: |e| e.follows_none() && cinder_refers(e),
        message: |e| {
            format!(
                "{} does not inherit the Topology of its Cinder: set topologyRef in cinderBackup or cinderBackups",
                titled(e.object.key())
            )
        },
    },
    Row {
        defect: UpstreamDefect::EmptyReference,
        kinds: &[],
        // Stead's own operator runs GlanceAPIs too, and there such a reference opts out.
        applies: |e| {
            let references = topology_references(e.object.raw());
            e.object.key().kind != "GlanceAPI" && references.iter().any(|found| found.reference.topology().is_none())
        },
        message: |e| {
            format!(
                "topologyRef of {} has no name: it inherits no Topology, and its operator reports an error until the \
                 field is removed or has a name",
                titled(e.object.key())
            )
        },
    },
];

fn dead(e: &Examined<'_>) -> String {
    format!(
        "without a Topology, the operator's default anti-affinity matches none of the pods of {}: they may share a node",
        titled(e.object.key())
    )
}

fn finalizer_name(e: &Examined<'_>) -> String {
    format!("{}-{}", e.object.key().kind.to_lowercase(), e.name())
}

/// Whether the Cinder of a CinderBackup has a reference, of its own or inherited.
fn cinder_refers(e: &Examined<'_>) -> bool {
    let chain = e.objects.controllers(e.object.key());
    let cinder = chain.iter().find(|owner| owner.kind == "Cinder").and_then(|owner| e.objects.raw(owner));
    cinder
        .is_some_and(|raw| raw.pointer("/spec/topologyRef/name").and_then(Value::as_str).is_some_and(|n| !n.is_empty()))
}

/// Whether a defect keeps rules of a Topology out of the pods of a kind: they are not late then.
pub(crate) fn drops_rules(kind: &str) -> bool {
    let drops = |row: &&Row| matches!(row.defect, UpstreamDefect::AffinityLost | UpstreamDefect::SpreadIgnored);
    DEFECTS.iter().filter(drops).any(|row| row.kinds.contains(&kind))
}

/// The defects that apply to an object.
pub(crate) fn of_object(examined: &Examined<'_>) -> Vec<UpstreamFinding> {
    let key = examined.object.key();
    let rows = DEFECTS.iter().filter(|row| row.kinds.is_empty() || row.kinds.contains(&key.kind.as_str()));
    let rows = rows.filter(|row| (row.applies)(examined));
    rows.map(|row| UpstreamFinding { defect: row.defect, object: titled(key), message: (row.message)(examined) })
        .collect()
}

/// The kinds whose operator is known to leave finalizers behind.
const LEAKING: [&str; 3] = ["cindervolume", "manilashare", "swiftstorage"];

/// What is wrong with the finalizers of a Topology.
pub(crate) fn of_holders(topology: &ObjectKey, holders: &[TopologyHolder]) -> Vec<UpstreamFinding> {
    let mut out = Vec::new();
    for holder in holders {
        let (kind, name, finalizer) = (&holder.kind, &holder.name, &holder.finalizer);
        let known = match LEAKING.contains(&kind.to_lowercase().as_str()) {
            true => "; a known defect of its operator leaves such finalizers behind",
            false => "",
        };
        let message = match holder.state {
            HolderState::Exists => continue,
            HolderState::Gone => format!(
                "finalizer {finalizer} was left behind: {kind} {name} does not exist{known}. The Topology cannot be deleted \
                 until somebody removes the finalizer"
            ),
            HolderState::NotRead if known.is_empty() => continue,
            HolderState::NotRead => {
                format!("finalizer {finalizer} may have been left behind: {kind} {name} was not read{known}")
            }
        };
        let object = titled(topology);
        out.push(UpstreamFinding { defect: UpstreamDefect::LeakedFinalizer, object, message });
    }
    out
}
