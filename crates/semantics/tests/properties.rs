//! Properties of all inputs, and cases that the recordings do not cover.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use expect_test::expect;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use proptest::prelude::*;
use stead_semantics::validation::{check_dns1123_label, check_dns1123_subdomain, check_label_key, check_label_value};
use stead_semantics::{Format, Labels, Operator, Quantity, Requirement, Selector};

/// Quantities whose canonical form has a suffix: Go drops an unknown suffix, which changes the
/// amount.
const PRINTABLE_QUANTITY: &str =
    r"[+-]?([0-9]{1,6}\.?[0-9]{0,12}|\.[0-9]{1,12})([numkMGT]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?";

proptest! {
    #[test]
    fn nothing_panics(s in any::<String>(), t in "[-+.0-9eEinumkKMGTP]{0,40}") {
        for input in [&s, &t] {
            if let Ok(q) = Quantity::parse(input) {
                let other = Quantity::from_milli(-1, Format::BinarySI);
                let _ = (q.value(), q.milli_value(), q.add(&other), other.sub(&q));
                let _ = (q.to_string(), q.add(&q).to_string(), other.add(&q).to_string());
            }
            let _ = (check_label_key(input), check_label_value(input));
            let _ = (check_dns1123_label(input), check_dns1123_subdomain(input));
        }
    }

    #[test]
    fn no_selector_panics(s in any::<String>(), t in "([a-z/, !=<>()]|in|notin){0,12}") {
        for input in [&s, &t] {
            if let Ok(selector) = Selector::parse(input) {
                prop_assert_eq!(Selector::parse(&selector.to_string()), Ok(selector));
            }
        }
    }

    #[test]
    fn a_quantity_survives_being_printed(s in PRINTABLE_QUANTITY) {
        let q = Quantity::parse(&s).unwrap();
        prop_assert_eq!(Quantity::parse(&q.to_string()).unwrap(), q);
    }

    #[test]
    fn subtraction_undoes_addition(a in PRINTABLE_QUANTITY, b in PRINTABLE_QUANTITY) {
        let (a, b) = (Quantity::parse(&a).unwrap(), Quantity::parse(&b).unwrap());
        prop_assert_eq!(a.add(&b), b.add(&a));
        prop_assert_eq!(a.add(&b).sub(&b), a.clone());
        prop_assert_eq!(a.sub(&b).signum(), a.cmp(&b) as i32);
    }

    #[test]
    fn whole_numbers_stay_themselves(n in any::<i64>()) {
        for format in [Format::DecimalExponent, Format::BinarySI, Format::DecimalSI] {
            let q = Quantity::from_value(n, format);
            prop_assert_eq!(q.value(), n);
            prop_assert_eq!(Quantity::parse(&q.to_string()).unwrap(), q);
            prop_assert_eq!(Quantity::from_milli(n, format).milli_value(), n);
        }
    }
}

/// Go computes these for minutes or runs out of memory. Here they have to end quickly.
#[test]
fn huge_exponents_are_cheap() {
    let huge = Quantity::parse("1234567890123456789e2000000000").unwrap();
    let tiny = Quantity::parse("1e-2000000000").unwrap();
    assert_eq!(tiny, Quantity::parse("1n").unwrap());
    assert!(huge > tiny);
    assert_eq!(huge.add(&tiny), huge);
    let binary = Quantity::parse("1Gi").unwrap().add(&huge);
    assert_eq!(binary, huge);
    assert!(binary.to_string().starts_with("1234567890123456789"));
}

#[test]
fn the_most_negative_integer_has_no_binary_suffix() {
    let q = Quantity::from_value(i64::MIN, Format::BinarySI);
    assert_eq!(q.to_string(), "-9223372036854775808");
}

#[test]
fn absent_selector_matches_nothing_empty_selector_everything() {
    let nothing = Selector::from_label_selector(None).unwrap();
    let everything = Selector::from_label_selector(Some(&LabelSelector::default())).unwrap();
    let some = Labels::from([("a".to_owned(), "b".to_owned())]);
    for labels in [Labels::new(), some] {
        assert!(!nothing.matches(&labels));
        assert!(everything.matches(&labels));
    }
    assert!(nothing.is_nothing() && !nothing.is_empty());
    assert!(everything.is_empty() && !everything.is_nothing());
    assert_eq!(everything, Selector::from_set(&Labels::new()));
}

#[test]
fn added_requirements_are_sorted_by_key_and_ignored_by_nothing() {
    let requirement = |key: &str| Requirement::new(key, Operator::In, vec!["y".to_owned(), "x".to_owned()]);
    let mut selector = Selector::from_set(&Labels::from([("m".to_owned(), "1".to_owned())]));
    selector.add(requirement("z").unwrap());
    selector.add(requirement("a").unwrap());
    assert_eq!(selector.to_string(), "a in (x,y),m=1,z in (x,y)");

    let mut nothing = Selector::nothing();
    nothing.add(requirement("a").unwrap());
    assert!(nothing.is_nothing());
}

#[test]
fn errors_name_the_invalid_requirement() {
    let expression = |operator: &str, values: &[&str]| LabelSelectorRequirement {
        key: "tier".to_owned(),
        operator: operator.to_owned(),
        values: Some(values.iter().map(|v| (*v).to_owned()).collect()),
    };
    let error = |second: LabelSelectorRequirement| {
        let selector =
            LabelSelector { match_expressions: Some(vec![expression("In", &["web"]), second]), match_labels: None };
        let error = Selector::from_label_selector(Some(&selector)).unwrap_err();
        format!("{error}\n{}\n", error.kubernetes_message())
    };
    expect![[r#"
        matchExpressions[1].operator: "Near" is not a valid label selector operator
        "Near" is not a valid label selector operator
    "#]]
    .assert_eq(&error(expression("Near", &[])));
    expect![[r#"
        matchExpressions[1].values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty
        values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty
    "#]]
    .assert_eq(&error(expression("NotIn", &[])));
    expect![[r#"
        matchExpressions[1].values: Invalid value: ["a","b"]: values set must be empty for exists and does not exist
        values: Invalid value: ["a","b"]: values set must be empty for exists and does not exist
    "#]]
    .assert_eq(&error(expression("Exists", &["a", "b"])));
}
