//! The one source of chance: which of several equally possible things happens.
//!
//! Every choice answers a [`Question`]. A seed answers all of them; a recording answers those that it has seen and checks
//! that its answer is possible; an enumeration goes through all answers, one run after the other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::SignedDuration;

/// What is chosen. Its text is the same in each run, so that a recorded answer can be found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// The node of a pod among the best ones.
    Node {
        /// Namespace and name of the pod.
        pod: String,
    },
    /// The node that preemption nominates, among equally good ones.
    Nomination {
        /// Namespace and name of the pod.
        pod: String,
    },
    /// The end of a generated name.
    NameSuffix {
        /// Namespace and the part before the suffix. Daemon pods are told apart by their node: `ns/name- on node`.
        prefix: String,
    },
    /// The hash of a template in the name of a ReplicaSet or ControllerRevision.
    TemplateHash {
        /// The kind, namespace and name of the workload.
        workload: String,
    },
    /// Which of several pods is deleted, where Kubernetes compares random UIDs.
    Victim {
        /// The kind, namespace and name of the workload.
        workload: String,
    },
    /// Whether a node gets its NoExecute taint during the pass that finds too many nodes of its zone down.
    TaintDuringPass {
        /// The zone.
        zone: String,
    },
    /// Which of the nodes that wait for a NoExecute taint gets it next.
    TaintedNode {
        /// The zone.
        zone: String,
    },
    /// The budget that is looked at when a pod changes that several budgets cover.
    Budget {
        /// Namespace and name of the pod.
        pod: String,
    },
    /// The volume that a claim is bound to, among equally large ones.
    Volume {
        /// Namespace and name of the claim.
        claim: String,
    },
    /// The node that a volume is attached to first, where pods of several nodes wait for it.
    Attachment {
        /// The name of the PersistentVolume.
        volume: String,
    },
    /// The pod that is scheduled first, among those that came at the same moment.
    NextPod,
    /// Whether the loop of the attach-detach controller runs after a pod has released a volume and before its successor on
    /// the same node needs it: `yes`, `no`, or `-` if there is no successor.
    Detachment {
        /// Namespace and name of the claim of the volume.
        claim: String,
        /// The node.
        node: String,
    },
    /// How long a stand-in kubelet took, in milliseconds.
    StandInDelay {
        /// Namespace and name of the pod.
        pod: String,
        /// What it did: `start`, `ready`, `job` or `stop`.
        stage: &'static str,
    },
    /// Whether a node that is lost gets its NoSchedule taint only after others have reacted to its condition: the node
    /// controller reads the node from the API server before it writes.
    LateTaint {
        /// The node.
        node: String,
    },
    /// Whether the node controller still sees a lost node as Ready when it is about to taint it: it then gives up until its
    /// next pass, and has used up its turn (`doNoExecuteTaintingPass`).
    StaleNode {
        /// The node.
        node: String,
    },
    /// Whether the volume binder looks at a new claim only after the pod that uses it was created (`yes`), or even after a
    /// node was selected for it (`selected`).
    LateClaim {
        /// Namespace and name of the claim.
        claim: String,
    },
    /// Whether the controller of a pod deletes it when the pod garbage collector has marked it as Failed, before the
    /// collector deletes it.
    CollectedByOwner {
        /// Namespace and name of the pod.
        pod: String,
    },
    /// Whether the eviction of a pod that is removed at once is reported as cancelled: the removal may arrive before the
    /// answer to the deletion.
    EvictionCancelled {
        /// Namespace and name of the pod.
        pod: String,
    },
    /// A delay that is not the same each time.
    Jitter {
        /// What is delayed.
        what: &'static str,
    },
}

/// A recorded answer that was not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{question:?}: {answer} was recorded, but the options are {}", options.join(", "))]
pub struct ImpossibleAnswer {
    /// The question.
    pub question: Question,
    /// The recorded answer.
    pub answer: String,
    /// The options.
    pub options: Vec<String>,
}

/// The answers of a recording, by question, in the order of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordedAnswers {
    answers: BTreeMap<Question, VecDeque<String>>,
    /// The recorded hashes of templates, by workload and computed hash.
    hashes: BTreeMap<(String, String), String>,
}

impl RecordedAnswers {
    /// Adds an answer after all others to the same question.
    pub fn add(&mut self, question: Question, answer: impl Into<String>) {
        self.answers.entry(question).or_default().push_back(answer.into());
    }

    /// Adds the hash of a template of a workload, unless it is known: the same template has the same hash.
    pub fn add_template_hash(&mut self, workload: String, hash: &str) {
        let hashes = self.answers.entry(Question::TemplateHash { workload }).or_default();
        if !hashes.iter().any(|known| known == hash) {
            hashes.push_back(hash.to_owned());
        }
    }

    fn take(&mut self, question: &Question) -> Option<String> {
        self.answers.get_mut(question)?.pop_front()
    }
}

/// Where answers come from.
#[derive(Debug, Clone)]
enum Source {
    /// All of them from a seed.
    Seed,
    /// Those that were recorded; the others from the seed, without jitter.
    Recording { recorded: RecordedAnswers, impossible: Vec<ImpossibleAnswer> },
    /// A path through the tree of all answers: the answers so far, each with the number of options.
    Path { taken: Vec<(usize, usize)>, next: usize },
    /// The first option that is not one of these, else the first one.
    First { avoided: BTreeSet<String> },
}

/// The source of chance of a simulation.
#[derive(Debug, Clone)]
pub struct Choices {
    state: u64,
    source: Source,
}

/// The letters and digits of generated names (`k8s.io/apimachinery/pkg/util/rand`).
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

impl Choices {
    /// Answers from a seed.
    pub fn seeded(seed: u64) -> Choices {
        Choices { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d, source: Source::Seed }
    }

    /// The answers of a recording. What it does not answer is chosen by a seed.
    pub fn recorded(recorded: RecordedAnswers) -> Choices {
        Choices { source: Source::Recording { recorded, impossible: Vec::new() }, ..Choices::seeded(0) }
    }

    /// The first of all possible runs: always the first option. [`Choices::next_path`] gives the others.
    pub fn enumerated() -> Choices {
        Choices { source: Source::Path { taken: Vec::new(), next: 0 }, ..Choices::seeded(0) }
    }

    /// Always the first option, without jitter. These options, such as nodes that nothing is heard of, are chosen only if
    /// there are no others.
    pub fn first_except(avoided: impl IntoIterator<Item = String>) -> Choices {
        Choices { source: Source::First { avoided: avoided.into_iter().collect() }, ..Choices::seeded(0) }
    }

    /// After a run with an enumeration, the choices of the next one; none when all were made.
    pub fn next_path(&self) -> Option<Choices> {
        let Source::Path { taken, .. } = &self.source else { return None };
        let last = taken.iter().rposition(|(chosen, options)| chosen + 1 < *options)?;
        let mut taken = taken[..=last].to_vec();
        taken[last].0 += 1;
        Some(Choices { source: Source::Path { taken, next: 0 }, ..Choices::seeded(0) })
    }

    /// The recorded answers that were not possible so far.
    pub fn impossible(&self) -> &[ImpossibleAnswer] {
        match &self.source {
            Source::Recording { impossible, .. } => impossible,
            Source::Seed | Source::Path { .. } | Source::First { .. } => &[],
        }
    }

    /// The next number, uniform over all of `u64` (SplitMix64).
    fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        // The remainder is below the limit, which is a usize.
        (self.number() % limit.max(1) as u64) as usize
    }

    /// Chooses one of the options, by its index. There must be at least one.
    pub fn pick(&mut self, question: Question, options: &[&str]) -> usize {
        if options.len() < 2 && !matches!(self.source, Source::Recording { .. }) {
            return 0;
        }
        match &mut self.source {
            Source::Seed => self.below(options.len()),
            Source::First { avoided } => {
                options.iter().position(|option| !avoided.contains(*option)).unwrap_or_default()
            }
            Source::Path { taken, next } => {
                if *next == taken.len() {
                    taken.push((0, options.len()));
                }
                *next += 1;
                taken[*next - 1].0.min(options.len() - 1)
            }
            Source::Recording { recorded, impossible } => {
                let Some(answer) = recorded.take(&question) else { return self.below(options.len()) };
                if let Some(found) = options.iter().position(|option| *option == answer) {
                    return found;
                }
                let options = options.iter().map(|option| (*option).to_owned()).collect();
                impossible.push(ImpossibleAnswer { question, answer, options });
                0
            }
        }
    }

    /// Chooses several of the options, by their index, where others are certain. A recording has all of them, in any
    /// order: what happens at the same time has none.
    pub fn pick_several(
        &mut self,
        question: &Question,
        certain: &[&str],
        options: &[&str],
        count: usize,
    ) -> Vec<usize> {
        let count = count.min(options.len());
        let mut left: Vec<usize> = (0..options.len()).collect();
        let mut chosen = Vec::with_capacity(count);
        if let Source::Recording { recorded, impossible } = &mut self.source {
            let answers = (0..certain.len() + count).map_while(|_| recorded.take(question));
            for answer in answers.filter(|answer| !certain.contains(&answer.as_str())) {
                match left.iter().position(|option| options[*option] == answer) {
                    Some(found) if chosen.len() < count => chosen.push(left.remove(found)),
                    _ => {
                        let options = options.iter().map(|option| (*option).to_owned()).collect();
                        impossible.push(ImpossibleAnswer { question: question.clone(), answer, options });
                    }
                }
            }
        }
        while chosen.len() < count {
            // An enumeration makes each choice once: later picks come after earlier ones.
            let in_order = matches!(self.source, Source::Path { .. } | Source::First { .. });
            let reach = if in_order { left.len() + 1 - (count - chosen.len()) } else { left.len() };
            let picked = match self.source {
                Source::Recording { .. } => self.below(reach),
                Source::Seed | Source::Path { .. } | Source::First { .. } => {
                    let names: Vec<&str> = left[..reach].iter().map(|option| options[*option]).collect();
                    self.pick(question.clone(), &names)
                }
            };
            chosen.push(left.remove(picked));
            if in_order {
                left.drain(..picked);
            }
        }
        chosen
    }

    /// The same for many options, which are listed only if their names matter.
    pub fn pick_of<'a>(&mut self, question: Question, count: usize, options: impl FnOnce() -> Vec<&'a str>) -> usize {
        match self.source {
            Source::Seed if count < 2 => 0,
            Source::Seed => self.below(count),
            Source::Path { .. } | Source::First { .. } | Source::Recording { .. } => self.pick(question, &options()),
        }
    }

    /// Whether they follow a recording.
    pub fn are_recorded(&self) -> bool {
        matches!(self.source, Source::Recording { .. })
    }

    /// Chooses the option that a recording has first, whenever that is; the first one without a recording, or if it has
    /// none of them. [`Choices::done`] tells that it is over.
    pub fn pick_earliest(&self, question: &Question, options: &[&str]) -> usize {
        let Source::Recording { recorded, .. } = &self.source else { return 0 };
        let answers = recorded.answers.get(question).into_iter().flatten();
        answers.into_iter().find_map(|answer| options.iter().position(|option| option == answer)).unwrap_or(0)
    }

    /// What a recording has as an answer has happened.
    pub fn done(&mut self, question: &Question, answer: &str) {
        if let Source::Recording { recorded, .. } = &mut self.source
            && let Some(answers) = recorded.answers.get_mut(question)
            && let Some(place) = answers.iter().position(|other| other == answer)
        {
            answers.remove(place);
        }
    }

    /// The answer that a recording has next, without taking it.
    pub fn next_recorded(&self, question: &Question) -> Option<&str> {
        match &self.source {
            Source::Recording { recorded, .. } => recorded.answers.get(question)?.front().map(String::as_str),
            Source::Seed | Source::Path { .. } | Source::First { .. } => None,
        }
    }

    /// The answer that a recording has next.
    pub fn take_recorded(&mut self, question: &Question) -> Option<String> {
        match &mut self.source {
            Source::Recording { recorded, .. } => recorded.take(question),
            Source::Seed | Source::Path { .. } | Source::First { .. } => None,
        }
    }

    /// Whether a recording says that something happened that hardly ever does.
    pub fn happened(&mut self, question: &Question) -> bool {
        self.take_recorded(question).is_some()
    }

    /// The end of a generated name: five letters and digits.
    pub fn name_suffix(&mut self, prefix: &str) -> String {
        self.text(&Question::NameSuffix { prefix: prefix.into() }, 5)
    }

    /// The hash of a template: the recorded one, or that of the template itself. The same template has the same hash.
    pub fn template_hash(&mut self, workload: String, computed: &str) -> String {
        let Source::Recording { recorded, .. } = &mut self.source else { return computed.to_owned() };
        let template = (workload, computed.to_owned());
        if let Some(known) = recorded.hashes.get(&template) {
            return known.clone();
        }
        let question = Question::TemplateHash { workload: template.0.clone() };
        let hash = recorded.take(&question).unwrap_or(template.1.clone());
        recorded.hashes.insert(template, hash.clone());
        hash
    }

    fn text(&mut self, question: &Question, length: usize) -> String {
        if let Source::Recording { recorded, .. } = &mut self.source
            && let Some(answer) = recorded.take(question)
        {
            return answer;
        }
        (0..length).map(|_| char::from(ALPHABET[self.below(ALPHABET.len())])).collect()
    }

    /// A delay between zero and a limit: only a seed has any.
    pub fn jitter(&mut self, limit: SignedDuration) -> SignedDuration {
        match self.source {
            Source::Seed => {
                let nanos = u64::try_from(limit.as_nanos()).unwrap_or_default();
                let chosen = self.number() % nanos.max(1);
                SignedDuration::from_nanos(i64::try_from(chosen).unwrap_or_default())
            }
            Source::Recording { .. } | Source::Path { .. } | Source::First { .. } => SignedDuration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(pod: &str) -> Question {
        Question::Node { pod: pod.into() }
    }

    #[test]
    fn the_first_option_that_is_not_avoided() {
        let mut choices = Choices::first_except(["x".to_owned()]);
        let mut pick = |options: &[&str]| choices.pick(node("a"), options);
        assert_eq!((pick(&["x", "y", "z"]), pick(&["y", "x"]), pick(&["x"])), (1, 0, 0));
        assert_eq!(choices.jitter(SignedDuration::from_secs(1)), SignedDuration::ZERO);
        assert_eq!(choices.pick_several(&node("b"), &[], &["x", "y"], 1), [1]);
    }

    #[test]
    fn the_same_seed_gives_the_same_answers() {
        let play = |seed| {
            let mut choices = Choices::seeded(seed);
            let options = ["x", "y", "z"];
            let mut pick = |lazily| match lazily {
                true => choices.pick_of(node("a"), 3, || options.to_vec()),
                false => choices.pick(node("a"), &options),
            };
            let picked: Vec<usize> = (0..20).map(|round| pick(round % 2 == 0)).collect();
            (picked, choices.name_suffix("web-"), choices.jitter(SignedDuration::from_secs(1)))
        };
        assert_eq!(play(1), play(1));
        assert_ne!(play(1), play(2));
    }

    #[test]
    fn a_recorded_answer_is_followed_and_checked() {
        let mut recorded = RecordedAnswers::default();
        recorded.add(node("a"), "y");
        recorded.add(node("a"), "q");
        recorded.add(Question::NameSuffix { prefix: "web-".into() }, "abcde");
        let mut choices = Choices::recorded(recorded);
        assert_eq!(choices.pick(node("a"), &["x", "y"]), 1);
        assert!(choices.impossible().is_empty());
        choices.pick(node("a"), &["x", "y"]);
        assert_eq!(choices.impossible().len(), 1);
        assert_eq!(choices.name_suffix("web-"), "abcde");
    }

    #[test]
    fn the_option_that_was_recorded_first_is_chosen() {
        let mut recorded = RecordedAnswers::default();
        for answer in ["a", "b", "c", "a"] {
            recorded.add(Question::NextPod, answer);
        }
        let mut choices = Choices::recorded(recorded);
        for (options, expected) in [(["c", "b"], "b"), (["c", "a"], "a"), (["a", "c"], "c"), (["x", "y"], "x")] {
            let chosen = options[choices.pick_earliest(&Question::NextPod, &options)];
            assert_eq!(chosen, expected);
            choices.done(&Question::NextPod, chosen);
        }
        assert_eq!(Choices::seeded(1).pick_earliest(&Question::NextPod, &["x", "y"]), 0);
    }

    #[test]
    fn several_are_chosen_once_each() {
        let question = Question::Victim { workload: "replicaset n/web".into() };
        let names = ["a", "b", "c", "d"];
        let mut choices = Choices::enumerated();
        let mut runs = Vec::new();
        loop {
            runs.push(choices.pick_several(&question, &[], &names, 2));
            match choices.next_path() {
                Some(next) => choices = next,
                None => break,
            }
        }
        assert_eq!(runs, [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
        let mut recorded = RecordedAnswers::default();
        for answer in ["c", "sure", "a", "q", "b"] {
            recorded.add(question.clone(), answer);
        }
        let mut choices = Choices::recorded(recorded);
        assert_eq!(choices.pick_several(&question, &["sure"], &names, 2), [2, 0]);
        assert!(choices.impossible().is_empty());
        assert_eq!(choices.pick_several(&question, &[], &names, 2)[0], 1);
        assert_eq!(choices.impossible().len(), 1);
    }

    #[test]
    fn an_enumeration_makes_every_choice_once() {
        let mut choices = Choices::enumerated();
        let mut runs = Vec::new();
        loop {
            let first = choices.pick(node("a"), &["x", "y"]);
            // The second question is asked only in one branch.
            let second = (first == 1).then(|| choices.pick(node("b"), &["x", "y", "z"]));
            runs.push((first, second));
            match choices.next_path() {
                Some(next) => choices = next,
                None => break,
            }
        }
        assert_eq!(runs, [(0, None), (1, Some(0)), (1, Some(1)), (1, Some(2))]);
    }
}
