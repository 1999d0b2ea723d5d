//! What somebody reads who has written a Topology that does not do what they meant: the answer to `kubectl apply`, the
//! conditions, and `stead explain`, on the real control plane.

mod scene;

use std::path::Path;

use anyhow::{Context, Result};
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use stead_stage::Stage;
use stead_testbed::{Binaries, ClusterSpec, Options};

use scene::{Scene, condition};

const POD: &str = "pod/glance-default-single-0";
const API: &str = "glanceapi/glance-default-single";

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_is_told() -> Result<()> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
    let stead = Path::new(env!("CARGO_BIN_EXE_stead"));
    let stage = Stage::open(&binaries, stead, Options::default(), ClusterSpec::seven()).await?;
    stage.define().await?;
    let operator = stage.operate(&stage.plane.kubeconfig(), &[]).await?;
    let read = tokio::try_join!(
        a_label_that_no_node_has(&stage),
        a_zone_that_is_not_there(&stage),
        a_topology_that_is_missing(&stage),
        a_selector_that_matches_nothing(&stage),
        the_spelling_of_the_draft(&stage),
    );
    let read = read.with_context(|| operator.log().unwrap_or_default())?;
    label().assert_eq(&read.0);
    zone().assert_eq(&read.1);
    missing().assert_eq(&read.2);
    selector().assert_eq(&read.3);
    draft().assert_eq(&read.4);
    operator.end().await
}

/// What is read, one after the other.
struct Reading<'a> {
    scene: Scene<'a>,
    text: String,
}

impl<'a> Reading<'a> {
    async fn open(stage: &'a Stage, space: &'a str) -> Result<Reading<'a>> {
        Ok(Reading { scene: Scene::open(stage, space).await?, text: String::new() })
    }

    /// A Topology is applied, and a Glance that follows it.
    async fn applies(&mut self, topology: &str, spec: Value) -> Result<()> {
        self.text += &self.scene.topology(topology, spec).await?;
        self.follows(topology).await
    }

    async fn follows(&mut self, topology: &str) -> Result<()> {
        // One node would do; which of several it is would be chosen at random.
        let on_one = json!({"kubernetes.io/hostname": "worker-1"});
        let api = json!({"default": {"type": "single", "replicas": 1, "nodeSelector": on_one}});
        self.scene.glance(api, json!({"name": topology})).await.map(drop)
    }

    /// A condition, once it says something that holds `word`.
    async fn tells(&mut self, what: &str, kind: &str, word: &str) -> Result<()> {
        let scene = &self.scene;
        let said = |object: Option<Value>| {
            let object = object.unwrap_or_default();
            condition(&object, kind).map(|c| {
                let text = |field: &str| c[field].as_str().unwrap_or_default().to_owned();
                format!("{kind} is {} ({}): {}", text("status"), text("reason"), text("message"))
            })
        };
        let limit = std::time::Duration::from_secs(60);
        scene
            .stage
            .until(&format!("{} {what} {kind}: {word}", scene.space), limit, || async {
                Ok(said(scene.get(what).await?).is_some_and(|text| text.contains(word)))
            })
            .await?;
        let text = said(scene.get(what).await?).unwrap_or_default();
        self.text += &format!("\n{what}: {text}\n");
        Ok(())
    }

    async fn explains(&mut self, what: &str) -> Result<()> {
        let args = ["explain", what, "-n", self.scene.space];
        let (code, answer, complaint) = self.scene.stage.stead_ran(&args).await?;
        self.text += &format!("\n$ stead {}\n{answer}{complaint}(exit code {})\n", args.join(" "), code.unwrap_or(-1));
        Ok(())
    }
}

async fn a_label_that_no_node_has(stage: &Stage) -> Result<String> {
    let mut reading = Reading::open(stage, "label").await?;
    let spread =
        json!([{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}]);
    reading.applies("spread", json!({"topologySpreadConstraints": spread})).await?;
    reading.tells(API, "PodsScheduled", "A way out").await?;
    reading.tells("topology/spread", "Satisfiable", "False").await?;
    reading.explains("topology/spread").await?;
    reading.explains("glance/glance").await?;
    reading.explains(POD).await?;
    Ok(reading.text)
}

async fn a_zone_that_is_not_there(stage: &Stage) -> Result<String> {
    let mut reading = Reading::open(stage, "zone").await?;
    let terms = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["zoneD"]}]}]);
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    reading.applies("zone-d", json!({"affinity": affinity})).await?;
    reading.tells(API, "PodsScheduled", "A way out").await?;
    reading.tells("topology/zone-d", "Satisfiable", "False").await?;
    reading.explains("topology/zone-d").await?;
    reading.explains("glance/glance").await?;
    reading.explains(POD).await?;
    Ok(reading.text)
}

async fn a_topology_that_is_missing(stage: &Stage) -> Result<String> {
    let mut reading = Reading::open(stage, "missing").await?;
    reading.scene.topology("spread-pods", json!({"topologySpreadConstraints": []})).await?;
    reading.follows("spread-pod").await?;
    reading.tells(API, "TopologyReady", "not found").await?;
    reading.tells("glance/glance", "Ready", "not found").await?;
    reading.explains("glance/glance").await?;
    reading.explains("topology/spread-pod").await?;
    Ok(reading.text)
}

async fn a_selector_that_matches_nothing(stage: &Stage) -> Result<String> {
    let mut reading = Reading::open(stage, "selector").await?;
    let spread = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "glance"}}}]);
    reading.applies("spread", json!({"topologySpreadConstraints": spread})).await?;
    reading.tells(API, "Ready", "Setup complete").await?;
    reading.tells("topology/spread", "Satisfiable", "False").await?;
    reading.explains("topology/spread").await?;
    reading.explains("glance/glance").await?;
    Ok(reading.text)
}

async fn the_spelling_of_the_draft(stage: &Stage) -> Result<String> {
    let mut reading = Reading::open(stage, "draft").await?;
    let spread = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"service": "glance"}}}]);
    reading.applies("spread", json!({"topologySpreadConstraint": spread})).await?;
    reading.tells(API, "Ready", "Setup complete").await?;
    reading.tells("topology/spread", "Satisfiable", "True").await?;
    reading.tells("topology/spread", "DraftSpelling", "True").await?;
    reading.explains("topology/spread").await?;
    Ok(reading.text)
}

fn label() -> Expect {
    expect![[""]]
}

fn zone() -> Expect {
    expect![[""]]
}

fn missing() -> Expect {
    expect![[""]]
}

fn selector() -> Expect {
    expect![[""]]
}

fn draft() -> Expect {
    expect![[""]]
}
