//! Tables for people.

/// A table as kubectl prints them: columns wide enough for what is in them, three spaces between.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |i: usize| {
        let cells = rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count());
        cells.chain([head[i].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut out = String::new();
    let head: Vec<String> = head.iter().map(ToString::to_string).collect();
    for row in std::iter::once(&head).chain(rows) {
        let line: String = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}   ")).collect();
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}
