//! What a measurement may be at most, or at least.

use anyhow::{Result, ensure};

/// The bounds that were missed.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    missed: Vec<String>,
}

impl Bounds {
    /// Compares a measurement with the largest value that is allowed. Gives what to print behind the measurement.
    pub(crate) fn at_most(&mut self, what: &str, measured: f64, limit: f64, unit: &str) -> String {
        self.compare(what, measured, measured <= limit, format!("at most {limit} {unit}"), unit)
    }

    /// Compares a measurement with the smallest value that is allowed. Gives what to print behind the measurement.
    pub(crate) fn at_least(&mut self, what: &str, measured: f64, limit: f64, unit: &str) -> String {
        self.compare(what, measured, measured >= limit, format!("at least {limit} {unit}"), unit)
    }

    /// Prints a measurement with its bound.
    pub(crate) fn row_at_most(&mut self, what: &str, measured: f64, limit: f64, unit: &str) {
        let bound = self.at_most(what, measured, limit, unit);
        row(what, measured, unit, &bound);
    }

    /// Prints a measurement with its bound.
    pub(crate) fn row_at_least(&mut self, what: &str, measured: f64, limit: f64, unit: &str) {
        let bound = self.at_least(what, measured, limit, unit);
        row(what, measured, unit, &bound);
    }

    fn compare(&mut self, what: &str, measured: f64, is_met: bool, bound: String, unit: &str) -> String {
        if is_met {
            return bound;
        }
        self.missed.push(format!("{what}: {} {unit}, {bound}", number(measured)));
        format!("{bound}, MISSED")
    }

    /// Prints what was missed; an error if there is any and `check` is set.
    pub(crate) fn finish(self, check: bool) -> Result<()> {
        if !self.missed.is_empty() {
            println!("\nmissed bounds:");
            self.missed.iter().for_each(|line| println!("  {line}"));
        }
        ensure!(!check || self.missed.is_empty(), "{} bounds are missed", self.missed.len());
        Ok(())
    }
}

fn row(what: &str, measured: f64, unit: &str, bound: &str) {
    println!("{what:<64} {:>9} {unit:<8} {bound}", number(measured));
}

/// Three significant digits are enough for small numbers, none after the point for large ones.
fn number(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.3}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}
