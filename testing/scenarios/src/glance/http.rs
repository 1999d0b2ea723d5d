//! The part of HTTP that the checks of Glance need, for client and server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result};

/// A request or a response.
#[derive(Debug)]
pub(crate) struct Message {
    /// The three words of the first line.
    pub(crate) first: [String; 3],
    /// The headers, with names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// Reads a message. If there is no Content-Length and `to_end` is set, the body extends to the end of the stream.
    pub(crate) fn read(stream: &TcpStream, to_end: bool) -> Result<Message> {
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let mut words = line.trim_end().splitn(3, ' ').map(str::to_owned);
        let first = std::array::from_fn(|_| words.next().unwrap_or_default());
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        let mut message = Message { first, headers, body: Vec::new() };
        match message.header("content-length").and_then(|length| length.parse().ok()) {
            Some(length) => {
                message.body.resize(length, 0);
                reader.read_exact(&mut message.body)?;
            }
            None if to_end => {
                reader.read_to_end(&mut message.body)?;
            }
            None => {}
        }
        Ok(message)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Returns the status code of a response; 0 if there is none.
    pub(crate) fn code(&self) -> u16 {
        self.first[1].parse().unwrap_or(0)
    }
}

/// Sends a request, and returns the response. HTTP/1.0 avoids chunked responses.
pub(crate) fn send(server: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Message> {
    let mut stream = TcpStream::connect(server).with_context(|| format!("connecting to {server}"))?;
    let mut head = format!("{method} {path} HTTP/1.0\r\nHost: {server}\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(head.as_bytes())?;
    stream.write_all(b"\r\n")?;
    stream.write_all(body)?;
    Message::read(&stream, true).with_context(|| format!("{method} {server}{path}"))
}
