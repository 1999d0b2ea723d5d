//! What a plain (unquoted) YAML scalar means.
//!
//! kubectl prints YAML with sigs.k8s.io/yaml, which leaves a string unquoted only if its own
//! reader would take it for a string. So every rule here has to be within that reader's rules: a
//! commit hash such as `57e1234` is printed plain, as it is too large for a float, and has to stay
//! a string. Where that reader goes beyond YAML 1.2's core schema, in texts that kubectl never
//! prints but people write, numbers follow it (`0644` is octal) and words do not (`yes` and `on`
//! are strings: every program that writes YAML today means a string by them).

use serde_json::{Number, Value};

/// The value of a plain scalar.
pub(crate) fn plain(text: &str) -> Value {
    literal(text).unwrap_or_else(|| Value::String(text.to_owned()))
}

/// The value of a plain scalar that is not a string.
pub(crate) fn literal(text: &str) -> Option<Value> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => Value::Number(number(text)?),
    })
}

fn number(text: &str) -> Option<Number> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        b'0'..=b'9' | b'.' => (false, text),
        _ => return None,
    };
    match digits.get(..2) {
        Some("0x" | "0X") => based(negative, &digits[2..], 16),
        Some("0o" | "0O") => based(negative, &digits[2..], 8),
        Some("0b" | "0B") => based(negative, &digits[2..], 2),
        _ if is_octal(digits) => based(negative, &digits[1..], 8),
        _ => decimal(negative, digits),
    }
}

fn is_octal(digits: &str) -> bool {
    digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|b| (b'0'..=b'7').contains(&b))
}

fn based(negative: bool, digits: &str, radix: u32) -> Option<Number> {
    // The standard library would take a second sign.
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if negative { Some(Number::from(0_i64.checked_sub_unsigned(magnitude)?)) } else { Some(Number::from(magnitude)) }
}

/// Reads `12`, `1.5`, `.5`, `5.`, `1e3` and the like, by rewriting them as JSON numbers: what
/// comes out is then the same as what `-o json` would have given, to the last bit.
fn decimal(negative: bool, digits: &str) -> Option<Number> {
    let (mantissa, exponent) = match digits.find(['e', 'E']) {
        Some(at) => (&digits[..at], Some(&digits[at + 1..])),
        None => (digits, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() && fraction.is_empty() || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let mut json = String::with_capacity(digits.len() + 3);
    if negative {
        json.push('-');
    }
    let whole = whole.trim_start_matches('0');
    json.push_str(if whole.is_empty() { "0" } else { whole });
    if mantissa.contains('.') {
        json.push('.');
        json.push_str(if fraction.is_empty() { "0" } else { fraction });
    }
    if let Some(exponent) = exponent {
        let power = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if power.is_empty() || !all_digits(power) {
            return None;
        }
        json.push('e');
        json.push_str(exponent);
    }
    // Out of range for a float: sigs.k8s.io/yaml keeps it a string.
    serde_json::from_str(&json).ok()
}

#[cfg(test)]
mod tests {
    use super::plain;
    use serde_json::{Value, json};

    #[test]
    fn plain_scalars() {
        let string = |s: &str| Value::String(s.to_owned());
        for (text, want) in [
            ("", Value::Null),
            ("~", Value::Null),
            ("null", Value::Null),
            ("nULL", string("nULL")),
            ("true", json!(true)),
            ("FALSE", json!(false)),
            ("tRuE", string("tRuE")),
            ("yes", string("yes")),
            ("on", string("on")),
            ("n", string("n")),
            ("0", json!(0)),
            ("-0", json!(-0.0)),
            ("+12", json!(12)),
            ("-12", json!(-12)),
            ("18446744073709551615", json!(18_446_744_073_709_551_615_u64)),
            ("99999999999999999999", json!(1e20)),
            ("0123", json!(83)),
            ("0644", json!(420)),
            ("08", json!(8)),
            ("0x1F", json!(31)),
            ("-0x1F", json!(-31)),
            ("0x-1", string("0x-1")),
            ("0x", string("0x")),
            ("0o17", json!(15)),
            ("0b101", json!(5)),
            ("0x1234567890abcdef12", string("0x1234567890abcdef12")),
            ("1_000", string("1_000")),
            ("1e3", json!(1e3)),
            ("1e+06", json!(1e6)),
            ("1e", string("1e")),
            ("1e5x", string("1e5x")),
            ("57e1234", string("57e1234")),
            ("-1e400", string("-1e400")),
            ("1e-400", json!(0.0)),
            (".5", json!(0.5)),
            ("-.5", json!(-0.5)),
            ("5.", json!(5.0)),
            (".", string(".")),
            ("-", string("-")),
            ("+", string("+")),
            ("1.2.3", string("1.2.3")),
            ("1:20", string("1:20")),
            ("100m", string("100m")),
            ("16Gi", string("16Gi")),
            (".inf", string(".inf")),
            ("inf", string("inf")),
            (".nan", string(".nan")),
            ("2025-01-08", string("2025-01-08")),
            ("2025-01-08T16:52:54Z", string("2025-01-08T16:52:54Z")),
            ("१२", string("१२")),
            ("0é", string("0é")),
        ] {
            assert_eq!(plain(text), want, "{text:?}");
        }
    }
}
