//! Validated names and identities.
//!
//! Values from peers' reports end up in names and contents of files that are written as root, and in command lines.
//! These types accept only what Gluster and DNS accept, also when deserialized.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest value that an error quotes, in characters.
const QUOTED: usize = 64;

/// A value that is not valid for its type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a valid {what}: {problem}")]
pub struct InvalidName {
    what: &'static str,
    value: String,
    problem: &'static str,
}

impl InvalidName {
    fn new(what: &'static str, value: &str, problem: &'static str) -> InvalidName {
        InvalidName { what, value: value.chars().take(QUOTED).collect(), problem }
    }
}

/// The identity of a glusterd: a UUID that is not all zeros, printed in lower case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PeerId(u128);

impl PeerId {
    /// A placeholder for a missing identity.
    pub(crate) const NIL: PeerId = PeerId(0);
}

impl FromStr for PeerId {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<PeerId, InvalidName> {
        let invalid = |problem| InvalidName::new("peer UUID", text, problem);
        let shape = text.len() == 36
            && text.bytes().enumerate().all(|(i, byte)| match i {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            });
        if !shape {
            return Err(invalid("it must have the form xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx in hexadecimal digits"));
        }
        let digits = text.bytes().filter_map(|byte| char::from(byte).to_digit(16));
        let number = digits.fold(0, |number: u128, digit| number << 4 | u128::from(digit));
        if number == 0 { Err(invalid("it must not be all zeros")) } else { Ok(PeerId(number)) }
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0;
        let part = |shift: u32, bits: u32| n >> shift & ((1 << bits) - 1);
        let (a, b, c, d, e) = (part(96, 32), part(80, 16), part(64, 16), part(48, 16), part(0, 48));
        write!(f, "{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<PeerId> for String {
    fn from(id: PeerId) -> String {
        id.to_string()
    }
}

impl TryFrom<String> for PeerId {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<PeerId, InvalidName> {
        text.parse()
    }
}

/// Serializes an optional identity, with an empty string for none: glusterd lists a peer without identity while it
/// probes it.
pub(crate) mod optional_id {
    use super::{Deserialize, Deserializer, PeerId, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(id: &Option<PeerId>, serializer: S) -> Result<S::Ok, S::Error> {
        match id {
            Some(id) => id.serialize(serializer),
            None => serializer.serialize_str(""),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PeerId>, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(serde::de::Error::custom) }
    }
}

/// Reads an identity, and an empty string as [`PeerId::NIL`].
pub(crate) fn id_or_nil<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PeerId, D::Error> {
    Ok(optional_id::deserialize(deserializer)?.unwrap_or(PeerId::NIL))
}

/// Defines a type for text that `check` accepts; `check` returns the text to store.
macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl std::ops::Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<$name, InvalidName> {
                $check(text).map($name).map_err(|problem| InvalidName::new($what, text, problem))
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<$name, InvalidName> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.0 == *other
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

checked_text!(
    /// A host name as in RFC 1123, or an IP address.
    HostName,
    "host name",
    host_name
);

checked_text!(
    /// The name of a volume, with the characters that `gluster volume create` accepts.
    VolumeName,
    "volume name",
    volume_name
);

checked_text!(
    /// The directory of a brick: an absolute path without `.` and `..`.
    BrickPath,
    "brick directory",
    brick_path
);

fn host_name(text: &str) -> Result<String, &'static str> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    if text.len() > 253 {
        return Err("it must have at most 253 characters");
    }
    let is_label = |label: &str| {
        let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && ends(label.bytes().next())
            && ends(label.bytes().last())
    };
    if text.split('.').all(is_label) {
        Ok(text.to_owned())
    } else {
        Err(
            "it must be an IP address, or labels of at most 63 letters, digits and '-' that begin and end with a letter or a digit",
        )
    }
}

fn volume_name(text: &str) -> Result<String, &'static str> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if text.is_empty() || text.len() > 255 || text.starts_with('-') || !text.bytes().all(is_allowed) {
        return Err("it must have 1 to 255 letters, digits, '-' and '_', and not begin with '-'");
    }
    Ok(text.to_owned())
}

fn brick_path(text: &str) -> Result<String, &'static str> {
    if !text.starts_with('/') || text.len() > 4095 || text.chars().any(char::is_control) {
        return Err("it must be an absolute path of at most 4095 bytes, without control characters");
    }
    if text.split('/').any(|part| part == "." || part == "..") {
        return Err("it must not contain '.' or '..'");
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted<T: FromStr<Err = InvalidName> + fmt::Display>(text: &str) -> Option<String> {
        text.parse::<T>().ok().map(|name| name.to_string())
    }

    #[test]
    fn a_peer_id_is_a_uuid() {
        const ID: &str = "edb18957-b7f5-468d-baf8-19e0e02d20c7";
        for (text, expected) in [
            (ID, Some(ID)),
            ("00000000-0000-0000-0000-000000000001", Some("00000000-0000-0000-0000-000000000001")),
            ("EDB18957-B7F5-468D-BAF8-19E0E02D20C7", Some(ID)),
            ("00000000-0000-0000-0000-000000000000", None),
            ("edb18957b7f5468dbaf819e0e02d20c7", None),
            ("edb18957-b7f5-468d-baf8-19e0e02d20c", None),
            ("edb18957-b7f5-468d-baf8-19e0e02d20c7\n", None),
            ("../../../../etc/cron.d/aaaaaaaaaaaaa", None),
            ("edb18957-b7f5-468d-baf8-19e0e02d20\u{e9}", None),
            ("", None),
        ] {
            assert_eq!(accepted::<PeerId>(text).as_deref(), expected, "{text:?}");
        }
        let order = |a: &str, b: &str| a.parse::<PeerId>().ok().cmp(&b.parse::<PeerId>().ok());
        assert!(order("0fffffff-0000-4000-8000-000000000000", ID).is_lt(), "ordered as the text is");
    }

    #[test]
    fn a_host_name_is_a_name_or_an_address() {
        let long = "a".repeat(64);
        for (text, expected) in [
            (
                "glusterfs-0.glusterfs.default.svc.cluster.local",
                Some("glusterfs-0.glusterfs.default.svc.cluster.local"),
            ),
            ("Node1", Some("Node1")),
            ("10.0.0.7", Some("10.0.0.7")),
            ("fd00:0::1", Some("fd00::1")),
            ("", None),
            (".", None),
            ("a..b", None),
            ("a.", None),
            ("-a", None),
            ("a-", None),
            ("a_b", None),
            ("a b", None),
            ("a\nstate=3", None),
            ("a/b", None),
            ("..", None),
            ("--remote-host=evil", None),
            (long.as_str(), None),
            (&[&long[..60]; 5].join("."), None),
        ] {
            assert_eq!(accepted::<HostName>(text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_volume_name_has_the_characters_that_gluster_accepts() {
        for (text, valid) in [
            ("gv0", true),
            ("a-b_C", true),
            ("", false),
            ("-gv0", false),
            ("../gv0", false),
            ("gv0\n0 gv1", false),
            ("gv0, gv1", false),
        ] {
            assert_eq!(accepted::<VolumeName>(text).is_some(), valid, "{text:?}");
        }
        assert!(accepted::<VolumeName>(&"v".repeat(256)).is_none());
    }

    #[test]
    fn a_brick_directory_is_an_absolute_path() {
        for (text, valid) in [
            ("/data/bricks/gv0", true),
            ("/data/my bricks", true),
            ("data", false),
            ("", false),
            ("/data/../etc", false),
            ("/data/./b", false),
            ("/data/b\n", false),
            ("/data/\u{1b}[2J", false),
        ] {
            assert_eq!(accepted::<BrickPath>(text).is_some(), valid, "{text:?}");
        }
    }

    #[test]
    fn an_error_quotes_the_beginning_of_the_value() {
        let error = format!("x{}", "\n".repeat(1000)).parse::<VolumeName>().map(drop);
        let text = error.map_err(|error| error.to_string());
        assert!(text.as_ref().is_err_and(|text| text.starts_with("\"x\\n") && text.len() < 250), "{text:?}");
    }
}
