//! A client with a replicated volume, and the files on it.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::time::Duration;

use super::{IMAGE, NAMESPACE, PoolStage, TIMEOUT, host};
use crate::wait_until;

/// The volume's name.
pub(super) const VOLUME: &str = "data";

/// The client's pod, which runs on a separate node.
const CLIENT_POD: &str = "client";

/// A client with the volume mounted.
pub struct Client<'a> {
    stage: &'a PoolStage,
    written: u32,
}

impl<'a> Client<'a> {
    /// Creates a volume with a replica on each of the first three pods, and mounts it outside the pool.
    pub async fn mount(stage: &'a PoolStage) -> Result<Client<'a>> {
        let bricks: Vec<String> = (0..3).map(|ordinal| format!("{}:/data/bricks/{VOLUME}", host(ordinal))).collect();
        let mut create = vec!["gluster", "--mode=script", "volume", "create", VOLUME, "replica", "3"];
        create.extend(bricks.iter().map(String::as_str));
        create.push("force");
        // By default a client waits 42 seconds for a brick that does not respond.
        let wait = ["gluster", "--mode=script", "volume", "set", VOLUME, "network.ping-timeout", "10"];
        let start = ["gluster", "--mode=script", "volume", "start", VOLUME];
        for command in [create.as_slice(), &wait, &start] {
            // glusterd refuses a command while another one is running.
            wait_until(&command.join(" "), TIMEOUT, async || {
                let done = ["already exists", "already started"];
                let output = stage.exec(0, command).await.map_err(|e| format!("{e:#}"));
                Ok(output.map_or_else(|error| done.iter().any(|done| error.contains(done)), |_| true))
            })
            .await?;
        }
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": CLIENT_POD, "namespace": NAMESPACE},
            "spec": {
                "nodeSelector": {"client": "yes"},
                "containers": [{"name": CLIENT_POD, "image": IMAGE, "command": ["sleep", "infinity"],
                                "securityContext": {"privileged": true}}],
            },
        });
        stage.kubectl_with(&["apply", "-f", "-"], &pod.to_string()).await?;
        stage.machines.wait_ready(NAMESPACE, CLIENT_POD, TIMEOUT).await?;
        let client = Client { stage, written: 0 };
        let source = format!("{}:/{VOLUME}", host(0));
        let others = format!("backup-volfile-servers={}:{}", host(1), host(2));
        let mounted = format!("mountpoint -q /mnt/{VOLUME} || mount -t glusterfs -o {others} {source} /mnt/{VOLUME}");
        // glusterd may not know the ports of bricks that were just started.
        wait_until("the volume is mounted", TIMEOUT, async || {
            Ok(client.run(&format!("mkdir -p /mnt/{VOLUME} && {{ {mounted}; }}")).await.is_ok())
        })
        .await?;
        Ok(client)
    }

    async fn run(&self, line: &str) -> Result<String> {
        let output =
            self.stage.machines.exec(NAMESPACE, CLIENT_POD, CLIENT_POD, &["timeout", "40", "sh", "-c", line]).await?;
        let err = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`{line}` on the client: {} {err}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Waits until the client is connected to every replica. It reconnects by itself, some seconds later than the
    /// peers.
    pub async fn wait_until_connected(&self) -> Result<()> {
        let count =
            format!("cat /mnt/{VOLUME}/.meta/graphs/active/{VOLUME}-client-*/private | grep -c 'connected = 1'");
        wait_until("the client is connected to all replicas", TIMEOUT, async || {
            // grep fails while there is no connection at all.
            Ok(self.run(&count).await.is_ok_and(|text| text.trim() == "3"))
        })
        .await
    }

    /// Writes another file.
    pub async fn write_file(&mut self) -> Result<()> {
        let number = self.written;
        self.run(&format!("echo content of {number} > /mnt/{VOLUME}/file-{number} && sync /mnt/{VOLUME}")).await?;
        self.written += 1;
        Ok(())
    }

    /// Checks the content of all written files.
    pub async fn check_files(&self) -> Result<()> {
        for number in 0..self.written {
            let text = self.run(&format!("cat /mnt/{VOLUME}/file-{number}")).await?;
            ensure!(text.trim() == format!("content of {number}"), "file-{number} contains {text:?}");
        }
        Ok(())
    }

    /// Checks all files repeatedly until `what` is done. Two of three replicas must be available all the time.
    pub async fn check_files_while<T>(&self, what: impl Future<Output = Result<T>>) -> Result<T> {
        let reading = async {
            loop {
                if let Err(error) = self.check_files().await {
                    return error;
                }
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        };
        tokio::select! {
            done = what => done,
            error = reading => Err(error).context("with two of three replicas available"),
        }
    }
}
