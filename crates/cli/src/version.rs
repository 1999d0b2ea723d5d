//! Which version of Kubernetes a cluster has.

use std::sync::Once;

use stead_model::{ClusterVersion, KubernetesVersion, Objects};

use crate::output::complain;

/// Sets the version of a cluster's objects: the one that the user gives, the one that the server or the dump reports, or
/// that of the newest kubelet. Says so on standard error if the version was inferred, or is not one that Stead mirrors.
pub(crate) fn set(objects: &mut Objects, given: Option<ClusterVersion>, reported: Option<&str>) {
    let found = find(objects, given, reported);
    tell(found);
    objects.set_version(found.map_or(KubernetesVersion::NEWEST, |(version, _)| version.used));
}

/// The version to use of a server that reports this one.
pub(crate) fn choose(given: Option<ClusterVersion>, reported: &str) -> KubernetesVersion {
    let found = given.or_else(|| reported.parse().ok());
    tell(found.map(|version| (version, Source::Told)));
    found.map_or(KubernetesVersion::NEWEST, |version| version.used)
}

/// Whether a version has ValidatingAdmissionPolicies. In 1.29 they are beta and off by default.
pub(crate) fn has_admission_policies(version: KubernetesVersion) -> bool {
    version >= KubernetesVersion::minor(30)
}

/// Says what is not checked without admission policies.
pub(crate) fn tell_unchecked(version: KubernetesVersion, unchecked: &str) {
    complain(
        "note",
        &format!("Kubernetes {version} has no ValidatingAdmissionPolicy, so the policies are left out: {unchecked}"),
    );
}

/// Prints the notes, once in a process: `--watch` reads the cluster again and again.
fn tell(found: Option<(ClusterVersion, Source)>) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| notes(found).iter().for_each(|note| complain("note", note)));
}

/// How a version was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Somebody told it: the user, the server, or whoever made the dump.
    Told,
    /// It is that of the newest kubelet. A control plane is never older than its kubelets, but may be newer.
    Kubelet,
}

fn find(objects: &Objects, given: Option<ClusterVersion>, reported: Option<&str>) -> Option<(ClusterVersion, Source)> {
    let told = given.or_else(|| reported?.parse().ok()).map(|version| (version, Source::Told));
    told.or_else(|| newest_kubelet(objects).map(|version| (version, Source::Kubelet)))
}

fn newest_kubelet(objects: &Objects) -> Option<ClusterVersion> {
    let versions = objects.nodes().filter_map(|node| node.kubelet_version()?.parse().ok());
    versions.max_by_key(|version: &ClusterVersion| version.reported_minor)
}

fn notes(found: Option<(ClusterVersion, Source)>) -> Vec<String> {
    let mut notes = Vec::new();
    let Some((version, source)) = found else { return notes };
    let reported = format!("1.{}", version.reported_minor);
    if source == Source::Kubelet && version.used < KubernetesVersion::NEWEST {
        notes.push(format!(
            "the dump does not tell the version of its control plane: Kubernetes {reported} is assumed, the version of \
             the newest kubelet (--kubernetes sets another one)"
        ));
    }
    if !version.is_mirrored() {
        let known = format!("{} to {}", KubernetesVersion::OLDEST, KubernetesVersion::NEWEST);
        notes.push(format!(
            "Kubernetes {reported} is not one of the versions that Stead knows ({known}): the rules of {} are used",
            version.used
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_version_is_told_or_inferred() {
        let node = |name: &str, version: &str| {
            json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
                "status": { "nodeInfo": { "kubeletVersion": version, "architecture": "", "bootID": "",
                    "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "", "machineID": "",
                    "operatingSystem": "", "osImage": "", "systemUUID": "" } } })
        };
        let nodes = |versions: &[&str]| {
            Objects::from_items(versions.iter().enumerate().map(|(i, version)| node(&format!("n{i}"), version)))
        };
        let inferred = |minor: &str| {
            format!(
                "the dump does not tell the version of its control plane: Kubernetes 1.{minor} is assumed, the version \
                 of the newest kubelet (--kubernetes sets another one)"
            )
        };
        let unknown = |minor: &str, used: &str| {
            format!(
                "Kubernetes 1.{minor} is not one of the versions that Stead knows (1.29 to 1.36): the rules of {used} \
                 are used"
            )
        };
        for (kubelets, given, reported, used, told) in [
            (vec![], None, None, "1.36", vec![]),
            (vec!["v1.30.2", "v1.31.4+k3s1", "odd"], None, None, "1.31", vec![inferred("31")]),
            (vec!["v1.36.0"], None, None, "1.36", vec![]),
            (vec!["v1.30.2"], None, Some("v1.32.1-eks-1"), "1.32", vec![]),
            (vec!["v1.30.2"], Some("1.33"), Some("v1.32.1"), "1.33", vec![]),
            (vec![], None, Some("v1.38.0"), "1.36", vec![unknown("38", "1.36")]),
            (vec!["v1.27.0"], None, None, "1.29", vec![inferred("27"), unknown("27", "1.29")]),
            (vec!["v1.30.2"], None, Some("nonsense"), "1.30", vec![inferred("30")]),
        ] {
            let mut objects = nodes(&kubelets);
            let given = given.map(|text: &str| text.parse().expect("a version"));
            assert_eq!(notes(find(&objects, given, reported)), told, "{kubelets:?} {given:?} {reported:?}");
            set(&mut objects, given, reported);
            assert_eq!(objects.version().to_string(), used, "{kubelets:?} {given:?} {reported:?}");
        }
    }
}
