//! Exact amounts of resources, as Kubernetes writes them: `500m`, `1.5Gi`, `2e3`.
//!
//! Mirrors `k8s.io/apimachinery/pkg/api/resource`. No step goes through floating point.
//!
//! Go stores an amount in one of two forms: a 64-bit integer with a decimal exponent, or a decimal
//! of any size. The two round negative numbers differently and overflow differently, so both exist
//! here too (`scaled` and `decimal`), chosen by Go's rules.

mod canonical;
mod decimal;
mod parse;
mod scaled;

use std::cmp::Ordering;
use std::fmt;

use thiserror::Error;

use decimal::Decimal;
use scaled::Scaled;

/// The family of suffixes with which a quantity is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// Powers of ten as an exponent: `12e6`.
    DecimalExponent,
    /// Powers of 1024: `12Mi`.
    BinarySI,
    /// Powers of 1000: `12M`.
    DecimalSI,
}

/// Why a string is not a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum QuantityError {
    /// The string does not look like a number and a suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number in front of the suffix has no digits.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// An exact Kubernetes quantity.
///
/// Quantities are compared by their amount alone: `1Gi` equals `1024Mi`, and `0.1` equals `100m`,
/// although they print differently.
#[derive(Clone)]
pub struct Quantity {
    amount: Amount,
    format: Format,
    /// The string it was parsed from, if Go prints that instead of the canonical form.
    text: Option<Box<str>>,
}

#[derive(Debug, Clone)]
enum Amount {
    Scaled(Scaled),
    Decimal(Decimal),
}

/// Decimal places of a quantity in thousandths.
const MILLI: i32 = -3;

impl Quantity {
    /// Parses a quantity as `resource.ParseQuantity` does.
    ///
    /// The syntax allows more than documented: a missing number is zero, so `Ki` and `+` are
    /// quantities. Fractions below a billionth are rounded away from zero; a binary quantity above
    /// 2^63-1 becomes 2^63-1, while a decimal one is kept.
    ///
    /// # Errors
    ///
    /// Go's error, if the string is not a quantity.
    pub fn parse(s: &str) -> Result<Self, QuantityError> {
        parse::quantity(s)
    }

    /// The quantity `value` (`resource.NewQuantity`).
    #[must_use]
    pub fn from_value(value: i64, format: Format) -> Self {
        Self::of(Amount::Scaled(Scaled { value, scale: 0 }), format)
    }

    /// The quantity of `value` thousandths (`resource.NewMilliQuantity`).
    #[must_use]
    pub fn from_milli(value: i64, format: Format) -> Self {
        let scale = MILLI;
        Self::of(Amount::Scaled(Scaled { value, scale }), format)
    }

    fn of(amount: Amount, format: Format) -> Self {
        Self { amount, format, text: None }
    }

    /// The amount rounded up to a whole number (`Quantity.Value`).
    ///
    /// This includes Go's quirks. A number beyond 64 bits becomes 0 (`12E`) or wraps around
    /// (`9223372036854775808` is negative), depending on its form. A number in decimal form, such as
    /// a fraction of a binary unit, is truncated and then incremented, so that `-1.1Ki` is -1125.
    #[must_use]
    pub fn value(&self) -> i64 {
        self.scaled_value(0)
    }

    /// The amount in thousandths, rounded up (`Quantity.MilliValue`), with the quirks of
    /// [`Quantity::value`].
    #[must_use]
    pub fn milli_value(&self) -> i64 {
        self.scaled_value(MILLI)
    }

    fn scaled_value(&self, scale: i32) -> i64 {
        match &self.amount {
            Amount::Scaled(scaled) => scaled.at_scale(scale),
            Amount::Decimal(decimal) => decimal.at_scale(scale),
        }
    }

    /// Whether the amount is zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.signum() == 0
    }

    /// -1, 0 or 1 for an amount below, at or above zero (`Quantity.Sign`).
    #[must_use]
    pub fn signum(&self) -> i32 {
        match &self.amount {
            Amount::Scaled(scaled) => scaled.value.signum() as i32,
            Amount::Decimal(decimal) => decimal.signum(),
        }
    }

    /// The family of suffixes with which it is printed.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// The sum (`Quantity.Add`). It prints in the format of `self`, unless `self` is zero.
    #[must_use]
    pub fn add(&self, other: &Self) -> Self {
        let format = self.format_with(other);
        if let (Amount::Scaled(a), Amount::Scaled(b)) = (&self.amount, &other.amount)
            && let Some(sum) = a.checked_add(*b)
        {
            return Self::of(Amount::Scaled(sum), format);
        }
        let sum = self.to_decimal().add(&other.to_decimal());
        Self::of(Amount::Decimal(sum), format)
    }

    /// The difference (`Quantity.Sub`). It prints in the format of `self`, unless `self` is zero.
    #[must_use]
    pub fn sub(&self, other: &Self) -> Self {
        let format = self.format_with(other);
        if let (Amount::Scaled(a), Amount::Scaled(b)) = (&self.amount, &other.amount)
            && let Some(difference) = a.checked_add(b.negated())
        {
            return Self::of(Amount::Scaled(difference), format);
        }
        let difference = self.to_decimal().add(&other.to_decimal().negated());
        Self::of(Amount::Decimal(difference), format)
    }

    fn format_with(&self, other: &Self) -> Format {
        if self.is_zero() { other.format } else { self.format }
    }

    fn to_decimal(&self) -> Decimal {
        match &self.amount {
            Amount::Scaled(scaled) => scaled.to_decimal(),
            Amount::Decimal(decimal) => decimal.clone(),
        }
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.amount, &other.amount) {
            (Amount::Scaled(a), Amount::Scaled(b)) if a.scale == b.scale => a.value.cmp(&b.value),
            (Amount::Decimal(a), Amount::Decimal(b)) => a.cmp(b),
            _ => self.to_decimal().cmp(&other.to_decimal()),
        }
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl fmt::Display for Quantity {
    /// As Go's `Quantity.String` prints it: the string it was parsed from if that is nearly
    /// canonical, otherwise the canonical form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => f.pad(text),
            None => f.pad(&canonical::string(&self.amount, self.format)),
        }
    }
}

impl fmt::Debug for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quantity({self}, {:?})", self.format)
    }
}
