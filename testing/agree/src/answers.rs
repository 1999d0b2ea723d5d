//! What chance decided in a recording: nodes, suffixes of names, hashes of templates, victims.

use std::collections::BTreeMap;

use serde_json::Value;
use stead_sim::{Question, RecordedAnswers};

use crate::history::{Change, History};
use crate::observation::single;
use crate::recording::Recording;

/// The label of a pod with the hash of its template.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// The answers of a recording, in the order of time.
pub(crate) fn answers(recording: &Recording, history: &History) -> RecordedAnswers {
    let mut answers = RecordedAnswers::default();
    for change in &history.changes {
        match change.kind() {
            "Pod" => pod(change, &mut answers),
            "ReplicaSet" if change.before.is_none() => replica_set(change, &mut answers),
            "ControllerRevision" if change.before.is_none() => revision(change, &mut answers),
            "Event" => event(change, &mut answers),
            "Node" => node(change, &mut answers),
            "PersistentVolumeClaim" => claim(change, &history.kept, &mut answers),
            "VolumeAttachment" if change.before.is_none() => attachment(change, &mut answers),
            _ => {}
        }
    }
    scheduling_order(history).into_iter().for_each(|pod| answers.add(Question::NextPod, pod));
    cancelled_evictions(history).into_iter().for_each(|pod| answers.add(Question::EvictionCancelled { pod }, "yes"));
    late_taints(history).into_iter().for_each(|node| answers.add(Question::LateTaint { node }, "yes"));
    stale_nodes(history).into_iter().for_each(|node| answers.add(Question::StaleNode { node }, "yes"));
    taints_during_passes(history)
        .into_iter()
        .for_each(|(zone, answer)| answers.add(Question::TaintDuringPass { zone }, answer));
    collected_by_owners(history).into_iter().for_each(|pod| answers.add(Question::CollectedByOwner { pod }, "yes"));
    late_claims(history).into_iter().for_each(|(claim, how)| answers.add(Question::LateClaim { claim }, how));
    detachments(history).into_iter().for_each(|(question, answer)| answers.add(question, answer));
    stand_in_delays(recording, history).into_iter().for_each(|(question, millis)| answers.add(question, millis));
    answers
}

/// The time between two NoExecute taints of a zone, in milliseconds, with some tolerance.
const TAINT_TURN: std::ops::Range<i64> = 8000..13_000;

/// The nodes that got their NoExecute taint a turn late although no other node had the turn.
fn stale_nodes(history: &History) -> Vec<String> {
    let (mut lost, mut tainted): (BTreeMap<String, i64>, Vec<(i64, String)>) = (BTreeMap::new(), Vec::new());
    let mut stale = Vec::new();
    for change in history.changes.iter().filter(|change| change.kind() == "Node") {
        let Some(name) = text(change.latest(), "/metadata/name") else { continue };
        if is_lost_condition(change.after.as_ref()) && !is_lost_condition(change.before.as_ref()) {
            lost.insert(name.to_owned(), change.at);
        }
        if !has_lost_taint(change.after.as_ref()) || has_lost_taint(change.before.as_ref()) {
            continue;
        }
        let zone = shown_zone(change.latest());
        let had_turn = tainted.iter().any(|(at, other)| *other == zone && change.at - at < TAINT_TURN.end);
        if !had_turn && lost.get(name).is_some_and(|since| TAINT_TURN.contains(&(change.at - since))) {
            stale.push(name.to_owned());
        }
        tainted.push((change.at, zone));
    }
    stale
}

/// How soon after the last node of a zone was lost another taint belongs to the same pass, in milliseconds.
const SAME_PASS: i64 = 1000;

/// For each pass that found a whole zone lost: the zone, and whether a node of it got its NoExecute taint in it.
fn taints_during_passes(history: &History) -> Vec<(String, &'static str)> {
    let mut nodes: BTreeMap<String, Value> = history.kept.clone();
    nodes.retain(|key, _| key.starts_with("Node/"));
    let mut answers = Vec::new();
    for (place, change) in history.changes.iter().enumerate().filter(|(_, change)| change.kind() == "Node") {
        let key = crate::recording::key_of(change.latest());
        match &change.after {
            Some(after) => drop(nodes.insert(key, after.clone())),
            None => drop(nodes.remove(&key)),
        }
        let is_new = is_lost_condition(change.after.as_ref()) && !is_lost_condition(change.before.as_ref());
        if !is_new || !nodes.values().all(|node| is_lost_condition(Some(node))) {
            continue;
        }
        let zone = shown_zone(change.latest());
        let later = history.changes[place..].iter().take_while(|later| later.at - change.at < SAME_PASS);
        let tainted = later
            .filter(|later| later.kind() == "Node" && shown_zone(later.latest()) == zone)
            .any(|later| has_lost_taint(later.after.as_ref()) && !has_lost_taint(later.before.as_ref()));
        answers.push((zone, if tainted { "yes" } else { "no" }));
    }
    answers
}

/// How soon a controller deletes a pod that it sees as Failed, in milliseconds.
const OWNER_DELETES: i64 = 1000;

/// The pods that the pod garbage collector marked as Failed and their StatefulSet deleted.
fn collected_by_owners(history: &History) -> Vec<String> {
    let is_failed = |pod: Option<&Value>| pod.is_some_and(|pod| pod["status"]["phase"] == "Failed");
    let mut collected = Vec::new();
    for (place, change) in history.changes.iter().enumerate().filter(|(_, change)| change.kind() == "Pod") {
        if !is_failed(change.after.as_ref()) || is_failed(change.before.as_ref()) {
            continue;
        }
        let pod = change.latest();
        let Some(set) = owner(pod, "StatefulSet").and_then(|owner| Some(owner.rsplit_once('/')?.1.to_owned())) else {
            continue;
        };
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let message = format!("Delete Pod {name} in StatefulSet {set} successful");
        let later = history.changes[place..].iter().take_while(|later| later.at - change.at < OWNER_DELETES);
        let mut events = later.filter(|later| later.kind() == "Event").filter_map(|later| later.after.as_ref());
        if events.any(|event| single(event["message"].as_str().unwrap_or_default()) == message) {
            collected.extend(full_name(pod));
        }
    }
    collected
}

/// The claims that the volume binder saw only after their pods were created, or after a node was selected.
fn late_claims(history: &History) -> Vec<(String, &'static str)> {
    let mut waiting: BTreeMap<String, bool> = BTreeMap::new();
    let mut late = Vec::new();
    for change in &history.changes {
        let Some(object) = change.after.as_ref() else { continue };
        if change.kind() == "PersistentVolumeClaim" {
            let Some(name) = full_name(object) else { continue };
            if change.before.is_none() {
                waiting.insert(name, true);
            } else if newly(change, "/metadata/annotations/volume.kubernetes.io~1selected-node").is_some()
                && waiting.remove(&name) == Some(true)
            {
                late.push((name, "selected"));
            }
        }
        let about = &object["involvedObject"];
        let field = |name: &str| about[name].as_str().unwrap_or_default();
        let name = format!("{}/{}", field("namespace"), field("name"));
        match object["reason"].as_str() {
            Some("WaitForFirstConsumer") if about["kind"] == "PersistentVolumeClaim" => {
                waiting.insert(name, false);
            }
            Some("WaitForPodScheduled") if waiting.insert(name.clone(), false) == Some(true) => {
                late.push((name, "yes"))
            }
            _ => {}
        }
    }
    late
}

/// How much longer than its delay a stand-in kubelet may take, in milliseconds: more than that is something else.
const LATENESS: i64 = 2500;

/// How long the stand-in kubelets took for each stage.
fn stand_in_delays(recording: &Recording, history: &History) -> Vec<(Question, String)> {
    let spec = &recording.header.cluster;
    let mut since: BTreeMap<String, (&'static str, i64)> = BTreeMap::new();
    // What began before the snapshot took an unknown time.
    for pod in history.kept.values().filter(|object| object["kind"] == "Pod") {
        since.extend(full_name(pod).map(|name| (name, (stage(pod), i64::from(i32::MIN)))));
    }
    let mut delays = Vec::new();
    for change in history.changes.iter().filter(|change| change.kind() == "Pod") {
        let Some(pod) = full_name(change.latest()) else { continue };
        let (before, after) = (change.before.as_ref().map(stage), change.after.as_ref().map(stage));
        if before == after {
            continue;
        }
        let ended = match (before, after) {
            (Some("start"), Some("ready")) => Some(("start", spec.start_seconds)),
            (Some("ready"), Some("job")) => Some(("ready", spec.ready_seconds)),
            (Some("job"), Some("ended")) => Some(("job", spec.job_seconds)),
            (Some("stop"), None) => Some(("stop", spec.stop_seconds)),
            _ => None,
        };
        if let Some((stage, seconds)) = ended
            && let Some((known, from)) = since.get(&pod)
            && *known == stage
        {
            let (took, delay) = (change.at - from, (seconds * 1000.0) as i64);
            let is_own = (delay - 100..delay + LATENESS).contains(&took);
            let answer = if is_own { took.to_string() } else { "-".to_owned() };
            delays.push((Question::StandInDelay { pod: pod.clone(), stage }, answer));
        }
        match after {
            Some(stage) => drop(since.insert(pod, (stage, change.at))),
            None => drop(since.remove(&pod)),
        }
    }
    delays
}

/// What a stand-in kubelet does next with a pod. A pod that waits for volumes has no time of its own.
fn stage(pod: &Value) -> &'static str {
    let status = &pod["status"];
    let statuses = status["containerStatuses"].as_array().is_some_and(|statuses| !statuses.is_empty());
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let ready =
        conditions.filter(|condition| condition["type"] == "Ready").any(|condition| condition["status"] == "True");
    let claims = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let waits = claims.filter(|volume| volume["persistentVolumeClaim"].is_object()).count() > 0;
    match status["phase"].as_str() {
        _ if pod["metadata"]["deletionTimestamp"].is_string() => "stop",
        Some("Running") if ready => "job",
        Some("Running") => "ready",
        Some("Succeeded" | "Failed") => "ended",
        _ if statuses && !waits => "start",
        _ => "waiting",
    }
}

/// How soon a successor needs a volume, in milliseconds, if it may not be detached before.
const SUCCESSOR: i64 = 1500;

/// For each pod that released an attached volume: whether it was detached before the pod's successor on the same node needed
/// it.
fn detachments(history: &History) -> Vec<(Question, &'static str)> {
    let mut attachments: BTreeMap<String, Value> = history.kept.clone();
    attachments.retain(|key, _| key.starts_with("VolumeAttachment/"));
    let mut volumes: BTreeMap<String, String> = BTreeMap::new();
    let mut answers = Vec::new();
    let claims = history.kept.values().chain(history.changes.iter().filter_map(|change| change.after.as_ref()));
    for claim in claims.filter(|object| object["kind"] == "PersistentVolumeClaim") {
        if let (Some(name), Some(volume)) = (full_name(claim), text(claim, "/spec/volumeName")) {
            volumes.insert(name, volume.to_owned());
        }
    }
    for (place, change) in history.changes.iter().enumerate() {
        if change.kind() == "VolumeAttachment" {
            let key = crate::recording::key_of(change.latest());
            match &change.after {
                Some(after) => drop(attachments.insert(key, after.clone())),
                None => drop(attachments.remove(&key)),
            }
        }
        let (Some(pod), None, "Pod") = (&change.before, &change.after, change.kind()) else { continue };
        let Some(node) = text(pod, "/spec/nodeName") else { continue };
        for (claim, volume) in claims_of(pod).filter_map(|claim| Some((claim.clone(), volumes.get(&claim)?))) {
            let is_of = |attachment: &Value| {
                text(attachment, "/spec/source/persistentVolumeName") == Some(volume)
                    && text(attachment, "/spec/nodeName") == Some(node)
            };
            if !attachments
                .values()
                .any(|attachment| is_of(attachment) && attachment["metadata"]["deletionTimestamp"].is_null())
            {
                continue;
            }
            let question = Question::Detachment { claim, node: node.to_owned() };
            let later = history.changes[place..].iter().take_while(|later| later.at - change.at < SUCCESSOR);
            let needs = |later: &Change| {
                later.kind() == "Pod"
                    && newly(later, "/spec/nodeName") == Some(node)
                    && claims_of(later.latest()).any(|claim| volumes.get(&claim) == Some(volume))
            };
            let Some(needed) = later.clone().find(|later| needs(later)) else {
                answers.push((question, "-"));
                continue;
            };
            let mut marked = later.take_while(|later| later.at <= needed.at + 100);
            let detached = marked.any(|later| {
                later.kind() == "VolumeAttachment"
                    && is_of(later.latest())
                    && newly(later, "/metadata/deletionTimestamp").is_some()
            });
            answers.push((question, if detached { "yes" } else { "no" }));
        }
    }
    answers
}

/// The claims of a pod, with its namespace.
fn claims_of(pod: &Value) -> impl Iterator<Item = String> {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(move |volume| {
        Some(format!("{namespace}/{}", volume["persistentVolumeClaim"]["claimName"].as_str()?))
    })
}

/// How soon DaemonSets react to a lost node, in milliseconds.
const DAEMON_SET_REACTS: i64 = 1500;

/// The lost nodes of which DaemonSets saw that their pods are not ready, but not the taint that comes with it: they still
/// count them as nodes that should run a pod.
fn late_taints(history: &History) -> Vec<String> {
    let mut late = Vec::new();
    for (place, change) in history.changes.iter().enumerate().filter(|(_, change)| change.kind() == "Node") {
        let Some(name) = text(change.latest(), "/metadata/name") else { continue };
        if !is_lost_condition(change.after.as_ref()) || is_lost_condition(change.before.as_ref()) {
            continue;
        }
        let soon = history.changes[place..].iter().take_while(|later| later.at - change.at < DAEMON_SET_REACTS);
        let counts: Vec<&Change> = soon.filter(|later| later.kind() == "DaemonSet").collect();
        let wanted =
            |set: &Option<Value>| set.as_ref().and_then(|set| set["status"]["desiredNumberScheduled"].as_i64());
        if !counts.is_empty() && !counts.iter().any(|count| wanted(&count.after) < wanted(&count.before)) {
            late.push(name.to_owned());
        }
    }
    late
}

/// Whether nothing is heard of a node.
fn is_lost_condition(node: Option<&Value>) -> bool {
    let conditions = node.and_then(|node| node["status"]["conditions"].as_array()).into_iter().flatten();
    conditions.filter(|condition| condition["type"] == "Ready").any(|condition| condition["status"] == "Unknown")
}

/// How long a pod may take from its creation to its binding if nothing delays it, in milliseconds.
const SCHEDULING: i64 = 2000;

/// The order in which pods were scheduled: as they were created, or as they were bound if that was later.
fn scheduling_order(history: &History) -> Vec<String> {
    let mut created: BTreeMap<String, (i64, usize)> = BTreeMap::new();
    let mut order: Vec<(usize, String)> = Vec::new();
    for (place, change) in history.changes.iter().enumerate().filter(|(_, change)| change.kind() == "Pod") {
        let Some(name) = full_name(change.latest()) else { continue };
        if change.before.is_none() {
            created.insert(name.clone(), (change.at, place));
        }
        if newly(change, "/spec/nodeName").is_some() {
            let soon = created.get(&name).filter(|(at, _)| change.at - at < SCHEDULING);
            order.push((soon.map_or(place, |(_, place)| *place), name));
        }
    }
    order.sort();
    order.into_iter().map(|(_, name)| name).collect()
}

/// How long after an eviction it is reported as cancelled, in milliseconds, if the pod was removed at once.
const CANCELLED: i64 = 1000;

/// The pods whose evictions were reported as cancelled after they had been done.
fn cancelled_evictions(history: &History) -> Vec<String> {
    let mut marked: BTreeMap<String, i64> = BTreeMap::new();
    let mut cancelled = Vec::new();
    for change in history.changes.iter().filter(|change| change.kind() == "Event") {
        let message = change.after.as_ref().and_then(|event| event["message"].as_str()).unwrap_or_default();
        if let Some(pod) = message.strip_prefix("Marking for deletion Pod ") {
            marked.insert(pod.to_owned(), change.at);
        }
        if let Some(pod) = message.strip_prefix("Cancelling deletion of Pod ")
            && marked.get(pod).is_some_and(|at| change.at - at < CANCELLED)
        {
            cancelled.push(pod.to_owned());
        }
    }
    cancelled
}

fn text<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    value.pointer(path)?.as_str().filter(|text| !text.is_empty())
}

/// The value of a field that was not there before.
fn newly<'a>(change: &'a Change, path: &str) -> Option<&'a str> {
    let now = text(change.after.as_ref()?, path)?;
    let before = change.before.as_ref().and_then(|before| text(before, path));
    before.is_none().then_some(now)
}

fn full_name(object: &Value) -> Option<String> {
    Some(format!("{}/{}", text(object, "/metadata/namespace")?, text(object, "/metadata/name")?))
}

fn pod(change: &Change, answers: &mut RecordedAnswers) {
    let Some(pod) = change.after.as_ref() else { return };
    let Some(name) = full_name(pod) else { return };
    if let Some(node) = newly(change, "/spec/nodeName") {
        answers.add(Question::Node { pod: name.clone() }, node);
    }
    if let Some(node) = newly(change, "/status/nominatedNodeName")
        && is_unscheduled(pod)
    {
        answers.add(Question::Nomination { pod: name }, node);
    }
    let (Some(prefix), Some(name)) = (text(pod, "/metadata/generateName"), text(pod, "/metadata/name")) else { return };
    if change.before.is_some() {
        return;
    }
    let namespace = text(pod, "/metadata/namespace").unwrap_or_default();
    let place = match text(pod, "/metadata/ownerReferences/0/kind") {
        Some("DaemonSet") => bound_by_affinity(pod).map(|node| format!(" on {node}")),
        _ => None,
    };
    let prefix_and_place = format!("{namespace}/{prefix}{}", place.unwrap_or_default());
    let suffix = &name[name.len().saturating_sub(5)..];
    answers.add(Question::NameSuffix { prefix: prefix_and_place }, suffix);
}

/// Whether the scheduler has rejected a pod: it is nominated to a node then by preemption, otherwise while its volumes are
/// bound.
fn is_unscheduled(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter(|condition| condition["type"] == "PodScheduled").any(|condition| condition["status"] == "False")
}

/// The node of a daemon pod.
fn bound_by_affinity(pod: &Value) -> Option<&str> {
    let path = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0\
                /matchFields/0/values/0";
    text(pod, path)
}

fn replica_set(change: &Change, answers: &mut RecordedAnswers) {
    let Some(set) = change.after.as_ref() else { return };
    let hash = set["metadata"]["labels"][TEMPLATE_HASH].as_str();
    if let (Some(hash), Some(owner)) = (hash, owner(set, "Deployment")) {
        answers.add_template_hash(owner, hash);
    }
}

fn revision(change: &Change, answers: &mut RecordedAnswers) {
    let Some(revision) = change.after.as_ref() else { return };
    let name = text(revision, "/metadata/name").unwrap_or_default();
    let owner = owner(revision, "StatefulSet").or_else(|| owner(revision, "DaemonSet"));
    if let (Some(owner), Some((_, hash))) = (owner, name.rsplit_once('-')) {
        answers.add_template_hash(owner, hash);
    }
}

fn owner(object: &Value, kind: &str) -> Option<String> {
    let owner = &object["metadata"]["ownerReferences"][0];
    let namespace = text(object, "/metadata/namespace")?;
    (owner["kind"] == kind)
        .then(|| format!("{} {namespace}/{}", kind.to_lowercase(), owner["name"].as_str().unwrap_or_default()))
}

/// Which pods a controller deleted, and which budget it looked at, as it reports.
fn event(change: &Change, answers: &mut RecordedAnswers) {
    let Some(event) = change.after.as_ref() else { return };
    if event["reason"] == "MultiplePodDisruptionBudgets"
        && let Some((_, rest)) = event["message"].as_str().and_then(|message| message.split_once("Chose \""))
        && let Some((budget, _)) = rest.split_once('"')
    {
        let field = |name: &str| event["involvedObject"][name].as_str().unwrap_or_default();
        let pod = format!("{}/{}", field("namespace"), field("name"));
        return answers.add(Question::Budget { pod }, budget);
    }
    let message = event["message"].as_str().unwrap_or_default();
    let before = change.before.as_ref().and_then(|before| before["message"].as_str());
    if event["reason"] != "SuccessfulDelete" || before == Some(message) {
        return;
    }
    let message = single(message);
    let about = &event["involvedObject"];
    let field = |name: &str| about[name].as_str().unwrap_or_default();
    if let Some(pod) = message.strip_prefix("Deleted pod: ") {
        let workload = format!("{} {}/{}", field("kind").to_lowercase(), field("namespace"), field("name"));
        answers.add(Question::Victim { workload }, pod);
    }
}

/// Which of the nodes of a zone gets its NoExecute taint next.
fn node(change: &Change, answers: &mut RecordedAnswers) {
    if !has_lost_taint(change.after.as_ref()) || has_lost_taint(change.before.as_ref()) {
        return;
    }
    if let Some(name) = text(change.latest(), "/metadata/name") {
        answers.add(Question::TaintedNode { zone: shown_zone(change.latest()) }, name);
    }
}

/// Whether a node has the NoExecute taint of one that is lost.
fn has_lost_taint(node: Option<&Value>) -> bool {
    let taints = node.and_then(|node| node["spec"]["taints"].as_array()).into_iter().flatten();
    taints.filter(|taint| taint["effect"] == "NoExecute").any(|taint| {
        matches!(taint["key"].as_str(), Some("node.kubernetes.io/unreachable" | "node.kubernetes.io/not-ready"))
    })
}

/// The zone of a node as the simulation shows it.
fn shown_zone(node: &Value) -> String {
    let label =
        |name: &str| node["metadata"]["labels"][format!("topology.kubernetes.io/{name}")].as_str().unwrap_or_default();
    let (region, zone) = (label("region"), label("zone"));
    if region.is_empty() && zone.is_empty() { String::new() } else { format!("{region}/{zone}") }
}

fn claim(change: &Change, kept: &BTreeMap<String, Value>, answers: &mut RecordedAnswers) {
    let (Some(volume), Some(claim)) = (newly(change, "/spec/volumeName"), change.after.as_ref()) else { return };
    // A volume that was created for the claim is no choice.
    if kept.contains_key(&format!("PersistentVolume//{volume}"))
        && let Some(name) = full_name(claim)
    {
        answers.add(Question::Volume { claim: name }, volume);
    }
}

fn attachment(change: &Change, answers: &mut RecordedAnswers) {
    let Some(attachment) = change.after.as_ref() else { return };
    let volume = text(attachment, "/spec/source/persistentVolumeName");
    if let (Some(volume), Some(node)) = (volume, text(attachment, "/spec/nodeName")) {
        answers.add(Question::Attachment { volume: volume.to_owned() }, node);
    }
}

/// How fast the components of a recording react, in milliseconds: from the creation of a pod to its binding are three
/// reactions.
pub(crate) fn reaction(history: &History) -> Option<i64> {
    let mut created: BTreeMap<String, i64> = BTreeMap::new();
    let mut times = Vec::new();
    for change in history.changes.iter().filter(|change| change.kind() == "Pod") {
        let Some(name) = full_name(change.latest()) else { continue };
        if change.before.is_none() {
            created.insert(name.clone(), change.at);
        }
        if newly(change, "/spec/nodeName").is_some()
            && let Some(at) = created.get(&name)
        {
            times.push(change.at - at);
        }
    }
    times.sort_unstable();
    let middle = times.get(times.len() / 2)?;
    Some((middle / 3).clamp(2, 15))
}
