//! What events say about an object.

use jiff::Timestamp;
use serde_json::Value;

use super::node::time;
use super::pod::PodSeen;
use stead_model::Objects;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    /// When it was said last.
    pub(crate) at: Option<Timestamp>,
    /// When it was said first.
    pub(crate) first: Option<Timestamp>,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// Who said it.
    pub(crate) by: String,
    pub(crate) warning: bool,
}

/// The events about an object, the newest last. An object that was made anew has the name of the old one, but not its
/// identity: with one given, events about another are left out.
pub(crate) fn about(objects: &Objects, kind: &str, namespace: &str, name: &str, uid: Option<&str>) -> Vec<Said> {
    let mut out: Vec<Said> = objects
        .raw_of_kind("Event")
        .map(|(_, event)| event)
        .filter(|event| {
            let about = [&event["involvedObject"], &event["regarding"]].into_iter().find(|o| o.is_object());
            about.is_some_and(|o| {
                let same = |field: &str, value: &str| o[field].as_str().unwrap_or_default() == value;
                let uid = uid.zip(o["uid"].as_str()).is_none_or(|(a, b)| a == b);
                same("kind", kind) && same("name", name) && same("namespace", namespace) && uid
            })
        })
        .map(said)
        .collect();
    out.sort_by_key(|said| (said.at, said.first));
    out
}

/// When a Node object went, as far as events tell. One of its name that had pods since was there since.
pub(crate) fn node_gone(objects: &Objects, name: &str) -> Option<Timestamp> {
    let pods = objects.raw_of_kind("Pod").map(|(_, p)| PodSeen(p)).filter(|p| p.node() == Some(name));
    let there = pods.filter_map(PodSeen::created).max();
    let said = about(objects, "Node", "", name, None);
    let gone = said.iter().rev().find(|s| s.reason == "RemovingNode" || s.reason == "DeletingNode");
    gone.and_then(|s| s.at).filter(|at| Some(*at) >= there)
}

fn said(event: &Value) -> Said {
    let text = |value: &Value| value.as_str().unwrap_or_default().trim().to_owned();
    let first = [&event["firstTimestamp"], &event["eventTime"], &event["metadata"]["creationTimestamp"]];
    let last = [&event["series"]["lastObservedTime"], &event["lastTimestamp"]];
    let first = first.into_iter().find_map(time);
    Said {
        at: last.into_iter().find_map(time).or(first),
        first,
        reason: text(&event["reason"]),
        message: text(if event["message"].is_string() { &event["message"] } else { &event["note"] }),
        by: text(if event["source"]["component"].is_string() {
            &event["source"]["component"]
        } else {
            &event["reportingComponent"]
        }),
        warning: event["type"] == "Warning",
    }
}
