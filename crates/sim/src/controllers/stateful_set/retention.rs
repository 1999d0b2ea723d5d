//! Who owns the claims of a StatefulSet, by its retention policy (`isClaimOwnerUpToDate`,
//! `updateClaimOwnerRefForSetAndPod`).

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use stead_model::stateful_set::pod_in_ordinal_range;

/// A pod of a set, whose claims are owned by the set, by the pod or by nobody.
pub(super) struct ClaimOwners<'a> {
    set: &'a StatefulSet,
    pod: &'a str,
    /// Empty if the pod is not created yet.
    pod_uid: &'a str,
    /// `whenDeleted` is Delete.
    with_set: bool,
    /// `whenScaled` is Delete.
    with_pod: bool,
}

impl<'a> ClaimOwners<'a> {
    pub(super) fn of(set: &'a StatefulSet, pod: &'a str, pod_uid: &'a str) -> ClaimOwners<'a> {
        let policy = set.spec.as_ref().and_then(|spec| spec.persistent_volume_claim_retention_policy.as_ref());
        let is_delete = |policy: Option<&String>| policy.is_some_and(|policy| policy == "Delete");
        ClaimOwners {
            set,
            pod,
            pod_uid,
            with_set: is_delete(policy.and_then(|policy| policy.when_deleted.as_ref())),
            with_pod: is_delete(policy.and_then(|policy| policy.when_scaled.as_ref())),
        }
    }

    fn set_uid(&self) -> &str {
        self.set.metadata.uid.as_deref().unwrap_or_default()
    }

    fn set_name(&self) -> &str {
        self.set.metadata.name.as_deref().unwrap_or_default()
    }

    fn names_set(&self, reference: &OwnerReference) -> bool {
        reference.api_version == "apps/v1" && reference.kind == "StatefulSet" && reference.name == self.set_name()
    }

    fn names_pod(&self, reference: &OwnerReference) -> bool {
        reference.api_version == "v1" && reference.kind == "Pod" && reference.name == self.pod
    }

    /// Whether a claim still belongs to a pod of this name that is gone (`hasStaleOwnerRef`).
    pub(super) fn belongs_to_former_pod(&self, claim: &PersistentVolumeClaim) -> bool {
        references(claim).iter().find(|owner| self.names_pod(owner)).is_some_and(|owner| owner.uid != self.pod_uid)
    }

    /// Whether the claim of a pod that is to be created will be deleted (`PodClaimIsStale`).
    pub(super) fn is_stale(&self, claim: &PersistentVolumeClaim) -> bool {
        self.with_pod && self.belongs_to_former_pod(claim)
    }

    fn belongs_to_former_set(&self, claim: &PersistentVolumeClaim) -> bool {
        references(claim).iter().find(|owner| self.names_set(owner)).is_some_and(|owner| owner.uid != self.set_uid())
    }

    /// Whether somebody else controls the claim: the policy is then ignored.
    pub(super) fn has_unexpected_controller(&self, claim: &PersistentVolumeClaim) -> bool {
        if !self.with_set && !self.with_pod {
            return false;
        }
        references(claim).iter().any(|owner| {
            if self.names_set(owner) {
                owner.uid != self.set_uid()
            } else if self.names_pod(owner) {
                owner.uid != self.pod_uid
            } else {
                owner.controller == Some(true)
            }
        })
    }

    /// Whether set and pod shall own the claim. A pod owns its claims only when it is scaled down.
    fn wanted(&self) -> (bool, bool) {
        let scaled_down = !pod_in_ordinal_range(self.set, self.pod);
        match (self.with_set, self.with_pod) {
            (with_set, false) => (with_set, false),
            (with_set, true) => (with_set && !scaled_down, scaled_down),
        }
    }

    /// Whether the owners of a claim are as the policy wants them.
    pub(super) fn are_up_to_date(&self, claim: &PersistentVolumeClaim) -> bool {
        if self.belongs_to_former_set(claim) || self.belongs_to_former_pod(claim) {
            return true;
        }
        let owners = references(claim);
        let owned_by = |uid: &str| owners.iter().any(|owner| owner.uid == uid);
        let (by_set, by_pod) = (owned_by(self.set_uid()), owned_by(self.pod_uid));
        if self.has_unexpected_controller(claim) {
            return !by_set && !by_pod;
        }
        let ours = owners.iter().filter(|owner| owner.uid == self.set_uid() || owner.uid == self.pod_uid);
        let all_control = ours.into_iter().all(|owner| owner.controller == Some(true));
        all_control && (by_set, by_pod) == self.wanted()
    }

    /// The claim with the owners that the policy wants.
    pub(super) fn updated(&self, claim: &PersistentVolumeClaim) -> PersistentVolumeClaim {
        let foreign = self.has_unexpected_controller(claim);
        let mut claim = claim.clone();
        let mut owners = claim.metadata.owner_references.take().unwrap_or_default();
        owners.retain(|owner| !self.names_set(owner) && !self.names_pod(owner));
        let (by_set, by_pod) = self.wanted();
        let mut add = |api_version: &str, kind: &str, name: &str, uid: &str| {
            if owners.iter().all(|owner| owner.uid != uid) {
                owners.push(OwnerReference {
                    api_version: api_version.into(),
                    kind: kind.into(),
                    name: name.into(),
                    uid: uid.into(),
                    controller: Some(true),
                    block_owner_deletion: Some(true),
                });
            }
        };
        if by_set && !foreign {
            add("apps/v1", "StatefulSet", self.set_name(), self.set_uid());
        }
        if by_pod && !foreign {
            add("v1", "Pod", self.pod, self.pod_uid);
        }
        claim.metadata.owner_references = Some(owners).filter(|owners| !owners.is_empty());
        claim
    }
}

fn references(claim: &PersistentVolumeClaim) -> &[OwnerReference] {
    claim.metadata.owner_references.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(scaled: &str, deleted: &str, replicas: i32) -> StatefulSet {
        serde_json::from_value(json!({ "metadata": { "name": "web", "uid": "s" }, "spec": { "replicas": replicas,
            "selector": {}, "template": {}, "persistentVolumeClaimRetentionPolicy":
                { "whenScaled": scaled, "whenDeleted": deleted } } }))
        .expect("a StatefulSet")
    }

    /// Owners by letters: `s` the set, `p` the pod, lower case ones control; `S`, `P` do not; `x` and `y` were earlier
    /// ones of the same names; `c` is another controller, `o` another owner.
    fn claim(owners: &str) -> PersistentVolumeClaim {
        let owners = owners.chars().map(|letter| {
            let (version, kind, name) = match letter {
                's' | 'S' | 'x' => ("apps/v1", "StatefulSet", "web"),
                'p' | 'P' | 'y' => ("v1", "Pod", "web-1"),
                _ => ("v1", "ConfigMap", "other"),
            };
            json!({ "apiVersion": version, "kind": kind, "name": name, "uid": letter.to_ascii_lowercase(),
                "controller": letter.is_ascii_lowercase() && letter != 'o' })
        });
        let owners: Vec<_> = owners.collect();
        serde_json::from_value(json!({ "metadata": { "name": "data-web-1", "ownerReferences": owners } })).expect("a claim")
    }

    fn letters(claim: &PersistentVolumeClaim) -> String {
        references(claim).iter().map(|owner| owner.uid.as_str()).collect()
    }

    #[test]
    fn claim_owners_by_policy() {
        let (retain, delete) = ("Retain", "Delete");
        // whenScaled, whenDeleted, owners when the pod is wanted, and when it is scaled down.
        for (scaled, deleted, wanted, condemned) in
            [(retain, retain, "", ""), (retain, delete, "s", "s"), (delete, retain, "", "p"), (delete, delete, "s", "p")]
        {
            for (replicas, expected) in [(2, wanted), (1, condemned)] {
                let set = set(scaled, deleted, replicas);
                let owners = ClaimOwners::of(&set, "web-1", "p");
                for before in ["", "s", "p", "sp"] {
                    let claim = claim(before);
                    let is_expected = before == expected;
                    assert_eq!(owners.are_up_to_date(&claim), is_expected, "{scaled} {deleted} {replicas} {before}");
                    assert_eq!(letters(&owners.updated(&claim)), expected, "{scaled} {deleted} {replicas} {before}");
                }
            }
        }
    }

    #[test]
    fn claims_of_others_are_left_alone() {
        let set = set("Delete", "Delete", 2);
        let owners = ClaimOwners::of(&set, "web-1", "p");
        for (before, up_to_date, after) in [
            ("os", true, "os"),
            ("o", false, "os"),
            ("S", false, "s"),
            ("c", true, "c"),
            ("cs", false, "c"),
            ("x", true, ""),
            ("y", true, ""),
        ] {
            assert_eq!(owners.are_up_to_date(&claim(before)), up_to_date, "{before}");
            assert_eq!(letters(&owners.updated(&claim(before))), after, "{before}");
        }
        assert!(owners.is_stale(&claim("y")) && !owners.is_stale(&claim("p")));
        let unborn = ClaimOwners::of(&set, "web-1", "");
        assert!(unborn.is_stale(&claim("p")) && !unborn.is_stale(&claim("s")));
    }
}
