//! The timeline of a run as SVG: a lane for each node and pod, with what was done to the cluster above them.

use std::fmt::Write;

use jiff::Timestamp;

use super::axis::Axis;
use super::lanes::{Lane, LaneState, Segment, lanes};
use crate::duration::HumanDuration;
use crate::markup::escaped;
use crate::play::{PlayedStep, Run, StepKind};
use crate::story::clock;

/// The width of the names at the left.
const NAMES: f64 = 232.0;
/// The width of the time axis, if its chapters fit into it.
const WIDTH: f64 = 950.0;
/// The height of a lane, and of its bar.
const LANE: f64 = 20.0;
const BAR: f64 = 14.0;
/// The height of what is above the lanes.
const HEAD: f64 = 78.0;
/// How many pods have a lane.
const MOST_PODS: usize = 80;

/// A chapter: its number, and its first step.
pub(super) struct Chapter<'a> {
    pub(super) number: usize,
    pub(super) steps: &'a [PlayedStep],
}

/// The chapters of a run; without headings, each step that changes something is one.
pub(super) fn chapters(run: &Run) -> Vec<Chapter<'_>> {
    let has_names = run.steps.iter().any(|step| step.name.is_some());
    let begins = |i: &usize| {
        let step = &run.steps[*i];
        *i == 0
            || step.name.is_some()
            || (!has_names && matches!(step.kind, StepKind::Command | StepKind::Failure | StepKind::Repair))
    };
    let mut starts: Vec<usize> = (0..run.steps.len()).filter(begins).collect();
    starts.push(run.steps.len());
    let parts = starts.windows(2).enumerate();
    parts.map(|(i, pair)| Chapter { number: i + 1, steps: &run.steps[pair[0]..pair[1]] }).collect()
}

fn began(chapter: &Chapter<'_>) -> Option<Timestamp> {
    chapter.steps.first().map(|step| step.began)
}

/// The number and the heading of a chapter.
fn headline(chapter: &Chapter<'_>) -> String {
    let first = chapter.steps.first();
    let heading = first.map(|first| first.name.as_deref().unwrap_or(&first.title)).unwrap_or_default();
    format!("{}. {heading}", chapter.number)
}

struct Drawing<'a> {
    run: &'a Run,
    axis: Axis,
    height: f64,
    svg: String,
}

/// The timeline of a run, with an id for its title.
pub(super) fn timeline(run: &Run, id: &str) -> String {
    let found = lanes(run);
    let chapters = chapters(run);
    let begins: Vec<Timestamp> = chapters.iter().filter_map(|chapter| Some(chapter.steps.first()?.began)).collect();
    let segments = found.nodes.iter().chain(&found.pods).flat_map(|lane| &lane.segments);
    let mut moments: Vec<Timestamp> = segments.flat_map(|segment| [segment.from, segment.to]).collect();
    moments.extend(run.steps.iter().flat_map(|step| [step.began, step.ended]));
    let axis = Axis::new(moments, &begins, WIDTH);
    let pods = &found.pods[..found.pods.len().min(MOST_PODS)];
    let rows = found.nodes.len() + pods.len();
    let height = HEAD + LANE * rows as f64 + 2.0 * 26.0 + 12.0;
    let mut drawing = Drawing { run, axis, height, svg: String::new() };
    drawing.begin(id);
    drawing.chapters(&chapters);
    let mut y = HEAD;
    y = drawing.group("Nodes", &found.nodes, y, &[]);
    drawing.group("Pods", pods, y, &found.nodes);
    drawing.faults();
    drawing.silences();
    drawing.svg.push_str("</svg>\n");
    if found.pods.len() > MOST_PODS {
        let _ = writeln!(drawing.svg, "<p>{} more pods are not shown.</p>", found.pods.len() - MOST_PODS);
    }
    drawing.svg
}

impl Drawing<'_> {
    fn x(&self, at: Timestamp) -> f64 {
        NAMES + self.axis.place(at)
    }

    fn begin(&mut self, id: &str) {
        let (width, height) = (NAMES + self.axis.width() + 44.0, self.height);
        let _ = writeln!(
            self.svg,
            "<svg class=\"timeline\" role=\"img\" aria-labelledby=\"{id}-title {id}-text\" width=\"{width:.0}\" \
             height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\">\n\
             <title id=\"{id}-title\">Timeline of nodes and pods</title>\n\
             <desc id=\"{id}-text\">One row for each node and pod. The table of steps and the list of changes below have \
             the same content as text.</desc>"
        );
    }

    /// The number and the time of each chapter, with a line through all lanes.
    fn chapters(&mut self, chapters: &[Chapter<'_>]) {
        let mut last_time = f64::MIN;
        // Chapters that begin at the same moment have one mark.
        let same = |a: &Chapter<'_>, b: &Chapter<'_>| began(a).is_some() && began(a) == began(b);
        for together in chapters.chunk_by(same) {
            let Some(first) = together.first().and_then(|chapter| chapter.steps.first()) else { continue };
            let x = self.x(first.began);
            let failed = together.iter().flat_map(|chapter| chapter.steps).any(|step| step.failure.is_some());
            let class = if failed { "chapter failed" } else { "chapter" };
            let title: Vec<String> = together.iter().map(headline).collect();
            let title = escaped(&title.join("; "));
            let (from, to) = (together[0].number, together[together.len() - 1].number);
            let number = if from == to { from.to_string() } else { format!("{from}–{to}") };
            let half = 7.5 + 3.5 * number.chars().count() as f64;
            let bottom = self.height - 8.0;
            let _ = writeln!(
                self.svg,
                "<g class=\"{class}\"><title>{title}</title><line x1=\"{x:.1}\" y1=\"34\" x2=\"{x:.1}\" \
                 y2=\"{bottom:.1}\"/><rect x=\"{0:.1}\" y=\"11\" width=\"{1:.1}\" height=\"22\" rx=\"11\"/>\
                 <text x=\"{x:.1}\" y=\"26\">{number}</text></g>",
                x - half,
                2.0 * half
            );
            let time = clock(first.began.duration_since(self.run.began));
            // Times that would overlap are left out: the table has them.
            if x - last_time > 12.0 + 6.5 * time.len() as f64 {
                let _ = writeln!(self.svg, "<text class=\"time\" x=\"{:.1}\" y=\"47\">{time}</text>", x + 4.0);
                last_time = x;
            }
        }
    }

    fn group(&mut self, title: &str, lanes: &[Lane], top: f64, nodes: &[Lane]) -> f64 {
        let mut y = top;
        let _ = writeln!(self.svg, "<text class=\"group\" x=\"0\" y=\"{:.1}\">{title}</text>", y + 14.0);
        y += 26.0;
        for lane in lanes {
            let end = NAMES + self.axis.width();
            let _ = writeln!(
                self.svg,
                "<g class=\"lane\"><line x1=\"{NAMES}\" y1=\"{0:.1}\" x2=\"{end:.1}\" y2=\"{0:.1}\"/>\
                 <text x=\"{1:.1}\" y=\"{2:.1}\">{3}</text>",
                y + BAR / 2.0,
                NAMES - 10.0,
                y + 11.0,
                escaped(&shortened(&lane.name))
            );
            for segment in &lane.segments {
                self.segment(lane, segment, y, nodes.is_empty());
            }
            self.svg.push_str("</g>\n");
            y += LANE;
        }
        y
    }

    fn segment(&mut self, lane: &Lane, segment: &Segment, y: f64, is_node: bool) {
        let (x, end) = (self.x(segment.from), self.x(segment.to));
        let width = (end - x).max(1.5);
        let (letter, class, meaning) = segment.state.shown();
        let (from, to) = (segment.from.duration_since(self.run.began), segment.to.duration_since(self.run.began));
        let place = segment.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
        let name = &lane.name;
        let told = escaped(&format!("{name}: {meaning}{place}, {} to {}", clock(from), clock(to)));
        let _ = write!(
            self.svg,
            "<g class=\"{class}\"><title>{told}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{BAR}\" rx=\"2\"/>"
        );
        // The node, if there is space for it; else the letter of the state.
        let node = segment.node.as_deref().filter(|_| !is_node).unwrap_or_default();
        let short = node.split('.').next().unwrap_or_default();
        let word = match segment.state {
            LaneState::NodeDown => "NotReady".to_owned(),
            LaneState::Ready if is_node => "Ready".to_owned(),
            _ if short.is_empty() => letter.to_owned(),
            _ => format!("{letter} {short}"),
        };
        let texts = [word.as_str(), letter];
        if let Some(text) = texts.iter().find(|text| width > 7.0 + 6.9 * text.chars().count() as f64) {
            let (x, y) = (x + 4.0, y + 10.5);
            let _ = write!(self.svg, "<text x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(text));
        }
        self.svg.push_str("</g>\n");
    }

    /// What failed and what was repaired, as marks with a line through all lanes.
    fn faults(&mut self) {
        let run = self.run;
        for step in run.steps.iter().filter(|step| matches!(step.kind, StepKind::Failure | StepKind::Repair)) {
            let (x, bottom) = (self.x(step.began), self.height - 8.0);
            let (class, mark) = if step.kind == StepKind::Failure { ("fault", "✕") } else { ("repair", "↺") };
            let title = escaped(&format!("{}: {}", clock(step.began.duration_since(run.began)), step.title));
            let _ = writeln!(
                self.svg,
                "<g class=\"{class}\"><title>{title}</title><line x1=\"{x:.1}\" y1=\"70\" x2=\"{x:.1}\" y2=\"{bottom:.1}\"/>\
                 <rect x=\"{0:.1}\" y=\"54\" width=\"18\" height=\"18\" rx=\"3\"/><text x=\"{x:.1}\" y=\"67.5\">{mark}</text></g>",
                x - 9.0
            );
        }
    }

    /// How long nothing happens where the axis leaves time out.
    fn silences(&mut self) {
        let silences: Vec<_> = self.axis.silences().collect();
        for (from, to, gap) in silences {
            let text = HumanDuration(jiff::SignedDuration::from_mins(gap.as_mins())).to_string();
            // The marks of faults at both ends need space too.
            if to - from < 44.0 + 6.2 * text.len() as f64 {
                continue;
            }
            let (x, y) = (NAMES + f64::midpoint(from, to), 67.0);
            let _ = writeln!(
                self.svg,
                "<g class=\"silence\"><title>{text} in which nothing happens</title><text x=\"{x:.1}\" y=\"{y}\">⋯ {text} ⋯</text></g>"
            );
        }
    }
}

/// A name that fits into its column: its begin and its end.
fn shortened(name: &str) -> String {
    const MOST: usize = 34;
    let count = name.chars().count();
    if count <= MOST {
        return name.to_owned();
    }
    let begin: String = name.chars().take(MOST / 2 - 1).collect();
    let end: String = name.chars().skip(count - MOST / 2).collect();
    format!("{begin}…{end}")
}
