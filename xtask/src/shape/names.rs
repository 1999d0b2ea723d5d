//! Public types of the same name in several files: a name should have one meaning in the workspace.

use std::collections::BTreeMap;

use anyhow::Result;
use proc_macro2::TokenTree;

use super::source::Source;
use super::{file_name, folders, rust_files};
use crate::root;

/// Names that several crates may use.
const SHARED: [&str; 3] = ["Error", "Args", "Options"];

/// The names that are defined more than once, with the crates that define them.
pub(super) fn duplicates() -> Result<BTreeMap<String, Vec<String>>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for folder in folders(&root().join("crates"))? {
        for file in rust_files(&folder.join("src"))? {
            for name in public_types(Source::read(&file)?.product()) {
                found.entry(name).or_default().push(file_name(&folder));
            }
        }
    }
    found.retain(|name, crates| crates.len() > 1 && !SHARED.contains(&name.as_str()));
    Ok(found)
}

/// The names of the types that are `pub`; those that are `pub(crate)` or private are not.
fn public_types(tokens: &[TokenTree]) -> Vec<String> {
    let mut names = Vec::new();
    for window in tokens.windows(3) {
        if let [TokenTree::Ident(public), TokenTree::Ident(keyword), TokenTree::Ident(name)] = window
            && public == "pub"
            && ["struct", "enum", "trait", "type", "union"].iter().any(|word| keyword == word)
        {
            names.push(name.to_string());
        }
    }
    for token in tokens {
        if let TokenTree::Group(group) = token {
            names.extend(public_types(&group.stream().into_iter().collect::<Vec<_>>()));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_types_are_found_in_modules_too() {
        let code = "pub struct A; struct B; pub(crate) enum C {} mod m { pub type D = u8; } pub fn e() {}";
        let source = Source::parse(code).expect("it is Rust");
        assert_eq!(public_types(source.product()), ["A", "D"]);
    }
}
