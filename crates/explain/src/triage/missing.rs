//! The object that a message says is missing, or that a pod refers to and that does not exist.

use k8s_openapi::api::core::v1::Volume;
use stead_model::{ObjectKey, PodView};

use super::evidence::Evidence;

const KINDS: [(&str, &str); 4] = [
    ("secret", "Secret"),
    ("configmap", "ConfigMap"),
    ("persistentvolumeclaim", "PersistentVolumeClaim"),
    ("serviceaccount", "ServiceAccount"),
];

/// The object that a kubelet's message says is missing or lacks a key:
/// `secret "db" not found`, `couldn't find key K in Secret N/db`, `references non-existent secret key: K`.
pub(super) fn missing_object(pod: PodView<'_>, message: &str) -> Option<ObjectKey> {
    let lower = message.to_lowercase();
    let of = |kind: &str, name: &str| ObjectKey::new(kind, pod.namespace(), name);
    for (word, kind) in KINDS {
        for begin in [format!("{word} \""), format!("{word}s \"")] {
            let named = lower.find(&begin).and_then(|at| message.get(at + begin.len()..));
            if let Some((name, rest)) = named.and_then(|rest| rest.split_once('"'))
                && rest.trim_start().starts_with("not found")
            {
                return Some(of(kind, name));
            }
        }
        let key_of = format!("in {word} ");
        if lower.contains("couldn't find key")
            && let Some(path) = lower.find(&key_of).and_then(|at| message.get(at + key_of.len()..))
        {
            let path = path.split_whitespace().next().unwrap_or_default();
            return Some(of(kind, path.rsplit('/').next().unwrap_or(path)));
        }
    }
    let lacks_key =
        ["references non-existent secret key", "references non-existent config key"].iter().any(|s| lower.contains(s));
    let volume = message.split_once("for volume \"").and_then(|(_, rest)| rest.split_once('"')).map(|(name, _)| name);
    let volume = pod.volumes().iter().find(|v| lacks_key && Some(v.name.as_str()) == volume)?;
    source_of(volume).map(|(kind, name)| of(kind, name))
}

/// The Secret or ConfigMap behind a volume.
fn source_of(volume: &Volume) -> Option<(&'static str, &str)> {
    let secret = volume.secret.as_ref().and_then(|secret| secret.secret_name.as_deref());
    secret
        .map(|name| ("Secret", name))
        .or_else(|| volume.config_map.as_ref().map(|source| ("ConfigMap", source.name.as_str())))
}

/// The ConfigMap of a volume that does not exist, where ConfigMaps were read. Secrets never are.
pub(super) fn missing_config_map(evidence: &Evidence<'_>, pod: PodView<'_>) -> Option<ObjectKey> {
    if !evidence.was_read("ConfigMap") {
        return None;
    }
    let sources = pod.volumes().iter().filter_map(|volume| volume.config_map.as_ref());
    let needed = sources.filter(|source| source.optional != Some(true) && !source.name.is_empty());
    let mut keys = needed.map(|source| ObjectKey::new("ConfigMap", pod.namespace(), &source.name));
    keys.find(|key| !evidence.objects.contains(key))
}
