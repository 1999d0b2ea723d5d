//! The requests of a user, from the API server's audit log.

use std::collections::BTreeMap;

use stead_testbed::{AuditEvent, ObjectRef};

/// How often something was done, by what it was done to.
pub type Counts = BTreeMap<String, u64>;

/// Whether a request only looks.
pub fn reads(event: &AuditEvent) -> bool {
    matches!(event.verb.as_str(), "get" | "list" | "watch")
}

/// What a user asked of resources, in the order in which it was answered.
pub fn requests<'a>(
    events: &'a [AuditEvent],
    user: &'a str,
) -> impl Iterator<Item = (&'a AuditEvent, &'a ObjectRef)> + 'a {
    events.iter().filter(move |event| event.user() == user).filter_map(|e| Some((e, e.object_ref.as_ref()?)))
}

/// The writes that a user tried, without those of its election, a line each.
pub fn writes(events: &[AuditEvent], user: &str) -> Vec<String> {
    let ours = requests(events, user).filter(|(event, object)| !reads(event) && object.resource != "leases");
    ours.map(|(event, object)| format!("{} {} {}: {}", event.received, event.verb, named(object), event.code()))
        .collect()
}

/// How often a user asked, by verb; what its election asked is `lease`.
pub fn by_verb(events: &[AuditEvent], user: &str) -> Counts {
    let mut counts = Counts::new();
    // A watch is in the log when it begins, and when it ends.
    let once = requests(events, user).filter(|(event, _)| event.verb != "watch" || event.stage == "ResponseStarted");
    for (event, object) in once {
        let verb = if object.resource == "leases" { "lease" } else { event.verb.as_str() };
        *counts.entry(verb.to_owned()).or_default() += 1;
    }
    counts
}

/// How often a user made each object of a namespace. What was applied and was not there is answered with 201.
pub fn creations(events: &[AuditEvent], user: &str, namespace: &str) -> Counts {
    count(events, user, namespace, |event| matches!(event.verb.as_str(), "patch" | "create") && event.code() == 201)
}

/// How often a user ended each object of a namespace.
pub fn deletions(events: &[AuditEvent], user: &str, namespace: &str) -> Counts {
    count(events, user, namespace, |event| event.verb == "delete" && event.code() == 200)
}

/// How often a user asked for a change of each object of a namespace and got no answer, or one that leaves open whether
/// it was made: whoever is killed in the middle of a request does not hear how it ended, and neither does the log.
pub fn unanswered(events: &[AuditEvent], user: &str, namespace: &str) -> Counts {
    count(events, user, namespace, |event| !reads(event) && (event.code() == 0 || event.code() >= 499))
}

fn count(events: &[AuditEvent], user: &str, namespace: &str, counts: impl Fn(&AuditEvent) -> bool) -> Counts {
    let mut found = Counts::new();
    let ours = requests(events, user).filter(|(event, object)| object.namespace == namespace && counts(event));
    for (_, object) in ours.filter(|(_, object)| !matches!(object.resource.as_str(), "events" | "leases")) {
        *found.entry(named(object)).or_default() += 1;
    }
    found
}

fn named(object: &ObjectRef) -> String {
    let ObjectRef { resource, name, subresource, .. } = object;
    if subresource.is_empty() { format!("{resource}/{name}") } else { format!("{resource}/{name} {subresource}") }
}
