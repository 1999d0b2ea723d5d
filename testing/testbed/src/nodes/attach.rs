//! Attaches volumes to nodes, like an external attacher: a VolumeAttachment is a request, and the storage
//! ([`Disks`](super::Disks)) decides the result.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::machine::now;
use super::world::World;

/// Handles each VolumeAttachment in its own task, because the storage can be slow.
pub(super) async fn run(world: Arc<World>) {
    let mut changed = world.changed();
    let (mut known, mut tasks) = (BTreeSet::new(), JoinSet::new());
    // Volumes that were attached before this process started.
    for attachment in world.attachments.state().iter().filter(|a| is_attached(a)) {
        if let Some(volume) = volume_of(attachment) {
            world.disks.adopt(volume, &attachment.spec.node_name);
        }
    }
    loop {
        changed.mark_unchanged();
        let all: Vec<Arc<VolumeAttachment>> = world.attachments.state();
        for attachment in all.iter().filter(|a| known.insert(uid(a))) {
            tasks.spawn(handle(world.clone(), attachment.name_any(), uid(attachment)));
        }
        known.retain(|uid| all.iter().any(|a| self::uid(a) == *uid));
        tokio::select! {
            change = changed.changed() => if change.is_err() { return },
            Some(_) = tasks.join_next() => {}
        }
    }
}

/// Handles an attachment until it is deleted.
async fn handle(world: Arc<World>, name: String, uid: String) {
    let mut changed = world.changed();
    loop {
        changed.mark_unchanged();
        let cached = world.attachments.get(&ObjectRef::new(&name));
        let Some(attachment) = cached.filter(|a| self::uid(a) == uid) else { return };
        let result = step(&world, &attachment).await;
        // A failure is retried soon, even without a change.
        let timeout = if result.is_ok() { Duration::MAX } else { Duration::from_millis(300) };
        if let Ok(Err(_)) = tokio::time::timeout(timeout, changed.changed()).await {
            return;
        }
    }
}

async fn step(world: &World, attachment: &VolumeAttachment) -> kube::Result<()> {
    let api: Api<VolumeAttachment> = Api::all(world.client.clone());
    let Some(volume) = volume_of(attachment) else { return Ok(()) };
    if attachment.metadata.deletion_timestamp.is_some() {
        detach(&api, world, attachment, volume).await
    } else if !is_attached(attachment) {
        attach(&api, world, attachment, volume).await
    } else {
        Ok(())
    }
}

async fn detach(
    api: &Api<VolumeAttachment>,
    world: &World,
    attachment: &VolumeAttachment,
    volume: &str,
) -> kube::Result<()> {
    if !attachment.finalizers().contains(&finalizer(attachment)) {
        return Ok(());
    }
    let detached = match world.disks.driver_error(&attachment.spec.attacher) {
        Some(message) => Err(message),
        None => world.disks.detach(volume, &attachment.spec.node_name).await,
    };
    if let Err(message) = detached {
        let reported =
            attachment.status.as_ref().and_then(|s| s.detach_error.as_ref()).and_then(|e| e.message.as_ref());
        return if reported == Some(&message) {
            Ok(())
        } else {
            patch_status(api, attachment, json!({ "detachError": { "time": now(), "message": message } })).await
        };
    }
    patch_status(api, attachment, json!({ "attached": false, "detachError": null })).await?;
    patch_finalizers(api, attachment, Value::Null).await.map(drop)
}

async fn attach(
    api: &Api<VolumeAttachment>,
    world: &World,
    attachment: &VolumeAttachment,
    volume: &str,
) -> kube::Result<()> {
    // The finalizer keeps the object until the storage has detached the volume. If the object is already gone, do not
    // attach: nothing would detach it.
    if !attachment.finalizers().contains(&finalizer(attachment))
        && !patch_finalizers(api, attachment, json!([finalizer(attachment)])).await?
    {
        return Ok(());
    }
    let attached = match world.disks.driver_error(&attachment.spec.attacher) {
        Some(message) => Err(message),
        None => world.disks.attach(volume, &attachment.spec.node_name).await,
    };
    if let Err(message) = attached {
        let reported =
            attachment.status.as_ref().and_then(|s| s.attach_error.as_ref()).and_then(|e| e.message.as_ref());
        return if reported == Some(&message) {
            Ok(())
        } else {
            let error = json!({ "attached": false, "attachError": { "time": now(), "message": message } });
            patch_status(api, attachment, error).await
        };
    }
    patch_status(api, attachment, json!({ "attached": true, "attachError": null })).await
}

async fn patch_status(api: &Api<VolumeAttachment>, attachment: &VolumeAttachment, status: Value) -> kube::Result<()> {
    let patch = json!({ "metadata": { "uid": attachment.uid() }, "status": status });
    let answer = api.patch_status(&attachment.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
    still_exists(api, attachment, answer).await.map(drop)
}

/// Sets the finalizers. Returns whether the object still exists.
async fn patch_finalizers(
    api: &Api<VolumeAttachment>,
    attachment: &VolumeAttachment,
    finalizers: Value,
) -> kube::Result<bool> {
    let patch = json!({ "metadata": { "uid": attachment.uid(), "finalizers": finalizers } });
    let answer = api.patch(&attachment.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
    still_exists(api, attachment, answer).await
}

/// Returns whether the object of a write still exists. A new attachment of the same volume and node has the same name
/// but another uid, which is a conflict, like a concurrent write.
async fn still_exists<T>(
    api: &Api<VolumeAttachment>,
    attachment: &VolumeAttachment,
    answer: kube::Result<T>,
) -> kube::Result<bool> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let current = api.get_opt(&attachment.name_any()).await?;
            if current.is_some_and(|a| a.uid() == attachment.uid()) { Err(kube::Error::Api(status)) } else { Ok(false) }
        }
        other => other.map(|_| true),
    }
}

fn finalizer(attachment: &VolumeAttachment) -> String {
    format!("external-attacher/{}", attachment.spec.attacher.replace('.', "-"))
}

fn uid(attachment: &VolumeAttachment) -> String {
    attachment.uid().unwrap_or_default()
}

fn volume_of(attachment: &VolumeAttachment) -> Option<&str> {
    attachment.spec.source.persistent_volume_name.as_deref()
}

fn is_attached(attachment: &VolumeAttachment) -> bool {
    attachment.status.as_ref().is_some_and(|status| status.attached)
}
