//! Tables in a rehearsal, compared with the rows that there are.

use super::pattern::Pattern;
use crate::pod_table::table;

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

/// A row as it is printed now, and as it is printed at other times that count as now.
pub(crate) type FoundRow = Vec<Vec<String>>;

/// Finds a different found row for each expected one. Fails if one of either is left. The rows have the columns of the
/// table.
pub(crate) fn match_rows(
    expected: &TextTable,
    found: &[FoundRow],
    zone_of: &dyn Fn(&str) -> Option<String>,
) -> Result<(), String> {
    let matches = |row: &[String], found: &FoundRow| {
        let is_printed = |(at, text): (usize, &String)| found.iter().any(|row| cell_matches(text, &row[at], zone_of));
        row.iter().enumerate().all(is_printed)
    };
    let options: Vec<Vec<usize>> =
        expected.rows.iter().map(|row| (0..found.len()).filter(|at| matches(row, &found[*at])).collect()).collect();
    // Expected rows by found row: each takes one, and those that took it before take another one if they can.
    let mut row_of: Vec<Option<usize>> = vec![None; found.len()];
    for row in 0..expected.rows.len() {
        let mut seen = vec![false; found.len()];
        if !assign(row, &options, &mut row_of, &mut seen) {
            return Err(format!("nothing matches the row: {}", expected.rows[row].join("  ")));
        }
    }
    match row_of.iter().position(Option::is_none) {
        Some(at) => Err(format!("{} is not in the table", found[at][0].join("  "))),
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

    fn pod(name: &str, ready: &str, status: &str, node: &str) -> Vec<String> {
        let cells = [name, ready, status, "0", "5s", "<none>", node, "<none>", "<none>"];
        cells.map(str::to_owned).to_vec()
    }

    fn check(text: &str, pods: &[Vec<String>]) -> Result<(), String> {
        let zone_of = |node: &str| Some(if node.ends_with("-a") { "zoneA" } else { "zoneB" }.to_owned());
        let table = TextTable::parse(text, &COLUMNS)?;
        let cells = |pod: &Vec<String>| {
            let columns = table.columns.iter().filter_map(|name| COLUMNS.iter().position(|column| column == name));
            columns.map(|at| pod[at].clone()).collect()
        };
        let rows: Vec<FoundRow> = pods.iter().map(|pod| vec![cells(pod)]).collect();
        match_rows(&table, &rows, &zone_of)
    }

    #[test]
    fn every_pod_has_its_row() {
        let pods = [pod("web-x", "1/1", "Running", "n-a"), pod("web-y", "0/1", "Pending", "<none>")];
        for (text, expected) in [
            ("NAME READY STATUS\nweb-x 1/1 Running\nweb-y 0/1 Pending", Ok(())),
            // The first row could take either pod: it has to leave web-x to the second.
            ("NAME  NODE\nweb-*  *\nweb-*  zone:zoneA", Ok(())),
            ("NAME  STATUS\nweb-*  Pending|Running\nweb-*  Running", Ok(())),
            ("NAME\nweb-x", Err("web-y is not in the table")),
            ("NAME STATUS\nweb-x Failed\nweb-y Pending", Err("nothing matches the row: web-x  Failed")),
            ("NAME  NODE\nweb-x  zone:zoneB\nweb-y  *", Err("nothing matches the row: web-x  zone:zoneB")),
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
