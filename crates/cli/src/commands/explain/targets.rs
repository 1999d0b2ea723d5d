//! What `stead explain` is asked about: `KIND NAME...`, `KIND/NAME...` or `KIND`, as kubectl takes them.

use anyhow::anyhow;
use stead_model::Kind;

use crate::output::{ExitWith, Hinted};

/// The kinds that can be explained, with kubectl's short names. The first word is the one that is suggested.
const EXPLAINED: [(&str, &[&str]); 14] = [
    ("Pod", &["pod", "po"]),
    ("Node", &["node", "no"]),
    ("StatefulSet", &["sts"]),
    ("Deployment", &["deploy"]),
    ("DaemonSet", &["ds"]),
    ("Job", &["job"]),
    ("PersistentVolumeClaim", &["pvc"]),
    ("PersistentVolume", &["pv"]),
    ("PodDisruptionBudget", &["pdb"]),
    ("Namespace", &["ns"]),
    ("Topology", &["topology", "topo"]),
    ("Glance", &["glance"]),
    ("GlanceAPI", &["glanceapi"]),
    ("OpenStackControlPlane", &["oscp", "osctlplane", "osctlplanes"]),
];

/// The kinds that can be explained, each with the word that is suggested for it.
pub(crate) fn explained_kinds() -> Vec<(&'static str, &'static Kind)> {
    EXPLAINED.iter().map(|(kind, words)| (words[0], Kind::known(kind))).collect()
}

/// What to explain.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Targets<'a> {
    /// Everything that is stuck.
    Everything,
    /// The objects of a kind that the selectors select.
    Selected(&'static Kind),
    /// These objects.
    Named(Vec<(&'static Kind, &'a str)>),
}

/// Parses the arguments.
pub(super) fn parse(arguments: &[String]) -> anyhow::Result<Targets<'_>> {
    let Some((first, names)) = arguments.split_first() else { return Ok(Targets::Everything) };
    if first.contains('/') {
        let pairs = arguments.iter().map(|argument| match argument.split_once('/') {
            Some((word, name)) => Ok((kind(word)?, named(argument, name)?)),
            None => Err(usage(format!("cannot explain {argument:?} after {first:?}: it has no kind"))),
        });
        return Ok(Targets::Named(pairs.collect::<anyhow::Result<_>>()?));
    }
    let kind = kind(first)?;
    if names.is_empty() {
        return Ok(Targets::Selected(kind));
    }
    let names = names.iter().map(|name| match name.contains('/') {
        true => Err(usage(format!("cannot explain {name:?} after {first:?}: the kind is given twice"))),
        false => Ok((kind, named(name, name)?)),
    });
    Ok(Targets::Named(names.collect::<anyhow::Result<_>>()?))
}

fn named<'a>(argument: &str, name: &'a str) -> anyhow::Result<&'a str> {
    if name.is_empty() { Err(usage(format!("cannot explain {argument:?}: the name is missing"))) } else { Ok(name) }
}

/// The kind of a word: singular, plural or short name in any case, alone or with its API group.
fn kind(word: &str) -> anyhow::Result<&'static Kind> {
    let lower = word.to_lowercase();
    let (name, group) = lower.split_once('.').map_or((lower.as_str(), None), |(name, group)| (name, Some(group)));
    let found = EXPLAINED.iter().find_map(|(kind, words)| {
        let kind = Kind::known(kind);
        let is_named = name == kind.plural || name == kind.kind.to_lowercase() || words.contains(&name);
        // `statefulsets.apps` or, with the version, `statefulsets.v1.apps`.
        let in_group = group.is_none_or(|group| {
            group == kind.group() || group.split_once('.').is_some_and(|(_, group)| group == kind.group())
        });
        (is_named && in_group).then_some(kind)
    });
    found.ok_or_else(|| usage(format!("cannot explain {word:?}: not a kind that can be explained")))
}

fn usage(message: String) -> anyhow::Error {
    let kinds: Vec<&str> = explained_kinds().into_iter().map(|(word, _)| word).collect();
    let hint = format!("use KIND NAME or KIND/NAME; kinds: {}", kinds.join(", "));
    ExitWith::Usage(anyhow!(Hinted { message, hint })).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(arguments: &[&str]) -> String {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        match parse(&arguments) {
            Ok(Targets::Everything) => "everything".into(),
            Ok(Targets::Selected(kind)) => format!("every {}", kind.kind),
            Ok(Targets::Named(named)) => {
                named.iter().map(|(kind, name)| format!("{} {name}", kind.kind)).collect::<Vec<_>>().join(", ")
            }
            Err(error) => format!("{:#}", error.downcast::<ExitWith>().expect("a usage error")),
        }
    }

    #[test]
    fn arguments_are_read_as_kubectl_reads_them() {
        for (arguments, read) in [
            (&[][..], "everything"),
            (&["pod", "web-0"], "Pod web-0"),
            (&["po", "web-0", "web-1"], "Pod web-0, Pod web-1"),
            (&["pod/web-0", "pvc/data-web-0"], "Pod web-0, PersistentVolumeClaim data-web-0"),
            (&["STS/web"], "StatefulSet web"),
            (&["statefulsets.apps/web"], "StatefulSet web"),
            (&["deployments.v1.apps", "web"], "Deployment web"),
            (&["oscp", "controlplane"], "OpenStackControlPlane controlplane"),
            (&["topologies.topology.openstack.org", "t"], "Topology t"),
            (&["pods"], "every Pod"),
            (&["pod/web-0", "web-1"], "cannot explain \"web-1\" after \"pod/web-0\": it has no kind"),
            (&["pod", "pod/web-0"], "cannot explain \"pod/web-0\" after \"pod\": the kind is given twice"),
            (&["pod/"], "cannot explain \"pod/\": the name is missing"),
            (&["web-0"], "cannot explain \"web-0\": not a kind that can be explained"),
            (&["pods.apps/x"], "cannot explain \"pods.apps\": not a kind that can be explained"),
        ] {
            assert_eq!(words(arguments), read, "{arguments:?}");
        }
    }
}
