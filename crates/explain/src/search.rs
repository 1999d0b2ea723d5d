//! The smallest sets of changes that make a pod fit.
//!
//! For each node's rejection, the search applies every candidate fix to a fork and asks the scheduler's rules about the same
//! node again, up to three steps deep. Only sets of changes after which the pod fits are kept.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use stead_placement::{Attempt, AttemptFault, Rejection, RejectionReason, Verdict, evaluate};

use crate::change::{Change, ChangeAction, Trial};
use crate::remedies::{self, Harm, Remedy};
use stead_model::ObjectKey;

/// A fix that was verified.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fix {
    /// What to do.
    pub text: String,
    /// Its changes.
    pub changes: Vec<Change>,
    /// What it costs.
    pub harm: Harm,
    /// The nodes that the pod would go to then, the best ones.
    pub nodes: Vec<String>,
    /// Whether kube-scheduler does it by itself, so that there is nothing to type.
    #[serde(skip)]
    pub(crate) by_itself: bool,
}

/// The highest number of steps of a fix.
const MOST_STEPS: usize = 3;
/// The highest number of nodes that are examined, so that a large cluster is answered in time.
const MOST_NODES: usize = 24;
/// The highest number of nodes that are emptied, where nothing else helps.
const MOST_CLEARED: usize = 6;
/// The highest number of forks that are tried for a pod.
const MOST_TRIALS: usize = 600;
/// The highest number of similar fixes that are offered.
const MOST_ALIKE: usize = 2;
/// The highest number of fixes that are offered.
const MOST_FIXES: usize = 8;

struct Search<'a> {
    start: &'a Trial,
    tried: BTreeSet<(String, String)>,
    trials: usize,
    found: BTreeMap<String, Fix>,
    /// Whether a node may be cleared of as many pods as it takes.
    clearing: bool,
}

/// Fixes for a pod that does not fit; the least harmful first.
pub(crate) fn fixes(start: &Trial, verdict: &Verdict) -> Vec<Fix> {
    let mut search = Search { start, tried: BTreeSet::new(), trials: 0, found: BTreeMap::new(), clearing: false };
    search.preemption(verdict);
    let targets = targets(start, verdict);
    for steps in 1..=MOST_STEPS {
        for target in &targets {
            search.explore(start, target, &[], steps);
        }
        // Further steps are worth it only where nothing was found that leaves data and other pods alone.
        if search.found.values().any(|f| f.harm <= Harm::Smaller) {
            break;
        }
    }
    // A label that was forgotten may not be all there is to it: what comes after it is looked at as well.
    for target in &targets {
        search.explore_after_labels(target);
    }
    if search.found.is_empty() {
        search.clearing = true;
        search.tried.clear();
        search.trials = 0;
        for steps in 1..=MOST_STEPS {
            for target in targets.iter().take(MOST_CLEARED) {
                search.explore(start, target, &[], steps);
            }
            if !search.found.is_empty() {
                break;
            }
        }
    }
    for remedy in remedies::new_nodes(start) {
        search.keep(start, &[&remedy]);
    }
    select(search.found.into_values().collect())
}

/// The nodes to look into: those with the fewest reasons first, a few of each sort; none of them where the pod is
/// rejected before any node is looked at.
fn targets(start: &Trial, verdict: &Verdict) -> Vec<Option<Arc<str>>> {
    if Attempt::new(&start.cluster, &start.pod).is_err() {
        return vec![None];
    }
    let mut sorts: BTreeMap<&[RejectionReason], Vec<&Arc<str>>> = BTreeMap::new();
    for (node, rejection) in &verdict.rejected {
        sorts.entry(&rejection.reasons).or_default().push(node);
    }
    let mut sorts: Vec<(&[RejectionReason], Vec<&Arc<str>>)> = sorts.into_iter().collect();
    // Alphabetical, so that the order of the nodes does not depend on the order of the variants.
    sorts.sort_by_cached_key(|(reasons, _)| {
        (reasons.len(), reasons.iter().map(ToString::to_string).collect::<Vec<String>>())
    });
    let each = (MOST_NODES / sorts.len().max(1)).max(1);
    sorts
        .into_iter()
        .flat_map(|(_, nodes)| nodes.into_iter().take(each))
        .take(MOST_NODES)
        .map(|n| Some(Arc::clone(n)))
        .collect()
}

/// Whether a node accepts the pod in a trial; any node where none is given. The rejection is absent where the scheduler
/// fails.
fn ask(trial: &Trial, node: Option<&str>) -> Result<(), Option<Rejection>> {
    let rejection = |fault| match fault {
        AttemptFault::Rejected(rejection) => Some(rejection),
        AttemptFault::Error(_) => None,
    };
    let attempt = Attempt::new(&trial.cluster, &trial.pod).map_err(rejection)?;
    match node.map(|n| trial.cluster.node(n)) {
        Some(Some(info)) => attempt.node(info).map_err(rejection),
        // What kept all nodes away is gone; evaluation tells which of them is free now.
        _ => match evaluate(&trial.cluster, &trial.pod) {
            Ok(v) if v.fits() => Ok(()),
            Ok(v) => Err(v.rejected.into_values().next()),
            Err(_) => Err(None),
        },
    }
}

fn identity(changes: &[Change]) -> String {
    serde_json::to_string(changes).unwrap_or_default()
}

fn changes_of(path: &[&Remedy]) -> Vec<Change> {
    path.iter().flat_map(|r| r.changes.iter().cloned()).collect()
}

impl Search<'_> {
    /// What kube-scheduler does by itself where the pod matters more than others.
    fn preemption(&mut self, verdict: &Verdict) {
        for nominee in verdict.nominees.iter().filter(|n| n.victims.len() <= MOST_STEPS) {
            let names: Vec<String> = nominee.victims.iter().map(ToString::to_string).collect();
            let keys = nominee.victims.iter();
            let changes = keys.map(|k| Change::delete(&ObjectKey::pod(&k.namespace, &k.name))).collect();
            let text =
                format!("wait: kube-scheduler preempts {} on node {} by itself", remedies::join(&names), nominee.node);
            let remedy = Remedy { text, harm: Harm::Disrupts, changes };
            if let Some(fix) = self.keep(self.start, &[&remedy]) {
                fix.by_itself = true;
            }
        }
    }

    fn explore(&mut self, trial: &Trial, target: &Option<Arc<str>>, path: &[&Remedy], steps: usize) {
        let node = target.as_deref();
        let Err(rejection) = ask(trial, node) else {
            if !path.is_empty() {
                self.keep(self.start, path);
            }
            return;
        };
        if steps == 0 {
            return;
        }
        let before_nodes = Attempt::new(&trial.cluster, &trial.pod).is_err();
        if target.is_none() && !before_nodes {
            // What kept all nodes away is gone: from here on it is each node's own matter.
            let Ok(verdict) = evaluate(&trial.cluster, &trial.pod) else { return };
            for target in targets(trial, &verdict) {
                self.explore(trial, &target, path, steps);
            }
            return;
        }
        let info = node.filter(|_| !before_nodes).and_then(|n| trial.cluster.node(n));
        let mut candidates = rejection.map_or(Vec::new(), |r| remedies::for_rejection(trial, info, &r));
        if self.clearing {
            candidates.extend(info.and_then(|info| remedies::make_room(trial, info)));
        }
        for remedy in candidates {
            let path: Vec<&Remedy> = path.iter().copied().chain([&remedy]).collect();
            let id = (identity(&changes_of(&path)), node.unwrap_or_default().to_owned());
            // A step that was tried before is tried again only on the way to a further one.
            if steps == 1 && !self.tried.insert(id) {
                continue;
            }
            if self.trials >= MOST_TRIALS {
                return;
            }
            self.trials += 1;
            if let Some(next) = trial.with(&remedy.changes) {
                self.explore(&next, target, &path, steps - 1);
            }
        }
    }

    fn explore_after_labels(&mut self, target: &Option<Arc<str>>) {
        let start = self.start;
        let Err(Some(rejection)) = ask(start, target.as_deref()) else { return };
        let Some(info) = target.as_deref().and_then(|n| start.cluster.node(n)) else { return };
        for label in remedies::for_rejection(start, Some(info), &rejection) {
            if label.harm <= Harm::Trusts
                && label.changes.iter().all(labels_node)
                && let Some(next) = start.with(&label.changes)
            {
                self.explore(&next, target, &[&label], 1);
            }
        }
    }

    /// Keeps a fix, if the pod fits with it and it was not found before.
    fn keep(&mut self, start: &Trial, path: &[&Remedy]) -> Option<&mut Fix> {
        let changes = changes_of(path);
        let Entry::Vacant(place) = self.found.entry(identity(&changes)) else { return None };
        let trial = start.with(&changes)?;
        let verdict = evaluate(&trial.cluster, &trial.pod).ok()?;
        if !verdict.fits() || changes.is_empty() {
            return None;
        }
        let texts: Vec<String> = path.iter().map(|r| r.text.clone()).collect();
        Some(place.insert(Fix {
            text: texts.join("; then "),
            harm: path.iter().map(|r| r.harm).max().unwrap_or(Harm::None),
            nodes: verdict.best.iter().map(ToString::to_string).collect(),
            changes,
            by_itself: false,
        }))
    }
}

/// The best of them: by harm, then by size, then those that leave the nodes alone, since a node concerns all pods; none
/// that does more than another needs to; few that are alike.
fn select(mut found: Vec<Fix>) -> Vec<Fix> {
    let changes_node = |fix: &Fix| fix.changes.iter().any(|change| change.kind == "Node");
    found.sort_by(|a, b| {
        let of_a = (a.harm, a.changes.len(), changes_node(a), &a.text);
        of_a.cmp(&(b.harm, b.changes.len(), changes_node(b), &b.text))
    });
    let touched: Vec<BTreeSet<(ObjectKey, String)>> = found.iter().map(fields).collect();
    // Against all that were found, shown or not: a step that nothing needs must not slip in with another.
    let needless = |at: usize| {
        let mine = &touched[at];
        touched[..at].contains(mine) || touched.iter().any(|other| other.len() < mine.len() && other.is_subset(mine))
    };
    let mut out: Vec<Fix> = Vec::new();
    let mut alike: BTreeMap<Vec<Sort>, usize> = BTreeMap::new();
    for (at, fix) in found.into_iter().enumerate() {
        // Smaller and no more harmful wins. What a forgotten label leads to is shown beside it all the same.
        let label_first = labels_node(&fix.changes[0]) && fix.harm <= Harm::Trusts;
        let wins = |f: &Fix| f.changes.len() < fix.changes.len() && !label_first;
        if out.iter().any(wins) || needless(at) {
            continue;
        }
        let n = alike.entry(sort_of(&fix)).or_insert(0);
        *n += 1;
        if *n <= MOST_ALIKE {
            out.push(fix);
        }
    }
    out.truncate(MOST_FIXES);
    out
}

/// Whether a change is to a node's labels alone.
fn labels_node(change: &Change) -> bool {
    let ChangeAction::Patch(patch) = &change.action else { return false };
    change.kind == "Node" && patch.0.iter().all(|op| op.path().to_string().starts_with("/metadata/labels"))
}

/// The fields that a fix touches, of which objects.
fn fields(fix: &Fix) -> BTreeSet<(ObjectKey, String)> {
    let of = |c: &Change| -> Vec<(ObjectKey, String)> {
        match &c.action {
            // Which value a field gets makes all the difference, unless it is only taken away.
            ChangeAction::Patch(patch) => {
                patch.0.iter().map(|op| (c.key(), serde_json::json!(op).to_string())).collect()
            }
            ChangeAction::Delete(_) => vec![(c.key(), "delete".into())],
            ChangeAction::Create(object) => vec![(c.key(), object.to_string())],
        }
    };
    fix.changes.iter().flat_map(of).collect()
}

/// A kind, what is done to it, and the fields of that.
type Sort = (String, &'static str, Vec<String>);

/// What a fix touches, without the names: two of the same kind say much the same.
fn sort_of(fix: &Fix) -> Vec<Sort> {
    let fields = |patch: &json_patch::Patch| patch.0.iter().map(|op| op.path().to_string()).collect();
    fix.changes
        .iter()
        .map(|c| match &c.action {
            ChangeAction::Patch(patch) => (c.kind.clone(), "patch", fields(patch)),
            ChangeAction::Delete(_) => (c.kind.clone(), "delete", Vec::new()),
            ChangeAction::Create(_) => (c.kind.clone(), "create", Vec::new()),
        })
        .collect()
}
