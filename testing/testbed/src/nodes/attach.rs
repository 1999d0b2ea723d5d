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

/// Attaches and detaches what is asked for, each by itself: the storage may take its time for one of them.
pub(super) async fn run(world: Arc<World>) {
    let mut changed = world.changed();
    let (mut known, mut tasks) = (BTreeSet::new(), JoinSet::new());
    // What was attached before us is.
    for attachment in world.attachments.state().iter().filter(|a| is_attached(a)) {
        if let Some(volume) = volume_of(attachment) {
            world.disks.adopt(volume, &attachment.spec.node_name);
        }
    }
    loop {
        changed.mark_unchanged();
        let all: Vec<Arc<VolumeAttachment>> = world.attachments.state();
        for attachment in all.iter().filter(|a| known.insert(uid(a))) {
            tasks.spawn(tend(world.clone(), attachment.name_any(), uid(attachment)));
        }
        known.retain(|uid| all.iter().any(|a| self::uid(a) == *uid));
        tokio::select! {
            news = changed.changed() => if news.is_err() { return },
            Some(_) = tasks.join_next() => {}
        }
    }
}

/// Looks after an attachment until it is gone.
async fn tend(world: Arc<World>, name: String, uid: String) {
    let mut changed = world.changed();
    loop {
        changed.mark_unchanged();
        let seen = world.attachments.get(&ObjectRef::new(&name));
        let Some(attachment) = seen.filter(|a| self::uid(a) == uid) else { return };
        let well = step(&world, &attachment).await;
        // What failed is tried again soon, even if nothing is new.
        let patience = if well.is_ok() { Duration::MAX } else { Duration::from_millis(300) };
        if let Ok(Err(_)) = tokio::time::timeout(patience, changed.changed()).await {
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
    if let Err(message) = world.disks.detach(volume, &attachment.spec.node_name).await {
        let said = attachment.status.as_ref().and_then(|s| s.detach_error.as_ref()).and_then(|e| e.message.as_ref());
        return if said == Some(&message) {
            Ok(())
        } else {
            status(api, attachment, json!({ "detachError": { "time": now(), "message": message } })).await
        };
    }
    status(api, attachment, json!({ "attached": false, "detachError": null })).await?;
    finalizers(api, attachment, Value::Null).await.map(drop)
}

async fn attach(
    api: &Api<VolumeAttachment>,
    world: &World,
    attachment: &VolumeAttachment,
    volume: &str,
) -> kube::Result<()> {
    // Whoever deletes it from now on has to wait until the storage has detached it. What is attached for one that is
    // gone already nobody would detach.
    if !attachment.finalizers().contains(&finalizer(attachment))
        && !finalizers(api, attachment, json!([finalizer(attachment)])).await?
    {
        return Ok(());
    }
    if let Err(message) = world.disks.attach(volume, &attachment.spec.node_name).await {
        let said = attachment.status.as_ref().and_then(|s| s.attach_error.as_ref()).and_then(|e| e.message.as_ref());
        return if said == Some(&message) {
            Ok(())
        } else {
            let error = json!({ "attached": false, "attachError": { "time": now(), "message": message } });
            status(api, attachment, error).await
        };
    }
    status(api, attachment, json!({ "attached": true, "attachError": null })).await
}

async fn status(api: &Api<VolumeAttachment>, attachment: &VolumeAttachment, status: Value) -> kube::Result<()> {
    let patch = json!({ "metadata": { "uid": attachment.uid() }, "status": status });
    let answer = api.patch_status(&attachment.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
    is_there(api, attachment, answer).await.map(drop)
}

/// Sets the finalizers. Whether there was still something to set them on.
async fn finalizers(
    api: &Api<VolumeAttachment>,
    attachment: &VolumeAttachment,
    finalizers: Value,
) -> kube::Result<bool> {
    let patch = json!({ "metadata": { "uid": attachment.uid(), "finalizers": finalizers } });
    let answer = api.patch(&attachment.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
    is_there(api, attachment, answer).await
}

/// Whether the object that was written to is still there. The next one between the same volume and node has the same
/// name, but not the same uid: that is a conflict, as is a write that came in the way of another one.
async fn is_there<T>(
    api: &Api<VolumeAttachment>,
    attachment: &VolumeAttachment,
    answer: kube::Result<T>,
) -> kube::Result<bool> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let there = api.get_opt(&attachment.name_any()).await?;
            if there.is_some_and(|a| a.uid() == attachment.uid()) { Err(kube::Error::Api(status)) } else { Ok(false) }
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
