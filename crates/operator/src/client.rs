//! The real cluster behind [`Api`].

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use stead_client::{ApiRequest, Client};

use crate::api::{Api, Fault};
use crate::shared::Shared;

/// How long a read may take.
pub(crate) const MAX_READ: Duration = Duration::from_secs(30);

/// Sends requests through a client. It writes only while this process is the leader.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Client,
    shared: Arc<Shared>,
}

impl Cluster {
    /// A cluster that is reached through a client.
    pub(crate) fn new(client: Client, shared: Arc<Shared>) -> Cluster {
        Cluster { client, shared }
    }
}

impl Api for Cluster {
    async fn send(&self, request: ApiRequest) -> Result<Value, Fault> {
        let verb = request.verb;
        let limit = if verb.is_read() {
            MAX_READ
        } else {
            self.shared.leadership.allows(self.shared.clock.now()).ok_or_else(Fault::not_leader)?
        };
        let answer = self.client.send_json_within(limit, request).await.map_err(Fault::from);
        let code = answer.as_ref().err().map_or(200, |fault| fault.failure.code);
        self.shared.metrics.answered(verb.name(), code);
        answer
    }
}
