//! Plays one situation, from its start to its result.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::accuracy::PlayedForecast;
use super::cluster::ForecastCluster;
use super::objects::{CONTAINER, PreferredNode, objects, unreachable_before};
use super::readiness::{is_ready, node_of};
use super::situation::{ManualAction, Situation, Trigger};
use crate::{recovery_step_seconds, wait_until};

/// The timeout until the pods are Ready at the start, when many are created at the same time.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// The interval between checks whether the pod is Ready.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// How much longer than the maximum error to watch, to measure the error of an inaccurate forecast.
const EXTRA_WATCH_TIME: Duration = Duration::from_secs(30);

/// The policy for `stead recover`. Its limits are high because other nodes are recovered at the same time.
const POLICY: &str = "accept: [Person]\natOnce: 1000\natOncePerZone: 1000\ndetachRevokes: [shared, disk, zone-disk]\n";

/// Plays a situation. Afterwards the node is healthy again.
pub(super) async fn play(cluster: &ForecastCluster, situation: &Situation) -> Result<PlayedForecast> {
    let run = SituationRun::start(cluster, situation).await?;
    run.trigger().await?;
    let triggered = Instant::now();
    run.wait_and_act(triggered).await?;
    let after = triggered.elapsed();
    let turn = cluster.turn.lock().await;
    let subject = run.subject()?;
    let answer = cluster.explain(&run.name, &subject).await?;
    let forecast = run.forecast(&answer)?;
    let time = |value: &Value| value.as_str().map(str::parse::<Timestamp>).transpose();
    let (as_of, ready_at) = (time(&answer["asOf"])?.context("no asOf")?, time(&forecast["readyAt"])?);
    let recovery = run.run_commands(&subject, forecast, ready_at.is_some()).await?;
    let acted = Instant::now();
    let command_delay = Timestamp::now().duration_since(as_of);
    drop(turn);
    let nodes = forecast["nodes"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    let nodes: BTreeSet<String> = nodes.collect();
    let watch = run.watch(&subject, as_of, ready_at, &nodes, acted);
    let (actual, own_writes) = match recovery {
        // `stead recover` runs until the pod is Ready, or until there is nothing left to do.
        Some(line) => {
            let (actual, recovered) = tokio::join!(watch, timeout(cluster.timeouts.horizon(), cluster.run_line(&line)));
            let output = recovered.context("`stead recover` does not exit")??;
            let own_writes = recovery_step_seconds(&output, "tainted by Stead");
            ensure!(
                own_writes.is_some() || !output.contains("replacement pods Ready"),
                "no duration of Stead's own writes: {output}"
            );
            (actual, own_writes.unwrap_or_default())
        }
        None => (watch.await, 0.0),
    };
    let forecast_json = serde_json::to_string_pretty(forecast)?;
    let command_delay = if situation.option == "do-nothing" {
        Duration::ZERO
    } else {
        Duration::try_from(command_delay).unwrap_or_default()
    };
    let command_delay = command_delay + Duration::from_secs_f64(own_writes);
    let played = PlayedForecast {
        situation: situation.clone(),
        as_of,
        after,
        ready_at,
        is_unknown: forecast["unknown"].is_string(),
        nodes,
        actual,
        command_delay,
        machine_delay: cluster.machine_delay.longest_since(as_of),
        forecast_json,
    };
    if situation.option != "node-returns" {
        run.restore_node().await?;
    }
    Ok(played)
}

struct SituationRun<'a> {
    cluster: &'a ForecastCluster,
    situation: &'a Situation,
    /// The name of the node and of the namespace.
    name: String,
    /// The uids of the original pods.
    original_uids: BTreeSet<String>,
}

impl<'a> SituationRun<'a> {
    /// Creates the workload, and waits until its pods are Ready, one of them on the node.
    async fn start(cluster: &'a ForecastCluster, situation: &'a Situation) -> Result<SituationRun<'a>> {
        let name = situation.name();
        cluster.kubectl(&["create", "namespace", &name]).await?;
        // Pods can be created only when there is a service account.
        wait_until("there is a service account", START_TIMEOUT, async || {
            Ok(cluster.kubectl(&["-n", &name, "get", "serviceaccount", "default"]).await.is_ok())
        })
        .await?;
        let turn = cluster.turn.lock().await;
        cluster.apply(&objects(situation, PreferredNode::Own, cluster.timeouts.toleration / 3)).await?;
        drop(turn);
        let count = situation.workload.replicas() as usize;
        wait_until(&format!("the pods of {situation} are ready"), START_TIMEOUT, async || {
            Ok(cluster.readiness.pods(&name).iter().filter(|pod| is_ready(pod)).count() == count)
        })
        .await?;
        let pods = cluster.readiness.pods(&name);
        ensure!(pods.iter().any(|pod| node_of(pod) == name), "no pod of {situation} is on {name}");
        let original_uids = pods.iter().filter_map(|pod| pod.uid()).collect();
        Ok(SituationRun { cluster, situation, name, original_uids })
    }

    /// Triggers the situation, with what a person does immediately before or after.
    async fn trigger(&self) -> Result<()> {
        let (machines, name) = (&self.cluster.machines, &self.name);
        for node in unreachable_before(self.situation) {
            machines.nodes().make_unreachable(&node)?;
        }
        if !unreachable_before(self.situation).is_empty() {
            // These nodes are marked unreachable first.
            sleep(self.cluster.timeouts.failure_gap()).await;
        }
        if self.situation.manual_action == ManualAction::PodDeletedBefore {
            self.delete_pods(&["--wait=false"]).await?;
        }
        match self.situation.trigger {
            Trigger::Suspended => machines.suspend(name).await?,
            Trigger::Disconnected => machines.nodes().make_unreachable(name)?,
            Trigger::PowerLost => machines.kill(name).await?,
            Trigger::Updated => {
                self.cluster
                    .apply(&objects(self.situation, PreferredNode::Other, self.cluster.timeouts.toleration / 3))
                    .await?;
            }
        }
        if self.situation.manual_action == ManualAction::PodTerminatedBefore {
            self.delete_pods(&["--wait=false"]).await?;
            self.report_terminated().await?;
        }
        Ok(())
    }

    /// Reports the original pods on the node as terminated, as a kubelet does before their objects are removed.
    async fn report_terminated(&self) -> Result<()> {
        let is_original =
            |pod: &Pod| node_of(pod) == self.name && pod.uid().is_some_and(|uid| self.original_uids.contains(&uid));
        for pod in self.cluster.readiness.pods(&self.name).iter().filter(|pod| is_original(pod)) {
            let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
            let running = containers.unwrap_or_default().iter().find_map(|c| c.state.as_ref()?.running.as_ref());
            let (began, now) = (running.and_then(|running| running.started_at.clone()), Timestamp::now());
            let terminated =
                json!({ "exitCode": 0, "reason": "Completed", "startedAt": began, "finishedAt": now.to_string() });
            let container =
                json!({ "name": CONTAINER, "ready": false, "state": { "running": null, "terminated": terminated } });
            let status = json!({ "status": { "phase": "Succeeded", "containerStatuses": [container] } });
            let patch = ["patch", "pod", &pod.name_any(), "--subresource=status", "-p", &status.to_string()];
            let args = ["-n", self.name.as_str()].into_iter().chain(patch);
            self.cluster.kubectl(&args.collect::<Vec<_>>()).await?;
        }
        Ok(())
    }

    /// Restores the node.
    async fn restore_node(&self) -> Result<()> {
        let machines = &self.cluster.machines;
        for node in unreachable_before(self.situation) {
            machines.nodes().resume(&node)?;
        }
        match self.situation.trigger {
            Trigger::Suspended => machines.resume(&self.name).await,
            Trigger::Disconnected => machines.nodes().resume(&self.name),
            Trigger::PowerLost => machines.boot(&self.name).await,
            Trigger::Updated => Ok(()),
        }
    }

    /// Waits until it is time for `stead explain`, with the manual action in between.
    async fn wait_and_act(&self, triggered: Instant) -> Result<()> {
        let (timeouts, situation) = (&self.cluster.timeouts, self.situation);
        let explain_after = timeouts.after_failure(situation.explain_at);
        match situation.manual_action {
            _ if situation.trigger == Trigger::Updated => {
                sleep_until(triggered + timeouts.lease_expiry() + explain_after / 4).await
            }
            ManualAction::Nothing | ManualAction::PodDeletedBefore | ManualAction::PodTerminatedBefore => {
                sleep_until(triggered + explain_after).await;
            }
            ManualAction::PodDeleted => {
                sleep_until(triggered + explain_after.mul_f64(situation.act_at)).await;
                self.delete_pods(&["--wait=false"]).await?;
                sleep_until(triggered + explain_after).await;
            }
            ManualAction::PodForceDeleted => {
                sleep_until(triggered + timeouts.after_failure(situation.act_at)).await;
                self.delete_pods(&["--force", "--grace-period=0"]).await?;
                sleep(timeouts.before_force_detach(situation.explain_at)).await;
            }
            ManualAction::NodeDeleted => {
                sleep_until(triggered + timeouts.after_failure(situation.act_at)).await;
                self.cluster.kubectl(&["delete", "node", &self.name]).await?;
                sleep(timeouts.before_pod_gc(situation.explain_at)).await;
            }
        }
        Ok(())
    }

    /// Deletes the pods on the node.
    async fn delete_pods(&self, flags: &[&str]) -> Result<()> {
        let pods = self.cluster.readiness.pods(&self.name);
        let there: Vec<String> = pods.iter().filter(|p| node_of(p) == self.name).map(|p| p.name_any()).collect();
        let args = ["-n", &self.name, "delete", "pod"].into_iter().chain(there.iter().map(String::as_str));
        self.cluster.kubectl(&args.chain(flags.iter().copied()).collect::<Vec<_>>()).await
    }

    /// Returns the pod to explain: a pod that is stuck on the node, or a pod that waits for it.
    fn subject(&self) -> Result<String> {
        let pods = self.cluster.readiness.pods(&self.name);
        let updated = self.situation.trigger == Trigger::Updated;
        let stuck = pods.iter().find(|pod| node_of(pod) == self.name && !updated);
        let waiting = pods.iter().find(|pod| node_of(pod) != self.name && !is_ready(pod));
        let found = if self.situation.explains_waiting_pod { waiting.or(stuck) } else { stuck.or(waiting) };
        found.map(|pod| pod.name_any()).with_context(|| format!("all pods of {} are Ready", self.situation))
    }

    /// Returns the forecast for the chosen option.
    fn forecast<'v>(&self, answer: &'v Value) -> Result<&'v Value> {
        let forecasts = answer["forecast"].as_array().map(Vec::as_slice).unwrap_or_default();
        let found = forecasts.iter().find(|forecast| forecast["way"] == self.situation.option);
        found.with_context(|| {
            let offered: Vec<&str> = forecasts.iter().filter_map(|forecast| forecast["way"].as_str()).collect();
            format!("no forecast for {}, only for {offered:?}: {answer}", self.situation.option)
        })
    }

    /// Runs the commands of the option. A `stead recover` command, which runs until the pod is Ready, is returned
    /// instead.
    async fn run_commands(&self, subject: &str, forecast: &Value, becomes_ready: bool) -> Result<Option<String>> {
        let offered = forecast["commands"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let commands =
            if becomes_ready { offered.map(str::to_owned).collect() } else { self.commands_against_advice(subject) };
        if self.situation.option == "node-returns" {
            self.restore_node().await?;
        }
        // `stead recover` refuses while the node is still Ready; then the taint is applied manually.
        let by_hand =
            !(self.situation.uses_recover && becomes_ready && !self.cluster.machines.nodes().is_ready(&self.name));
        for line in &commands {
            let typed = line.strip_prefix("# or by hand: ").filter(|_| by_hand);
            match typed {
                Some(typed) => drop(self.cluster.run_line(typed).await?),
                None if line.starts_with('#') => {}
                None if line.starts_with("stead recover") => {
                    if !by_hand {
                        let policy = self.cluster.write_file("policy.yaml", POLICY)?;
                        return Ok(Some(format!("{line} --yes --policy {}", policy.display())));
                    }
                }
                None => drop(self.cluster.run_line(line).await?),
            }
        }
        Ok(None)
    }

    /// Returns the commands of an option that is forecast never to make the pod Ready, and therefore not offered: this
    /// tests that the pod is indeed never Ready.
    fn commands_against_advice(&self, subject: &str) -> Vec<String> {
        let name = &self.name;
        match self.situation.option {
            "force-delete-pod" => {
                let there = self.cluster.readiness.pods(name).into_iter().filter(|p| node_of(p) == *name);
                let there: Vec<String> = there.map(|p| p.name_any()).collect();
                let only_subject = there.iter().any(|pod| pod == subject).then(|| vec![subject.to_owned()]);
                let force = |pod: &String| format!("kubectl -n {name} delete pod {pod} --force --grace-period=0");
                only_subject.unwrap_or(there).iter().map(force).collect()
            }
            "delete-node" => vec![format!("kubectl delete node {name}")],
            "out-of-service" => {
                vec![format!("kubectl taint node {name} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")]
            }
            _ => Vec::new(),
        }
    }

    /// Watches until the pod is Ready on one of the forecast nodes, or until long after the forecast time. If several
    /// pods were replaced, each of the replacement pods counts.
    async fn watch(
        &self,
        subject: &str,
        as_of: Timestamp,
        ready_at: Option<Timestamp>,
        nodes: &BTreeSet<String>,
        acted: Instant,
    ) -> Option<(Timestamp, String)> {
        let timeouts = &self.cluster.timeouts;
        let end = acted
            + match ready_at {
                Some(at) => {
                    let expected = Duration::try_from(at.duration_since(as_of)).unwrap_or_default();
                    expected + timeouts.max_error + EXTRA_WATCH_TIME
                }
                None => timeouts.horizon(),
            };
        let then = Timestamp::now();
        loop {
            let ready = self.ready_times(subject, then);
            let first = ready.iter().find(|(_, node)| ready_at.is_none() || nodes.contains(node));
            if first.is_some() || Instant::now() > end {
                return first.or(ready.first()).cloned();
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns when and where the pod and its replacements were Ready, in order of time. A pod on the node of the
    /// situation counts only if the node has returned.
    fn ready_times(&self, subject: &str, acted: Timestamp) -> Vec<(Timestamp, String)> {
        let (returned, updated) = (self.situation.option == "node-returns", self.situation.trigger == Trigger::Updated);
        let intervals = self.cluster.readiness.intervals(&self.name);
        let ours = intervals.into_iter().filter(|s| !self.situation.workload.keeps_names() || s.pod == subject);
        let times = ours.filter_map(|interval| {
            let from = if interval.node == self.name && !updated {
                (returned && interval.until.is_none_or(|until| until > acted)).then(|| interval.from.max(acted))
            } else {
                (!self.original_uids.contains(&interval.uid)).then_some(interval.from)
            };
            Some((from?, interval.node))
        });
        let mut times: Vec<_> = times.collect();
        times.sort();
        times
    }
}
