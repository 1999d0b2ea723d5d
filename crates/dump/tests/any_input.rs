//! No input causes a panic or yields an object without a name.

use proptest::prelude::*;
use serde_json::Value;
use stead_dump::{described_pod, read_str, redact};

const SEEDS: [&str; 4] = [
    "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: p, labels: &a {x: 'y'}}\n  spec: *a\nkind: List\n",
    "{\"apiVersion\":\"v1\",\"kind\":\"NodeList\",\"items\":[{\"metadata\":{\"name\":\"a\"}},{\"metadata\":{\"name\":\"b\"}}]}\n",
    "---\napiVersion: v1\nkind: Node\nmetadata:\n  name: a\n  annotations:\n    <<: {k: |-\n        text\n      }\n...\n---\n",
    "apiVersion: v1\nkind: Pod\nmetadata: {name: !!str 12, namespace: \"x\\u0041\"}\nspec: {n: [0x1F, -.5, 1e999, ~]}\n",
];

fn check(text: &str) {
    let _ = described_pod(text);
    let Ok(dump) = read_str("any", text, &|_, _| true) else {
        return;
    };
    let mut redacted: Vec<Value> = dump.items.iter().map(|item| item.value()).collect();
    redact(&mut redacted);
    for item in dump.items {
        let value = item.value();
        for pointer in ["/apiVersion", "/kind", "/metadata/name"] {
            let found = value.pointer(pointer).and_then(|value| value.as_str());
            assert!(found.is_some_and(|text| !text.is_empty()), "{pointer} of {value}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn any_text(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn yaml_like_text(text in "[-a-c0-9:{}\\[\\],&*!|>'\"%@`?#~<. \\n\\t]{0,80}") {
        check(&text);
    }

    #[test]
    fn damaged_text(
        seed in 0..SEEDS.len(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..6, "[-a-z0-9:{}\\[\\]&*'\" \\n]{0,3}"), 1..6),
    ) {
        let mut text: Vec<char> = SEEDS[seed].chars().collect();
        for (at, length, new) in cuts {
            let from = at.index(text.len() + 1);
            let to = (from + length).min(text.len());
            text.splice(from..to, new.chars());
        }
        check(&text.into_iter().collect::<String>());
    }
}
