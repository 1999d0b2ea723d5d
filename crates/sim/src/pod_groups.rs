//! Which pods the selectors of budgets and Services match. A controller that has such groups keeps this up to date with
//! every change, so that neither a change of a pod nor a look at a group goes through all pods or all groups.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use stead_model::fork::Sorted;
use stead_semantics::labels::Operator;
use stead_semantics::{Labels, Selector};

use crate::object::{SimKey, SimType};
use crate::store::{Change, Store};

/// Groups of pods by selectors. A copy is a fork.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodGroups {
    groups: Sorted<SimKey, Arc<Group>>,
    /// The groups that a pod can only belong to if it has this label; the label is empty for groups without such a one.
    by_label: Sorted<Anchor, Arc<[SimKey]>>,
    /// The groups of each pod that has any.
    of_pod: Sorted<SimKey, Arc<[SimKey]>>,
}

/// A namespace, a label and its value.
type Anchor = (Arc<str>, Arc<str>, Arc<str>);

#[derive(Debug, Clone)]
struct Group {
    selector: Selector,
    anchor: Anchor,
    pods: BTreeSet<SimKey>,
}

impl PodGroups {
    /// The keys of the pods of a group, by name.
    pub(crate) fn keys(&self, group: &SimKey) -> impl Iterator<Item = &SimKey> {
        self.groups.get(group).into_iter().flat_map(|group| &group.pods)
    }

    /// The groups of a pod.
    #[cfg(test)]
    pub(crate) fn of_pod(&self, pod: &SimKey) -> &[SimKey] {
        self.of_pod.get(pod).map_or(&[], |groups| &**groups)
    }

    /// Sets the selector of a group; none if there is no such group any more.
    pub(crate) fn set_selector(&mut self, key: &SimKey, selector: Option<Selector>, store: &Store) {
        if self.groups.get(key).map(|group| &group.selector) == selector.as_ref() {
            return;
        }
        if let Some(before) = self.groups.remove(|other| other.cmp(key)) {
            self.change_anchor(&before.anchor, |groups| groups.retain(|group| group != key));
            for pod in &before.pods {
                self.change_pod(pod, |groups| groups.retain(|group| group != key));
            }
        }
        let Some(selector) = selector else { return };
        let none = Labels::new();
        let matches = |pod: &&Arc<Pod>| selector.matches(pod.metadata.labels.as_ref().unwrap_or(&none));
        let pods: BTreeSet<SimKey> = store
            .all_in::<Pod>(&key.namespace)
            .filter(matches)
            .map(|pod| SimKey::of(Pod::OBJECT_KIND, &pod.metadata))
            .collect();
        for pod in &pods {
            self.change_pod(pod, |groups| groups.push(key.clone()));
        }
        let anchor = anchor(&key.namespace, &selector);
        self.change_anchor(&anchor, |groups| groups.push(key.clone()));
        self.groups.insert(key.clone(), Arc::new(Group { selector, anchor, pods }));
    }

    /// Follows a change of a pod. Gives its groups before and after.
    pub(crate) fn pod_changed(&mut self, change: &Change) -> (Arc<[SimKey]>, Arc<[SimKey]>) {
        let groups = |groups: &PodGroups| groups.of_pod.get(&change.key).cloned().unwrap_or_default();
        if self.groups.is_empty() {
            return Default::default();
        }
        let before = groups(self);
        let (old, new) = change.of::<Pod>();
        let labels = |pod: Option<&Arc<Pod>>| pod.map(|pod| pod.metadata.labels.clone().unwrap_or_default());
        if let (Some(old), Some(new)) = (old, new)
            && old.metadata.labels == new.metadata.labels
        {
            return (Arc::clone(&before), before);
        }
        let matching = labels(new).map(|labels| self.matching(&change.key.namespace, &labels)).unwrap_or_default();
        for left in before.iter().filter(|group| !matching.contains(group)) {
            self.change_group(left, |pods| {
                pods.remove(&change.key);
            });
        }
        for joined in matching.iter().filter(|group| !before.contains(group)) {
            self.change_group(joined, |pods| {
                pods.insert(change.key.clone());
            });
        }
        self.change_pod(&change.key, |groups| *groups = matching);
        (before, groups(self))
    }

    /// The groups whose selectors match these labels, in order.
    fn matching(&self, namespace: &str, labels: &Labels) -> Vec<SimKey> {
        let find = |label: &str, value: &str| {
            let compare = |anchor: &Anchor| {
                (*anchor.0).cmp(namespace).then_with(|| (*anchor.1).cmp(label)).then_with(|| (*anchor.2).cmp(value))
            };
            self.by_label.find(compare).into_iter().flat_map(|groups| groups.iter())
        };
        let candidates = labels.iter().flat_map(|(label, value)| find(label, value)).chain(find("", ""));
        let matches = |key: &&SimKey| self.groups.get(key).is_some_and(|group| group.selector.matches(labels));
        let mut matching: Vec<SimKey> = candidates.filter(matches).cloned().collect();
        matching.sort();
        matching
    }

    fn change_group(&mut self, key: &SimKey, change: impl FnOnce(&mut BTreeSet<SimKey>)) {
        let Some(mut group) = self.groups.remove(|other| other.cmp(key)) else { return };
        change(&mut Arc::make_mut(&mut group).pods);
        self.groups.insert(key.clone(), group);
    }

    fn change_pod(&mut self, pod: &SimKey, change: impl FnOnce(&mut Vec<SimKey>)) {
        change_list(&mut self.of_pod, pod, change);
    }

    fn change_anchor(&mut self, anchor: &Anchor, change: impl FnOnce(&mut Vec<SimKey>)) {
        change_list(&mut self.by_label, anchor, change);
    }
}

fn change_list<K: Ord + Clone>(lists: &mut Sorted<K, Arc<[SimKey]>>, key: &K, change: impl FnOnce(&mut Vec<SimKey>)) {
    let mut list = lists.remove(|other| other.cmp(key)).map(|list| list.to_vec()).unwrap_or_default();
    change(&mut list);
    if !list.is_empty() {
        list.sort();
        lists.insert(key.clone(), list.into());
    }
}

/// A label that each pod of a group has.
fn anchor(namespace: &Arc<str>, selector: &Selector) -> Anchor {
    let is_one = |requirement: &&stead_semantics::Requirement| {
        requirement.operator() == Operator::In && requirement.values().len() == 1
    };
    let found = selector.requirements().iter().find(is_one);
    let (label, value) = found.map_or(("", ""), |one| (one.key(), one.values()[0].as_str()));
    (Arc::clone(namespace), label.into(), value.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{ObjectKind, SimObject};
    use serde_json::{Value, json};

    fn pod(name: &str, labels: Value) -> SimObject {
        SimObject::from_json(&json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": "n", "labels": labels } }))
        .expect("a pod")
    }

    fn group(name: &str) -> SimKey {
        SimKey::new(ObjectKind::Service, "n", name)
    }

    #[test]
    fn members_follow_labels_and_selectors() {
        let mut store = Store::default();
        let mut groups = PodGroups::default();
        let selector = |text: &str| Some(Selector::parse(text).expect("a selector"));
        let put = |store: &mut Store, groups: &mut PodGroups, pod: SimObject| {
            let change = store.put(pod);
            groups.pod_changed(&change);
        };
        put(&mut store, &mut groups, pod("a", json!({ "app": "x" })));
        groups.set_selector(&group("x"), selector("app=x"), &store);
        groups.set_selector(&group("any"), selector("app"), &store);
        groups.set_selector(&group("both"), selector("app=x,tier=y"), &store);
        put(&mut store, &mut groups, pod("b", json!({ "app": "x", "tier": "y" })));
        put(&mut store, &mut groups, pod("c", json!({ "app": "z" })));
        let found = |groups: &PodGroups| {
            ["any", "both", "x"]
                .map(|name| groups.keys(&group(name)).map(|pod| pod.name.to_string()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(found(&groups), ["a b c", "b", "a b"]);
        let fork = groups.clone();
        put(&mut store, &mut groups, pod("a", json!({ "app": "z", "tier": "y" })));
        let gone = store.remove(&SimKey::pod("n", "b")).expect("it was there");
        groups.pod_changed(&gone);
        groups.set_selector(&group("any"), None, &store);
        groups.set_selector(&group("both"), selector("tier=y"), &store);
        assert_eq!(found(&groups), ["", "a", ""]);
        assert_eq!(groups.of_pod(&SimKey::pod("n", "a")), [group("both")]);
        assert_eq!(fork.of_pod(&SimKey::pod("n", "b")), [group("any"), group("both"), group("x")]);
    }
}
