//! Writes a pod's status whenever the API server has a different one.

use std::convert::Infallible;
use std::sync::PoisonError;

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::pod_lifecycle::RETRY_DELAY;
use crate::run::{Run, now};

impl Run {
    /// Keeps the status up to date for as long as it is polled.
    pub(crate) async fn keep_status_updated(&self) -> Infallible {
        let (mut changed, mut pod) = (self.changed.subscribe(), self.pod.clone());
        loop {
            self.world.wait_until_reachable(&self.node).await;
            self.wait_for_node().await;
            changed.mark_unchanged();
            pod.mark_unchanged();
            if self.report().await.is_err() {
                tokio::time::sleep(RETRY_DELAY).await;
                continue;
            }
            tokio::select! {
                _ = changed.changed() => {}
                news = pod.changed() => if news.is_err() {
                    return std::future::pending().await;
                },
            }
        }
    }

    /// Writes the current status; retries until it is written.
    pub(crate) async fn report_final_status(&self) {
        loop {
            self.world.wait_until_reachable(&self.node).await;
            self.wait_for_node().await;
            if self.report().await.is_ok() {
                return;
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    async fn report(&self) -> kube::Result<()> {
        // A deleted pod has no status to write, and a new pod of the same name must not get this one.
        if self.pod.has_changed().is_err() {
            return Ok(());
        }
        let mut written = self.written.lock().await;
        let pod = self.pod();
        let status = self.state().status(&pod, &self.world.node_address(&self.node), &now());
        // Others write the condition too: the controller manager sets it to False on an unreachable node.
        let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
        let seen = conditions.iter().find(|c| c.type_ == "Ready").map(|c| c.status.as_str());
        if written.as_ref() == Some(&status) && (seen == ready(&status) || seen.is_none()) {
            return Ok(());
        }
        // The uid prevents a write to another pod of the same name.
        let patch = Patch::Strategic(json!({ "metadata": { "uid": self.uid }, "status": status }));
        let answer = self.api.patch_status(&self.name, &PatchParams::default(), &patch).await;
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = answer.as_ref().err().map(ToString::to_string);
        match answer {
            Ok(_) => {}
            Err(kube::Error::Api(answer)) if answer.code == 404 => {}
            // Another pod has the name now, or another write came first.
            Err(e) if matches!(&e, kube::Error::Api(answer) if answer.code == 409) => {
                let current = self.api.get_opt(&self.name).await?;
                if current.is_some_and(|pod| pod.metadata.uid.as_ref() == Some(&self.uid)) {
                    return Err(e);
                }
            }
            Err(e) => return Err(e),
        }
        *written = Some(status);
        Ok(())
    }
}

fn ready(status: &Value) -> Option<&str> {
    let conditions = status.get("conditions")?.as_array()?;
    conditions.iter().find(|c| c["type"] == "Ready")?["status"].as_str()
}
