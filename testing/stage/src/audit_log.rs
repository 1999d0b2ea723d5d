//! The requests of a user in the API server's audit log.

use std::collections::BTreeMap;

use stead_testbed::{AuditEvent, ObjectRef};

/// A number of requests, by object or by verb.
pub type Counts = BTreeMap<String, u64>;

/// Whether a request only reads.
pub fn is_read(event: &AuditEvent) -> bool {
    matches!(event.verb.as_str(), "get" | "list" | "watch")
}

/// Returns a user's requests for resources, in the order of their responses.
pub fn requests<'a>(
    events: &'a [AuditEvent],
    user: &'a str,
) -> impl Iterator<Item = (&'a AuditEvent, &'a ObjectRef)> + 'a {
    events.iter().filter(move |event| event.user() == user).filter_map(|e| Some((e, e.object_ref.as_ref()?)))
}

/// Returns the writes that a user attempted, one line each, without leader election.
pub fn writes(events: &[AuditEvent], user: &str) -> Vec<String> {
    let ours = requests(events, user).filter(|(event, object)| !is_read(event) && object.resource != "leases");
    ours.map(|(event, object)| format!("{} {} {}: {}", event.received, event.verb, object_name(object), event.code()))
        .collect()
}

/// Counts a user's requests by verb; those of leader election count as `lease`.
pub fn requests_by_verb(events: &[AuditEvent], user: &str) -> Counts {
    let mut counts = Counts::new();
    // The log has two entries for a watch: at its start and at its end.
    let once = requests(events, user).filter(|(event, _)| event.verb != "watch" || event.stage == "ResponseStarted");
    for (event, object) in once {
        let verb = if object.resource == "leases" { "lease" } else { event.verb.as_str() };
        *counts.entry(verb.to_owned()).or_default() += 1;
    }
    counts
}

/// Counts the creations of each object in a namespace by a user. An apply that creates an object is answered with 201.
pub fn creations(events: &[AuditEvent], user: &str, namespace: &str) -> Counts {
    count(events, user, namespace, |event| matches!(event.verb.as_str(), "patch" | "create") && event.code() == 201)
}

/// Counts the deletions of each object in a namespace by a user.
pub fn deletions(events: &[AuditEvent], user: &str, namespace: &str) -> Counts {
    count(events, user, namespace, |event| event.verb == "delete" && event.code() == 200)
}

/// Counts a user's writes to each object in a namespace whose result is unknown: no response, or an error that leaves
/// open whether the write happened. If the client is killed during a request, the log has no result either.
pub fn unanswered(events: &[AuditEvent], user: &str, namespace: &str) -> Counts {
    count(events, user, namespace, |event| !is_read(event) && (event.code() == 0 || event.code() >= 499))
}

fn count(events: &[AuditEvent], user: &str, namespace: &str, counts: impl Fn(&AuditEvent) -> bool) -> Counts {
    let mut found = Counts::new();
    let ours = requests(events, user).filter(|(event, object)| object.namespace == namespace && counts(event));
    for (_, object) in ours.filter(|(_, object)| !matches!(object.resource.as_str(), "events" | "leases")) {
        *found.entry(object_name(object)).or_default() += 1;
    }
    found
}

fn object_name(object: &ObjectRef) -> String {
    let ObjectRef { resource, name, subresource, .. } = object;
    if subresource.is_empty() { format!("{resource}/{name}") } else { format!("{resource}/{name} {subresource}") }
}
