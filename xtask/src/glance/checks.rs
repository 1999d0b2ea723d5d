//! What a client sees of a Glance with two replicas.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::glance::http::{Message, ask};
use crate::glance::saw;

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
}

/// What goes in at one replica comes out at the other, whichever way it goes in.
pub(crate) fn images(first: &Client, second: &Client) -> Result<()> {
    let bytes: Vec<u8> = (0..LENGTH).map(|i| u8::try_from((i * i + i / 251) % 256).unwrap_or(0)).collect();
    let stream = "application/octet-stream";
    let id = first.create("uploaded")?;
    let file = format!("/v2/images/{id}/file");
    first.expect(204, "PUT", &file, stream, &bytes)?;
    ensure!(second.status(&id)? == "active", "the image is not active");
    let read = second.expect(200, "GET", &file, stream, b"")?;
    ensure!(read.body == bytes, "{} bytes were read, not the {LENGTH} that were uploaded", read.body.len());
    saw(&format!(
        "an image of {LENGTH} bytes was uploaded through one replica and read byte for byte through the other"
    ));

    let imported = first.create("imported")?;
    first.expect(204, "PUT", &format!("/v2/images/{imported}/stage"), stream, &bytes)?;
    let method = json!({"method": {"name": "glance-direct"}}).to_string();
    let path = format!("/v2/images/{imported}/import");
    second.expect(202, "POST", &path, "application/json", method.as_bytes())?;
    let start = Instant::now();
    while second.status(&imported)? != "active" {
        ensure!(start.elapsed() < Duration::from_secs(30), "the image that was staged is never imported");
        std::thread::sleep(Duration::from_millis(200));
    }
    let read = second.expect(200, "GET", &format!("/v2/images/{imported}/file"), stream, b"")?;
    ensure!(read.body == bytes, "{} bytes were imported, not the {LENGTH} that were staged", read.body.len());
    saw("an image was staged at one replica and its import asked of the other, which handed that on");

    second.expect(204, "DELETE", &format!("/v2/images/{id}"), stream, b"")?;
    first.expect(404, "GET", &file, stream, b"")?;
    saw("the first was deleted through the other replica and is gone from both");
    Ok(())
}
