//! A stand-in for Keystone: it issues a token for the correct password, and accepts one more token.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::glance::http::Message;

/// The token of a project member.
pub(crate) const TOKEN: &str = "token-of-a-member";

/// The resources with limits in Glance.
const LIMITS: [&str; 4] = ["image_size_total", "image_stage_total", "image_count_total", "image_count_uploading"];

/// A running stand-in, and the requests that it received.
pub(crate) struct Keystone {
    /// The password of the service's user.
    password: String,
    /// The URL for clients.
    address: String,
    /// The requests in order, with the status code of each response.
    requests: Mutex<Vec<String>>,
}

impl Keystone {
    /// Starts a stand-in. It runs until the scenario exits.
    pub(crate) fn start(bind: &str, address: &str, password: &str) -> Result<Arc<Keystone>> {
        let listener = TcpListener::bind(bind).with_context(|| format!("listening at {bind}"))?;
        let keystone = Arc::new(Keystone {
            password: password.to_owned(),
            address: address.to_owned(),
            requests: Mutex::new(Vec::new()),
        });
        let server = keystone.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that closes the connection must not stop the server.
                let _ = server.serve(stream);
            }
        });
        Ok(keystone)
    }

    /// Returns the requests in order, with the status code of each response.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().map(|requests| requests.clone()).unwrap_or_default()
    }

    fn serve(&self, mut stream: TcpStream) -> Result<()> {
        let request = Message::read(&stream, false)?;
        let [method, path, _] = &request.first;
        let (code, token, body) = self.respond(method, path, &request);
        if let Ok(mut requests) = self.requests.lock() {
            requests.push(format!("{method} {path}: {code}"));
        }
        let body = body.to_string();
        let token = token.map(|token| format!("X-Subject-Token: {token}\r\n")).unwrap_or_default();
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 {code} OK\r\nContent-Type: application/json\r\n{token}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )?;
        Ok(())
    }

    fn respond(&self, method: &str, path: &str, request: &Message) -> (u16, Option<&'static str>, Value) {
        let version = json!({
            "id": "v3.14", "status": "stable", "updated": "2020-04-07T00:00:00Z",
            "links": [{"rel": "self", "href": format!("{}/v3/", self.address)}],
        });
        let list = |field: &str, items: Value| {
            (200, None, json!({field: items, "links": {"self": self.address, "next": null, "previous": null}}))
        };
        let endpoint = json!({"id": "endpoint", "service_id": "service", "interface": "public", "region_id": "regionOne", "url": "http://glance", "enabled": true});
        match (method, path.split('?').next().unwrap_or_default().trim_end_matches('/')) {
            ("GET", "") => (300, None, json!({"versions": {"values": [version]}})),
            ("GET", "/v3") => (200, None, json!({"version": version})),
            ("POST", "/v3/auth/tokens") => {
                let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
                match body.pointer("/auth/identity/password/user/password").and_then(Value::as_str) {
                    Some(password) if password == self.password => {
                        (201, Some("token-of-the-service"), self.token("glance", &["admin", "service"]))
                    }
                    _ => (401, None, json!({"error": {"code": 401, "title": "Unauthorized", "message": "no"}})),
                }
            }
            ("GET", "/v3/auth/tokens") if request.header("x-subject-token") == Some(TOKEN) => {
                (200, Some(TOKEN), self.token("member", &["member", "reader"]))
            }
            ("GET", "/v3/services") => {
                list("services", json!([{"id": "service", "type": "image", "name": "glance", "enabled": true}]))
            }
            ("GET", "/v3/endpoints") => list("endpoints", json!([endpoint])),
            ("GET", "/v3/endpoints/endpoint") => (200, None, json!({"endpoint": endpoint})),
            ("GET", "/v3/limits/model") => (200, None, json!({"model": {"name": "flat", "description": ""}})),
            ("GET", "/v3/limits") => list("limits", json!([])),
            ("GET", "/v3/registered_limits") => {
                let limit = |name: &&str| json!({"id": name, "resource_name": name, "default_limit": 1000, "service_id": "service", "region_id": "regionOne", "description": null});
                list("registered_limits", LIMITS.iter().map(limit).collect())
            }
            _ => (404, None, json!({"error": {"code": 404, "title": "Not Found", "message": path}})),
        }
    }

    fn token(&self, user: &str, roles: &[&str]) -> Value {
        let domain = json!({"id": "default", "name": "Default"});
        let roles: Vec<Value> = roles.iter().map(|role| json!({"id": role, "name": role})).collect();
        let endpoint = |interface: &str| json!({"id": interface, "interface": interface, "region": "regionOne", "region_id": "regionOne", "url": format!("{}/v3", self.address)});
        let endpoints: Vec<Value> = ["public", "internal", "admin"].iter().map(|i| endpoint(i)).collect();
        json!({"token": {
            "methods": ["password"],
            "user": {"id": user, "name": user, "domain": domain, "password_expires_at": null},
            "project": {"id": "0f6b1c7c4c3b4c7c9a3a5f3f6d1e2b3c", "name": "service", "domain": domain},
            "roles": roles,
            "audit_ids": ["stand-in"],
            "is_domain": false,
            "issued_at": "2020-01-01T00:00:00.000000Z",
            "expires_at": "2099-01-01T00:00:00.000000Z",
            "catalog": [{"id": "keystone", "type": "identity", "name": "keystone", "endpoints": endpoints}],
        }})
    }
}
