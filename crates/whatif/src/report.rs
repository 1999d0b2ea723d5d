//! The results of rehearsals for programs: JSON and JUnit.

use std::fmt::Write;

use serde::Serialize;

use crate::markup::escaped;
use crate::play::Run;
use crate::rehearsal::Rehearsal;

/// The result of one rehearsal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunReport {
    /// The name of the rehearsal.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
    /// The seed.
    pub seed: u64,
    /// The virtual time that passed, in seconds.
    pub seconds: i64,
    /// The steps that were played.
    pub steps: Vec<StepReport>,
    /// Moments at which two machines could write to the same volume.
    pub violations: Vec<String>,
}

/// The result of one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepReport {
    /// The heading, if one begins here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it does.
    pub title: String,
    /// When it began, in seconds since the beginning.
    pub at: i64,
    /// What was printed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl RunReport {
    /// The report of a run.
    pub fn new(rehearsal: &Rehearsal, run: &Run, seed: u64) -> RunReport {
        let since = |at: jiff::Timestamp| at.duration_since(run.began).as_secs();
        let step = |step: &crate::play::PlayedStep| StepReport {
            name: step.name.clone(),
            title: step.title.clone(),
            at: since(step.began),
            output: step.output.clone(),
            failure: step.failure.clone(),
        };
        RunReport {
            name: rehearsal.metadata.name.clone(),
            passed: run.passed(),
            seed,
            seconds: since(run.end.now()),
            steps: run.steps.iter().map(step).collect(),
            violations: run.end.world().violations().iter().map(ToString::to_string).collect(),
        }
    }
}

/// The reports as a JUnit file: a suite for each rehearsal, a case for each step.
pub fn junit(reports: &[RunReport]) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"stead rehearse\">\n");
    for report in reports {
        let failed = report.steps.iter().filter(|step| step.failure.is_some()).count() + report.violations.len().min(1);
        let tests = report.steps.len() + 1;
        let name = escaped(&report.name);
        let _ = writeln!(out, "  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failed}\">");
        for (i, step) in report.steps.iter().enumerate() {
            let title = escaped(&format!("{}. {}", i + 1, step.title));
            case(&mut out, &name, &title, step.failure.as_deref());
        }
        case(&mut out, &name, "no volume has two writers", report.violations.first().map(String::as_str));
        out.push_str("  </testsuite>\n");
    }
    out + "</testsuites>\n"
}

fn case(out: &mut String, suite: &str, title: &str, failure: Option<&str>) {
    let _ = match failure {
        None => writeln!(out, "    <testcase classname=\"{suite}\" name=\"{title}\"/>"),
        Some(failure) => {
            let first = escaped(failure.lines().next().unwrap_or_default());
            let whole = escaped(failure);
            writeln!(
                out,
                "    <testcase classname=\"{suite}\" name=\"{title}\">\n      <failure message=\"{first}\">{whole}</failure>\n    </testcase>"
            )
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_a_failed_case() {
        let step = |failure: Option<&str>| StepReport {
            name: None,
            title: "kubectl scale sts/web --replicas=3".into(),
            at: 0,
            output: Vec::new(),
            failure: failure.map(Into::into),
        };
        let report = RunReport {
            name: "a & b".into(),
            passed: false,
            seed: 1,
            seconds: 5,
            steps: vec![step(None), step(Some("no pod matches <x>\nfound:"))],
            violations: Vec::new(),
        };
        expect_test::expect![[r#"
            <?xml version="1.0" encoding="UTF-8"?>
            <testsuites name="stead rehearse">
              <testsuite name="a &amp; b" tests="3" failures="1">
                <testcase classname="a &amp; b" name="1. kubectl scale sts/web --replicas=3"/>
                <testcase classname="a &amp; b" name="2. kubectl scale sts/web --replicas=3">
                  <failure message="no pod matches &lt;x&gt;">no pod matches &lt;x&gt;
            found:</failure>
                </testcase>
                <testcase classname="a &amp; b" name="no volume has two writers"/>
              </testsuite>
            </testsuites>
        "#]]
        .assert_eq(&junit(&[report]));
    }
}
