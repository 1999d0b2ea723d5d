//! Mutations of JSON and text.

use serde_json::{Map, Number, Value, json};

use crate::random::Random;

/// Strings that are unusual as a name, quantity, operator, selector or time.
const ODD: &[&str] = &[
    "",
    " ",
    "\0",
    "\u{202e}",
    "é",
    "a/b/c",
    "/",
    "-",
    "--",
    "__",
    "0",
    "-0",
    "-1",
    "+1",
    "1e",
    "1e99999",
    "1E",
    "1Ei",
    "1.5.5",
    ".",
    "0.0000000000001",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "99999999999999999999999999999999999999",
    "1e-999999999",
    "123456789012345678901234567890Ei",
    "1m",
    "1u",
    "1n",
    "100m",
    "In",
    "NotIn",
    "Exists",
    "DoesNotExist",
    "Gt",
    "Lt",
    "Equal",
    "Near",
    "NoSchedule",
    "NoExecute",
    "Always",
    "DoNotSchedule",
    "Honor",
    "Ignore",
    "0.0.0.0",
    "::",
    "TCP",
    "kubernetes.io/hostname",
    "metadata.name",
    "cpu",
    "memory",
    "pods",
    "hugepages-2Mi",
    "hugepages-",
    "Managed",
    "aws://",
    "aws:///vol-",
    "2026-01-01T00:00:00Z",
    "0000-00-00T00:00:00Z",
    "9999-12-31T23:59:60Z",
    "n0",
    "default",
    "Pod",
    "Node",
    "List",
    "v1",
    "v9",
];

/// Strings with a special meaning in YAML.
const YAML: &[&str] = &["\n", "\t", "---\n", "- ", ": ", "{", "}", "[", "]", "&a ", "*a", "!!binary "];
const QUOTES: &[&str] = &["'", "\"", "\\", "#", "|", ">", "%", "@", "\u{feff}", "\0"];

const NUMBERS: &[i64] =
    &[0, 1, -1, 2, 100, 101, 65_535, 65_536, i32::MAX as i64, i32::MIN as i64, i64::MAX, i64::MIN, 1 << 53];

/// Breaks one thing somewhere in a value.
pub(crate) fn mutate(value: &mut Value, random: &mut Random, depth: usize) {
    // Not near the root: a mutation there would replace whole objects.
    let stay = depth > 2 && random.one_in(5);
    match value {
        Value::Object(map) if !map.is_empty() && !stay => {
            let key = map.keys().nth(random.below(map.len())).cloned().unwrap_or_default();
            if depth > 1 && random.one_in(8) {
                break_map(map, &key, random);
            } else if let Some(inner) = map.get_mut(&key) {
                mutate(inner, random, depth + 1);
            }
        }
        Value::Array(list) if !list.is_empty() && !stay => {
            let at = random.below(list.len());
            if random.one_in(8) {
                break_list(list, at, random);
            } else {
                mutate(&mut list[at], random, depth + 1);
            }
        }
        other => *other = replacement(other, random),
    }
}

fn break_map(map: &mut Map<String, Value>, key: &str, random: &mut Random) {
    match random.below(4) {
        0 => {
            map.remove(key);
        }
        1 => {
            let moved = map.remove(key).unwrap_or_default();
            map.insert((*random.pick(ODD)).into(), moved);
        }
        2 => {
            let copied = map.get(key).cloned().unwrap_or_default();
            map.insert((*random.pick(ODD)).into(), copied);
        }
        _ => {
            map.insert(key.into(), Value::Null);
        }
    }
}

fn break_list(list: &mut Vec<Value>, at: usize, random: &mut Random) {
    match random.below(4) {
        0 => {
            list.remove(at);
        }
        1 => {
            // Repeat the item.
            let copy = list[at].clone();
            let times = *random.pick(&[1, 2, 30]);
            list.extend(std::iter::repeat_n(copy, times));
        }
        2 => list.clear(),
        _ => list[at] = Value::Null,
    }
}

fn replacement(old: &Value, random: &mut Random) -> Value {
    match (old, random.below(10)) {
        (Value::String(s), 0..=1) => json!(format!("{s}{}", random.pick(ODD))),
        (Value::String(s), 2) => json!(s.chars().rev().collect::<String>()),
        (Value::String(_), 3..=6) => json!(random.pick(ODD)),
        (Value::Number(_), 0..=6) => json!(random.pick(NUMBERS)),
        (Value::Bool(b), 0..=6) => json!(!b),
        (_, 0..=1) => json!(random.pick(NUMBERS)),
        (_, 2) => Number::from_f64(*random.pick(&[0.5, -0.5, 1e300, 1e-300])).map_or(Value::Null, Value::Number),
        (_, 3) => json!(random.one_in(2)),
        (_, 4) => json!([]),
        (_, 5) => json!({}),
        (_, 6) => Value::Null,
        (_, 7) => nested(*random.pick(&[3, 60, 200, 5000]), random.one_in(2)),
        (old, 8) => json!([old, old]),
        _ => json!(random.pick(ODD)),
    }
}

fn nested(depth: usize, list: bool) -> Value {
    // Deeper values would overflow the stack in serde_json's `Drop`; `mutate_text` creates deeper nesting as text.
    let depth = depth.min(100);
    (0..depth).fold(json!("x"), |inner, _| if list { json!([inner]) } else { json!({"x": inner}) })
}

/// Breaks a text somewhere.
pub(crate) fn mutate_text(text: &mut String, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = place(text, random);
        match random.below(7) {
            0 => text.truncate(at),
            1 => insert(text, at, random.pick(ODD)),
            2 => insert(text, at, random.pick(YAML)),
            3 => {
                let end = place(text, random).clamp(at, (at + 200).min(text.len()));
                let end = (at..=end).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(at);
                text.replace_range(at..end, "");
            }
            4 => text.insert_str(at, &"[".repeat(*random.pick(&[10, 500, 100_000]))),
            5 => {
                let end = (at..=(at + 300).min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(at);
                let copy = text[at..end].to_owned();
                text.insert_str(at, &copy);
            }
            _ => insert(text, at, random.pick(QUOTES)),
        }
    }
}

fn insert(text: &mut String, at: usize, word: &&str) {
    text.insert_str(at, word);
}

fn place(text: &str, random: &mut Random) -> usize {
    let at = random.below(text.len() + 1);
    (0..=at).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0)
}
