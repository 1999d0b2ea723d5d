//! Label selectors and names compared with recordings of the Go implementation.
//!
//! `data/labels.tsv` was printed by `k8s.io/apimachinery` v0.36.4 itself. Its lines are
//! - `S text string matches` and `E text error`: the result of `labels.Parse`;
//! - `L labels expressions string matches` or `L labels expressions error`: the result of
//!   `metav1.LabelSelectorAsSelector`, expressions being
//!   `key|operator|number of values|values…;`;
//! - `V name` and its errors as a label key, a label value, a DNS-1123 label and a
//!   DNS-1123 subdomain.
//!
//! `matches` has one digit for each of [`label_sets`].

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use stead_semantics::validation::{check_dns1123_label, check_dns1123_subdomain, check_label_key, check_label_value};
use stead_semantics::{Labels, Selector, SelectorError};

fn label_sets() -> Vec<Labels> {
    let sets: [&[(&str, &str)]; 6] = [
        &[],
        &[("a", "1")],
        &[("a", "5"), ("b", "v")],
        &[("b", ""), ("c", "3")],
        &[("x/y", "w"), ("c", "v"), ("a", "")],
        &[("a", "3"), ("b", "3"), ("c", "3"), ("x/y", "3")],
    ];
    let owned = |pairs: &&[(&str, &str)]| {
        let pair = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        pairs.iter().map(pair).collect()
    };
    sets.iter().map(owned).collect()
}

fn show(selector: &Selector) -> String {
    let digit = |set: &Labels| if selector.matches(set) { '1' } else { '0' };
    let matches: String = label_sets().iter().map(digit).collect();
    format!("{selector}\t{matches}")
}

fn expression(text: &str) -> LabelSelectorRequirement {
    let mut parts = text.split('|');
    let key = parts.next().unwrap().to_owned();
    let operator = parts.next().unwrap().replace("\\n", "\n");
    let count: usize = parts.next().unwrap().parse().unwrap();
    let values: Vec<String> = parts.take(count).map(str::to_owned).collect();
    LabelSelectorRequirement { key, operator, values: (count > 0).then_some(values) }
}

fn api_selector(labels: &str, expressions: &str) -> Result<Selector, SelectorError> {
    let labels = labels.split_once('=').map(|(k, v)| Labels::from([(k.to_owned(), v.to_owned())]));
    let expressions = expressions.split(';').filter(|text| !text.is_empty()).map(expression).collect();
    Selector::from_label_selector(Some(&LabelSelector { match_expressions: Some(expressions), match_labels: labels }))
}

fn replay(line: &str) -> String {
    let fields: Vec<&str> = line.split('\t').collect();
    match fields[..] {
        ["S" | "E", text, ..] => match Selector::parse(&text.replace("\\0", "\0")) {
            Ok(selector) => format!("S\t{text}\t{}", show(&selector)),
            Err(error) => format!("E\t{text}\t{}", error.kubernetes_message()),
        },
        ["L", labels, expressions, ..] => {
            let shown = match api_selector(labels, expressions) {
                Ok(selector) => show(&selector),
                Err(error) => error.kubernetes_message(),
            };
            format!("L\t{labels}\t{expressions}\t{shown}")
        }
        ["V", name, ..] => {
            let problems = [
                check_label_key(name),
                check_label_value(name),
                check_dns1123_label(name),
                check_dns1123_subdomain(name),
            ];
            let problems: Vec<String> = problems.iter().map(|p| p.join("|")).collect();
            format!("V\t{name}\t{}", problems.join("\t"))
        }
        _ => panic!("not a recording: {line}"),
    }
}

#[test]
fn same_matches_and_errors_as_go() {
    let differing: Vec<String> = include_str!("data/labels.tsv")
        .lines()
        .map(|line| (line, replay(line)))
        .filter(|(line, ours)| line != ours)
        .map(|(line, ours)| format!("go:   {line}\nours: {ours}"))
        .collect();
    let count = differing.len();
    let shown = &differing[..count.min(20)];
    assert!(shown.is_empty(), "{count} differ:\n{}", shown.join("\n"));
}
