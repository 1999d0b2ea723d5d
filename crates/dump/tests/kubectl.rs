//! The same object, printed by kubectl as YAML and as JSON, is the same value.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use stead_dump::read_str;

/// Printed by `kubectl create configmap … --dry-run=client -o yaml`.
const YAML: &str = r#"apiVersion: v1
data:
  "1.5": x
  "0123": x
  a: "yes"
  b: "0123"
  c: 1e400
  d: "y"
  e: <<
  f: 57e1234
  g: "1:20"
  h: "2025-01-08T16:52:54Z"
  i: =
  k: tRuE
  l: "~"
  m: 0x1234567890abcdef12
  "n": "1e3"
  "null": x
  o: "1_000"
  p: "on"
  q: "08"
  r: "12"
  s: "true"
  t: ""
  u: "2025-01-08"
  v: '- a: b #c'
  w: |
    two
      lines
  "y": "null"
  z: |2-

     lead
kind: ConfigMap
metadata:
  name: x
"#;

/// The same with `-o json`.
const JSON: &str = r#"{
    "kind": "ConfigMap",
    "apiVersion": "v1",
    "metadata": {
        "name": "x"
    },
    "data": {
        "0123": "x",
        "1.5": "x",
        "a": "yes",
        "b": "0123",
        "c": "1e400",
        "d": "y",
        "e": "\u003c\u003c",
        "f": "57e1234",
        "g": "1:20",
        "h": "2025-01-08T16:52:54Z",
        "i": "=",
        "k": "tRuE",
        "l": "~",
        "m": "0x1234567890abcdef12",
        "n": "1e3",
        "null": "x",
        "o": "1_000",
        "p": "on",
        "q": "08",
        "r": "12",
        "s": "true",
        "t": "",
        "u": "2025-01-08",
        "v": "- a: b #c",
        "w": "two\n  lines\n",
        "y": "null",
        "z": "\n lead"
    }
}"#;

fn value(text: &str) -> serde_json::Value {
    let mut dump = read_str("dump", text, &|_, _| true).unwrap();
    assert_eq!(dump.items.len(), 1);
    dump.items.remove(0).value()
}

#[test]
fn strings() {
    assert_eq!(value(YAML), value(JSON));
}

#[test]
fn other_values() {
    let yaml = "apiVersion: example.com/v1\nkind: Any\nmetadata:\n  creationTimestamp: null\n  name: x\nspec:\n\
        \x20 big: 9223372036854775807\n  empty: {}\n  float: 0.5\n  huge: 1e+21\n  int: -3\n  list:\n  - 1\n  - \"1\"\n\
        \x20 - null\n  - []\n  no: false\n  none: null\n  unsigned: 18446744073709551615\n  yes: true\n";
    let json = r#"{"apiVersion":"example.com/v1","kind":"Any","metadata":{"creationTimestamp":null,"name":"x"},
        "spec":{"big":9223372036854775807,"empty":{},"float":0.5,"huge":1e+21,"int":-3,"list":[1,"1",null,[]],
        "no":false,"none":null,"unsigned":18446744073709551615,"yes":true}}"#;
    assert_eq!(value(yaml), value(json));
}
