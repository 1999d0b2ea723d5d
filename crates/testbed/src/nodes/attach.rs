//! Volumes attached to nodes, as an external attacher does it: a VolumeAttachment is a wish, and the storage
//! ([`Disks`](super::Disks)) says what came of it.

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
    let name = attachment.name_any();
    if !attachment.finalizers().contains(&finalizer(attachment)) {
        return Ok(());
    }
    if let Err(message) = world.disks.detach(volume, &attachment.spec.node_name).await {
        let said = attachment.status.as_ref().and_then(|s| s.detach_error.as_ref()).and_then(|e| e.message.as_ref());
        return if said == Some(&message) {
            Ok(())
        } else {
            status(api, &name, json!({ "detachError": { "time": now(), "message": message } })).await
        };
    }
    status(api, &name, json!({ "attached": false, "detachError": null })).await?;
    gone_is_fine(api.patch(&name, &PatchParams::default(), &Patch::Merge(no_finalizers())).await)
}

async fn attach(
    api: &Api<VolumeAttachment>,
    world: &World,
    attachment: &VolumeAttachment,
    volume: &str,
) -> kube::Result<()> {
    let name = attachment.name_any();
    // Whoever deletes it from now on has to wait until the storage has detached it.
    if !attachment.finalizers().contains(&finalizer(attachment)) {
        let patch = json!({ "metadata": { "finalizers": [finalizer(attachment)] } });
        gone_is_fine(api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await)?;
    }
    if let Err(message) = world.disks.attach(volume, &attachment.spec.node_name).await {
        let said = attachment.status.as_ref().and_then(|s| s.attach_error.as_ref()).and_then(|e| e.message.as_ref());
        return if said == Some(&message) {
            Ok(())
        } else {
            let error = json!({ "attached": false, "attachError": { "time": now(), "message": message } });
            status(api, &name, error).await
        };
    }
    status(api, &name, json!({ "attached": true, "attachError": null })).await
}

async fn status(api: &Api<VolumeAttachment>, name: &str, status: Value) -> kube::Result<()> {
    let patch = Patch::Merge(json!({ "status": status }));
    gone_is_fine(api.patch_status(name, &PatchParams::default(), &patch).await)
}

/// An object that has gone in the meantime needs nothing any more.
fn gone_is_fine<T>(answer: kube::Result<T>) -> kube::Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}

fn no_finalizers() -> Value {
    json!({ "metadata": { "finalizers": null } })
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
