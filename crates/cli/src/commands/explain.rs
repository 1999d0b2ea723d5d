//! `stead explain pod/NAME`: why it waits, and the ways out.

use anyhow::bail;
use stead_explain::{ObjectKey, Objects, State, explain, render};

use crate::args::{ExplainArgs, Format};
use crate::cluster;
use crate::output::{self, Hinted, Outcome};

/// Kinds beyond placement's own that tell where a rule comes from and who owns what.
const OWNERS: [&str; 7] =
    ["Topology", "Glance", "GlanceAPI", "OpenStackControlPlane", "Deployment", "DaemonSet", "Job"];

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<Outcome> {
    let name = target(&args.target)?;
    if args.source.from.is_empty() {
        return Err(Hinted {
            message: "no cluster to look at".into(),
            hint: "dump it with `kubectl get nodes,pods,pv,pvc,sc,... -A -o yaml > cluster.yaml`, then add --from cluster.yaml"
                .into(),
        }
        .into());
    }
    let dumped = cluster::read(&args.source.from, &OWNERS)?;
    let objects = Objects::from_items(dumped.items);
    let key = find(&objects, name, args.source.namespace.as_deref())?;
    let explanation = explain(&objects, &key, &dumped.kinds)?;
    match args.output {
        Format::Table | Format::Wide => output::text(&render(&explanation))?,
        Format::Json => output::json(&explanation)?,
        Format::Yaml => output::yaml(&explanation)?,
    }
    Ok(if explanation.state == State::Unknown { Outcome::No } else { Outcome::Yes })
}

/// The pod's name in `pod/NAME`.
fn target(target: &str) -> anyhow::Result<&str> {
    match target.split_once('/') {
        Some(("pod" | "pods" | "po", name)) if !name.is_empty() => Ok(name),
        _ => {
            Err(Hinted { message: format!("cannot explain {target:?}"), hint: "say which pod: pod/NAME".into() }.into())
        }
    }
}

/// The pod of that name: in the namespace that was given, or else in the only one that has it.
fn find(objects: &Objects, name: &str, namespace: Option<&str>) -> anyhow::Result<ObjectKey> {
    let found: Vec<&ObjectKey> = objects
        .of_kind("Pod")
        .map(|(key, _)| key)
        .filter(|key| key.name == name && namespace.is_none_or(|n| n == key.namespace))
        .collect();
    match (found.as_slice(), namespace) {
        ([key], _) => Ok((*key).clone()),
        ([], Some(namespace)) => bail!("pod {namespace}/{name} not found in the dump"),
        ([], None) => bail!("pod {name} not found in the dump"),
        (several, _) => {
            let namespaces: Vec<&str> = several.iter().map(|k| k.namespace.as_str()).collect();
            Err(Hinted {
                message: format!("pod {name} is in several namespaces: {}", namespaces.join(", ")),
                hint: "say which with -n".into(),
            }
            .into())
        }
    }
}
