//! The services of an OpenStackControlPlane: which resource is created from which part of another one's spec.
//!
//! Only where a reference comes from depends on this table. Users of a Topology are found without it.

use serde_json::Value;
use stead_model::{ObjectKey, Objects, TopologyRef};

/// A kind, and where the resource that creates its objects has their template.
struct Template {
    kind: &'static str,
    /// The kind of the resource that creates it.
    parent: &'static str,
    /// The path below the parent's `spec`: `*` is the key of a map, `[]` an item of a list.
    path: &'static str,
    /// The end of the object's name, where several templates give objects of the same kind.
    suffix: &'static str,
}

const fn template(kind: &'static str, parent: &'static str, path: &'static str) -> Template {
    Template { kind, parent, path, suffix: "" }
}

const PLANE: &str = "OpenStackControlPlane";

const TEMPLATES: &[Template] = &[
    // The control plane's own.
    template("Barbican", PLANE, "barbican.template"),
    template("Cinder", PLANE, "cinder.template"),
    template("Cyborg", PLANE, "cyborg.template"),
    template("Designate", PLANE, "designate.template"),
    template("DNSMasq", PLANE, "dns.template"),
    template("Galera", PLANE, "galera.templates.*"),
    template("Glance", PLANE, "glance.template"),
    template("Heat", PLANE, "heat.template"),
    template("Horizon", PLANE, "horizon.template"),
    template("Ironic", PLANE, "ironic.template"),
    template("KeystoneAPI", PLANE, "keystone.template"),
    template("Manila", PLANE, "manila.template"),
    template("Memcached", PLANE, "memcached.templates.*"),
    template("NeutronAPI", PLANE, "neutron.template"),
    template("Nova", PLANE, "nova.template"),
    template("Octavia", PLANE, "octavia.template"),
    template("OVNController", PLANE, "ovn.template.ovnController"),
    template("OVNDBCluster", PLANE, "ovn.template.ovnDBCluster.*"),
    template("OVNNorthd", PLANE, "ovn.template.ovnNorthd"),
    template("PlacementAPI", PLANE, "placement.template"),
    template("RabbitMq", PLANE, "rabbitmq.templates.*"),
    template("Redis", PLANE, "redis.templates.*"),
    template("Swift", PLANE, "swift.template"),
    template("Telemetry", PLANE, "telemetry.template"),
    template("Watcher", PLANE, "watcher.template"),
    // The services' own.
    template("BarbicanAPI", "Barbican", "barbicanAPI"),
    template("BarbicanKeystoneListener", "Barbican", "barbicanKeystoneListener"),
    template("BarbicanWorker", "Barbican", "barbicanWorker"),
    template("CinderAPI", "Cinder", "cinderAPI"),
    template("CinderBackup", "Cinder", "cinderBackups.*"),
    template("CinderBackup", "Cinder", "cinderBackup"),
    template("CinderScheduler", "Cinder", "cinderScheduler"),
    template("CinderVolume", "Cinder", "cinderVolumes.*"),
    template("CloudKittyAPI", "CloudKitty", "cloudKittyAPI"),
    template("CloudKittyProc", "CloudKitty", "cloudKittyProc"),
    template("CyborgAPI", "Cyborg", "apiServiceTemplate"),
    template("CyborgConductor", "Cyborg", "conductorServiceTemplate"),
    template("DesignateAPI", "Designate", "designateAPI"),
    template("DesignateBackendbind9", "Designate", "designateBackendbind9"),
    template("DesignateCentral", "Designate", "designateCentral"),
    template("DesignateMdns", "Designate", "designateMdns"),
    template("DesignateProducer", "Designate", "designateProducer"),
    template("DesignateUnbound", "Designate", "designateUnbound"),
    template("DesignateWorker", "Designate", "designateWorker"),
    template("GlanceAPI", "Glance", "glanceAPIs.*"),
    template("HeatAPI", "Heat", "heatAPI"),
    template("HeatCfnAPI", "Heat", "heatCfnAPI"),
    template("HeatEngine", "Heat", "heatEngine"),
    template("IronicAPI", "Ironic", "ironicAPI"),
    template("IronicConductor", "Ironic", "ironicConductors[]"),
    template("IronicInspector", "Ironic", "ironicInspector"),
    template("IronicNeutronAgent", "Ironic", "ironicNeutronAgent"),
    template("ManilaAPI", "Manila", "manilaAPI"),
    template("ManilaScheduler", "Manila", "manilaScheduler"),
    template("ManilaShare", "Manila", "manilaShares.*"),
    template("NovaAPI", "Nova", "apiServiceTemplate"),
    template("NovaCell", "Nova", "cellTemplates.*"),
    template("NovaCompute", "NovaCell", "novaComputeTemplates.*"),
    template("NovaConductor", "NovaCell", "conductorServiceTemplate"),
    template("NovaMetadata", "Nova", "metadataServiceTemplate"),
    template("NovaMetadata", "NovaCell", "metadataServiceTemplate"),
    template("NovaNoVNCProxy", "NovaCell", "noVNCProxyServiceTemplate"),
    template("NovaScheduler", "Nova", "schedulerServiceTemplate"),
    template("OctaviaAPI", "Octavia", "octaviaAPI"),
    Template { suffix: "healthmanager", ..template("OctaviaAmphoraController", "Octavia", "octaviaHealthManager") },
    Template { suffix: "housekeeping", ..template("OctaviaAmphoraController", "Octavia", "octaviaHousekeeping") },
    Template { suffix: "worker", ..template("OctaviaAmphoraController", "Octavia", "octaviaWorker") },
    template("OctaviaRsyslog", "Octavia", "octaviaRsyslog"),
    template("SwiftProxy", "Swift", "swiftProxy"),
    template("SwiftStorage", "Swift", "swiftStorage"),
    template("Autoscaling", "Telemetry", "autoscaling"),
    template("Ceilometer", "Telemetry", "ceilometer"),
    template("CloudKitty", "Telemetry", "cloudkitty"),
    template("WatcherAPI", "Watcher", "apiServiceTemplate"),
    template("WatcherApplier", "Watcher", "applierServiceTemplate"),
    template("WatcherDecisionEngine", "Watcher", "decisionengineServiceTemplate"),
];

/// Whether objects of this kind only hand a reference down to others.
pub(crate) fn is_parent(kind: &str) -> bool {
    TEMPLATES.iter().any(|template| template.parent == kind)
}

/// Whether objects of a kind are created from the spec of those of another.
pub(crate) fn is_created_by(kind: &str, parent: &str) -> bool {
    TEMPLATES.iter().any(|template| template.kind == kind && template.parent == parent)
}

/// A kind by its name in lower case, as it is in a finalizer; none for one that control planes do not create.
pub(crate) fn spelled(lower_case: &str) -> Option<&'static str> {
    TEMPLATES.iter().map(|template| template.kind).find(|kind| kind.to_lowercase() == lower_case)
}

/// Whether objects of this kind get the reference of their parent where they have none. The Cinder operator copies
/// everything else to a CinderBackup.
pub(crate) fn inherits(kind: &str) -> bool {
    kind != "CinderBackup"
}

/// The section of a control plane that an object belongs to, by the kind of the object that the control plane created.
pub(crate) fn section(kind: &str) -> Option<&'static str> {
    let template = TEMPLATES.iter().find(|template| template.kind == kind && template.parent == PLANE)?;
    template.path.split('.').next()
}

/// The sections of a control plane's spec that hold services.
pub(crate) fn sections() -> impl Iterator<Item = &'static str> {
    let of_plane = TEMPLATES.iter().filter(|template| template.parent == PLANE);
    let mut sections: Vec<&str> = of_plane.filter_map(|template| template.path.split('.').next()).collect();
    sections.sort_unstable();
    sections.dedup();
    sections.into_iter()
}

/// A part of a spec: the JSON, and the field that it is in.
#[derive(Debug, Clone)]
pub(crate) struct SpecPart<'a> {
    value: &'a Value,
    field: String,
}

impl<'a> SpecPart<'a> {
    /// The spec of an object.
    pub(crate) fn of(object: &'a Value) -> SpecPart<'a> {
        SpecPart { value: &object["spec"], field: "spec".to_owned() }
    }

    /// The template of an object in this spec, or in this template of its parent.
    pub(crate) fn template_of(&self, objects: &Objects, child: &ObjectKey, parent: &ObjectKey) -> Option<SpecPart<'a>> {
        let of = |t: &&Template| t.kind == child.kind && t.parent == parent.kind && child.name.ends_with(t.suffix);
        TEMPLATES.iter().filter(of).find_map(|template| self.follow(template.path, objects, child, parent))
    }

    fn follow(&self, path: &str, objects: &Objects, child: &ObjectKey, parent: &ObjectKey) -> Option<SpecPart<'a>> {
        let mut at = self.clone();
        for step in path.split('.') {
            at = match step.strip_suffix("[]") {
                Some(list) => at.field(list).item(objects, child)?,
                None if step == "*" => at.entry(objects, child, parent)?,
                None => at.field(step),
            };
        }
        Some(at)
    }

    fn field(&self, name: &str) -> SpecPart<'a> {
        SpecPart { value: &self.value[name], field: format!("{}.{name}", self.field) }
    }

    /// The entry of a map that an object was created for: its name has the key in it, after the name of its parent.
    fn entry(&self, objects: &Objects, child: &ObjectKey, parent: &ObjectKey) -> Option<SpecPart<'a>> {
        let labelled = objects.raw(child).and_then(|raw| raw.pointer("/metadata/labels/api-name")?.as_str());
        let name = child.name.strip_prefix(&parent.name).and_then(|rest| rest.strip_prefix('-')).unwrap_or(&child.name);
        let name = format!("-{name}-");
        let keys = self.value.as_object()?.keys();
        let named = keys.filter(|key| match labelled {
            Some(label) => label == key.as_str(),
            None => name.contains(&format!("-{key}-")),
        });
        let key = named.max_by_key(|key| key.len())?;
        Some(self.field(key))
    }

    /// The item of a list of conductors: they have a group each.
    fn item(&self, objects: &Objects, child: &ObjectKey) -> Option<SpecPart<'a>> {
        let group = |spec: &Value| spec["conductorGroup"].as_str().unwrap_or_default().to_owned();
        let own = group(&objects.raw(child)?["spec"]);
        let (at, value) = self.value.as_array()?.iter().enumerate().find(|(_, item)| group(item) == own)?;
        Some(SpecPart { value, field: format!("{}[{at}]", self.field) })
    }

    /// The reference to a Topology that objects of a kind have in this part, and its field.
    pub(crate) fn reference(&self, kind: &str) -> Option<(String, TopologyRef)> {
        // The pods of an Autoscaling are those of Aodh.
        let part = if kind == "Autoscaling" { self.field("aodh") } else { self.clone() };
        let part = part.field("topologyRef");
        let reference = serde::Deserialize::deserialize(part.value).ok().filter(|_| part.value.is_object())?;
        Some((part.field, reference))
    }

    /// Whether the section of a control plane is turned on.
    pub(crate) fn is_enabled(&self, section: &str) -> bool {
        self.value[section]["enabled"].as_bool() == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_parent_but_the_control_plane_has_a_parent_itself() {
        for template in TEMPLATES.iter().filter(|template| template.parent != PLANE) {
            assert!(TEMPLATES.iter().any(|t| t.kind == template.parent), "{}", template.parent);
        }
        assert_eq!(TEMPLATES.iter().map(|t| t.parent).collect::<std::collections::BTreeSet<_>>().len(), 16);
    }

    #[test]
    fn templates_are_found_by_the_name_of_the_object() {
        let spec = json!({"spec": {
            "cinderVolumes": {"lvm": {"topologyRef": {"name": "a"}}, "lvm-2": {"topologyRef": {"name": "b"}}},
            "cinderBackup": {"topologyRef": {"name": "c"}},
            "cinderBackups": {"ceph": {"topologyRef": {"name": "d"}}},
            "ironicConductors": [{"topologyRef": {"name": "e"}}, {"conductorGroup": "g", "topologyRef": {"name": "f"}}],
            "octaviaWorker": {"topologyRef": {"name": "h"}},
            "autoscaling": {"aodh": {"topologyRef": {"name": "i"}}},
        }});
        let conductor = json!({"apiVersion": "ironic.openstack.org/v1beta1", "kind": "IronicConductor",
            "metadata": {"name": "ironic-conductor-g", "namespace": "n"}, "spec": {"conductorGroup": "g"}});
        let objects = Objects::from_items([conductor]);
        for (kind, name, parent, parent_name, field, topology) in [
            ("CinderVolume", "cinder-volume-lvm", "Cinder", "cinder", "spec.cinderVolumes.lvm", "a"),
            ("CinderVolume", "cinder-volume-lvm-2", "Cinder", "cinder", "spec.cinderVolumes.lvm-2", "b"),
            ("CinderBackup", "cinder-backup", "Cinder", "cinder", "spec.cinderBackup", "c"),
            ("CinderBackup", "cinder-backup-ceph", "Cinder", "cinder", "spec.cinderBackups.ceph", "d"),
            ("IronicConductor", "ironic-conductor-g", "Ironic", "ironic", "spec.ironicConductors[1]", "f"),
            ("OctaviaAmphoraController", "octavia-worker", "Octavia", "octavia", "spec.octaviaWorker", "h"),
            ("Autoscaling", "telemetry-autoscaling", "Telemetry", "telemetry", "spec.autoscaling.aodh", "i"),
        ] {
            let (child, parent) = (ObjectKey::new(kind, "n", name), ObjectKey::new(parent, "n", parent_name));
            let part = SpecPart::of(&spec).template_of(&objects, &child, &parent).expect("a template");
            let (found, reference) = part.reference(kind).expect("a reference");
            assert_eq!((found, reference.topology()), (format!("{field}.topologyRef"), Some(topology)), "{child}");
        }
    }
}
