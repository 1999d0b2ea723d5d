//! Checks a Glance with two replicas as a client.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::glance::http::{Message, send};
use crate::glance::passed;

/// The media type of an image's bytes.
const STREAM: &str = "application/octet-stream";
/// The size of the image in bytes.
const IMAGE_SIZE: usize = 3_000_000;

/// A client of one replica.
pub(crate) struct Client {
    server: String,
    token: Option<&'static str>,
}

impl Client {
    /// Creates a client of a replica.
    pub(crate) fn new(server: String, token: Option<&'static str>) -> Client {
        Client { server, token }
    }

    /// Returns a client of the same replica without a token.
    pub(crate) fn without_token(&self) -> Client {
        Client { server: self.server.clone(), token: None }
    }

    /// Sends a GET request.
    pub(crate) fn get(&self, path: &str) -> Result<Message> {
        self.send("GET", path, "application/json", b"")
    }

    fn send(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> Result<Message> {
        let mut headers = vec![("Content-Type", kind)];
        headers.extend(self.token.map(|token| ("X-Auth-Token", token)));
        send(&self.server, method, path, &headers, body)
    }

    /// Sends a request, and fails unless the response has this status code.
    fn expect(&self, code: u16, method: &str, path: &str, kind: &str, body: &[u8]) -> Result<Message> {
        let response = self.send(method, path, kind, body)?;
        let text = String::from_utf8_lossy(&response.body[..response.body.len().min(1000)]).into_owned();
        ensure!(response.code() == code, "{method} {path}: {}, not {code}: {text}", response.code());
        Ok(response)
    }

    fn create(&self, name: &str) -> Result<String> {
        let image = json!({"name": name, "disk_format": "raw", "container_format": "bare"}).to_string();
        let response = self.expect(201, "POST", "/v2/images", "application/json", image.as_bytes())?;
        let created: Value = serde_json::from_slice(&response.body).context("the created image")?;
        Ok(created["id"].as_str().context("the image has no id")?.to_owned())
    }

    fn status(&self, id: &str) -> Result<String> {
        let response = self.expect(200, "GET", &format!("/v2/images/{id}"), "application/json", b"")?;
        let image: Value = serde_json::from_slice(&response.body).context("an image")?;
        Ok(image["status"].as_str().unwrap_or_default().to_owned())
    }

    /// Checks that an image is active and has exactly this content.
    fn check_content(&self, id: &str, bytes: &[u8]) -> Result<()> {
        ensure!(self.status(id)? == "active", "image {id} is not active");
        let read = self.expect(200, "GET", &format!("/v2/images/{id}/file"), STREAM, b"")?;
        ensure!(
            read.body == bytes,
            "image {id}: the {} bytes that were read are not the {} that were uploaded",
            read.body.len(),
            bytes.len()
        );
        Ok(())
    }
}

/// Uploads an image through one replica, and reads and deletes it through the other.
pub(crate) fn upload(first: &Client, second: &Client) -> Result<()> {
    let bytes = image_bytes();
    let id = first.create("uploaded")?;
    let file = format!("/v2/images/{id}/file");
    first.expect(204, "PUT", &file, STREAM, &bytes)?;
    second.check_content(&id, &bytes)?;
    passed(&format!(
        "an image of {IMAGE_SIZE} bytes was uploaded through one replica and read unchanged through the other"
    ));
    second.expect(204, "DELETE", &format!("/v2/images/{id}"), STREAM, b"")?;
    first.expect(404, "GET", &file, STREAM, b"")?;
    passed("it was deleted through the other replica and is gone from both");
    Ok(())
}

/// Stages an image at one replica and imports it through the other, which forwards the request to the first. It
/// authenticates with Keystone for that, so this needs a Keystone.
pub(crate) fn import(first: &Client, second: &Client) -> Result<()> {
    let bytes = image_bytes();
    let id = first.create("imported")?;
    first.expect(204, "PUT", &format!("/v2/images/{id}/stage"), STREAM, &bytes)?;
    let method = json!({"method": {"name": "glance-direct"}}).to_string();
    let path = format!("/v2/images/{id}/import");
    second.expect(202, "POST", &path, "application/json", method.as_bytes())?;
    let start = Instant::now();
    while second.status(&id)? != "active" {
        ensure!(start.elapsed() < Duration::from_secs(30), "the staged image is not imported");
        std::thread::sleep(Duration::from_millis(200));
    }
    second.check_content(&id, &bytes)?;
    passed("an image was staged at one replica and imported through the other, which forwarded the request");
    Ok(())
}

fn image_bytes() -> Vec<u8> {
    (0..IMAGE_SIZE).map(|i| u8::try_from((i * i + i / 251) % 256).unwrap_or(0)).collect()
}
