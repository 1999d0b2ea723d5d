//! Tables in a rehearsal, compared with the pods that there are.

use crate::pattern::Pattern;
use crate::pod_table::{PodRow, table};

/// A table as it is written in a rehearsal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextTable {
    /// The columns, of those that kubectl prints.
    pub(crate) columns: Vec<&'static str>,
    /// The cells of each row.
    pub(crate) rows: Vec<Vec<String>>,
}

impl TextTable {
    /// Reads a table. Cells are separated by two or more spaces, or by one if no cell has spaces.
    pub(crate) fn parse(text: &str, known: &[&'static str]) -> Result<TextTable, String> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let header = lines.next().ok_or("the table is empty: its first line has the columns")?;
        let mut columns = Vec::new();
        let mut rest = header;
        while !rest.is_empty() {
            let found = known.iter().filter(|name| rest.starts_with(**name)).max_by_key(|name| name.len());
            let Some(column) = found else {
                let word = rest.split_whitespace().next().unwrap_or_default();
                return Err(format!("there is no column {word:?}; the columns are {}", known.join(", ")));
            };
            columns.push(*column);
            rest = rest[column.len()..].trim_start();
        }
        let row = |line: &str| {
            let wide: Vec<String> =
                line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect();
            if wide.len() == columns.len() {
                return Ok(wide);
            }
            let narrow: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            match narrow.len() == columns.len() {
                true => Ok(narrow),
                false => Err(format!("the row {line:?} has {} cells, the header {}", narrow.len(), columns.len())),
            }
        };
        let rows = lines.map(row).collect::<Result<Vec<_>, _>>()?;
        Ok(TextTable { columns, rows })
    }

    pub(crate) fn render(&self) -> String {
        table(&self.columns, &self.rows)
    }
}

/// Whether a cell is as expected: one of several texts separated by `|`, with `*` for any text; `zone:NAME` for any node
/// of a zone.
fn cell_matches(expected: &str, cell: &str, zone_of: &dyn Fn(&str) -> Option<String>) -> bool {
    expected.split('|').any(|option| match option.strip_prefix("zone:") {
        Some(zone) => zone_of(cell).as_deref() == Some(zone),
        None => Pattern::new(option).matches(cell),
    })
}

/// Finds a different pod for each row. Fails if a row or a pod is left.
pub(crate) fn match_rows(
    expected: &TextTable,
    pods: &[PodRow],
    zone_of: &dyn Fn(&str) -> Option<String>,
) -> Result<(), String> {
    let matches = |row: &[String], pod: &PodRow| {
        let mut cells = expected.columns.iter().zip(row);
        cells.all(|(column, text)| cell_matches(text, pod.cell(column).unwrap_or_default(), zone_of))
    };
    let options: Vec<Vec<usize>> =
        expected.rows.iter().map(|row| (0..pods.len()).filter(|at| matches(row, &pods[*at])).collect()).collect();
    // Rows by pod: each row takes a pod, and rows that took it before take another one if they can.
    let mut row_of: Vec<Option<usize>> = vec![None; pods.len()];
    for row in 0..expected.rows.len() {
        let mut seen = vec![false; pods.len()];
        if !assign(row, &options, &mut row_of, &mut seen) {
            return Err(format!("no pod matches the row: {}", expected.rows[row].join("  ")));
        }
    }
    match row_of.iter().position(Option::is_none) {
        Some(at) => Err(format!("pod {} is not in the table", pods[at].cells[0])),
        None => Ok(()),
    }
}

fn assign(row: usize, options: &[Vec<usize>], row_of: &mut [Option<usize>], seen: &mut [bool]) -> bool {
    for &pod in &options[row] {
        if std::mem::replace(&mut seen[pod], true) {
            continue;
        }
        if row_of[pod].is_none_or(|other| assign(other, options, row_of, seen)) {
            row_of[pod] = Some(row);
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod_table::COLUMNS;

    fn pod(name: &str, ready: &str, status: &str, node: &str) -> PodRow {
        let cells = [name, ready, status, "0", "5s", "<none>", node, "<none>", "<none>"];
        PodRow { cells: cells.map(str::to_owned) }
    }

    fn check(text: &str, pods: &[PodRow]) -> Result<(), String> {
        let zone_of = |node: &str| Some(if node.ends_with("-a") { "zoneA" } else { "zoneB" }.to_owned());
        match_rows(&TextTable::parse(text, &COLUMNS)?, pods, &zone_of)
    }

    #[test]
    fn every_pod_has_its_row() {
        let pods = [pod("web-x", "1/1", "Running", "n-a"), pod("web-y", "0/1", "Pending", "<none>")];
        for (text, expected) in [
            ("NAME READY STATUS\nweb-x 1/1 Running\nweb-y 0/1 Pending", Ok(())),
            // The first row could take either pod: it has to leave web-x to the second.
            ("NAME  NODE\nweb-*  *\nweb-*  zone:zoneA", Ok(())),
            ("NAME  STATUS\nweb-*  Pending|Running\nweb-*  Running", Ok(())),
            ("NAME\nweb-x", Err("pod web-y is not in the table")),
            ("NAME STATUS\nweb-x Failed\nweb-y Pending", Err("no pod matches the row: web-x  Failed")),
            ("NAME  NODE\nweb-x  zone:zoneB\nweb-y  *", Err("no pod matches the row: web-x  zone:zoneB")),
            (
                "NAME PHASE\n",
                Err(
                    "there is no column \"PHASE\"; the columns are NAME, READY, STATUS, RESTARTS, AGE, IP, NODE, NOMINATED NODE, READINESS GATES",
                ),
            ),
            ("NAME READY\nweb-x", Err("the row \"web-x\" has 1 cells, the header 2")),
            ("", Err("the table is empty: its first line has the columns")),
        ] {
            assert_eq!(check(text, &pods), expected.map_err(str::to_owned), "{text}");
        }
    }
}
