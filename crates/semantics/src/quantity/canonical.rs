//! Quantities to strings.
//!
//! Mirrors `Quantity.CanonicalizeBytes`: no fraction, and the largest suffix that allows that.

use std::cmp::Ordering;

use super::scaled::Scaled;
use super::{Amount, Format};

/// Integers with more digits than this are not converted to a binary suffix. No real cluster has
/// such amounts.
const MAX_BINARY_DIGITS: i64 = 10_000;

pub(super) fn string(amount: &Amount, format: Format) -> String {
    let decimal = match amount {
        Amount::Scaled(scaled) => scaled.to_decimal(),
        Amount::Decimal(decimal) => decimal.clone(),
    };
    if decimal.is_zero() {
        return "0".to_owned();
    }
    let against = |value| decimal.cmp(&Scaled { value, scale: 0 }.to_decimal());
    let is_small = against(1024) == Ordering::Less && against(-1024) == Ordering::Greater;
    match format {
        Format::DecimalExponent => {
            let (number, exponent) = decimal.in_powers_of_1000();
            match exponent {
                0 => number,
                _ => format!("{number}e{exponent}"),
            }
        }
        Format::BinarySI if !is_small && decimal.is_whole() && decimal.magnitude() <= MAX_BINARY_DIGITS => {
            if is_most_negative_integer(amount) {
                return i64::MIN.to_string();
            }
            let (number, power) = decimal.in_powers_of_1024();
            number + binary_suffix(power)
        }
        // A small or a fractional number would lose precision in a binary suffix.
        Format::BinarySI | Format::DecimalSI => {
            let (number, exponent) = decimal.in_powers_of_1000();
            number + decimal_suffix(exponent)
        }
    }
}

/// Go looks for factors of 1024 in the absolute value, which this integer does not have.
fn is_most_negative_integer(amount: &Amount) -> bool {
    matches!(amount, Amount::Scaled(Scaled { value: i64::MIN, scale: 0 }))
}

/// Beyond the largest suffix Go prints none, which changes the amount: `1000E` prints as `1`.
fn decimal_suffix(exponent: i64) -> &'static str {
    match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        18 => "E",
        _ => "",
    }
}

/// As [`decimal_suffix`], for powers of 1024.
fn binary_suffix(power: i64) -> &'static str {
    match power {
        1 => "Ki",
        2 => "Mi",
        3 => "Gi",
        4 => "Ti",
        5 => "Pi",
        6 => "Ei",
        _ => "",
    }
}
