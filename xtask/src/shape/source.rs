//! A Rust file: its tokens, and which of its items are for tests only.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A Rust file.
pub(super) struct Source {
    /// The lines that are not blank, by number.
    filled: BTreeSet<usize>,
    /// The tokens of everything but the items below `#[cfg(test)]`.
    product: Vec<TokenTree>,
    /// The items below `#[cfg(test)]`.
    tests: Vec<Vec<TokenTree>>,
}

impl Source {
    pub(super) fn read(path: &Path) -> Result<Source> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        Source::parse(&text).with_context(|| path.display().to_string())
    }

    pub(super) fn parse(text: &str) -> Result<Source> {
        let filled = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(|(i, _)| i + 1).collect();
        let tokens: TokenStream = text.parse().map_err(|e| anyhow!("not Rust: {e}"))?;
        let (product, tests) = split(tokens);
        Ok(Source { filled, product, tests })
    }

    /// The tokens of the product.
    pub(super) fn product(&self) -> &[TokenTree] {
        &self.product
    }

    /// How many lines are not blank.
    pub(super) fn lines(&self) -> usize {
        self.filled.len()
    }

    /// How many of them are below `#[cfg(test)]`.
    pub(super) fn test_lines(&self) -> usize {
        let lines = |item: &Vec<TokenTree>| match (item.first(), item.last()) {
            (Some(first), Some(last)) => self.filled.range(first.span().start().line..=last.span().end().line).count(),
            _ => 0,
        };
        self.tests.iter().map(lines).sum()
    }

    /// The files of modules below `#[cfg(test)]`, given the path of this file. A module's own folder has its name.
    pub(super) fn test_files(&self, path: &Path) -> Vec<PathBuf> {
        let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        let is_root = path.file_stem().is_some_and(|stem| ["lib", "main", "mod"].iter().any(|root| stem == *root));
        let below = if is_root { folder.clone() } else { path.with_extension("") };
        self.tests
            .iter()
            .filter_map(|item| {
                // `mod name;`, and perhaps `#[path = "file.rs"]` before it.
                let [.., TokenTree::Ident(keyword), TokenTree::Ident(name), TokenTree::Punct(end)] = &item[..] else {
                    return None;
                };
                if keyword != "mod" || end.as_char() != ';' {
                    return None;
                }
                let named = item.iter().find_map(path_attribute).map(|file| folder.join(file));
                Some(named.unwrap_or_else(|| below.join(format!("{name}.rs"))))
            })
            .collect()
    }
}

/// The file in `[path = "file.rs"]`.
fn path_attribute(tree: &TokenTree) -> Option<String> {
    let TokenTree::Group(group) = tree else { return None };
    match &group.stream().into_iter().collect::<Vec<_>>()[..] {
        [TokenTree::Ident(name), TokenTree::Punct(_), TokenTree::Literal(file)] if name == "path" => {
            Some(file.to_string().trim_matches('"').to_owned())
        }
        _ => None,
    }
}

/// The tokens of the product, and each item below `#[cfg(test)]`. Items within modules, functions and impls are looked
/// at too.
fn split(tokens: TokenStream) -> (Vec<TokenTree>, Vec<Vec<TokenTree>>) {
    let (mut product, mut tests) = (Vec::new(), Vec::new());
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let is_cfg =
            matches!(&token, TokenTree::Punct(hash) if hash.as_char() == '#') && tokens.peek().is_some_and(is_cfg_test);
        if is_cfg {
            tests.push(std::iter::once(token).chain(item(&mut tokens)).collect());
            continue;
        }
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                let (inner, inner_tests) = split(group.stream());
                tests.extend(inner_tests);
                let mut kept = proc_macro2::Group::new(Delimiter::Brace, inner.into_iter().collect());
                kept.set_span(group.span());
                product.push(TokenTree::Group(kept));
            }
            token => product.push(token),
        }
    }
    (product, tests)
}

/// Whether these are the brackets of `#[cfg(test)]`.
fn is_cfg_test(tree: &TokenTree) -> bool {
    tree.to_string().replace(' ', "") == "[cfg(test)]"
}

/// An item to its end: a semicolon, or braces that are not followed by more of it.
fn item(tokens: &mut std::iter::Peekable<impl Iterator<Item = TokenTree>>) -> Vec<TokenTree> {
    let mut item = Vec::new();
    for token in tokens.by_ref() {
        let ends = match &token {
            TokenTree::Punct(end) => end.as_char() == ';',
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            _ => false,
        };
        item.push(token);
        if ends {
            break;
        }
    }
    item
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_for_tests_are_told_apart() {
        let text = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n\
                    impl C {\n    #[cfg(test)]\n    fn d() {}\n    fn e() {}\n}\n\
                    #[cfg(test)]\n#[path = \"other.rs\"]\nmod f;\n#[cfg(test)]\nmod g;\n";
        let source = Source::parse(text).expect("it is Rust");
        assert_eq!((source.lines(), source.test_lines()), (15, 11));
        let product: TokenStream = source.product().iter().cloned().collect();
        assert_eq!(product.to_string().replace(' ', ""), "fna(){}implC{fne(){}}");
        let files = |path: &str| source.test_files(Path::new(path));
        assert_eq!(files("src/x.rs"), [PathBuf::from("src/other.rs"), PathBuf::from("src/x/g.rs")]);
        assert_eq!(files("src/lib.rs"), [PathBuf::from("src/other.rs"), PathBuf::from("src/g.rs")]);
    }
}
