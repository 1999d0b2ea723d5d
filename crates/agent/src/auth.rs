//! How the agents of a pool know each other: they sign what they ask and what they answer with the pool's key.
//!
//! A request names who asks and whom it asks, and has a random number that is never used again. The answer is signed
//! together with that number: an older answer, or one that was given to somebody else, does not fit. So no clocks are
//! compared. What is sent is not secret, and is not encrypted.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use stead_pool::key_secret;

/// For how long answers are accepted that were signed with the key before this one: others may learn of it later.
const OVERLAP: Duration = Duration::from_secs(60);

/// How many requests are remembered, so that each is answered once.
const REMEMBERED: usize = 4096;

/// The scheme of the `Authorization` header.
const SCHEME: &str = "Stead-HMAC-SHA256";

/// The header of an answer's signature.
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
    /// A key, if it is long enough.
    pub(crate) fn new(bytes: &[u8]) -> Option<Key> {
        let key = || Key { bytes: bytes.to_owned(), key: hmac::Key::new(hmac::HMAC_SHA256, bytes) };
        (bytes.len() >= key_secret::LENGTH).then(key)
    }

    /// The bytes of a new key.
    pub(crate) fn random() -> anyhow::Result<Vec<u8>> {
        let mut bytes = vec![0; key_secret::LENGTH];
        fill(&mut bytes)?;
        Ok(bytes)
    }

    fn sign(&self, parts: &[&[u8]]) -> String {
        hex(hmac::sign(&self.key, &message(parts)).as_ref())
    }

    fn verify(&self, parts: &[&[u8]], signature: &str) -> bool {
        unhex(signature).is_some_and(|tag| hmac::verify(&self.key, &message(parts), &tag).is_ok())
    }
}

/// The parts of a message, each with its length before it: no two lists of parts give the same bytes.
fn message(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len() + 8).sum());
    for part in parts {
        bytes.extend((part.len() as u64).to_be_bytes());
        bytes.extend(*part);
    }
    bytes
}

fn fill(bytes: &mut [u8]) -> anyhow::Result<()> {
    SystemRandom::new().fill(bytes).map_err(|_| anyhow::anyhow!("no random numbers"))
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

/// The keys of a pool: the current one, and for a while the one before.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    current: Option<Key>,
    before: Option<(Key, Instant)>,
    problem: Option<String>,
}

impl Keys {
    /// Another key is the current one.
    pub(crate) fn replace(&mut self, key: Key) {
        self.problem = None;
        if self.current.as_ref().is_some_and(|current| current.bytes == key.bytes) {
            return;
        }
        self.before = self.current.replace(key).map(|before| (before, Instant::now()));
    }

    /// The key could not be read; the one that is known stays.
    pub(crate) fn fail(&mut self, problem: String) {
        self.problem = Some(problem);
    }

    /// Why there is no key; none if there is one.
    pub(crate) fn missing(&self) -> Option<&str> {
        match self.current {
            Some(_) => None,
            None => Some(self.problem.as_deref().unwrap_or("the pool's key has not been read yet")),
        }
    }

    /// The keys that are accepted.
    fn accepted(&self) -> impl Iterator<Item = &Key> {
        let before = self.before.iter().filter(|(_, replaced)| replaced.elapsed() < OVERLAP).map(|(key, _)| key);
        self.current.iter().chain(before)
    }
}

/// A request that one agent makes of another.
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

    /// Signs it; gives the value of the `Authorization` header, and what the answer has to be signed with. None without
    /// a key.
    pub(crate) fn sign(&self, keys: &Keys, asking: &str) -> anyhow::Result<Option<(String, Nonce)>> {
        let Some(key) = &keys.current else { return Ok(None) };
        let mut bytes = [0; 16];
        fill(&mut bytes)?;
        let nonce = hex(&bytes);
        let signature = key.sign(&self.parts(asking, &nonce));
        Ok(Some((format!("{SCHEME} {asking} {nonce} {signature}"), Nonce(nonce))))
    }
}

/// The number of a request, which its answer is signed with.
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

    /// Whether this is the signed answer of the pod with this uid.
    pub(crate) fn fits(&self, keys: &Keys, answering: &str, body: &[u8], signature: &str) -> bool {
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
    #[error("the request was made before")]
    Repeated,
}

/// The requests that were answered: none is answered twice.
#[derive(Debug, Default)]
pub(crate) struct AnsweredRequests {
    nonces: Mutex<(VecDeque<Nonce>, BTreeSet<Nonce>)>,
}

impl AnsweredRequests {
    /// Checks a request by its `Authorization` header.
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

    /// Whether it is new.
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
    fn an_answer_fits_one_request_of_one_pod() {
        let (_, nonce) = ASK.sign(&keys(1), "g-0").unwrap().unwrap();
        let (_, other) = ASK.sign(&keys(1), "g-0").unwrap().unwrap();
        let signature = nonce.sign_answer(&keys(1), "uid-1", b"body").unwrap();
        assert!(nonce.fits(&keys(1), "uid-1", b"body", &signature));
        assert!(!other.fits(&keys(1), "uid-1", b"body", &signature), "an older answer");
        assert!(!nonce.fits(&keys(1), "uid-2", b"body", &signature), "another pod's answer");
        assert!(!nonce.fits(&keys(1), "uid-1", b"bodY", &signature), "another body");
        assert!(!nonce.fits(&keys(2), "uid-1", b"body", &signature), "another pool's key");
        for wrong in ["", "0", "zz", &signature[2..]] {
            assert!(!nonce.fits(&keys(1), "uid-1", b"body", wrong), "{wrong}");
        }
    }

    #[test]
    fn a_key_that_was_replaced_is_accepted_for_a_while() {
        let (_, nonce) = ASK.sign(&keys(1), "g-0").unwrap().unwrap();
        let signature = nonce.sign_answer(&keys(1), "uid-1", b"").unwrap();
        let mut rotated = keys(1);
        rotated.replace(Key::new(&[2; 32]).unwrap());
        assert!(nonce.fits(&rotated, "uid-1", b"", &signature));
        assert_ne!(nonce.sign_answer(&rotated, "uid-1", b""), Some(signature.clone()), "new ones have the new key");
        let (key, replaced) = rotated.before.take().unwrap();
        rotated.before = replaced.checked_sub(OVERLAP).map(|long_ago| (key, long_ago));
        assert!(!nonce.fits(&rotated, "uid-1", b"", &signature));
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
        assert_eq!(keys.missing(), None, "the key that is known stays");
        assert!(Key::new(&[1; 31]).is_none(), "too short");
    }

    #[test]
    fn only_so_many_requests_are_remembered() {
        let answered = AnsweredRequests::default();
        for number in 0..2 * REMEMBERED {
            assert!(answered.remember(&Nonce(number.to_string())));
        }
        assert_eq!(answered.nonces.lock().unwrap().1.len(), REMEMBERED);
    }
}
