//! Numbers that can be percentages (`k8s.io/apimachinery/pkg/util/intstr`).

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The number, or its share of a total (`GetScaledValueFromIntOrPercent`). A text that is no percentage counts as zero.
pub(crate) fn scaled(value: &IntOrString, total: i32, round_up: bool) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').and_then(|digits| digits.parse::<i32>().ok()).unwrap_or_default();
            let product = i64::from(percent) * i64::from(total);
            let (floor, rest) = (product.div_euclid(100), product.rem_euclid(100));
            i32::try_from(floor + i64::from(round_up && rest > 0)).unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn get_scaled_value_from_int_or_percent() {
        let percent = |text: &str| IntOrString::String(text.into());
        for (value, total, up, down) in [
            (IntOrString::Int(123), 10, 123, 123),
            (percent("90%"), 100, 90, 90),
            (percent("90%"), 95, 86, 85),
            (percent("25%"), 1, 1, 0),
            (percent("25%"), 10, 3, 2),
            (percent("0%"), 7, 0, 0),
            (percent("%"), 100, 0, 0),
            (percent("90"), 100, 0, 0),
        ] {
            assert_eq!((scaled(&value, total, true), scaled(&value, total, false)), (up, down), "{value:?} of {total}");
        }
    }
}
