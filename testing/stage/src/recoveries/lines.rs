//! What writers have written: a line each time, with their name and a counter.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

/// The program of a writer. Who it is begins anew with each start, also of the same pod.
pub(super) const PROGRAM: &str = "me=$POD_UID.$(date +%s%N); i=0; while true; do i=$((i+1)); \
     echo \"$me $NODE_NAME $i\" >> /data/lines || exit 1; sleep 0.1; done";

/// Checks a file: each process has written its lines in their order with none missing, and none after another's first.
pub(super) fn check(text: &str) -> Result<()> {
    let mut ended = BTreeSet::new();
    let mut last: Option<(&str, u64)> = None;
    for (index, line) in text.lines().enumerate() {
        let said = || format!("line {}: {line:?}", index + 1);
        let (who, count) =
            line.split_once(' ').zip(line.rsplit_once(' ')).map(|((w, _), (_, c))| (w, c)).with_context(said)?;
        let count: u64 = count.parse().with_context(said)?;
        let before = last.filter(|(writer, _)| *writer == who);
        if before.is_none() {
            ended.extend(last.map(|(writer, _)| writer));
        }
        ensure!(!ended.contains(who), "{}: somebody else has written since", said());
        ensure!(count == before.map_or(0, |(_, n)| n) + 1, "{}: lines are missing before it", said());
        last = Some((who, count));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_file_is_found() {
        for (text, wrong) in [
            ("", None),
            ("a n 1\na n 2\nb m 1\n", None),
            ("a n 1\nb m 1\na n 2\n", Some("line 3: \"a n 2\": somebody else has written since")),
            ("a n 1\na n 3\n", Some("line 2: \"a n 3\": lines are missing before it")),
            ("a n 2\n", Some("line 1: \"a n 2\": lines are missing before it")),
            ("a n 1\na n\n", Some("line 2: \"a n\"")),
        ] {
            assert_eq!(check(text).err().map(|e| e.to_string()).as_deref(), wrong, "{text}");
        }
    }
}
