//! The exact form of an amount: a decimal number of any size.
//!
//! Mirrors what `resource.Quantity` does with `gopkg.in/inf.v0`. The digits are stored without
//! zeros at either end, so `1e1000000000` needs one digit; Go computes the power, which takes minutes.

use std::cmp::Ordering;

/// The longest sum that is computed digit by digit. Go has no such limit and can run out of memory.
const MAX_SPAN: i64 = 10_000;

/// ± `digits` × 10^`exponent`.
#[derive(Debug, Clone)]
pub(super) struct Decimal {
    negative: bool,
    /// Values 0 to 9, most significant first, with no zero at either end. Empty is zero.
    digits: Vec<u8>,
    exponent: i64,
    /// The number of decimal places of Go's number: its integer is the amount × 10^`places`. It does
    /// not affect the amount, only the result of an overflow.
    places: i64,
}

impl Decimal {
    /// From ASCII digits, with as many decimal places as the exponent says.
    pub(super) fn new(negative: bool, ascii: &[u8], exponent: i64) -> Self {
        let digits = ascii.iter().map(|b| b.wrapping_sub(b'0')).collect();
        Self::normal(negative, digits, exponent, exponent.wrapping_neg())
    }

    fn normal(negative: bool, mut digits: Vec<u8>, mut exponent: i64, places: i64) -> Self {
        let leading = digits.iter().take_while(|d| **d == 0).count();
        digits.drain(..leading);
        while digits.last() == Some(&0) {
            digits.pop();
            exponent += 1;
        }
        Self {
            negative: negative && !digits.is_empty(),
            exponent: if digits.is_empty() { 0 } else { exponent },
            digits,
            places,
        }
    }

    pub(super) fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    pub(super) fn signum(&self) -> i32 {
        match (self.is_zero(), self.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }

    pub(super) fn negated(&self) -> Self {
        Self { negative: !self.negative && !self.is_zero(), ..self.clone() }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.exponent >= 0
    }

    /// The number of digits before the decimal point.
    pub(super) fn magnitude(&self) -> i64 {
        self.digits.len() as i64 + self.exponent
    }

    pub(super) fn cmp(&self, other: &Self) -> Ordering {
        let by_sign = self.signum().cmp(&other.signum());
        if by_sign.is_ne() || self.is_zero() {
            return by_sign;
        }
        let by_size = self.cmp_size(other);
        if self.negative { by_size.reverse() } else { by_size }
    }

    /// Compares two amounts other than zero without their signs. Digits compare like words.
    fn cmp_size(&self, other: &Self) -> Ordering {
        self.magnitude().cmp(&other.magnitude()).then_with(|| self.digits.cmp(&other.digits))
    }

    /// Rounds away from zero to at most `places` decimal places, which is then the number of places
    /// of Go's number.
    pub(super) fn rounded_up(&self, places: i64) -> Self {
        let cut = -places - self.exponent;
        if cut <= 0 || self.is_zero() {
            return Self { places, ..self.clone() };
        }
        let kept = (self.digits.len() as i64 - cut).max(0) as usize;
        let mut digits = self.digits[..kept].to_vec();
        // The last digit cut is not zero, so this always rounds up.
        increment(&mut digits);
        Self::normal(self.negative, digits, -places, places)
    }

    /// × 2^`power`, for powers below 64.
    pub(super) fn times_power_of_two(&self, power: u32) -> Self {
        let mut digits = self.digits.clone();
        let mut carry: u128 = 0;
        for digit in digits.iter_mut().rev() {
            let product = (u128::from(*digit) << power) + carry;
            *digit = (product % 10) as u8;
            carry = product / 10;
        }
        while carry > 0 {
            digits.insert(0, (carry % 10) as u8);
            carry /= 10;
        }
        Self::normal(self.negative, digits, self.exponent, self.places)
    }

    /// The sum. If the operands are too far apart, the smaller one is dropped.
    pub(super) fn add(&self, other: &Self) -> Self {
        let places = self.places.max(other.places);
        let with_places = |of: &Self| Self { places, ..of.clone() };
        if self.is_zero() {
            return with_places(other);
        }
        if other.is_zero() {
            return with_places(self);
        }
        let (large, small) = match self.cmp_size(other) {
            Ordering::Less => (other, self),
            _ => (self, other),
        };
        let exponent = self.exponent.min(other.exponent);
        if large.magnitude() - exponent > MAX_SPAN.max(large.digits.len() as i64 * 2) {
            return with_places(large);
        }
        let mut digits = large.digits_down_to(exponent);
        let addend = small.digits_down_to(exponent);
        if large.negative == small.negative {
            add_into(&mut digits, &addend);
        } else {
            subtract_from(&mut digits, &addend);
        }
        Self::normal(large.negative, digits, exponent, places)
    }

    /// The digits as an integer in units of 10^`exponent`, which is not above its own.
    fn digits_down_to(&self, exponent: i64) -> Vec<u8> {
        let mut digits = self.digits.clone();
        digits.resize((self.magnitude() - exponent).max(0) as usize, 0);
        digits
    }

    /// The amount in units of 10^`scale`, as `scaledValue` computes it: not exactly rounded up for
    /// negative numbers, and truncated to 64 bits at more than one place.
    pub(super) fn at_scale(&self, scale: i32) -> i64 {
        if self.is_zero() {
            return 0;
        }
        let wanted_places = -i64::from(scale);
        let unscaled = self.low_bits(&self.digits, self.exponent + self.places);
        let surplus = self.places - wanted_places;
        match surplus {
            0 => unscaled,
            ..0 => unscaled.wrapping_mul(power_of_ten_as_int64(-surplus)),
            1..=18 if self.negative || self.unscaled_is_below_max() => {
                let divisor = 10_i64.pow(surplus as u32);
                let quotient = unscaled / divisor;
                quotient + i64::from(unscaled % divisor != 0)
            }
            _ => self.rounded_towards_positive(wanted_places),
        }
    }

    /// The amount × 10^`places`, rounded up, truncated to 64 bits.
    fn rounded_towards_positive(&self, places: i64) -> i64 {
        let exponent = self.exponent + places;
        if exponent >= 0 {
            return self.low_bits(&self.digits, exponent);
        }
        let kept = (self.digits.len() as i64 + exponent).max(0) as usize;
        let truncated = self.low_bits(&self.digits[..kept], 0);
        if self.negative { truncated } else { truncated.wrapping_add(1) }
    }

    /// The low 64 bits of ± `digits` × 10^`power`, read as an integer (`big.Int.Int64`).
    fn low_bits(&self, digits: &[u8], power: i64) -> i64 {
        let start = digits.iter().fold(0_i64, |bits, digit| bits.wrapping_mul(10).wrapping_add(i64::from(*digit)));
        // 10^64 is a multiple of 2^64, so further powers change nothing.
        let bits = (0..power.min(64)).fold(start, |bits, _| bits.wrapping_mul(10));
        if self.negative { bits.wrapping_neg() } else { bits }
    }

    /// Whether Go's integer is below 2^63-1, for a positive amount.
    fn unscaled_is_below_max(&self) -> bool {
        let trailing = self.exponent + self.places;
        if self.digits.len() as i64 + trailing > 19 {
            return false;
        }
        let digits = self.digits.iter().fold(0_u128, |n, d| n * 10 + u128::from(*d));
        let unscaled = (0..trailing).fold(digits, |n, _| n * 10);
        unscaled < i64::MAX as u128
    }

    /// The shortest integer, and the power of ten it is to be multiplied with, that is a multiple of
    /// three (`infDecAmount.AsCanonicalBytes`).
    pub(super) fn in_powers_of_1000(&self) -> (String, i64) {
        let zeros = self.exponent.rem_euclid(3);
        let mut number = self.signed(&self.digits);
        number.extend((0..zeros).map(|_| '0'));
        (number, self.exponent - zeros)
    }

    /// The shortest integer, and the power of 1024 it is to be multiplied with, of a whole number
    /// (`infDecAmount.AsCanonicalBase1024Bytes`).
    pub(super) fn in_powers_of_1024(&self) -> (String, i64) {
        let mut digits = self.digits_down_to(0);
        let mut times = 0;
        while let Some(quotient) = divided_by_1024(&digits) {
            digits = quotient;
            times += 1;
        }
        (self.signed(&digits), times)
    }

    fn signed(&self, digits: &[u8]) -> String {
        let sign = self.negative.then_some('-');
        let digits = digits.iter().map(|d| char::from(b'0' + d));
        sign.into_iter().chain(digits).collect()
    }
}

/// What `int64(math.Pow10(n))` is on amd64: a float too large for an integer becomes the most
/// negative one.
fn power_of_ten_as_int64(n: i64) -> i64 {
    match u32::try_from(n) {
        Ok(n @ 0..=18) => 10_i64.pow(n),
        _ => i64::MIN,
    }
}

fn increment(digits: &mut Vec<u8>) {
    for digit in digits.iter_mut().rev() {
        if *digit < 9 {
            *digit += 1;
            return;
        }
        *digit = 0;
    }
    digits.insert(0, 1);
}

/// Adds the shorter number to the longer, last digits aligned.
fn add_into(digits: &mut Vec<u8>, addend: &[u8]) {
    let mut carry = 0;
    let addend = addend.iter().rev().chain(std::iter::repeat(&0));
    for (digit, other) in digits.iter_mut().rev().zip(addend) {
        let sum = *digit + other + carry;
        *digit = sum % 10;
        carry = sum / 10;
    }
    if carry > 0 {
        digits.insert(0, carry);
    }
}

/// Subtracts the smaller number from the larger, last digits aligned.
fn subtract_from(digits: &mut [u8], subtrahend: &[u8]) {
    let mut borrow = 0;
    let subtrahend = subtrahend.iter().rev().chain(std::iter::repeat(&0));
    for (digit, other) in digits.iter_mut().rev().zip(subtrahend) {
        let taken = other + borrow;
        borrow = u8::from(*digit < taken);
        *digit = *digit + 10 * borrow - taken;
    }
}

/// The number divided by 1024, if that leaves no remainder.
fn divided_by_1024(digits: &[u8]) -> Option<Vec<u8>> {
    let mut remainder: u32 = 0;
    let mut quotient = Vec::with_capacity(digits.len());
    for digit in digits {
        let dividend = remainder * 10 + u32::from(*digit);
        let next = (dividend / 1024) as u8;
        if next != 0 || !quotient.is_empty() {
            quotient.push(next);
        }
        remainder = dividend % 1024;
    }
    (remainder == 0 && !quotient.is_empty()).then_some(quotient)
}
