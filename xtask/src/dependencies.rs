//! Which licences and sources dependencies may have: the lists of deny.toml, checked by cargo-deny where that is
//! installed, and otherwise here, from `cargo metadata`.

use anyhow::{Context, Result};
use serde_json::Value;
use stead_real::Outcome;

use crate::{cargo, root};

pub(crate) fn run() -> Result<Outcome> {
    let installed = cargo::cargo().args(["deny", "--version"]).output().is_ok_and(|output| output.status.success());
    if installed {
        let deny = ["deny", "--offline", "--workspace", "--all-features", "check", "licenses", "sources"];
        return Ok(cargo::cargo().args(deny).status().context("running cargo deny")?.into());
    }
    let file = std::fs::read_to_string(root().join("deny.toml")).context("reading deny.toml")?;
    let rules = Rules::parse(&file)?;
    let metadata = cargo::metadata()?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let faults: Vec<String> = packages.iter().flat_map(|package| rules.faults(package)).collect();
    for fault in &faults {
        println!("dependencies: {fault}");
    }
    if faults.is_empty() {
        println!(
            "dependencies: {} packages, licences and sources are allowed (cargo-deny is not installed)",
            packages.len()
        );
    }
    Ok(Outcome::passed(faults.is_empty()))
}

/// The lists of deny.toml.
struct Rules {
    licences: Vec<String>,
    registries: Vec<String>,
}

impl Rules {
    fn parse(text: &str) -> Result<Rules> {
        let file: toml::Table = text.parse().context("deny.toml")?;
        let list = |section: &str, key: &str| -> Result<Vec<String>> {
            let values = file.get(section).and_then(|section| section.get(key)).and_then(toml::Value::as_array);
            let values = values.with_context(|| format!("deny.toml has no list {section}.{key}"))?;
            Ok(values.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect())
        };
        Ok(Rules { licences: list("licenses", "allow")?, registries: list("sources", "allow-registry")? })
    }

    /// What is wrong with a package of `cargo metadata`.
    fn faults(&self, package: &Value) -> Vec<String> {
        let name = format!("{} {}", text(&package["name"]), text(&package["version"]));
        let mut faults = Vec::new();
        let licence = text(&package["license"]);
        if !self.allows(licence) {
            faults.push(format!("{name}: licence {licence:?} is not allowed by deny.toml"));
        }
        // A package without a source is one of ours.
        if let Some(source) = package["source"].as_str()
            && !source.strip_prefix("registry+").is_some_and(|url| self.registries.iter().any(|allowed| allowed == url))
        {
            faults.push(format!("{name}: source {source} is not allowed by deny.toml"));
        }
        faults
    }

    /// Whether an SPDX expression can be met by allowed licences. `AND` binds stronger than `OR`; old manifests write
    /// `/` for `OR`. A licence with an exception permits no less than the licence.
    fn allows(&self, expression: &str) -> bool {
        let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let mut words = spaced.split_whitespace().peekable();
        let allowed = self.any(&mut words);
        allowed && words.peek().is_none()
    }

    fn any<'a>(&self, words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> bool {
        let mut allowed = self.all(words);
        while words.next_if_eq(&"OR").is_some() {
            allowed |= self.all(words);
        }
        allowed
    }

    fn all<'a>(&self, words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> bool {
        let mut allowed = self.one(words);
        while words.next_if_eq(&"AND").is_some() {
            allowed &= self.one(words);
        }
        allowed
    }

    fn one<'a>(&self, words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> bool {
        match words.next() {
            Some("(") => {
                let allowed = self.any(words);
                words.next_if_eq(&")").is_some() && allowed
            }
            Some(licence) => {
                if words.next_if_eq(&"WITH").is_some() {
                    words.next();
                }
                self.licences.iter().any(|allowed| allowed == licence)
            }
            None => false,
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DENY: &str = "[licenses]\nallow = [\"MIT\", \"ISC\"]\n[sources]\nallow-registry = [\"https://good\"]\n";

    #[test]
    fn licence_expressions_are_evaluated() {
        let rules = Rules::parse(DENY).expect("it is complete");
        for (expression, allowed) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("", false),
            ("MIT OR GPL-3.0", true),
            ("GPL-3.0/MIT", true),
            ("MIT AND GPL-3.0", false),
            ("MIT AND ISC", true),
            ("GPL-3.0 OR MIT AND ISC", true),
            ("(GPL-3.0 OR MIT) AND ISC", true),
            ("(GPL-3.0 OR MIT) AND BSD-3-Clause", false),
            ("MIT WITH LLVM-exception", true),
            ("GPL-3.0 WITH LLVM-exception OR ISC", true),
            ("(MIT", false),
            ("MIT GPL-3.0", false),
        ] {
            assert_eq!(rules.allows(expression), allowed, "{expression:?}");
        }
    }

    #[test]
    fn forbidden_licences_and_sources_are_named() {
        let rules = Rules::parse(DENY).expect("it is complete");
        let package = |licence: Value, source: Value| json!({"name": "a", "version": "1.0.0", "license": licence, "source": source});
        let faults = |licence: &str, source: &str| rules.faults(&package(json!(licence), json!(source)));
        assert_eq!(faults("MIT", "registry+https://good"), Vec::<String>::new());
        assert_eq!(rules.faults(&package(json!("MIT"), Value::Null)), Vec::<String>::new());
        assert_eq!(
            faults("GPL-3.0", "git+https://good"),
            [
                "a 1.0.0: licence \"GPL-3.0\" is not allowed by deny.toml",
                "a 1.0.0: source git+https://good is not allowed by deny.toml",
            ]
        );
        assert_eq!(
            rules.faults(&package(Value::Null, Value::Null)),
            ["a 1.0.0: licence \"\" is not allowed by deny.toml"]
        );
    }
}
