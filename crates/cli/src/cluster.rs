//! A cluster as files show it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::bail;
use serde_json::Value;
use stead_explain::Kind;

use crate::output::{Hinted, complain};

/// What the files say.
#[derive(Debug, Default)]
pub(crate) struct Dumped {
    /// The objects.
    pub(crate) items: Vec<Value>,
    /// The kinds that the files know of, those of which there are none included.
    pub(crate) kinds: BTreeSet<String>,
}

/// Reads a cluster: what placement looks at, and the further kinds that are asked for.
pub(crate) fn read(paths: &[PathBuf], more: &[&str]) -> anyhow::Result<Dumped> {
    let wanted = |version: &str, kind: &str| more.contains(&kind) || Kind::find(version, kind).is_some();
    let dump = stead_dump::read(paths, &wanted)?;
    for warning in &dump.warnings {
        complain("warning", warning);
    }
    if !dump.kinds.contains("Node") {
        return Err(Hinted {
            message: "the dump has no nodes: no pod can be judged without them".into(),
            hint: "dump them too: kubectl get nodes,pods,namespaces,pv,pvc,sc,services,rs,sts,pdb,csinodes -A -o yaml"
                .into(),
        }
        .into());
    }
    Ok(Dumped { items: dump.items.into_iter().map(|i| i.value).collect(), kinds: dump.kinds })
}

/// Reads the objects of one file, of whatever kind.
pub(crate) fn read_file(path: &PathBuf) -> anyhow::Result<Vec<Value>> {
    let dump = stead_dump::read(std::slice::from_ref(path), &|_, _| true)?;
    if dump.items.is_empty() {
        bail!("{}: no objects in it", path.display());
    }
    Ok(dump.items.into_iter().map(|i| i.value).collect())
}
