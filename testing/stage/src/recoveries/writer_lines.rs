//! The lines that writers append to their files, each with an identity of the writer and a counter.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

/// The program of a writer. Each start has a new identity, also in the same pod.
pub(super) const PROGRAM: &str = "me=$POD_UID.$(date +%s%N); i=0; while true; do i=$((i+1)); \
     echo \"$me $NODE_NAME $i\" >> /data/lines || exit 1; sleep 0.1; done";

/// Checks that each process has written its lines in order with none missing, and none after another process has
/// started to write.
pub(super) fn check(text: &str) -> Result<()> {
    let mut finished = BTreeSet::new();
    let mut last: Option<(&str, u64)> = None;
    for (index, line) in text.lines().enumerate() {
        let place = || format!("line {}: {line:?}", index + 1);
        let (who, count) =
            line.split_once(' ').zip(line.rsplit_once(' ')).map(|((w, _), (_, c))| (w, c)).with_context(place)?;
        let count: u64 = count.parse().with_context(place)?;
        let before = last.filter(|(writer, _)| *writer == who);
        if before.is_none() {
            finished.extend(last.map(|(writer, _)| writer));
        }
        ensure!(!finished.contains(who), "{}: another process has written since", place());
        ensure!(count == before.map_or(0, |(_, n)| n) + 1, "{}: lines are missing before it", place());
        last = Some((who, count));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_in_a_file_are_found() {
        for (text, wrong) in [
            ("", None),
            ("a n 1\na n 2\nb m 1\n", None),
            ("a n 1\nb m 1\na n 2\n", Some("line 3: \"a n 2\": another process has written since")),
            ("a n 1\na n 3\n", Some("line 2: \"a n 3\": lines are missing before it")),
            ("a n 2\n", Some("line 1: \"a n 2\": lines are missing before it")),
            ("a n 1\na n\n", Some("line 2: \"a n\"")),
        ] {
            assert_eq!(check(text).err().map(|e| e.to_string()).as_deref(), wrong, "{text}");
        }
    }
}
