//! Taints and tolerations: matching compared with recordings of the Go implementation, validation with its wording.

use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::{Taint, Toleration};
use stead_semantics::{find_untolerated, tolerates, validate_taint, validate_toleration};

fn taint(key: &str, value: &str, effect: &str) -> Taint {
    Taint {
        key: key.to_owned(),
        value: (!value.is_empty()).then(|| value.to_owned()),
        effect: effect.to_owned(),
        time_added: None,
    }
}

fn toleration(effect: &str, key: &str, operator: &str, value: &str) -> Toleration {
    let some = |s: &str| (!s.is_empty()).then(|| s.to_owned());
    Toleration {
        effect: some(effect),
        key: some(key),
        operator: some(operator),
        value: some(value),
        toleration_seconds: None,
    }
}

/// `data/tolerations.tsv` was printed by `k8s.io/api` v0.36.4 itself, with comparison operators off
/// as they are by default: effect, key, operator and value of a toleration, and one digit for each
/// of these taints.
#[test]
fn same_matches_as_go() {
    let taints = [
        taint("foo", "", "NoSchedule"),
        taint("foo", "bar", "NoSchedule"),
        taint("bar", "5", "NoExecute"),
        taint("foo", "4", "NoExecute"),
        taint("foo", "6", "NoSchedule"),
    ];
    for line in include_str!("data/tolerations.tsv").lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [effect, key, operator, value, expected] = fields[..] else {
            panic!("not a recording: {line}");
        };
        let toleration = toleration(effect, key, operator, value);
        let digit = |taint| if tolerates(&toleration, taint) { '1' } else { '0' };
        let actual: String = taints.iter().map(digit).collect();
        assert_eq!(actual, expected, "{toleration:?}");
    }
}

#[test]
fn first_untolerated_taint() {
    let taints = [
        taint("soft", "", "PreferNoSchedule"),
        taint("tolerated", "", "NoSchedule"),
        taint("first", "", "NoSchedule"),
        taint("second", "", "NoExecute"),
    ];
    let tolerations = [toleration("", "tolerated", "Exists", "")];
    let hard = |t: &Taint| t.effect != "PreferNoSchedule";
    let found = find_untolerated(&taints, &tolerations, hard);
    assert_eq!(found, Some(&taints[2]));

    let everything = [toleration("", "", "Exists", "")];
    assert_eq!(find_untolerated(&taints, &everything, hard), None);
    assert_eq!(find_untolerated(&taints, &[], |_| false), None);
    assert_eq!(find_untolerated(&[], &[], hard), None);
}

fn check(checked: Result<(), impl std::error::Error>, expected: &Expect) {
    let shown = checked.map_or_else(|e| e.to_string(), |()| "valid".to_owned());
    expected.assert_eq(&shown);
}

#[test]
fn validation_of_tolerations_in_kubernetes_wording() {
    let check = |t: Toleration, expected: Expect| check(validate_toleration(&t), &expected);

    check(toleration("", "", "Exists", ""), expect!["valid"]);
    check(toleration("NoExecute", "example.com/k", "", "v"), expect!["valid"]);
    check(
        toleration("", "", "Equal", ""),
        expect![[
            r#"operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which means "match all values and all keys""#
        ]],
    );
    check(
        toleration("", "k", "Exists", "v"),
        expect!["operator: Invalid value: \"v\": value must be empty when `operator` is 'Exists'"],
    );
    check(
        toleration("", "k", "exists", ""),
        expect![[r#"operator: Unsupported value: "exists": supported values: "Equal", "Exists""#]],
    );
    check(
        toleration("", "k", "Gt", "5"),
        expect![[r#"operator: Unsupported value: "Gt": supported values: "Equal", "Exists", "Lt", "Gt""#]],
    );
    check(
        toleration("Evict", "k", "Exists", ""),
        expect![[
            r#"effect: Unsupported value: "Evict": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute""#
        ]],
    );
    check(
        toleration("", "k", "Equal", "-"),
        expect![[
            r#"operator: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#
        ]],
    );
    check(toleration("", "/k", "Exists", ""), expect![[r#"key: Invalid value: "/k": prefix part must be non-empty"#]]);
    check(
        Toleration { toleration_seconds: Some(300), ..toleration("NoSchedule", "k", "Other", "") },
        expect![[
            r#"[effect: Invalid value: "NoSchedule": effect must be 'NoExecute' when `tolerationSeconds` is set, operator: Unsupported value: "Other": supported values: "Equal", "Exists"]"#
        ]],
    );
}

#[test]
fn validation_of_taints_in_kubernetes_wording() {
    let check = |t: Taint, expected: Expect| check(validate_taint(&t), &expected);

    check(taint("node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute"), expect!["valid"]);
    check(taint("k", "", ""), expect!["effect: Required value"]);
    check(
        taint("k", "", "NoAdmit"),
        expect![[
            r#"effect: Unsupported value: "NoAdmit": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute""#
        ]],
    );
    check(
        taint("", "v v", "NoSchedule"),
        expect![[
            r#"[key: Invalid value: "": name part must be non-empty, key: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]'), value: Invalid value: "v v": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')]"#
        ]],
    );
}
