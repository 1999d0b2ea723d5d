//! HTTP requests to a pod of the demo application.

use anyhow::{Context, Result, ensure};
use stead_machines::Machines;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A pod that runs the demo application, reached over the cluster's network.
pub(crate) struct DemoApp<'a> {
    pub(crate) machines: &'a Machines,
    pub(crate) namespace: &'a str,
    pub(crate) pod: &'a str,
    pub(crate) port: u16,
}

impl DemoApp<'_> {
    /// Returns the application's page.
    pub(crate) async fn page(&self) -> Result<String> {
        let (status, page) = self.request("GET", "").await?;
        ensure!(status == 200, "{}: {status} {page}", self.pod);
        Ok(page)
    }

    /// Adds a row, `name|email`.
    pub(crate) async fn add(&self, row: &str) -> Result<()> {
        let (name, email) = row.split_once('|').context("a row needs a name and an address")?;
        let form = format!("name={name}&email={}", email.replace('@', "%40"));
        let (status, body) = self.request("POST", &form).await?;
        ensure!(status == 303, "{}: adding {row}: {status} {body}", self.pod);
        Ok(())
    }

    /// Sends a request, and returns the status and the body of the response.
    async fn request(&self, method: &str, form: &str) -> Result<(u16, String)> {
        let address = format!("{}:{}", self.machines.pod_address(self.namespace, self.pod)?, self.port).parse()?;
        let mut stream = self.machines.connect(address).await?;
        let request = format!(
            "{method} / HTTP/1.1\r\nHost: demo\r\nAccept: text/plain\r\nConnection: close\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            form.len()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await?;
        let status = response.split(' ').nth(1).and_then(|code| code.parse().ok()).context("no HTTP response")?;
        Ok((status, response.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()))
    }
}
