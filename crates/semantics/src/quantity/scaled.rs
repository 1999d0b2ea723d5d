//! The fast form of an amount: an integer and a power of ten.
//!
//! Mirrors `int64Amount` of `k8s.io/apimachinery/pkg/api/resource`.

use super::decimal::Decimal;

/// `value` × 10^`scale`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scaled {
    pub(super) value: i64,
    pub(super) scale: i32,
}

impl Scaled {
    /// The amount in units of 10^`scale`, rounded away from zero (`AsScaledInt64`, whose callers
    /// ignore that it overflowed).
    pub(super) fn at_scale(self, scale: i32) -> i64 {
        if self.scale < scale {
            return divide_away_from_zero(self.value, scale.wrapping_sub(self.scale));
        }
        let power = self.scale.wrapping_sub(scale);
        multiply(self.value, power).unwrap_or_else(|| overflown(self.value, power))
    }

    /// The sum, or none if it overflows (`int64Amount.Add`).
    pub(super) fn checked_add(self, other: Self) -> Option<Self> {
        if other.value == 0 {
            return Some(self);
        }
        if self.value == 0 {
            return Some(other);
        }
        let scale = self.scale.min(other.scale);
        let a = multiply(self.value, self.scale.wrapping_sub(scale))?;
        let b = multiply(other.value, other.scale.wrapping_sub(scale))?;
        let value = a.checked_add(b)?;
        Some(Self { value, scale })
    }

    /// The negative. As in Go, the most negative integer stays the same.
    pub(super) fn negated(self) -> Self {
        Self { value: self.value.wrapping_neg(), scale: self.scale }
    }

    pub(super) fn to_decimal(self) -> Decimal {
        let digits: Vec<u8> = self.value.unsigned_abs().to_string().into_bytes();
        Decimal::new(self.value < 0, &digits, i64::from(self.scale))
    }
}

/// `value` × 10^`power` (`positiveScaleInt64`). A power that became negative by wrapping
/// around, which needs an exponent near 2^31, multiplies by nothing, as in Go.
fn multiply(value: i64, power: i32) -> Option<i64> {
    if value == 0 {
        return Some(0);
    }
    // Any other value overflows within 19 steps.
    (0..power).try_fold(value, |product, _| product.checked_mul(10))
}

/// Go's result if `value` × 10^`power` overflows: the low 64 bits for powers that it multiplies with
/// in one step, 0 for powers that it reaches by tens, and 0 for the most negative integer.
fn overflown(value: i64, power: i32) -> i64 {
    match power {
        1 | 2 | 3 | 6 | 9 if value != i64::MIN => value.wrapping_mul(10_i64.pow(power as u32)),
        _ => 0,
    }
}

/// `value` / 10^`power`, rounded away from zero (`negativeScaleInt64`).
fn divide_away_from_zero(value: i64, power: i32) -> i64 {
    let divisor = u32::try_from(power).ok().and_then(|p| 10_i64.checked_pow(p));
    let Some(divisor) = divisor else {
        return value.signum();
    };
    let quotient = value / divisor;
    if value % divisor == 0 { quotient } else { quotient + value.signum() }
}
