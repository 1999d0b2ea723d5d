//! Authenticates the agents of a pool to each other: requests and answers are signed with the pool's key.
//!
//! A request names the asking pod and the asked pod, and contains a random number (nonce) that is never reused. The
//! answer is signed together with that nonce, so an older answer, or one for another request, is not valid. Clocks are
//! not compared. The content is not secret and is not encrypted.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use stead_pool::key_secret;

/// How long the previous key is still accepted after a key change: other agents may learn of the new key later.
const OVERLAP: Duration = Duration::from_secs(60);

/// The number of request nonces that are remembered, so that each request is answered only once.
const REMEMBERED: usize = 4096;

/// The scheme of the `Authorization` header.
const SCHEME: &str = "Stead-HMAC-SHA256";

/// The header with the signature of an answer.
pub(crate) const SIGNATURE: &str = "stead-signature";

/// A pool's key.
#[derive(Clone)]
pub(crate) struct Key {
    bytes: Vec<u8>,
    key: hmac::Key,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// Returns a key, or none if it is too short.
    pub(crate) fn new(bytes: &[u8]) -> Option<Key> {
        let key = || Key { bytes: bytes.to_owned(), key: hmac::Key::new(hmac::HMAC_SHA256, bytes) };
        (bytes.len() >= key_secret::LENGTH).then(key)
    }

    /// Returns the bytes of a new random key.
    pub(crate) fn random() -> anyhow::Result<Vec<u8>> {
        let mut bytes = vec![0; key_secret::LENGTH];
        fill_random(&mut bytes)?;
        Ok(bytes)
    }

    fn sign(&self, parts: &[&[u8]]) -> String {
        hex(hmac::sign(&self.key, &message(parts)).as_ref())
    }

    fn verify(&self, parts: &[&[u8]], signature: &str) -> bool {
        unhex(signature).is_some_and(|tag| hmac::verify(&self.key, &message(parts), &tag).is_ok())
    }
}

/// Joins the parts of a message, each preceded by its length: no two lists of parts have the same bytes.
fn message(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len() + 8).sum());
    for part in parts {
        bytes.extend((part.len() as u64).to_be_bytes());
        bytes.extend(*part);
    }
    bytes
}

fn fill_random(bytes: &mut [u8]) -> anyhow::Result<()> {
    SystemRandom::new().fill(bytes).map_err(|_| anyhow::anyhow!("no random numbers available"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    text.as_bytes().chunks(2).map(pair).collect()
}

/// The keys of a pool: the current one, and for a limited time the previous one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    current: Option<Key>,
    previous: Option<(Key, Instant)>,
    problem: Option<String>,
}

impl Keys {
    /// Sets the current key.
    pub(crate) fn replace(&mut self, key: Key) {
        self.problem = None;
        if self.current.as_ref().is_some_and(|current| current.bytes == key.bytes) {
            return;
        }
        self.previous = self.current.replace(key).map(|previous| (previous, Instant::now()));
    }

    /// Records that the key could not be read; a known key stays in use.
    pub(crate) fn fail(&mut self, problem: String) {
        self.problem = Some(problem);
    }

    /// Returns why there is no key; none if there is one.
    pub(crate) fn missing(&self) -> Option<&str> {
        match self.current {
            Some(_) => None,
            None => Some(self.problem.as_deref().unwrap_or("the pool's key has not been read yet")),
        }
    }

    /// The keys with which a signature is accepted.
    fn accepted(&self) -> impl Iterator<Item = &Key> {
        let previous = self.previous.iter().filter(|(_, replaced)| replaced.elapsed() < OVERLAP).map(|(key, _)| key);
        self.current.iter().chain(previous)
    }
}

/// A request of one agent to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    /// Path and query.
    pub(crate) path: &'a str,
    /// The uid of the pod that is asked.
    pub(crate) asked: &'a str,
}

impl Request<'_> {
    fn parts<'a>(&'a self, asking: &'a str, nonce: &'a str) -> [&'a [u8]; 6] {
        [
            b"stead-pool-request-1",
            b"GET",
            self.path.as_bytes(),
            asking.as_bytes(),
            self.asked.as_bytes(),
            nonce.as_bytes(),
        ]
    }

    /// Signs the request. Returns the value of the `Authorization` header and the nonce for the answer; none without a
    /// key.
    pub(crate) fn sign(&self, keys: &Keys, asking: &str) -> anyhow::Result<Option<(String, Nonce)>> {
        let Some(key) = &keys.current else { return Ok(None) };
        let mut bytes = [0; 16];
        fill_random(&mut bytes)?;
        let nonce = hex(&bytes);
        let signature = key.sign(&self.parts(asking, &nonce));
        Ok(Some((format!("{SCHEME} {asking} {nonce} {signature}"), Nonce(nonce))))
    }
}

/// The nonce of a request; its answer is signed with it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Nonce(String);

impl Nonce {
    fn parts<'a>(&'a self, answering: &'a str, body: &'a [u8]) -> [&'a [u8]; 4] {
        [b"stead-pool-answer-1", self.0.as_bytes(), answering.as_bytes(), body]
    }

    /// Signs the answer of the pod with this uid.
    pub(crate) fn sign_answer(&self, keys: &Keys, answering: &str, body: &[u8]) -> Option<String> {
        Some(keys.current.as_ref()?.sign(&self.parts(answering, body)))
    }

    /// Whether the signature belongs to this answer of the pod with this uid.
    pub(crate) fn is_valid(&self, keys: &Keys, answering: &str, body: &[u8], signature: &str) -> bool {
        keys.accepted().any(|key| key.verify(&self.parts(answering, body), signature))
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("the Authorization header cannot be read")]
    Unreadable,
    #[error("the request is not signed with the pool's key")]
    WrongSignature,
    #[error("the request was answered before")]
    Repeated,
}

/// The nonces of answered requests: no request is answered twice.
#[derive(Debug, Default)]
pub(crate) struct AnsweredRequests {
    nonces: Mutex<(VecDeque<Nonce>, BTreeSet<Nonce>)>,
}

impl AnsweredRequests {
    /// Verifies a request by its `Authorization` header.
    pub(crate) fn check(&self, keys: &Keys, request: &Request<'_>, header: &str) -> Result<Nonce, Refused> {
        let mut words = header.split(' ');
        let (Some(SCHEME), Some(asking), Some(nonce), Some(signature), None) =
            (words.next(), words.next(), words.next(), words.next(), words.next())
        else {
            return Err(Refused::Unreadable);
        };
        if nonce.len() != 32 {
            return Err(Refused::Unreadable);
        }
        if !keys.accepted().any(|key| key.verify(&request.parts(asking, nonce), signature)) {
            return Err(Refused::WrongSignature);
        }
        let nonce = Nonce(nonce.to_owned());
        if self.remember(&nonce) { Ok(nonce) } else { Err(Refused::Repeated) }
    }

    /// Remembers a nonce. Returns whether it is new.
    fn remember(&self, nonce: &Nonce) -> bool {
        let mut nonces = self.nonces.lock().unwrap_or_else(PoisonError::into_inner);
        let (order, known) = &mut *nonces;
        if !known.insert(nonce.clone()) {
            return false;
        }
        order.push_back(nonce.clone());
        if order.len() > REMEMBERED
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::test_agent::keys;

    use super::*;

    const ASK: Request<'static> = Request { path: "/state?fresh=true", asked: "uid-1" };

    #[test]
    fn a_request_is_accepted_once_and_only_as_it_was_signed() {
        let answered = AnsweredRequests::default();
        let (header, nonce) = ASK.sign(&keys(1), "g-0").unwrap().unwrap();
        for (keys, request, header, expected) in [
            (keys(2), ASK, header.clone(), Refused::WrongSignature),
            (Keys::default(), ASK, header.clone(), Refused::WrongSignature),
            (keys(1), Request { path: "/pool", ..ASK }, header.clone(), Refused::WrongSignature),
            (keys(1), Request { asked: "uid-2", ..ASK }, header.clone(), Refused::WrongSignature),
            (keys(1), ASK, header.replace("g-0", "g-2"), Refused::WrongSignature),
            (keys(1), ASK, "Bearer x".to_owned(), Refused::Unreadable),
            (keys(1), ASK, format!("{header} more"), Refused::Unreadable),
            (keys(1), ASK, String::new(), Refused::Unreadable),
        ] {
            assert_eq!(answered.check(&keys, &request, &header), Err(expected), "{header}");
        }
        assert_eq!(answered.check(&keys(1), &ASK, &header), Ok(nonce));
        assert_eq!(answered.check(&keys(1), &ASK, &header), Err(Refused::Repeated));
        let (other, _) = ASK.sign(&keys(1), "g-0").unwrap().unwrap();
        assert!(other != header && answered.check(&keys(1), &ASK, &other).is_ok());
    }

    #[test]
    fn a_signature_is_valid_for_one_request_to_one_pod() {
        let (_, nonce) = ASK.sign(&keys(1), "g-0").unwrap().unwrap();
        let (_, other) = ASK.sign(&keys(1), "g-0").unwrap().unwrap();
        let signature = nonce.sign_answer(&keys(1), "uid-1", b"body").unwrap();
        assert!(nonce.is_valid(&keys(1), "uid-1", b"body", &signature));
        assert!(!other.is_valid(&keys(1), "uid-1", b"body", &signature), "an older answer");
        assert!(!nonce.is_valid(&keys(1), "uid-2", b"body", &signature), "another pod's answer");
        assert!(!nonce.is_valid(&keys(1), "uid-1", b"bodY", &signature), "another body");
        assert!(!nonce.is_valid(&keys(2), "uid-1", b"body", &signature), "another pool's key");
        for wrong in ["", "0", "zz", &signature[2..]] {
            assert!(!nonce.is_valid(&keys(1), "uid-1", b"body", wrong), "{wrong}");
        }
    }

    #[test]
    fn a_replaced_key_is_accepted_for_a_limited_time() {
        let (_, nonce) = ASK.sign(&keys(1), "g-0").unwrap().unwrap();
        let signature = nonce.sign_answer(&keys(1), "uid-1", b"").unwrap();
        let mut rotated = keys(1);
        rotated.replace(Key::new(&[2; 32]).unwrap());
        assert!(nonce.is_valid(&rotated, "uid-1", b"", &signature));
        assert_ne!(
            nonce.sign_answer(&rotated, "uid-1", b""),
            Some(signature.clone()),
            "new answers are signed with the new key"
        );
        let (key, replaced) = rotated.previous.take().unwrap();
        rotated.previous = replaced.checked_sub(OVERLAP).map(|long_ago| (key, long_ago));
        assert!(!nonce.is_valid(&rotated, "uid-1", b"", &signature));
    }

    #[test]
    fn without_a_key_nothing_is_signed_and_the_reason_is_known() {
        let mut keys = Keys::default();
        assert_eq!(ASK.sign(&keys, "g-0").unwrap(), None);
        assert_eq!(keys.missing(), Some("the pool's key has not been read yet"));
        keys.fail("Secret g-pool-key does not exist".to_owned());
        assert_eq!(keys.missing(), Some("Secret g-pool-key does not exist"));
        keys.replace(Key::new(&[1; 32]).unwrap());
        keys.fail("no answer".to_owned());
        assert_eq!(keys.missing(), None, "a known key stays in use");
        assert!(Key::new(&[1; 31]).is_none(), "too short");
    }

    #[test]
    fn the_number_of_remembered_requests_is_limited() {
        let answered = AnsweredRequests::default();
        for number in 0..2 * REMEMBERED {
            assert!(answered.remember(&Nonce(number.to_string())));
        }
        assert_eq!(answered.nonces.lock().unwrap().1.len(), REMEMBERED);
    }
}
