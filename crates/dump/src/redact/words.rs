//! The words of a dump, and what replaces them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::fields::TextUse;
use super::vocabulary::{is_known, known_below};

/// The letters of new words. Without vowels they look like no word.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz";

/// What was found in a dump.
#[derive(Default)]
pub(super) struct Collected {
    words: BTreeSet<String>,
    addresses: BTreeSet<IpAddr>,
    ids: BTreeSet<String>,
    /// Texts that are names, as a whole.
    names: BTreeSet<String>,
}

/// What replaces the words of a dump.
#[derive(Debug, Default)]
pub(super) struct Words {
    words: BTreeMap<String, String>,
    addresses: BTreeMap<IpAddr, String>,
    ids: BTreeMap<String, String>,
    names: BTreeSet<String>,
    /// What a new word, address or ID stands for.
    former: BTreeMap<String, String>,
}

impl Collected {
    pub(super) fn name(&mut self, text: &str, use_of_it: TextUse) {
        if use_of_it == TextUse::Message {
            return;
        }
        self.names.insert(text.to_owned());
        for part in parts(text) {
            self.part(part);
        }
    }

    pub(super) fn message(&mut self, text: &str, use_of_it: TextUse) {
        if use_of_it != TextUse::Message {
            return;
        }
        for token in tokens(text).filter(|token| is_name(token, &self.names)).collect::<Vec<_>>() {
            for part in parts(token) {
                self.part(part);
            }
        }
    }

    fn part(&mut self, part: Part<'_>) {
        match part {
            Part::Kept(_) => false,
            Part::Word(word) => self.words.insert(word.to_owned()),
            Part::Address(address, _) => self.addresses.insert(address),
            Part::Id(id) => self.ids.insert(id.to_owned()),
        };
    }

    /// Gives everything that was found its replacement, in the same order.
    pub(super) fn assign(self) -> Words {
        // Not shorter, so that no new word looks like a quantity.
        let length = (3..).find(|length| LETTERS.len().pow(*length) > self.words.len()).unwrap_or(3) as usize;
        let mut out = Words { names: self.names, ..Words::default() };
        for (rank, word) in self.words.into_iter().enumerate() {
            // Digits at the start stay, and a well-known word that is just before it comes first: so the new word has the
            // same place among numbers and well-known words.
            let digits = word.len() - word.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let new = letters(rank, length);
            let new = match word.chars().next() {
                Some(first) if first.is_uppercase() => new.to_uppercase(),
                // A number is replaced only where it is a part of an address.
                Some('0'..='9') if digits == word.len() => new,
                Some('0'..='9') => format!("{}{new}", &word[..digits]),
                _ => known_below(&word).map(|known| format!("{known}0{new}")).unwrap_or(new),
            };
            out.former.insert(new.clone(), word.clone());
            out.words.insert(word, new);
        }
        for (rank, address) in self.addresses.into_iter().enumerate() {
            let new = match address {
                IpAddr::V4(_) => format!("10.{}.{}.{}", 200 + (rank >> 16), (rank >> 8) & 255, rank & 255),
                IpAddr::V6(_) => format!("fd00::{rank:x}"),
            };
            out.former.insert(new.clone(), address.to_string());
            out.addresses.insert(address, new);
        }
        for (rank, id) in self.ids.into_iter().enumerate() {
            let new = format!("00000000-0000-4000-8000-{rank:012x}");
            out.former.insert(new.clone(), id.clone());
            out.ids.insert(id, new);
        }
        out
    }
}

fn letters(mut rank: usize, length: usize) -> String {
    let mut out = vec![LETTERS[0]; length];
    for letter in out.iter_mut().rev() {
        *letter = LETTERS[rank % LETTERS.len()];
        rank /= LETTERS.len();
    }
    out.into_iter().map(char::from).collect()
}

impl Words {
    pub(super) fn replaced(&self, text: &str, use_of_it: TextUse) -> String {
        if use_of_it == TextUse::Message {
            return replace_tokens(text, |token| is_name(token, &self.names).then(|| self.name(token)));
        }
        self.name(text)
    }

    fn name(&self, text: &str) -> String {
        let new = |part: Part<'_>| match part {
            Part::Kept(text) => text.to_owned(),
            Part::Word(word) => self.words.get(word).cloned().unwrap_or_else(|| word.to_owned()),
            Part::Address(address, text) => self.addresses.get(&address).cloned().unwrap_or_else(|| text.to_owned()),
            Part::Id(id) => self.ids.get(id).cloned().unwrap_or_else(|| id.to_owned()),
        };
        parts(text).into_iter().map(new).collect()
    }

    pub(super) fn restored(&self, text: &str) -> String {
        let former = |part: Part<'_>| {
            let (Part::Kept(text) | Part::Word(text) | Part::Address(_, text) | Part::Id(text)) = part;
            self.former.get(text).map_or(text, String::as_str).to_owned()
        };
        replace_tokens(text, |token| Some(parts(token).into_iter().map(former).collect()))
    }
}

/// A part of a text. Together, the parts are the text.
#[derive(Debug, PartialEq)]
enum Part<'a> {
    /// A separator, a number or a well-known word.
    Kept(&'a str),
    Word(&'a str),
    Address(IpAddr, &'a str),
    /// A UUID.
    Id(&'a str),
}

fn is_word_character(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Splits a text into its parts.
fn parts(text: &str) -> Vec<Part<'_>> {
    let mut out = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(length) = id_length(rest) {
            out.push(Part::Id(&rest[..length]));
            rest = &rest[length..];
        } else if let Some((address, length)) = address(rest) {
            out.push(Part::Address(address, &rest[..length]));
            rest = &rest[length..];
        } else {
            let word = rest.find(|c| !is_word_character(c)).unwrap_or(rest.len());
            let end = if word == 0 { rest.find(is_word_character).unwrap_or(rest.len()) } else { word };
            let part = &rest[..end];
            let kept = word == 0 || (is_number(part) && !in_dashed_address(text, part)) || is_known(part);
            out.push(if kept { Part::Kept(part) } else { Part::Word(part) });
            rest = &rest[end..];
        }
    }
    out
}

/// Whether a word is a number, or one with the suffix of a quantity or a time.
fn is_number(word: &str) -> bool {
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit());
    unit.len() < word.len()
        && matches!(
            unit,
            "" | "m" | "k" | "s" | "h" | "d" | "K" | "M" | "G" | "T" | "P" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi"
        )
}

/// Whether a number is a part of an address that is written with dashes, as in the names of some nodes.
fn in_dashed_address(text: &str, number: &str) -> bool {
    if !number.bytes().all(|b| b.is_ascii_digit()) {
        return false;
    }
    let words: Vec<&str> = text.split(|c| !is_word_character(c)).collect();
    let is_octet = |word: &&str| !word.is_empty() && word.len() <= 3 && word.bytes().all(|b| b.is_ascii_digit());
    let dashed = text.contains(&format!("-{number}")) || text.contains(&format!("{number}-"));
    dashed && words.windows(4).any(|four| four.iter().all(is_octet) && four.contains(&number))
}

/// The length of the UUID that a text starts with.
fn id_length(text: &str) -> Option<usize> {
    let id = text.get(..36)?;
    let is_id = id.bytes().enumerate().all(|(i, byte)| match i {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    let ends = text[36..].chars().next().is_none_or(|c| !is_word_character(c));
    (is_id && ends).then_some(36)
}

/// The address that a text starts with, and its length. Those that mean every address or the machine itself are not one.
fn address(text: &str) -> Option<(IpAddr, usize)> {
    let length = text.find(|c: char| !(c.is_ascii_hexdigit() || c == '.' || c == ':')).unwrap_or(text.len());
    let mut candidate = text[..length].trim_end_matches(['.', ':']);
    if let Some((host, _)) = candidate.split_once(':').filter(|(host, _)| host.contains('.')) {
        candidate = host;
    }
    if candidate.len() < 3 || text[candidate.len()..].starts_with(is_word_character) {
        return None;
    }
    let address: IpAddr = candidate.parse().ok()?;
    (!address.is_unspecified() && !address.is_loopback()).then_some((address, candidate.len()))
}

/// The tokens of a message: what is between white space, quotes and brackets.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_token_character(c))
        .map(|token| token.trim_end_matches(['.', ':']))
        .filter(|token| !token.is_empty())
}

fn is_token_character(c: char) -> bool {
    is_word_character(c) || matches!(c, '-' | '.' | '/' | ':' | '@')
}

fn replace_tokens(text: &str, new: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_token_character(c)).unwrap_or(rest.len());
        if end == 0 {
            let end = rest.find(is_token_character).unwrap_or(rest.len());
            out.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        let token = rest[..end].trim_end_matches(['.', ':']);
        match new(token).filter(|_| !token.is_empty()) {
            Some(new) => out.push_str(&new),
            None => out.push_str(token),
        }
        out.push_str(&rest[token.len()..end]);
        rest = &rest[end..];
    }
    out
}

/// Whether a token of a message is a name: one that an object has, or one that looks like a host, a path or an image.
fn is_name(token: &str, names: &BTreeSet<String>) -> bool {
    if names.contains(token) {
        return true;
    }
    let inside = token.trim_matches(|c| !is_word_character(c));
    let has_structure = inside.contains(['.', '/', '-', '_', '@']) || inside.contains(':');
    has_structure && !token.chars().next().is_some_and(char::is_uppercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_parts() {
        let shown = |text: &str| {
            let part = |part| match part {
                Part::Kept(text) => text.to_owned(),
                Part::Word(text) => format!("[{text}]"),
                Part::Address(_, text) => format!("<{text}>"),
                Part::Id(text) => format!("({text})"),
            };
            parts(text).into_iter().map(part).collect::<String>()
        };
        for (text, expected) in [
            ("shop-db-0", "[shop]-db-0"),
            ("kube-system", "kube-system"),
            ("acme.com/team/app:1.2.3", "[acme].com/[team]/app:1.2.3"),
            ("10.1.2.3:8080", "<10.1.2.3>:8080"),
            ("0.0.0.0", "0.0.0.0"),
            ("fe80::1", "<fe80::1>"),
            ("pvc-0e9f4c1a-7b1d-4c3e-9a55-000000000001", "pvc-(0e9f4c1a-7b1d-4c3e-9a55-000000000001)"),
            ("ip-10-0-3-4.acme", "ip-[10]-[0]-[3]-[4].[acme]"),
            ("100m", "100m"),
            ("5d8c7b9f", "[5d8c7b9f]"),
        ] {
            assert_eq!(shown(text), expected);
        }
    }
}
