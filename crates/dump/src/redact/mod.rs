//! Replaces names in the objects of a dump, so that it can be shared.
//!
//! A text consists of words: what is between separators such as `-`, `.` and `/`. Each word is replaced by another one,
//! the same everywhere, and the new words have the order of the old ones. So everything that is put together from names
//! still fits together (the pods of a ReplicaSet, the claims of a StatefulSet, selectors and labels, a name in a message),
//! and what is sorted stays sorted. Numbers stay, and with them ordinals; so do well-known words ([`vocabulary`]), with
//! which the well-known labels, drivers, reasons and messages of Kubernetes are written.
//!
//! `fields` knows which fields of an object have names, `words` has the words and what replaces them.

mod fields;
mod vocabulary;
mod words;

use serde_json::Value;

use fields::visit;
use words::{Collected, Words};

/// What replaced what.
#[derive(Debug, Default)]
pub struct Redaction {
    words: Words,
}

/// Replaces the names in these objects.
pub fn redact<'a>(objects: impl IntoIterator<Item = &'a mut Value>) -> Redaction {
    let mut objects: Vec<&mut Value> = objects.into_iter().collect();
    let mut collected = Collected::default();
    // Names first: a message is searched for them.
    for object in &mut objects {
        fields::prepare(object);
        visit(object, &mut |text, use_of_it| collected.name(text, use_of_it));
    }
    for object in &mut objects {
        visit(object, &mut |text, use_of_it| collected.message(text, use_of_it));
    }
    let words = collected.assign();
    for object in &mut objects {
        visit(object, &mut |text, use_of_it| *text = words.replaced(text, use_of_it));
    }
    Redaction { words }
}

impl Redaction {
    /// A text with the former words: what an answer about the redacted objects says about the original ones.
    pub fn restore(&self, text: &str) -> String {
        self.words.restored(text)
    }

    /// A name as it is in the redacted objects.
    pub fn name(&self, name: &str) -> String {
        self.words.replaced(name, fields::TextUse::Name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_fit_together_and_keep_their_order() {
        let mut objects = [
            json!({ "apiVersion": "apps/v1", "kind": "StatefulSet",
                "metadata": { "name": "shop-db", "namespace": "acme", "labels": { "app": "shop" } },
                "spec": { "selector": { "matchLabels": { "app": "shop" } },
                    "volumeClaimTemplates": [{ "metadata": { "name": "data" } }] } }),
            json!({ "apiVersion": "v1", "kind": "Pod",
                "metadata": { "name": "shop-db-0", "namespace": "acme", "labels": { "app": "shop" },
                    "annotations": { "acme.com/owner": "Jane Doe" } },
                "spec": { "nodeName": "ip-10-0-3-4.acme.internal", "containers": [{ "name": "db", "image": "acme.com/db:1.2" }],
                    "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data-shop-db-0" } }] },
                "status": { "phase": "Pending", "hostIP": "10.0.3.4", "conditions": [{ "type": "PodScheduled", "status": "False",
                    "message": "0/3 nodes are available: persistentvolumeclaim \"data-shop-db-0\" not found." }] } }),
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "kube-system" } }),
        ];
        let plain = objects.clone();
        let redaction = redact(&mut objects);
        let text =
            |i: usize, pointer: &str| objects[i].pointer(pointer).and_then(Value::as_str).expect("a text").to_owned();
        let set = text(0, "/metadata/name");
        assert_ne!(set, "shop-db");
        assert_eq!(text(1, "/metadata/name"), format!("{set}-0"));
        let claim = format!("{}-{set}-0", text(0, "/spec/volumeClaimTemplates/0/metadata/name"));
        assert_eq!(text(1, "/spec/volumes/0/persistentVolumeClaim/claimName"), claim);
        let message = format!("0/3 nodes are available: persistentvolumeclaim \"{claim}\" not found.");
        assert_eq!(text(1, "/status/conditions/0/message"), message);
        assert_eq!(text(1, "/metadata/labels/app"), text(0, "/spec/selector/matchLabels/app"));
        assert_eq!(text(1, "/status/phase"), "Pending");
        assert_eq!(text(2, "/metadata/name"), "kube-system");
        let all = json!(objects).to_string();
        for leaked in ["acme", "shop", "Jane", "10.0.3.4", "10-0-3-4"] {
            assert!(!all.contains(leaked), "{leaked}: {all}");
        }
        let mut names = ["acme", "shop", "shop-db", "shop-db-0", "shop-db-10", "shop-db-9", "kube-system"];
        names.sort_unstable();
        let new: Vec<String> = names.iter().map(|name| redaction.name(name)).collect();
        let mut sorted = new.clone();
        sorted.sort_unstable();
        assert_eq!(new, sorted);
        for (new, name) in new.iter().zip(names) {
            assert_eq!(redaction.restore(new), name);
        }
        assert_eq!(redaction.restore(&message), plain[1]["status"]["conditions"][0]["message"]);
    }
}
