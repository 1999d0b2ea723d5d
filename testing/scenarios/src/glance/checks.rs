//! What a client sees of a Glance with two replicas.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::glance::http::{Message, ask};
use crate::glance::saw;

/// The media type of an image's bytes.
const STREAM: &str = "application/octet-stream";
/// So long is the image.
const LENGTH: usize = 3_000_000;

/// Somebody who uses one replica.
pub(crate) struct Client {
    server: String,
    token: Option<&'static str>,
}

impl Client {
    /// A client of a replica.
    pub(crate) fn new(server: String, token: Option<&'static str>) -> Client {
        Client { server, token }
    }

    /// The same without a token.
    pub(crate) fn without_token(&self) -> Client {
        Client { server: self.server.clone(), token: None }
    }

    /// Reads what is at a path.
    pub(crate) fn get(&self, path: &str) -> Result<Message> {
        self.send("GET", path, "application/json", b"")
    }

    fn send(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> Result<Message> {
        let mut headers = vec![("Content-Type", kind)];
        headers.extend(self.token.map(|token| ("X-Auth-Token", token)));
        ask(&self.server, method, path, &headers, body)
    }

    /// Sends something, and expects a code.
    fn expect(&self, code: u16, method: &str, path: &str, kind: &str, body: &[u8]) -> Result<Message> {
        let answer = self.send(method, path, kind, body)?;
        let said = String::from_utf8_lossy(&answer.body[..answer.body.len().min(1000)]).into_owned();
        ensure!(answer.code() == code, "{method} {path}: {}, not {code}: {said}", answer.code());
        Ok(answer)
    }

    fn create(&self, name: &str) -> Result<String> {
        let image = json!({"name": name, "disk_format": "raw", "container_format": "bare"}).to_string();
        let answer = self.expect(201, "POST", "/v2/images", "application/json", image.as_bytes())?;
        let made: Value = serde_json::from_slice(&answer.body).context("the image that was made")?;
        Ok(made["id"].as_str().context("an image without an id")?.to_owned())
    }

    fn status(&self, id: &str) -> Result<String> {
        let answer = self.expect(200, "GET", &format!("/v2/images/{id}"), "application/json", b"")?;
        let image: Value = serde_json::from_slice(&answer.body).context("an image")?;
        Ok(image["status"].as_str().unwrap_or_default().to_owned())
    }

    /// An image is active, and holds just these bytes.
    fn holds(&self, id: &str, bytes: &[u8]) -> Result<()> {
        ensure!(self.status(id)? == "active", "image {id} is not active");
        let read = self.expect(200, "GET", &format!("/v2/images/{id}/file"), STREAM, b"")?;
        ensure!(
            read.body == bytes,
            "image {id}: {} bytes were read, not the {} that went in",
            read.body.len(),
            bytes.len()
        );
        Ok(())
    }
}

/// An image goes in at one replica and comes out at the other, and goes where it came out.
pub(crate) fn upload(first: &Client, second: &Client) -> Result<()> {
    let bytes = bytes();
    let id = first.create("uploaded")?;
    let file = format!("/v2/images/{id}/file");
    first.expect(204, "PUT", &file, STREAM, &bytes)?;
    second.holds(&id, &bytes)?;
    saw(&format!(
        "an image of {LENGTH} bytes was uploaded through one replica and read byte for byte through the other"
    ));
    second.expect(204, "DELETE", &format!("/v2/images/{id}"), STREAM, b"")?;
    first.expect(404, "GET", &file, STREAM, b"")?;
    saw("it was deleted through the other replica and is gone from both");
    Ok(())
}

/// What is staged at one replica can be imported by asking the other: that one asks the first. It says to Keystone who
/// it is to do so, and cannot without one.
pub(crate) fn import(first: &Client, second: &Client) -> Result<()> {
    let bytes = bytes();
    let id = first.create("imported")?;
    first.expect(204, "PUT", &format!("/v2/images/{id}/stage"), STREAM, &bytes)?;
    let method = json!({"method": {"name": "glance-direct"}}).to_string();
    let path = format!("/v2/images/{id}/import");
    second.expect(202, "POST", &path, "application/json", method.as_bytes())?;
    let start = Instant::now();
    while second.status(&id)? != "active" {
        ensure!(start.elapsed() < Duration::from_secs(30), "the image that was staged is never imported");
        std::thread::sleep(Duration::from_millis(200));
    }
    second.holds(&id, &bytes)?;
    saw("an image was staged at one replica and its import asked of the other, which handed that on");
    Ok(())
}

fn bytes() -> Vec<u8> {
    (0..LENGTH).map(|i| u8::try_from((i * i + i / 251) % 256).unwrap_or(0)).collect()
}
