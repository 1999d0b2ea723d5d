//! Quantities compared with recordings of the Go implementation.
//!
//! `data/quantities.tsv` was printed by `k8s.io/apimachinery` v0.36.4 itself. Its lines are
//! `E input error`, `Q input` followed by the parsed quantity, or `P a b` followed by the
//! comparison, `a+b`, `a-b` and `a+b+b`. A quantity is shown as value, milli value, string, format
//! and sign.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use stead_semantics::Quantity;

fn show(q: &Quantity) -> String {
    format!("{}\t{}\t{q}\t{:?}\t{}", q.value(), q.milli_value(), q.format(), q.signum())
}

fn replay(line: &str) -> String {
    let fields: Vec<&str> = line.split('\t').collect();
    match fields[..] {
        ["E" | "Q", input, ..] => match Quantity::parse(input) {
            Ok(q) => format!("Q\t{input}\t{}", show(&q)),
            Err(error) => format!("E\t{input}\t{error}"),
        },
        ["P", a, b, ..] => {
            let (left, right) = (Quantity::parse(a).unwrap(), Quantity::parse(b).unwrap());
            let order = left.cmp(&right) as i32;
            let sum = left.add(&right);
            let difference = left.sub(&right);
            let twice = sum.add(&right);
            format!("P\t{a}\t{b}\t{order}\t{}\t{}\t{}", show(&sum), show(&difference), show(&twice))
        }
        _ => panic!("not a recording: {line}"),
    }
}

#[test]
fn same_results_as_go() {
    let differing: Vec<String> = include_str!("data/quantities.tsv")
        .lines()
        .map(|line| (line, replay(line)))
        .filter(|(line, ours)| line != ours)
        .map(|(line, ours)| format!("go:   {line}\nours: {ours}"))
        .collect();
    let count = differing.len();
    let shown = &differing[..count.min(20)];
    assert!(shown.is_empty(), "{count} differ:\n{}", shown.join("\n"));
}
