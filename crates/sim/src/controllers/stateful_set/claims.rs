//! The claims of a StatefulSet's pods (`stateful_pod_control.go`).

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use stead_model::stateful_set::claim_templates;

use super::events;
use super::identity::{claim_of, new_claim};
use super::retention::ClaimOwners;
use super::update::Update;
use crate::event_log::EventNote;
use crate::step::Write;

/// A pod has to wait until these claims are gone.
pub(super) struct ClaimsBeingDeleted(Vec<String>);

impl fmt::Display for ClaimsBeingDeleted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors: Vec<String> = self.0.iter().map(|claim| format!("pvc {claim} is being deleted")).collect();
        match &errors[..] {
            [error] => f.write_str(error),
            errors => write!(f, "[{}]", errors.join(", ")),
        }
    }
}

impl<'b> Update<'_, 'b> {
    pub(super) fn claim(&self, template: &PersistentVolumeClaim, pod: &str) -> Option<&'b Arc<PersistentVolumeClaim>> {
        self.cx.store.get::<PersistentVolumeClaim>(&self.key.namespace, &claim_of(template, pod))
    }

    /// Creates the claims of a pod that are missing.
    pub(super) fn create_claims(&mut self, pod: &str) -> Result<(), ClaimsBeingDeleted> {
        let mut blocked = Vec::new();
        for template in claim_templates(self.set) {
            match self.claim(template, pod) {
                None => {
                    let claim = new_claim(self.set, template, pod);
                    let event = events::claim_created(self.cx.settings, self.key, &claim_of(template, pod), pod);
                    self.writes.push(Write::Create(claim.into()));
                    self.writes.push(Write::Event(event));
                }
                Some(claim) if claim.metadata.deletion_timestamp.is_some() => {
                    blocked.push(claim_of(template, pod));
                }
                Some(_) => {}
            }
        }
        if blocked.is_empty() { Ok(()) } else { Err(ClaimsBeingDeleted(blocked)) }
    }

    /// Whether the claims of a pod have the owners that the policy wants.
    pub(super) fn claim_owners_match(&self, pod: &str, uid: &str) -> bool {
        let owners = ClaimOwners::of(self.set, pod, uid);
        let mut claims = claim_templates(self.set).iter().filter_map(|template| self.claim(template, pod));
        claims.all(|claim| owners.are_up_to_date(claim))
    }

    /// Gives the claims of a pod the owners that the policy wants.
    pub(super) fn update_claim_owners(&mut self, pod: &str, uid: &str) {
        let owners = ClaimOwners::of(self.set, pod, uid);
        for template in claim_templates(self.set) {
            let Some(claim) = self.claim(template, pod) else { continue };
            if owners.has_unexpected_controller(claim) {
                let message = format!(
                    "PersistentVolumeClaim {} has a conflicting OwnerReference that acts as a manging controller, the \
                     retention policy is ignored for this claim",
                    claim_of(template, pod)
                );
                self.writes.push(Write::Event(EventNote::warning(self.key, "ConflictingController", message)));
            }
            if !owners.are_up_to_date(claim) {
                self.writes.push(Write::Replace(owners.updated(claim).into()));
            }
        }
    }
}
