//! The messages for a Topology that does not do what its author meant: the output of `kubectl apply`, the conditions,
//! and `stead explain`, on the real control plane.

use anyhow::{Context, Result};
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use stead_stage::{Stage, wait_for};
use stead_testbed::{Binaries, ClusterSpec, Options};

use crate::scene::{RESULT_TIMEOUT, Scene, condition};

const POD: &str = "pod/glance-default-single-0";
const API: &str = "glanceapi/glance-default-single";

#[tokio::test(flavor = "multi_thread")]
async fn common_mistakes_are_explained() -> Result<()> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
    let stead = crate::stead()?;
    let stage = Stage::open(&binaries, &stead, Options::default(), ClusterSpec::seven()).await?;
    stage.install_definitions().await?;
    let operator = stage.start_operator(&stage.plane.kubeconfig(), &[]).await?;
    let read = all(&stage).await.with_context(|| operator.log().unwrap_or_default())?;
    let golden = [selector(), draft(), label(), zone(), missing()];
    for (golden, read) in golden.iter().zip(&read) {
        golden.assert_eq(read);
    }
    operator.stop().await
}

/// Sequentially: the placement of a pod depends on the existing pods.
async fn all(stage: &Stage) -> Result<[String; 5]> {
    Ok([
        a_selector_that_matches_nothing(stage).await?,
        the_spelling_of_the_draft(stage).await?,
        a_label_that_no_node_has(stage).await?,
        a_zone_that_is_not_there(stage).await?,
        a_topology_that_is_missing(stage).await?,
    ])
}

/// The collected output.
struct Transcript<'a> {
    scene: Scene<'a>,
    text: String,
}

impl<'a> Transcript<'a> {
    async fn open(stage: &'a Stage, space: &'a str) -> Result<Transcript<'a>> {
        Ok(Transcript { scene: Scene::open(stage, space).await?, text: String::new() })
    }

    /// Applies a Topology and a Glance that uses it.
    async fn apply(&mut self, topology: &str, spec: Value) -> Result<()> {
        self.text += &self.scene.topology(topology, spec).await?;
        self.apply_glance(topology, json!({})).await
    }

    /// Like `apply`, with the pod bound to one node: otherwise the scheduler would choose one at random.
    async fn apply_on_one_node(&mut self, topology: &str, spec: Value) -> Result<()> {
        self.text += &self.scene.topology(topology, spec).await?;
        self.apply_glance(topology, json!({"kubernetes.io/hostname": "worker-1"})).await
    }

    async fn apply_glance(&mut self, topology: &str, nodes: Value) -> Result<()> {
        let api = json!({"default": {"type": "single", "replicas": 1, "nodeSelector": nodes}});
        self.scene.glance(api, json!({"name": topology})).await.map(drop)
    }

    /// Adds a condition to the output, once its text contains `word`.
    async fn add_condition(&mut self, what: &str, kind: &str, word: &str) -> Result<()> {
        let text = self.wait_for_condition(what, kind, word).await?;
        self.text += &format!("\n{what}: {text}\n");
        Ok(())
    }

    /// Waits until the text of a condition contains `word`, and returns it.
    async fn wait_for_condition(&self, what: &str, kind: &str, word: &str) -> Result<String> {
        let scene = &self.scene;
        let said = |object: Option<Value>| {
            let object = object.unwrap_or_default();
            condition(&object, kind).map(|c| {
                let text = |field: &str| c[field].as_str().unwrap_or_default().to_owned();
                format!("{kind} is {} ({}): {}", text("status"), text("reason"), text("message"))
            })
        };
        wait_for(&format!("{} {what} {kind}: {word}", scene.space), RESULT_TIMEOUT, async || {
            Ok(said(scene.get(what).await?).filter(|text| text.contains(word)))
        })
        .await
    }

    async fn explain(&mut self, what: &str) -> Result<()> {
        let args = ["explain", what, "-n", self.scene.space];
        let (code, stdout, stderr) = self.scene.stage.run_stead(&args).await?;
        self.text += &format!("\n$ stead {}\n{stdout}{stderr}(exit code {})\n", args.join(" "), code.unwrap_or(-1));
        Ok(())
    }
}

async fn a_label_that_no_node_has(stage: &Stage) -> Result<String> {
    let mut transcript = Transcript::open(stage, "label").await?;
    let spread =
        json!([{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}]);
    transcript.apply("spread", json!({"topologySpreadConstraints": spread})).await?;
    transcript.add_condition(API, "PodsScheduled", "Possible fix").await?;
    transcript.add_condition("topology/spread", "Satisfiable", "False").await?;
    transcript.wait_for_condition("glance/glance", "Ready", "Deployment in progress").await?;
    transcript.explain("topology/spread").await?;
    transcript.explain("glance/glance").await?;
    transcript.explain(POD).await?;
    Ok(transcript.text)
}

async fn a_zone_that_is_not_there(stage: &Stage) -> Result<String> {
    let mut transcript = Transcript::open(stage, "zone").await?;
    let terms = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["zoneD"]}]}]);
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    transcript.apply("zone-d", json!({"affinity": affinity})).await?;
    transcript.add_condition(API, "PodsScheduled", "Possible fix").await?;
    transcript.add_condition("topology/zone-d", "Satisfiable", "False").await?;
    transcript.wait_for_condition("glance/glance", "Ready", "Deployment in progress").await?;
    transcript.explain("topology/zone-d").await?;
    transcript.explain("glance/glance").await?;
    transcript.explain(POD).await?;
    Ok(transcript.text)
}

async fn a_topology_that_is_missing(stage: &Stage) -> Result<String> {
    let mut transcript = Transcript::open(stage, "missing").await?;
    transcript.scene.topology("spread-pods", json!({"topologySpreadConstraints": []})).await?;
    transcript.apply_glance("spread-pod", json!({})).await?;
    transcript.add_condition(API, "TopologyReady", "not found").await?;
    transcript.add_condition("glance/glance", "Ready", "not found").await?;
    transcript.explain("glance/glance").await?;
    transcript.explain("topology/spread-pod").await?;
    Ok(transcript.text)
}

async fn a_selector_that_matches_nothing(stage: &Stage) -> Result<String> {
    let mut transcript = Transcript::open(stage, "selector").await?;
    let spread = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "glance"}}}]);
    transcript.apply_on_one_node("spread", json!({"topologySpreadConstraints": spread})).await?;
    transcript.add_condition(API, "Ready", "Setup complete").await?;
    transcript.add_condition("topology/spread", "Satisfiable", "False").await?;
    transcript.wait_for_condition("glance/glance", "Ready", "Setup complete").await?;
    transcript.explain("topology/spread").await?;
    transcript.explain("glance/glance").await?;
    Ok(transcript.text)
}

async fn the_spelling_of_the_draft(stage: &Stage) -> Result<String> {
    let mut transcript = Transcript::open(stage, "draft").await?;
    let spread = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"service": "glance"}}}]);
    transcript.apply_on_one_node("spread", json!({"topologySpreadConstraint": spread})).await?;
    transcript.add_condition(API, "Ready", "Setup complete").await?;
    transcript.add_condition("topology/spread", "Satisfiable", "True").await?;
    transcript.add_condition("topology/spread", "DraftSpelling", "True").await?;
    transcript.explain("topology/spread").await?;
    Ok(transcript.text)
}

fn label() -> Expect {
    expect![[r#"
        topology.topology.openstack.org/spread serverside-applied

        glanceapi/glance-default-single: PodsScheduled is False (Unschedulable): glance-default-single-0: 0/7 nodes are available: 7 node(s) didn't match pod topology spread constraints (missing required label). no new claims to deallocate, preemption: 0/7 nodes are available: 7 Preemption is not helpful for scheduling. Possible fix: make the spread by topology.kubernetes.io/zone a preference (whenUnsatisfiable: ScheduleAnyway). See: stead explain pod/glance-default-single-0 -n label

        topology/spread: Satisfiable is False (NoNodeHasKey): pods are to be spread by the node label topology.kubernetes.io/zone, but no node has the label topology.kubernetes.io/zone (they have zone): no node can run a pod that follows it

        $ stead explain topology/spread -n label
        topology label/spread: used by GlanceAPI glance-default-single with 1 pod, which no node can run

        Problems and notes
          - PODS STAY PENDING: pods are to be spread by the node label topology.kubernetes.io/zone, but no
            node has the label topology.kubernetes.io/zone (they have zone): no node can run a pod that
            follows it (NoNodeHasKey)

        Pods that no node can run
          glance-default-single-0: no node can run it
            best fix: make the spread by topology.kubernetes.io/zone a preference (whenUnsatisfiable:
              ScheduleAnyway); a rule is relaxed
              kubectl -n label patch topology spread --type=json -p '[{"op":"add","path":"/spec/topologySpreadConstraints/0/whenUnsatisfiable","value":"ScheduleAnyway"}]'
            7 x node(s) didn't match pod topology spread constraints (missing required label)
            details by node, and 2 other fixes: stead explain pod/glance-default-single-0 -n label

        Rules
          - pods are spread over the values of the node label topology.kubernetes.io/zone: none may have
            more than 1 pod more than the value with the fewest (maxSkew); a pod that would violate this
            stays Pending (DoNotSchedule); the pods of each consumer are counted separately (no
            labelSelector)

        Used by
          GlanceAPI glance-default-single, inherited from Glance: Glance glance, spec.topologyRef
            POD                       NODE   ZONE   STATE
            glance-default-single-0   -      -      Pending

        Pods per value of the spread label
          topology.kubernetes.io/zone, pods of GlanceAPI glance-default-single: no node has the label
        (exit code 0)

        $ stead explain glance/glance -n label
        glance label/glance: 0 of 1 pods are ready; no node can run 1 pod
          condition Ready, GlanceAPIReady is False (Requested: Deployment in progress)

        API       TYPE     READY   TOPOLOGY   FROM                    STORAGE    STATE
        default   single   0/1     spread     inherited from Glance   external   no node can run 1 pod

        glance-default-single is not ready
          condition Ready, DeploymentReady is False (Requested: Deployment in progress)
          glance-default-single-0: no node can run it
            best fix: make the spread by topology.kubernetes.io/zone a preference (whenUnsatisfiable:
              ScheduleAnyway); a rule is relaxed
              kubectl -n label patch topology spread --type=json -p '[{"op":"add","path":"/spec/topologySpreadConstraints/0/whenUnsatisfiable","value":"ScheduleAnyway"}]'
            7 x node(s) didn't match pod topology spread constraints (missing required label)
            details by node, and 2 other fixes: stead explain pod/glance-default-single-0 -n label

        Also reported
          - no Service keystone-internal in this namespace: Glance answers health checks and rejects all
            other requests until there is a Keystone
          - no Service memcached in this namespace: tokens are not cached
        (exit code 0)

        $ stead explain pod/glance-default-single-0 -n label
        pod label/glance-default-single-0: Pending: 0 of 7 nodes can run this pod
          kube-scheduler 1.36 says: 0/7 nodes are available: 7 node(s) didn't match pod topology spread
            constraints (missing required label). no new claims to deallocate, preemption: 0/7 nodes are
            available: 7 Preemption is not helpful for scheduling.

        Possible fixes (each verified against the scheduler), the least harmful first
          1. make the spread by topology.kubernetes.io/zone a preference (whenUnsatisfiable: ScheduleAnyway)
             goes to master-0, master-1, master-2, worker-0, worker-2, worker-3; a rule is relaxed
               kubectl -n label patch topology spread --type=json -p '[{"op":"add","path":"/spec/topologySpreadConstraints/0/whenUnsatisfiable","value":"ScheduleAnyway"}]'
          2. label node master-0 topology.kubernetes.io/zone=master-0: no node has that label yet
             goes to master-0; only if that is true
               kubectl label node master-0 --overwrite topology.kubernetes.io/zone=master-0
          3. label node master-1 topology.kubernetes.io/zone=master-1: no node has that label yet
             goes to master-1; only if that is true
               kubectl label node master-1 --overwrite topology.kubernetes.io/zone=master-1

        Why, by node
          7 x node(s) didn't match pod topology spread constraints (missing required label)
            master-0 (zoneA), master-1 (zoneB), master-2 (zoneC), worker-0 (zoneA), worker-1 (zoneB),
            worker-2 (zoneC), worker-3 (zoneA)
            - spread by node label topology.kubernetes.io/zone (from Topology spread): it has no label
              topology.kubernetes.io/zone
            - master-0: with topology.kubernetes.io/zone=master-0 the pod would fit
            - master-1: with topology.kubernetes.io/zone=master-1 the pod would fit
            - master-2: with topology.kubernetes.io/zone=master-2 the pod would fit
            - worker-0: with topology.kubernetes.io/zone=worker-0 the pod would fit
            - worker-1: with topology.kubernetes.io/zone=worker-1 the pod would fit
            - worker-2: with topology.kubernetes.io/zone=worker-2 the pod would fit
            - worker-3: with topology.kubernetes.io/zone=worker-3 the pod would fit
        (exit code 0)
    "#]]
}

fn zone() -> Expect {
    expect![[r#"
        topology.topology.openstack.org/zone-d serverside-applied

        glanceapi/glance-default-single: PodsScheduled is False (Unschedulable): glance-default-single-0: 0/7 nodes are available: 7 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, preemption: 0/7 nodes are available: 7 Preemption is not helpful for scheduling. Possible fix: remove the required node affinity from the pod. See: stead explain pod/glance-default-single-0 -n zone

        topology/zone-d: Satisfiable is False (NoNodeMatches): no node matches the required node affinity (zone In [zoneD]), so no node can run a pod that follows it: the nodes' label zone is zoneA, zoneB, zoneC

        $ stead explain topology/zone-d -n zone
        topology zone/zone-d: used by GlanceAPI glance-default-single with 1 pod, which no node can run

        Problems and notes
          - PODS STAY PENDING: no node matches the required node affinity (zone In [zoneD]), so no node can
            run a pod that follows it: the nodes' label zone is zoneA, zoneB, zoneC (NoNodeMatches)

        Pods that no node can run
          glance-default-single-0: no node can run it
            best fix: remove the required node affinity from the pod; a rule is relaxed
              kubectl -n zone patch topology zone-d --type=json -p '[{"op":"remove","path":"/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"}]'
            7 x node(s) didn't match Pod's node affinity/selector
            details by node, and 2 other fixes: stead explain pod/glance-default-single-0 -n zone

        Rules
          - pods go only to nodes with zone In [zoneD]

        Used by
          GlanceAPI glance-default-single, inherited from Glance: Glance glance, spec.topologyRef
            POD                       NODE   ZONE   STATE
            glance-default-single-0   -      -      Pending
        (exit code 0)

        $ stead explain glance/glance -n zone
        glance zone/glance: 0 of 1 pods are ready; no node can run 1 pod
          condition Ready, GlanceAPIReady is False (Requested: Deployment in progress)

        API       TYPE     READY   TOPOLOGY   FROM                    STORAGE    STATE
        default   single   0/1     zone-d     inherited from Glance   external   no node can run 1 pod

        glance-default-single is not ready
          condition Ready, DeploymentReady is False (Requested: Deployment in progress)
          glance-default-single-0: no node can run it
            best fix: remove the required node affinity from the pod; a rule is relaxed
              kubectl -n zone patch topology zone-d --type=json -p '[{"op":"remove","path":"/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"}]'
            7 x node(s) didn't match Pod's node affinity/selector
            details by node, and 2 other fixes: stead explain pod/glance-default-single-0 -n zone

        Also reported
          - no Service keystone-internal in this namespace: Glance answers health checks and rejects all
            other requests until there is a Keystone
          - no Service memcached in this namespace: tokens are not cached
        (exit code 0)

        $ stead explain pod/glance-default-single-0 -n zone
        pod zone/glance-default-single-0: Pending: 0 of 7 nodes can run this pod
          kube-scheduler 1.36 says: 0/7 nodes are available: 7 node(s) didn't match Pod's node
            affinity/selector. no new claims to deallocate, preemption: 0/7 nodes are available: 7
            Preemption is not helpful for scheduling.

        Possible fixes (each verified against the scheduler), the least harmful first
          1. remove the required node affinity from the pod
             goes to master-0, master-1, master-2, worker-0, worker-2, worker-3; a rule is relaxed
               kubectl -n zone patch topology zone-d --type=json -p '[{"op":"remove","path":"/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"}]'
          2. label node master-0 zone=zoneD
             goes to master-0; a rule is relaxed
               kubectl label node master-0 --overwrite zone=zoneD
          3. label node master-1 zone=zoneD
             goes to master-1; a rule is relaxed
               kubectl label node master-1 --overwrite zone=zoneD

        Why, by node
          7 x node(s) didn't match Pod's node affinity/selector
            master-0 (zoneA), master-1 (zoneB), master-2 (zoneC), worker-0 (zoneA), worker-1 (zoneB),
            worker-2 (zoneC), worker-3 (zoneA)
            - required node affinity (from Topology zone-d): zone In [zoneD]
            - with zone=zoneD the pod would fit
        (exit code 0)
    "#]]
}

fn missing() -> Expect {
    expect![[r#"

        glanceapi/glance-default-single: TopologyReady is False (Error): Topology config create error occurred Topology.topology.openstack.org "spread-pod" not found

        glance/glance: Ready is False (Error): Topology config create error occurred Topology.topology.openstack.org "spread-pod" not found

        $ stead explain glance/glance -n missing
        glance missing/glance: 0 of 1 pods are ready
          condition Ready, GlanceAPIReady is False (Error: Topology config create error occurred
            Topology.topology.openstack.org "spread-pod" not found)

        API       TYPE     READY   TOPOLOGY     FROM                    STORAGE    STATE
        default   single   0/1     spread-pod   inherited from Glance   external   its Topology does not exist

        glance-default-single is not ready
          Topology spread-pod does not exist: Glance glance, spec.topologyRef names it (inherited from
            Glance); namespace missing has spread-pods
          it has no StatefulSet yet
          condition Ready, TopologyReady is False (Error: Topology config create error occurred
            Topology.topology.openstack.org "spread-pod" not found)

        Also reported
          - no Service keystone-internal in this namespace: Glance answers health checks and rejects all
            other requests until there is a Keystone
          - no Service memcached in this namespace: tokens are not cached
        (exit code 0)

        $ stead explain topology/spread-pod -n missing
        topology missing/spread-pod: does not exist; everything that refers to it waits for it; namespace
          missing has spread-pods

        Used by
          GlanceAPI glance-default-single, inherited from Glance: Glance glance, spec.topologyRef
            - GlanceAPI glance-default-single has no StatefulSet yet
        (exit code 1)
    "#]]
}

fn selector() -> Expect {
    expect![[r#"
        topology.topology.openstack.org/spread serverside-applied

        glanceapi/glance-default-single: Ready is True (Ready): Setup complete

        topology/spread: Satisfiable is False (SelectorMatchesNothing): the spread by the node label zone counts pods with app=glance, but no pod of GlanceAPI glance-default-single has these labels, so they are not spread: they have component=glance-api,glanceAPI=glance-default-single,owner=glance-default-single,service=glance

        $ stead explain topology/spread -n selector
        topology selector/spread: used by GlanceAPI glance-default-single with 1 pod: 1 ready

        Problems and notes
          - NO EFFECT: the spread by the node label zone counts pods with app=glance, but no pod of
            GlanceAPI glance-default-single has these labels, so they are not spread: they have
            component=glance-api,glanceAPI=glance-default-single,owner=glance-default-single,service=glance
            (SelectorMatchesNothing)

        Rules
          - pods are spread over the values of the node label zone: none may have more than 1 pod more than
            the value with the fewest (maxSkew); a pod that would violate this stays Pending
            (DoNotSchedule); pods with app=glance are counted

        Used by
          GlanceAPI glance-default-single, inherited from Glance: Glance glance, spec.topologyRef
            POD                       NODE       ZONE    STATE
            glance-default-single-0   worker-1   zoneB   Ready

        Pods per value of the spread label
          zone, pods with app=glance: zoneA 0, zoneB 0, zoneC 0; the difference is 0, at most 1 is allowed
        (exit code 0)

        $ stead explain glance/glance -n selector
        glance selector/glance: healthy: 1 of 1 pods are ready

        API       TYPE     READY   TOPOLOGY   FROM                    STORAGE    STATE
        default   single   1/1     spread     inherited from Glance   external   ready

        Also reported
          - no Service keystone-internal in this namespace: Glance answers health checks and rejects all
            other requests until there is a Keystone
          - no Service memcached in this namespace: tokens are not cached
        (exit code 0)
    "#]]
}

fn draft() -> Expect {
    expect![[r#"
        Warning: Validation failed for ValidatingAdmissionPolicy 'stead.topologies.topology.openstack.org' with binding 'stead.topologies.topology.openstack.org': spec.topologySpreadConstraint is an early draft's spelling of spec.topologySpreadConstraints: please use that
        topology.topology.openstack.org/spread serverside-applied

        glanceapi/glance-default-single: Ready is True (Ready): Setup complete

        topology/spread: Satisfiable is True (Satisfiable): the nodes can satisfy it

        topology/spread: DraftSpelling is True (DraftSpelling): spec.topologySpreadConstraint is the draft's spelling of topologySpreadConstraints: Stead accepts it, the released OpenStack operators do not

        $ stead explain topology/spread -n draft
        topology draft/spread: used by GlanceAPI glance-default-single with 1 pod: 1 ready

        Problems and notes
          - spec.topologySpreadConstraint is the draft's spelling of topologySpreadConstraints: Stead
            accepts it, the released OpenStack operators do not (DraftSpelling)

        Rules
          - pods are spread over the values of the node label zone: none may have more than 1 pod more than
            the value with the fewest (maxSkew); a pod that would violate this stays Pending
            (DoNotSchedule); pods with service=glance are counted

        Used by
          GlanceAPI glance-default-single, inherited from Glance: Glance glance, spec.topologyRef
            POD                       NODE       ZONE    STATE
            glance-default-single-0   worker-1   zoneB   Ready

        Pods per value of the spread label
          zone, pods with service=glance: zoneA 0, zoneB 1, zoneC 0; the difference is 1, at most 1 is
            allowed
        (exit code 0)
    "#]]
}
