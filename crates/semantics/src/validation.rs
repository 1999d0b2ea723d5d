//! Which strings are valid label keys, label values and DNS names.
//!
//! Mirrors `k8s.io/apimachinery/pkg/api/validate/content` for labels, and `…/pkg/util/validation`,
//! which checks the names of objects, for DNS names. Each check returns the errors, in Kubernetes'
//! wording and order; an empty list means that the value is valid. Lengths are in bytes in both,
//! although the messages of the second say characters.

/// Longest name part of a label key, and longest label value.
pub const LABEL_MAX_LENGTH: usize = 63;
/// Longest DNS-1123 label.
pub const DNS1123_LABEL_MAX_LENGTH: usize = 63;
/// Longest DNS-1123 subdomain.
pub const DNS1123_SUBDOMAIN_MAX_LENGTH: usize = 253;

const NAME_REGEX: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const NAME_RULE: &str =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const VALUE_REGEX: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const DNS_LABEL_REGEX: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS_LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
const DNS_SUBDOMAIN_REGEX: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DNS_SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";

/// The errors of `key` as a label key: `[dns-subdomain/]name` (`content.IsLabelKey`).
#[must_use]
pub fn check_label_key(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut parts = key.split('/');
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => name,
        (Some(prefix), Some(name), None) => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                let found = subdomain_problems(prefix, "bytes");
                problems.extend(found.iter().map(|p| format!("prefix part {p}")));
            }
            name
        }
        _ => {
            problems.push(format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                name_problem()
            ));
            return problems;
        }
    };

    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX_LENGTH {
        problems.push(format!("name part {}", too_long(LABEL_MAX_LENGTH, "bytes")));
    }
    if !is_name(name) {
        problems.push(format!("name part {}", name_problem()));
    }
    problems
}

/// The errors of `value` as a label value (`content.IsLabelValue`). An empty value is valid.
#[must_use]
pub fn check_label_value(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > LABEL_MAX_LENGTH {
        problems.push(too_long(LABEL_MAX_LENGTH, "bytes"));
    }
    if !value.is_empty() && !is_name(value) {
        problems.push(regex_problem(VALUE_RULE, VALUE_REGEX, &["MyValue", "my_value", "12345"]));
    }
    problems
}

/// The errors of `value` as a DNS-1123 label (`validation.IsDNS1123Label`).
#[must_use]
pub fn check_dns1123_label(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > DNS1123_LABEL_MAX_LENGTH {
        problems.push(too_long(DNS1123_LABEL_MAX_LENGTH, "characters"));
    }
    if !is_dns_label(value) {
        problems.push(if is_dns_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            regex_problem(DNS_LABEL_RULE, DNS_LABEL_REGEX, &["my-name", "123-abc"])
        });
    }
    problems
}

/// The errors of `value` as a DNS-1123 subdomain (`validation.IsDNS1123Subdomain`).
#[must_use]
pub fn check_dns1123_subdomain(value: &str) -> Vec<String> {
    subdomain_problems(value, "characters")
}

fn subdomain_problems(value: &str, unit: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > DNS1123_SUBDOMAIN_MAX_LENGTH {
        problems.push(too_long(DNS1123_SUBDOMAIN_MAX_LENGTH, unit));
    }
    if !is_dns_subdomain(value) {
        problems.push(regex_problem(DNS_SUBDOMAIN_RULE, DNS_SUBDOMAIN_REGEX, &["example.com"]));
    }
    problems
}

/// [`NAME_REGEX`], without a regular expression engine.
fn is_name(s: &str) -> bool {
    starts_and_ends_with(s, |b| b.is_ascii_alphanumeric())
        && s.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// [`DNS_LABEL_REGEX`], without a regular expression engine.
fn is_dns_label(s: &str) -> bool {
    let lower_or_digit = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    starts_and_ends_with(s, lower_or_digit) && s.bytes().all(|b| lower_or_digit(b) || b == b'-')
}

fn is_dns_subdomain(s: &str) -> bool {
    s.split('.').all(is_dns_label)
}

fn starts_and_ends_with(s: &str, allowed: impl Fn(u8) -> bool) -> bool {
    match s.as_bytes() {
        [] => false,
        [only] => allowed(*only),
        [first, .., last] => allowed(*first) && allowed(*last),
    }
}

fn name_problem() -> String {
    regex_problem(NAME_RULE, NAME_REGEX, &["MyName", "my.name", "123-abc"])
}

/// `MaxLenError`, which the two mirrored packages word differently.
fn too_long(limit: usize, unit: &str) -> String {
    format!("must be no more than {limit} {unit}")
}

/// `content.RegexError`.
fn regex_problem(rule: &str, regex: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}
