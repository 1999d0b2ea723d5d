//! Volumes attached to nodes, as an external attacher does it: each to one node at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::machine::now;
use super::world::World;

/// The node that each volume is attached to.
type Holders = BTreeMap<String, String>;

/// Attaches and detaches what is asked for.
pub(super) async fn run(world: Arc<World>) {
    let mut changed = world.changed();
    let mut holders = Holders::new();
    loop {
        changed.mark_unchanged();
        let well = look(&world, &mut holders).await;
        // What failed is tried again soon, even if nothing is new.
        let patience = if well.is_ok() { Duration::MAX } else { Duration::from_millis(300) };
        if let Ok(Err(_)) = tokio::time::timeout(patience, changed.changed()).await {
            return;
        }
    }
}

async fn look(world: &World, holders: &mut Holders) -> kube::Result<()> {
    let api: Api<VolumeAttachment> = Api::all(world.client.clone());
    let all: Vec<Arc<VolumeAttachment>> = world.attachments.state();
    // An attachment holds its volume until its finalizer is gone, whether we made it or somebody before us.
    holders.retain(|volume, node| all.iter().any(|a| volume_of(a) == Some(volume) && a.spec.node_name == *node));
    for attachment in all.iter().filter(|a| is_attached(a)) {
        if let Some(volume) = volume_of(attachment) {
            holders.entry(volume.to_owned()).or_insert_with(|| attachment.spec.node_name.clone());
        }
    }
    let (leaving, wanted): (Vec<_>, Vec<_>) = all.iter().partition(|a| a.metadata.deletion_timestamp.is_some());
    for attachment in leaving {
        detach(&api, attachment, holders).await?;
    }
    for attachment in wanted.into_iter().filter(|a| !is_attached(a)) {
        attach(&api, attachment, holders).await?;
    }
    Ok(())
}

async fn detach(api: &Api<VolumeAttachment>, attachment: &VolumeAttachment, holders: &mut Holders) -> kube::Result<()> {
    let name = attachment.name_any();
    if attachment.finalizers().contains(&finalizer(attachment)) {
        status(api, &name, json!({ "attached": false })).await?;
        gone_is_fine(api.patch(&name, &PatchParams::default(), &Patch::Merge(no_finalizers())).await)?;
    }
    if let Some(volume) = volume_of(attachment)
        && holders.get(volume) == Some(&attachment.spec.node_name)
    {
        holders.remove(volume);
    }
    Ok(())
}

async fn attach(api: &Api<VolumeAttachment>, attachment: &VolumeAttachment, holders: &mut Holders) -> kube::Result<()> {
    let (name, node) = (attachment.name_any(), &attachment.spec.node_name);
    let Some(volume) = volume_of(attachment) else { return Ok(()) };
    if let Some(holder) = holders.get(volume).filter(|holder| *holder != node) {
        let message = format!("disk {volume} is attached to a different instance ({holder})");
        let said = attachment.status.as_ref().and_then(|s| s.attach_error.as_ref()).and_then(|e| e.message.as_ref());
        if said != Some(&message) {
            let error = json!({ "attached": false, "attachError": { "time": now(), "message": message } });
            status(api, &name, error).await?;
        }
        return Ok(());
    }
    if !attachment.finalizers().contains(&finalizer(attachment)) {
        let patch = json!({ "metadata": { "finalizers": [finalizer(attachment)] } });
        gone_is_fine(api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await)?;
    }
    status(api, &name, json!({ "attached": true, "attachError": null })).await?;
    holders.insert(volume.to_owned(), node.clone());
    Ok(())
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

fn volume_of(attachment: &VolumeAttachment) -> Option<&str> {
    attachment.spec.source.persistent_volume_name.as_deref()
}

fn is_attached(attachment: &VolumeAttachment) -> bool {
    attachment.status.as_ref().is_some_and(|status| status.attached)
}
