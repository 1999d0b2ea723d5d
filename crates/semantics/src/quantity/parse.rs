//! Strings to quantities.
//!
//! Mirrors `resource.ParseQuantity`, `parseQuantityString` and the suffixer.

use std::cmp::Ordering;

use super::decimal::Decimal;
use super::scaled::Scaled;
use super::{Amount, Format, Quantity, QuantityError};

/// Decimal places of the smallest amount, a billionth.
const NANO: i32 = -9;

/// The number of decimal digits that always fit in 64 bits.
const MAX_DIGITS: i64 = 18;

pub(super) fn quantity(s: &str) -> Result<Quantity, QuantityError> {
    if s.is_empty() {
        return Err(QuantityError::Format);
    }
    let parts = split(s)?;
    let suffix = interpret(parts.suffix)?;
    if let Some(scaled) = as_scaled(&parts, suffix) {
        let keep = prints_as_written(&parts, suffix, scaled.scale);
        return Ok(Quantity { amount: Amount::Scaled(scaled), format: suffix.format(), text: keep.then(|| s.into()) });
    }
    as_decimal(&parts, suffix)
}

/// The parts of a quantity. `whole` has no leading zeros, unless it is `0`.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    /// Whether there is any digit: `.` and `Ki` are quantities without digits.
    has_digits: bool,
    suffix: &'a str,
}

fn split(s: &str) -> Result<Parts<'_>, QuantityError> {
    let unsigned = s.strip_prefix(['+', '-']).unwrap_or(s);
    let (digits, rest) = split_digits(unsigned);
    let significant = digits.trim_start_matches('0');
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => split_digits(rest),
        None => ("", rest),
    };
    if !is_like_suffix(suffix) {
        return Err(QuantityError::Format);
    }
    Ok(Parts {
        negative: s.starts_with('-'),
        whole: if significant.is_empty() { "0" } else { significant },
        fraction,
        has_digits: !digits.is_empty() || !fraction.is_empty(),
        suffix,
    })
}

fn split_digits(s: &str) -> (&str, &str) {
    let end = s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
    s.split_at(end)
}

/// Letters of suffixes, a sign, digits; each may be missing.
fn is_like_suffix(s: &str) -> bool {
    let rest = s.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    rest.bytes().all(|b| b.is_ascii_digit())
}

#[derive(Clone, Copy)]
enum Suffix {
    /// Times 10^exponent, written as a letter.
    Decimal(i32),
    /// Times 2^exponent.
    Binary(u32),
    /// Times 10^exponent, written as a number.
    Exponent(i32),
}

impl Suffix {
    fn format(self) -> Format {
        match self {
            Self::Decimal(_) => Format::DecimalSI,
            Self::Binary(_) => Format::BinarySI,
            Self::Exponent(_) => Format::DecimalExponent,
        }
    }
}

fn interpret(suffix: &str) -> Result<Suffix, QuantityError> {
    Ok(match suffix {
        "n" => Suffix::Decimal(-9),
        "u" => Suffix::Decimal(-6),
        "m" => Suffix::Decimal(-3),
        "" => Suffix::Decimal(0),
        "k" => Suffix::Decimal(3),
        "M" => Suffix::Decimal(6),
        "G" => Suffix::Decimal(9),
        "T" => Suffix::Decimal(12),
        "P" => Suffix::Decimal(15),
        "E" => Suffix::Decimal(18),
        "Ki" => Suffix::Binary(10),
        "Mi" => Suffix::Binary(20),
        "Gi" => Suffix::Binary(30),
        "Ti" => Suffix::Binary(40),
        "Pi" => Suffix::Binary(50),
        "Ei" => Suffix::Binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E']).map(str::parse::<i64>);
            let Some(Ok(exponent)) = exponent else {
                return Err(QuantityError::Suffix);
            };
            // Go keeps the low 32 bits, so 1e4294967296 is 1.
            Suffix::Exponent(exponent as i32)
        }
    })
}

/// The fast form, if Go uses it: few digits, nothing below a billionth, no binary fractions.
fn as_scaled(parts: &Parts<'_>, suffix: Suffix) -> Option<Scaled> {
    let digits = (parts.whole.len() + parts.fraction.len()) as i64;
    let (fits, scale, factor) = match suffix {
        Suffix::Decimal(exponent) | Suffix::Exponent(exponent) => {
            let scale = exponent.wrapping_sub(i32::try_from(parts.fraction.len()).ok()?);
            (digits <= MAX_DIGITS, scale, 1)
        }
        // Go assumes three decimal digits for ten bits, plus one.
        Suffix::Binary(exponent) => {
            (parts.fraction.is_empty() && digits + i64::from(exponent) * 3 / 10 <= 14, 0, 1_i64 << exponent)
        }
    };
    if !fits || scale < NANO {
        return None;
    }
    let number: i64 = format!("{}{}", parts.whole, parts.fraction).parse().ok()?;
    let value = number.checked_mul(factor)?;
    Some(Scaled { value: if parts.negative { -value } else { value }, scale })
}

/// Go keeps the string of a quantity that it regards as canonical. Its quick check also accepts
/// `+1`, `01` and `1.500k`.
fn prints_as_written(parts: &Parts<'_>, suffix: Suffix, scale: i32) -> bool {
    match suffix {
        Suffix::Binary(_) => parts.whole.parse::<i64>().is_ok_and(|number| number & 0x07 != 0),
        Suffix::Decimal(_) | Suffix::Exponent(_) => {
            let ends_in_thousands = format!("{}{}", parts.whole, parts.fraction).ends_with("000");
            scale % 3 == 0 && !ends_in_thousands && !parts.whole.starts_with('0')
        }
    }
}

/// The exact form, rounded up to billionths and, if binary, capped.
fn as_decimal(parts: &Parts<'_>, suffix: Suffix) -> Result<Quantity, QuantityError> {
    if !parts.has_digits {
        return Err(QuantityError::Number);
    }
    let exponent = match suffix {
        Suffix::Decimal(exponent) | Suffix::Exponent(exponent) => i64::from(exponent),
        Suffix::Binary(_) => 0,
    };
    let digits = format!("{}{}", parts.whole, parts.fraction);
    let exponent = exponent - parts.fraction.len() as i64;
    let mut amount = Decimal::new(false, digits.as_bytes(), exponent);
    if let Suffix::Binary(power) = suffix {
        amount = amount.times_power_of_two(power);
    }
    if !amount.is_zero() {
        amount = amount.rounded_up(-i64::from(NANO));
    }
    let mut format = suffix.format();
    if format == Format::BinarySI {
        let of = |value| Scaled { value, scale: 0 }.to_decimal();
        if amount.cmp(&of(i64::MAX)) == Ordering::Greater {
            amount = of(i64::MAX);
        }
        // Amounts below one have no binary suffix.
        if !amount.is_zero() && amount.cmp(&of(1)) == Ordering::Less {
            format = Format::DecimalSI;
        }
    }
    if parts.negative {
        amount = amount.negated();
    }
    Ok(Quantity::of(Amount::Decimal(amount), format))
}
