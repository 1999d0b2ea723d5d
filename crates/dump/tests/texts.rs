//! Texts and the objects that are read from them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::error::Error;
use std::fmt::Write as _;

use expect_test::{Expect, expect};
use serde_json::json;
use stead_dump::{DumpError, read_str};

fn wanted(_: &str, kind: &str) -> bool {
    matches!(kind, "Node" | "Pod" | "Topology")
}

/// The objects of a text, one per line, or the error with its causes.
fn show(text: &str) -> String {
    match read_str("dump.yaml", text, &wanted) {
        Err(error) => chain(&error),
        Ok(dump) => {
            let mut shown = String::new();
            for item in &dump.items {
                let value = item.value();
                let of = |pointer| value.pointer(pointer).and_then(|v| v.as_str());
                let _ = writeln!(
                    shown,
                    "{} {} {}/{} from {}",
                    of("/apiVersion").unwrap_or("?"),
                    of("/kind").unwrap_or("?"),
                    of("/metadata/namespace").unwrap_or(""),
                    of("/metadata/name").unwrap_or("?"),
                    item.source,
                );
            }
            let kinds: Vec<&str> = dump.kinds.iter().map(String::as_str).collect();
            let _ = writeln!(shown, "kinds: {}", if kinds.is_empty() { "none".to_owned() } else { kinds.join(" ") });
            for warning in &dump.warnings {
                let _ = writeln!(shown, "warning: {warning}");
            }
            shown
        }
    }
}

fn chain(error: &DumpError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

#[track_caller]
fn check(text: &str, want: Expect) {
    want.assert_eq(&show(text));
}

#[test]
fn shapes() {
    let node = "apiVersion: v1\nkind: Node\nmetadata:\n  name: a\n";
    check(
        node,
        expect![[r#"
            v1 Node /a from dump.yaml, document 1
            kinds: Node
        "#]],
    );
    // A list as kubectl prints it: the kind comes last, and not every item is wanted.
    check(
        "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: p, namespace: x}\n\
         - apiVersion: v1\n  kind: Secret\n- apiVersion: v1\n  kind: Node\n  metadata: {name: a}\n\
         kind: List\nmetadata:\n  resourceVersion: \"\"\n",
        expect![[r#"
            v1 Node /a from dump.yaml, document 1, item 3
            v1 Pod x/p from dump.yaml, document 1, item 1
            kinds: Node Pod
        "#]],
    );
    // A typed list as the API server prints it: the items have no kind.
    check(
        "apiVersion: v1\nitems:\n- metadata: {name: b}\n- metadata: {name: a}\nkind: NodeList\n",
        expect![[r#"
            v1 Node /a from dump.yaml, document 1, item 2
            v1 Node /b from dump.yaml, document 1, item 1
            kinds: Node
        "#]],
    );
    // An empty typed list says that there are no objects of its kind.
    check(
        "apiVersion: v1\nitems: []\nkind: List\n---\napiVersion: v1\nitems: null\nkind: PodList\n\
         ---\napiVersion: v1\nitems: []\nkind: SecretList\n",
        expect![[r#"
            kinds: Pod
        "#]],
    );
    // Documents, comments, an empty document and an end marker.
    check(
        &format!("# first\n---\n{node}---\n---\n# nothing\n---\n{}...\n", node.replace("a\n", "b\n")),
        expect![[r#"
            v1 Node /a from dump.yaml, document 1
            v1 Node /b from dump.yaml, document 4
            kinds: Node
        "#]],
    );
    // JSON lines.
    check(
        "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"a\"}}\n\
         {\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"b\"}}\n",
        expect![[r#"
            v1 Node /a from dump.yaml, document 1
            v1 Node /b from dump.yaml, document 2
            kinds: Node
        "#]],
    );
    // The output of `jq .items`, a byte order mark, YAML in flow style.
    check(
        "\u{feff}[{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"a\"}}]",
        expect![[r#"
            v1 Node /a from dump.yaml, document 1, item 1
            kinds: Node
        "#]],
    );
    check(
        "{apiVersion: v1, kind: Node, metadata: {name: a}}",
        expect![[r#"
            v1 Node /a from dump.yaml, document 1
            kinds: Node
        "#]],
    );
    // A list in a list, and a kind whose name ends in List.
    check(
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: NodeList\n  items:\n  - metadata: {name: a}\n",
        expect![[r#"
            v1 Node /a from dump.yaml, document 1, item 1
            kinds: Node
        "#]],
    );
    check(
        "apiVersion: example.com/v1\nkind: AllowList\nmetadata: {name: x}\n",
        expect![[r#"
        kinds: none
    "#]],
    );
    // Sorted by group, kind, namespace, name.
    check(
        "apiVersion: topology.openstack.org/v1beta1\nkind: Topology\nmetadata: {name: t, namespace: a}\n\
         ---\napiVersion: v1\nkind: Pod\nmetadata: {name: b, namespace: z}\n\
         ---\napiVersion: v1\nkind: Pod\nmetadata: {name: c, namespace: y}\n",
        expect![[r#"
            v1 Pod y/c from dump.yaml, document 3
            v1 Pod z/b from dump.yaml, document 2
            topology.openstack.org/v1beta1 Topology a/t from dump.yaml, document 1
            kinds: Pod Topology
        "#]],
    );
}

#[test]
fn errors() {
    check("", expect!["dump.yaml is empty: expected Kubernetes objects in YAML or JSON"]);
    check("# none\n---\n", expect!["dump.yaml is empty: expected Kubernetes objects in YAML or JSON"]);
    check("just words", expect!["dump.yaml, document 1 is a string, not an object"]);
    check(
        "a: [1, 2\nb: 3\n",
        expect!["dump.yaml, document 1: invalid YAML: illegal placement of ':' indicator at line 2 column 2"],
    );
    check(
        "apiVersion: v1\nkind: Secret\n---\na: 1\n  b: 2\n",
        expect![
            "dump.yaml, document 2: invalid YAML: mapping values are not allowed in this context at line 5 column 4"
        ],
    );
    check("a: 1\na: 2\n", expect![[r#"dump.yaml, document 1: invalid YAML: duplicate key "a" at line 2 column 4"#]]);
    check("? [a]\n: 1\n", expect!["dump.yaml, document 1: invalid YAML: a key is not a string at line 1 column 3"]);
    check(
        "a: *b\n",
        expect!["dump.yaml, document 1: invalid YAML: while parsing node, found unknown anchor at line 1 column 4"],
    );
    check(
        "a: &a [*a]\n",
        expect!["dump.yaml, document 1: invalid YAML: an alias refers to a value that contains it at line 1 column 8"],
    );
    check(
        "<<: 3\n",
        expect![
            "dump.yaml, document 1: invalid YAML: a merge key (<<) needs a mapping or a list of mappings at line 2 column 1"
        ],
    );
    check(
        "a: \u{0}\n",
        expect![[r#"dump.yaml, document 1: invalid YAML: unexpected character: `\u{0}' at line 1 column 4"#]],
    );
    check(
        "{\"apiVersion\": \"v1\",",
        expect!["dump.yaml, document 1: invalid JSON: EOF while parsing a value at line 1 column 20"],
    );
    check("apiVersion: v1\nmetadata: {name: a}\n", expect!["dump.yaml, document 1: kind is missing"]);
    check("kind: Node\nmetadata: {name: a}\n", expect!["dump.yaml, document 1: apiVersion is missing"]);
    check("apiVersion: v1\nkind: 7\n", expect!["dump.yaml, document 1: kind is a number, not a string"]);
    check("apiVersion: v1\nkind: Node\n", expect!["dump.yaml, document 1: metadata is missing"]);
    check(
        "apiVersion: v1\nkind: Node\nmetadata: [a]\n",
        expect!["dump.yaml, document 1: metadata is a list, not an object"],
    );
    check(
        "apiVersion: v1\nkind: Node\nmetadata: {name: ''}\n",
        expect!["dump.yaml, document 1: metadata.name is missing"],
    );
    check(
        "apiVersion: v1\nkind: Node\nmetadata: {name: 12}\n",
        expect!["dump.yaml, document 1: metadata.name is a number, not a string"],
    );
    check(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: [b]}\n",
        expect!["dump.yaml, document 1: metadata.namespace is a list, not a string"],
    );
    check(
        "apiVersion: v1\nkind: List\nitems: {a: b}\n",
        expect!["dump.yaml, document 1: items is an object, not a list"],
    );
    check("apiVersion: v1\nkind: NodeList\n", expect!["dump.yaml, document 1: items is missing"]);
    check(
        "apiVersion: v1\nkind: NodeList\nitems:\n- metadata: {name: a}\n- 3\n",
        expect!["dump.yaml, document 1, item 2 is a number, not an object"],
    );
    check(
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  metadata: {name: a}\n",
        expect!["dump.yaml, document 1, item 1: kind is missing"],
    );
}

/// Of two copies of an object the newer one is kept.
#[test]
fn copies() {
    let pod = |version: &str, app: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: x, resourceVersion: {version}, labels: {{app: {app}}}}}\n"
        )
    };
    for (first, second, kept, warnings) in [
        (pod("'9'", "a"), pod("'10'", "b"), "b", 0),
        (pod("'10'", "a"), pod("'9'", "b"), "a", 0),
        (pod("'99999999999999999999999'", "a"), pod("'9'", "b"), "a", 0),
        (pod("'10'", "a"), pod("'10'", "b"), "b", 0),
        (pod("''", "a"), pod("''", "a"), "a", 0),
        (pod("''", "a"), pod("''", "b"), "b", 1),
        (pod("x", "a"), pod("'10'", "b"), "b", 1),
        (pod("7", "a"), pod("8", "a"), "a", 1),
    ] {
        let dump = read_str("dump.yaml", &format!("{first}---\n{second}"), &wanted).unwrap();
        assert_eq!(dump.items.len(), 1);
        assert_eq!(dump.items[0].value()["metadata"]["labels"]["app"], kept, "{first}{second}");
        assert_eq!(dump.warnings.len(), warnings, "{:?}", dump.warnings);
    }
    check(
        &format!("{}---\n{}", pod("''", "a"), pod("''", "b")),
        expect![[r#"
            v1 Pod x/p from dump.yaml, document 2
            kinds: Pod
            warning: Pod x/p differs between dump.yaml, document 1 and dump.yaml, document 2; the latter is used
        "#]],
    );
    // Objects of different groups are different, whatever the API version.
    let topology =
        |version: &str| format!("apiVersion: {version}\nkind: Topology\nmetadata: {{name: t, namespace: x}}\n");
    for (first, second, objects) in [
        ("topology.openstack.org/v1beta1", "topology.openstack.org/v1", 1),
        ("topology.openstack.org/v1beta1", "example.com/v1beta1", 2),
        ("v1", "v2", 1),
    ] {
        let text = format!("{}---\n{}", topology(first), topology(second));
        let dump = read_str("dump.yaml", &text, &wanted).unwrap();
        assert_eq!(dump.items.len(), objects, "{first} {second}");
    }
}

#[test]
fn anchors_and_merges() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: &name p\n  labels: &labels {app: *name, tier: x}\n\
                spec:\n  same: *labels\n  other: {<<: *labels, tier: y}\n  both: {<<: [{a: 1}, {a: 2, b: 3}]}\n  *name : key\n";
    let dump = read_str("dump.yaml", text, &wanted).unwrap();
    assert_eq!(
        dump.items[0].value()["spec"],
        json!({
            "same": {"app": "p", "tier": "x"},
            "other": {"app": "p", "tier": "y"},
            "both": {"a": 1, "b": 3},
            "p": "key",
        })
    );
}

/// Lists in lists.
fn nested_lists(depth: usize) -> String {
    let start = r#"{"apiVersion":"v1","kind":"List","items":["#;
    format!("{}{}", start.repeat(depth), "]}".repeat(depth))
}

/// Malicious inputs end in an error, and quickly.
#[test]
fn malicious_texts() {
    let deep = 100_000;
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for i in 1..12 {
        let _ = writeln!(bomb, "a{i}: &a{i} [{}]", vec![format!("*a{}", i - 1); 9].join(", "));
    }
    let mut ladder = String::from("b0: &b0 [x]\n");
    for i in 1..2000 {
        let _ = writeln!(ladder, "b{i}: &b{i} [[[[*b{}]]]]", i - 1);
    }
    for (text, want) in [
        ("[".repeat(deep), "recursion limit exceeded"),
        ("{a: ".repeat(deep), "recursion limit exceeded"),
        ("- ".repeat(deep), "nested more than 127 levels deep"),
        (format!("a: {}", "[".repeat(deep)), "recursion limit exceeded"),
        (format!("a: {}{}", "[".repeat(200), "]".repeat(200)), "nested more than 127 levels deep"),
        (format!("a: {}{}", "[".repeat(126), "]".repeat(126)), "kind is missing"),
        (bomb, "aliases of the file expand to too much data"),
        (ladder, "nested more than 127 levels deep"),
        ("--- \n".repeat(deep), "is empty"),
        (format!("a: {}", "9".repeat(deep)), "kind is missing"),
        (format!("{{\"a\": {}}}", "9".repeat(deep)), "kind is missing"),
        (nested_lists(100_000), "items is nested too deeply"),
        (r#"{"items":["#.repeat(deep), "invalid JSON"),
        ("\t\t\t".to_owned(), ""),
        ("!!binary |\n  ####".to_owned(), "not an object"),
        ("%YAML 9.9\n---\na: 1".to_owned(), ""),
    ] {
        let error = read_str("dump.yaml", &text, &wanted).unwrap_err();
        assert!(chain(&error).contains(want), "{want}: {}", chain(&error));
    }
}
