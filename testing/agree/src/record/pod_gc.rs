//! When the pod garbage collector runs: each 20 s, from a moment that only its log tells.

use std::path::Path;

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};

/// The offsets of time zones are multiples of 15 minutes.
const QUARTER_HOUR: SignedDuration = SignedDuration::from_mins(15);

/// The last run that the log of kube-controller-manager tells, shortly after it happened.
pub(super) fn last_run(log: &Path, now: Timestamp) -> Result<Timestamp> {
    let text = std::fs::read_to_string(log).with_context(|| format!("reading {}", log.display()))?;
    let lines = text.lines().rev();
    let line = lines.into_iter().find(|line| line.contains(" gc_controller.go:") && !line.contains("Shutting"));
    let local = line.and_then(|line| klog_time(line, now)).context("the log does not tell when the pod GC runs")?;
    let quarters = now.duration_since(local).as_secs_f64() / QUARTER_HOUR.as_secs_f64();
    Ok(local + QUARTER_HOUR.mul_f64(quarters.round()))
}

/// The time of a line such as `I1116 09:13:07.186033   12 file.go:7] …`, as UTC, in the year of `now`.
fn klog_time(line: &str, now: Timestamp) -> Option<Timestamp> {
    let mut words = line.split_whitespace();
    let (date, time) = (words.next()?.get(1..)?, words.next()?);
    let (month, day) = (date.get(..2)?, date.get(2..)?);
    let year = now.to_string().get(..4)?.to_owned();
    format!("{year}-{month}-{day}T{time}Z").parse().ok()
}
