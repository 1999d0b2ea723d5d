//! Sets of plugins, and the plugins behind the text of a rejection.

use stead_placement::Plugin;

/// A set of plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct PluginSet(u32);

impl PluginSet {
    /// The set of these plugins.
    pub(super) const fn of(plugins: &[Plugin]) -> PluginSet {
        let mut set = 0;
        let mut at = 0;
        while at < plugins.len() {
            set |= 1 << plugins[at] as u32;
            at += 1;
        }
        PluginSet(set)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn contains(self, plugin: Plugin) -> bool {
        self.0 & (1 << plugin as u32) != 0
    }

    pub(super) const fn with(self, other: PluginSet) -> PluginSet {
        PluginSet(self.0 | other.0)
    }

    pub(super) fn both(self, other: PluginSet) -> PluginSet {
        PluginSet(self.0 & other.0)
    }

    pub(super) fn iter(self) -> impl Iterator<Item = Plugin> {
        ALL.iter().copied().filter(move |plugin| self.contains(*plugin))
    }

    /// The plugins that a PodScheduled condition's message speaks of.
    pub(super) fn of_message(message: &str) -> PluginSet {
        // What preemption says about the nodes comes after that.
        let end = [" preemption:", " no new claims to deallocate"].iter().filter_map(|part| message.find(part)).min();
        let reasons = &message[..end.unwrap_or(message.len())];
        let found = TEXTS.iter().filter(|(text, _)| reasons.contains(text));
        found.fold(PluginSet::default(), |set, (_, plugin)| set.with(PluginSet::of(&[*plugin])))
    }
}

impl FromIterator<Plugin> for PluginSet {
    fn from_iter<T: IntoIterator<Item = Plugin>>(plugins: T) -> PluginSet {
        plugins.into_iter().fold(PluginSet::default(), |set, plugin| set.with(PluginSet::of(&[plugin])))
    }
}

/// The plugins that reject pods.
const ALL: &[Plugin] = &[
    Plugin::NodeUnschedulable,
    Plugin::TaintToleration,
    Plugin::NodeAffinity,
    Plugin::NodePorts,
    Plugin::NodeResourcesFit,
    Plugin::VolumeRestrictions,
    Plugin::EBSLimits,
    Plugin::GCEPDLimits,
    Plugin::NodeVolumeLimits,
    Plugin::AzureDiskLimits,
    Plugin::VolumeBinding,
    Plugin::VolumeZone,
    Plugin::PodTopologySpread,
    Plugin::InterPodAffinity,
    Plugin::NodeDeclaredFeatures,
];

/// What the plugins write, in all versions.
const TEXTS: &[(&str, Plugin)] = &[
    ("were unschedulable", Plugin::NodeUnschedulable),
    ("had untolerated taint", Plugin::TaintToleration),
    ("didn't match Pod's node affinity", Plugin::NodeAffinity),
    ("didn't satisfy plugin(s) [NodeAffinity]", Plugin::NodeAffinity),
    ("pod affinity terms conflict", Plugin::NodeAffinity),
    ("didn't have free ports", Plugin::NodePorts),
    ("Insufficient ", Plugin::NodeResourcesFit),
    ("Too many pods", Plugin::NodeResourcesFit),
    ("had no available disk", Plugin::VolumeRestrictions),
    ("ReadWriteOncePod access mode", Plugin::VolumeRestrictions),
    ("exceed max volume count", Plugin::NodeVolumeLimits),
    ("looking up PVC ", Plugin::NodeVolumeLimits),
    ("persistentvolumeclaim \"", Plugin::VolumeBinding),
    ("unbound immediate PersistentVolumeClaims", Plugin::VolumeBinding),
    ("volume node affinity conflict", Plugin::VolumeBinding),
    ("didn't match PersistentVolume's node affinity", Plugin::VolumeBinding),
    ("didn't find available persistent volumes to bind", Plugin::VolumeBinding),
    ("did not have enough free storage", Plugin::VolumeBinding),
    ("bound to non-existent pv(s)", Plugin::VolumeBinding),
    ("was not created for pod", Plugin::VolumeBinding),
    ("had no available volume zone", Plugin::VolumeZone),
    ("had no pv name and storageClass name", Plugin::VolumeZone),
    ("PersistentVolume had no name", Plugin::VolumeZone),
    ("pod topology spread constraints", Plugin::PodTopologySpread),
    ("pod affinity rules", Plugin::InterPodAffinity),
    ("anti-affinity rules", Plugin::InterPodAffinity),
    ("didn't match Pod's required features", Plugin::NodeDeclaredFeatures),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugins_of_a_message() {
        let of = |message: &str| PluginSet::of_message(message).iter().collect::<Vec<_>>();
        let message = "0/7 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu, 4 node(s) didn't \
                       match pod anti-affinity rules. no new claims to deallocate, preemption: 0/7 nodes are available: \
                       1 Preemption is not helpful for scheduling, 6 node(s) didn't have free ports.";
        assert_eq!(of(message), [Plugin::TaintToleration, Plugin::NodeResourcesFit, Plugin::InterPodAffinity]);
        let message = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found";
        assert_eq!(of(message), [Plugin::VolumeBinding]);
        assert_eq!(of("no nodes available to schedule pods"), []);
    }
}
