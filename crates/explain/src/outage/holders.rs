//! Who uses a volume where it is attached.

use stead_model::{Objects, PodView, PodVolume, pod_volumes};

/// The pods on a node that use a volume, those that have ended left out.
pub(crate) fn holders<'a>(
    objects: &'a Objects,
    volume: &'a PodVolume,
    node: &'a str,
) -> impl Iterator<Item = PodView<'a>> {
    let uses = |pod: PodView| pod_volumes(objects, pod).iter().any(|v| v.volume.is_some() && v.volume == volume.volume);
    objects.pods_on(node).filter(move |pod| !pod.has_ended() && uses(*pod))
}
