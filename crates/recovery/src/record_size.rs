//! Limits on every list and text in a record.
//!
//! etcd refuses requests of more than 1.5 MiB, and the CRD schema has limits of its own. A record that cannot be written
//! would stop a recovery half-way, so each record is cut to the limits before it is written.

use crate::record::{NodeRecovery, ReplacementTarget};
use crate::refusal::Refusal;

/// How many of the nodes that can run a replacement pod are stored, the best first.
pub(crate) const BEST_NODES: usize = 3;

/// How many of a node's pods that have ended are listed one by one.
pub(crate) const LISTED_ENDED_PODS: usize = 20;

/// The maximum size of a serialized record in bytes. A larger one is refused before anything is written.
pub(crate) const MAX_RECORD: usize = 1_300_000;

/// How many items of evidence are kept: the first, and the latest ones.
const MAX_EVIDENCE: usize = 16;

/// How many steps are kept: the first, and the latest ones.
const MAX_STEPS: usize = 200;

/// The maximum number of pods in a plan, as in the CRD schema. A node has far fewer; the list grows by the pods that earlier
/// recoveries of the same boot have released.
const MAX_PODS: usize = 1024;

/// The maximum length of a text in characters: a step, or the reason why a pod stays or no node can run it.
const MAX_TEXT: usize = 1024;

/// The same for a pod that was released earlier.
const MAX_TEXT_OF_RELEASED: usize = 64;

/// The maximum length of the status message in characters.
const MAX_MESSAGE: usize = 4096;

/// Cuts a record to the limits.
pub(crate) fn bound(record: &mut NodeRecovery) {
    keep_first_and_latest(&mut record.spec.evidence, MAX_EVIDENCE);
    keep_first_and_latest(&mut record.status.steps, MAX_STEPS);
    record.status.steps.iter_mut().for_each(|step| cut(&mut step.what, MAX_TEXT));
    cut(&mut record.status.message, MAX_MESSAGE);
    let plan = &mut record.spec.plan;
    for pod in &mut plan.pods {
        // Records of earlier versions list every node.
        pod.feasible_nodes = pod.feasible_nodes();
        match &mut pod.target {
            ReplacementTarget::Nodes(nodes) => nodes.truncate(BEST_NODES),
            ReplacementTarget::NoNode(why) => {
                cut(why, if pod.released_earlier { MAX_TEXT_OF_RELEASED } else { MAX_TEXT })
            }
            ReplacementTarget::NotRecreated => {}
        }
    }
    plan.left_alone.iter_mut().for_each(|left| cut(&mut left.why, MAX_TEXT));
    // One pod that was released earlier is enough to know that the kubelet has to be asked what it runs.
    while plan.pods.len() > MAX_PODS && plan.pods.iter().filter(|pod| pod.released_earlier).count() > 1 {
        let Some(first) = plan.pods.iter().position(|pod| pod.released_earlier) else { break };
        plan.pods.remove(first);
    }
}

/// An error if a record is too large even within the limits, because many pods with long lists of tolerations stay on the
/// node.
pub(crate) fn check(record: &NodeRecovery) -> Result<(), Refusal> {
    let size = serde_json::to_vec(record).map_or(0, |bytes| bytes.len());
    if size <= MAX_RECORD {
        return Ok(());
    }
    Err(Refusal::RecordTooLarge { node: record.spec.node.name.clone(), size })
}

fn keep_first_and_latest<T>(items: &mut Vec<T>, most: usize) {
    if let Some(surplus) = items.len().checked_sub(most).filter(|surplus| *surplus > 0) {
        items.drain(1..=surplus);
    }
}

/// Cuts a text as Kubernetes cuts long messages.
fn cut(text: &mut String, most: usize) {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
        text.truncate(text.char_indices().nth_back(3).map_or(0, |(at, _)| at));
        text.push_str(" ...");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_and_a_short_one_is_not() {
        for (text, expected) in [("abcdefgh", "abcdefgh"), ("abcdefghi", "abcd ..."), ("ääääääääää", "ääää ...")]
        {
            let mut text = text.to_owned();
            cut(&mut text, 8);
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn the_first_and_the_latest_are_kept() {
        let mut items: Vec<u32> = (0..10).collect();
        keep_first_and_latest(&mut items, 4);
        assert_eq!(items, [0, 7, 8, 9]);
        let mut few = vec![1];
        keep_first_and_latest(&mut few, 4);
        assert_eq!(few, [1]);
        let mut none: Vec<u32> = Vec::new();
        keep_first_and_latest(&mut none, 4);
        assert!(none.is_empty());
    }
}
