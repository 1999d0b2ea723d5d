//! A replicated volume, a client that has it mounted, and files on it.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::time::Duration;

use super::{IMAGE, NAMESPACE, PATIENCE, PoolStage, host};
use crate::until;

/// The volume's name.
pub(super) const VOLUME: &str = "data";

/// The client's pod, which has a node of its own.
const POD: &str = "client";

/// A client with the volume mounted.
pub struct Client<'a> {
    stage: &'a PoolStage,
    written: u32,
}

impl<'a> Client<'a> {
    /// Makes a volume with a replica on each of the first three pods, and mounts it outside of the pool.
    pub async fn mount(stage: &'a PoolStage) -> Result<Client<'a>> {
        let bricks: Vec<String> = (0..3).map(|ordinal| format!("{}:/data/bricks/{VOLUME}", host(ordinal))).collect();
        let mut create = vec!["gluster", "--mode=script", "volume", "create", VOLUME, "replica", "3"];
        create.extend(bricks.iter().map(String::as_str));
        create.push("force");
        // By default a client waits 42 seconds for a brick that fell silent.
        let wait = ["gluster", "--mode=script", "volume", "set", VOLUME, "network.ping-timeout", "10"];
        let start = ["gluster", "--mode=script", "volume", "start", VOLUME];
        for command in [create.as_slice(), &wait, &start] {
            // glusterd refuses what comes while it is at something else.
            until(&command.join(" "), PATIENCE, async || {
                let done = ["already exists", "already started"];
                let said = stage.inside(0, command).await.map_err(|e| format!("{e:#}"));
                Ok(said.map_or_else(|error| done.iter().any(|done| error.contains(done)), |_| true))
            })
            .await?;
        }
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD, "namespace": NAMESPACE},
            "spec": {
                "nodeSelector": {"client": "yes"},
                "containers": [{"name": POD, "image": IMAGE, "command": ["sleep", "infinity"],
                                "securityContext": {"privileged": true}}],
            },
        });
        stage.kubectl_with(&["apply", "-f", "-"], &pod.to_string()).await?;
        stage.machines.wait_ready(NAMESPACE, POD, PATIENCE).await?;
        let client = Client { stage, written: 0 };
        let source = format!("{}:/{VOLUME}", host(0));
        let others = format!("backup-volfile-servers={}:{}", host(1), host(2));
        let mounted = format!("mountpoint -q /mnt/{VOLUME} || mount -t glusterfs -o {others} {source} /mnt/{VOLUME}");
        // Bricks that were just started may not be known to glusterd yet.
        until("the volume is mounted", PATIENCE, async || {
            Ok(client.runs(&format!("mkdir -p /mnt/{VOLUME} && {{ {mounted}; }}")).await.is_ok())
        })
        .await?;
        Ok(client)
    }

    async fn runs(&self, line: &str) -> Result<String> {
        let output = self.stage.machines.exec(NAMESPACE, POD, POD, &["timeout", "40", "sh", "-c", line]).await?;
        let err = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`{line}` on the client: {} {err}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Waits until the client has a connection to every replica. It looks for one that was away by itself, some seconds
    /// later than the peers do.
    pub async fn connected(&self) -> Result<()> {
        let count =
            format!("cat /mnt/{VOLUME}/.meta/graphs/active/{VOLUME}-client-*/private | grep -c 'connected = 1'");
        until("the client reaches all replicas", PATIENCE, async || {
            // There is nothing to count while it reaches none.
            Ok(self.runs(&count).await.is_ok_and(|text| text.trim() == "3"))
        })
        .await
    }

    /// Writes another file.
    pub async fn writes(&mut self) -> Result<()> {
        let number = self.written;
        self.runs(&format!("echo content of {number} > /mnt/{VOLUME}/file-{number} && sync /mnt/{VOLUME}")).await?;
        self.written += 1;
        Ok(())
    }

    /// Reads all files that were written.
    pub async fn reads(&self) -> Result<()> {
        for number in 0..self.written {
            let text = self.runs(&format!("cat /mnt/{VOLUME}/file-{number}")).await?;
            ensure!(text.trim() == format!("content of {number}"), "file-{number} holds {text:?}");
        }
        Ok(())
    }

    /// Reads all files again and again while something happens. Two of three replicas have to live all the while.
    pub async fn reads_while<T>(&self, what: impl Future<Output = Result<T>>) -> Result<T> {
        let reading = async {
            loop {
                if let Err(error) = self.reads().await {
                    return error;
                }
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        };
        tokio::select! {
            done = what => done,
            error = reading => Err(error).context("while two of three replicas live"),
        }
    }
}
