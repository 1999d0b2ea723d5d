//! The manifest with which krew, kubectl's plugin manager, installs `kubectl stead`.

use anyhow::Result;
use serde_json::json;

use crate::archive::sha256;
use crate::package;
use crate::release::{Release, VERSION};

const DESCRIPTION: &str = "\
Lists everything that is stuck in a namespace or in the whole cluster, grouped by root cause, and explains one pod, node,
workload, claim or volume: why it is Pending, Terminating or not ready, which node or volume is to blame, and which changes
fix it. Fixes are verified with kube-scheduler's own rules before they are offered. Moves pods and volumes off a dead node,
after a plan and with proof that the machine is off. Reads live clusters and dumps.
";

const CAVEATS: &str = "\
`kubectl stead explain` needs only the `list` verb and changes nothing.
For shell completion, put `kubectl_complete-stead` from the plugin's folder on your PATH.
";

/// The manifest for an archive.
pub(crate) fn manifest(archive: &[u8], release: &Release) -> Result<String> {
    let mut manifest = json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "stead"},
        "spec": {
            "version": format!("v{VERSION}"),
            "shortDescription": "Explain stuck stateful workloads",
            "description": DESCRIPTION,
            "caveats": CAVEATS,
            "platforms": [{
                "selector": {"matchLabels": {"os": "linux", "arch": "amd64"}},
                "uri": format!("{}/{}", release.base_url, package::file_name()),
                "sha256": sha256(archive),
                "bin": "stead",
            }],
        },
    });
    if let Some(homepage) = &release.homepage {
        manifest["spec"]["homepage"] = homepage.as_str().into();
    }
    Ok(serde_saphyr::to_string(&manifest)?)
}
