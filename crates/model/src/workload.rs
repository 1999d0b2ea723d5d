//! Workloads: the objects that create pods.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{PodTemplateSpec, ReplicationController};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::error::ModelError;
use crate::key::ObjectKey;
use crate::objects::{ObjectRef, Objects};
use crate::owner::controller_of;

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WorkloadView<'a> {
    /// A Deployment.
    Deployment(&'a Deployment),
    /// A ReplicaSet.
    ReplicaSet(&'a ReplicaSet),
    /// A ReplicationController.
    ReplicationController(&'a ReplicationController),
    /// A StatefulSet.
    StatefulSet(&'a StatefulSet),
    /// A DaemonSet.
    DaemonSet(&'a DaemonSet),
    /// A Job.
    Job(&'a Job),
    /// A CronJob.
    CronJob(&'a CronJob),
}

impl Objects {
    /// The workload of this key; none where it does not exist or is of another kind, an error where it is malformed.
    pub fn workload(&self, key: &ObjectKey) -> Result<Option<WorkloadView<'_>>, ModelError> {
        self.object(key).map_or(Ok(None), WorkloadView::of)
    }

    /// The workload that controls an object of this namespace; none where it was not read or is malformed.
    pub fn workload_of(&self, namespace: &str, owner: &OwnerReference) -> Option<WorkloadView<'_>> {
        self.workload(&ObjectKey::new(&owner.kind, namespace, &owner.name)).ok().flatten()
    }
}

impl<'a> WorkloadView<'a> {
    fn of(object: ObjectRef<'a>) -> Result<Option<WorkloadView<'a>>, ModelError> {
        Ok(Some(match object.key().kind.as_str() {
            "Deployment" => WorkloadView::Deployment(object.typed()?),
            "ReplicaSet" => WorkloadView::ReplicaSet(object.typed()?),
            "ReplicationController" => WorkloadView::ReplicationController(object.typed()?),
            "StatefulSet" => WorkloadView::StatefulSet(object.typed()?),
            "DaemonSet" => WorkloadView::DaemonSet(object.typed()?),
            "Job" => WorkloadView::Job(object.typed()?),
            "CronJob" => WorkloadView::CronJob(object.typed()?),
            _ => return Ok(None),
        }))
    }

    /// Its metadata.
    pub fn metadata(self) -> &'a ObjectMeta {
        match self {
            WorkloadView::Deployment(w) => &w.metadata,
            WorkloadView::ReplicaSet(w) => &w.metadata,
            WorkloadView::ReplicationController(w) => &w.metadata,
            WorkloadView::StatefulSet(w) => &w.metadata,
            WorkloadView::DaemonSet(w) => &w.metadata,
            WorkloadView::Job(w) => &w.metadata,
            WorkloadView::CronJob(w) => &w.metadata,
        }
    }

    /// Its name.
    pub fn name(self) -> &'a str {
        self.metadata().name.as_deref().unwrap_or_default()
    }

    /// The owner that controls it.
    pub fn controller(self) -> Option<&'a OwnerReference> {
        controller_of(self.metadata())
    }

    /// How many pods it wants; none for a workload without a fixed number.
    pub fn replicas(self) -> Option<i32> {
        match self {
            WorkloadView::Deployment(w) => Some(w.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)),
            WorkloadView::ReplicaSet(w) => Some(w.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)),
            WorkloadView::ReplicationController(w) => Some(w.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)),
            WorkloadView::StatefulSet(w) => Some(w.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)),
            WorkloadView::DaemonSet(_) | WorkloadView::Job(_) | WorkloadView::CronJob(_) => None,
        }
    }

    /// The template of its pods.
    pub fn template(self) -> Option<&'a PodTemplateSpec> {
        match self {
            WorkloadView::Deployment(w) => w.spec.as_ref().map(|spec| &spec.template),
            WorkloadView::ReplicaSet(w) => w.spec.as_ref()?.template.as_ref(),
            WorkloadView::ReplicationController(w) => w.spec.as_ref()?.template.as_ref(),
            WorkloadView::StatefulSet(w) => w.spec.as_ref().map(|spec| &spec.template),
            WorkloadView::DaemonSet(w) => w.spec.as_ref().map(|spec| &spec.template),
            WorkloadView::Job(w) => w.spec.as_ref().map(|spec| &spec.template),
            WorkloadView::CronJob(w) => w.spec.job_template.spec.as_ref().map(|spec| &spec.template),
        }
    }
}
