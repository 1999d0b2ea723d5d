//! The report about Glance and its Topologies: one node without zones, then seven nodes in three zones.

mod clean_up;
mod failure;
mod recovery;
mod single_node;
mod zones;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use stead_stage::{Operator, Stage};
use stead_testbed::{Binaries, ClusterSpec, NodeSpec, Options};

use crate::Terminal;

pub use recovery::play as recover;

/// Replays the report with this `stead`, and prints it to `out`.
pub async fn play(binaries: &Binaries, stead: &Path, out: &mut (dyn Write + Send)) -> Result<()> {
    let options = Options { fast: true, ..Options::default() };
    let stage = Stage::open(binaries, stead, options, nodes(&[("crc", true)])).await?;
    stage.install_definitions().await?;
    let operator = stage.start_operator(&stage.plane.kubeconfig(), &[]).await?;
    let kubectl = binaries.program("kubectl");
    let terminal = Terminal::open(&stage.plane, &kubectl, stead, folder(), out)?;
    Replay { stage, terminal }.all(operator).await
}

/// The files that the report applies.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/glance-report")
}

/// Returns a cluster with these nodes: name, and whether the node is also a control plane node.
fn nodes(names: &[(&str, bool)]) -> ClusterSpec {
    let node = |(name, control_plane): &(&str, bool)| {
        let roles: &[&str] = if *control_plane { &["control-plane", "master", "worker"] } else { &["worker"] };
        let labels = roles.iter().map(|role| (format!("node-role.kubernetes.io/{role}"), String::new())).collect();
        NodeSpec { name: (*name).to_owned(), labels, ..NodeSpec::default() }
    };
    ClusterSpec { nodes: names.iter().map(node).collect(), ..ClusterSpec::seven() }
}

/// A replay of the report.
struct Replay<'a> {
    stage: Stage,
    terminal: Terminal<'a>,
}

impl Replay<'_> {
    async fn all(mut self, operator: Operator) -> Result<()> {
        self.single_node().await?;
        self.seven_nodes().await?;
        self.zones().await?;
        self.failure().await?;
        self.clean_up(operator).await
    }
}
