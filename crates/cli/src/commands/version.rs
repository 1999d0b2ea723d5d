//! `stead version`: what this program is, and whether the CRDs in the cluster are the same as its own.

use std::fmt::Write as _;

use anyhow::Context as _;
use serde::Serialize;
use stead_manifests::plan::definition_differences;
use stead_manifests::{Manifest, VERSION_ANNOTATION, definitions, is_ours, recovery};
use stead_model::KubernetesVersion;

use crate::args::{VersionArgs, VersionFormat};
use crate::build_info::{COMMIT, IMAGE, VERSION};
use crate::connect::connect;
use crate::live_object::LiveObject;
use crate::output::{self, ExitWith, Outcome};
use crate::server::{self, Server};

/// How many differences of one CRD are printed as text.
const SHOWN_DIFFERENCES: usize = 3;

/// What is printed as JSON or YAML.
#[derive(Debug, Serialize)]
struct VersionReport {
    version: &'static str,
    commit: &'static str,
    /// The default image of `stead install`.
    image: Option<&'static str>,
    kubernetes: SupportedVersions,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<DefinitionCheck>,
}

#[derive(Debug, Serialize)]
struct SupportedVersions {
    oldest: String,
    newest: String,
}

/// The comparison with a cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DefinitionCheck {
    server: String,
    server_version: String,
    /// Whether every CRD that has to be there is the same.
    same: bool,
    definitions: Vec<ComparedDefinition>,
}

#[derive(Debug, Serialize)]
struct ComparedDefinition {
    name: String,
    state: DefinitionState,
    /// The version of Stead that installed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differences: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum DefinitionState {
    Same,
    Differs,
    NotInstalled,
    /// Not installed, and needed only by `stead recover`, which creates it.
    NotNeeded,
    /// It belongs to someone else.
    Foreign,
}

impl DefinitionState {
    fn is_as_it_should_be(self) -> bool {
        !matches!(self, DefinitionState::Differs | DefinitionState::NotInstalled)
    }
}

pub(crate) fn run(args: &VersionArgs) -> anyhow::Result<Outcome> {
    let check = if args.check { Some(server::run(check(args)).map_err(ExitWith::NoAnswer)?) } else { None };
    let report = VersionReport {
        version: VERSION,
        commit: COMMIT.unwrap_or("unknown"),
        image: IMAGE,
        kubernetes: SupportedVersions {
            oldest: KubernetesVersion::OLDEST.to_string(),
            newest: KubernetesVersion::NEWEST.to_string(),
        },
        check,
    };
    match args.output {
        None => output::text(&report.text())?,
        Some(VersionFormat::Json) => output::json(&report)?,
        Some(VersionFormat::Yaml) => output::yaml(&report)?,
    }
    Ok(if report.check.is_none_or(|check| check.same) { Outcome::Yes } else { Outcome::No })
}

/// Compares the CRDs in the cluster with those of this version.
async fn check(args: &VersionArgs) -> anyhow::Result<DefinitionCheck> {
    let server = Server::new(connect(&args.connect).await?);
    let server_version = server.version().await.context("reading /version")?.git_version;
    let mut compared = Vec::new();
    for manifest in definitions() {
        compared.push(compare(&server, &manifest, DefinitionState::NotInstalled).await?);
    }
    compared.push(compare(&server, &recovery(), DefinitionState::NotNeeded).await?);
    let same = compared.iter().all(|definition| definition.state.is_as_it_should_be());
    Ok(DefinitionCheck { server: server.address().to_owned(), server_version, same, definitions: compared })
}

async fn compare(server: &Server, manifest: &Manifest, missing: DefinitionState) -> anyhow::Result<ComparedDefinition> {
    let name = manifest.name().to_owned();
    let Some(live) = server.get(&manifest.path()).await? else {
        return Ok(ComparedDefinition { name, state: missing, version: None, differences: Vec::new() });
    };
    if !is_ours(&live) {
        let state = DefinitionState::Foreign;
        return Ok(ComparedDefinition { name, state, version: None, differences: Vec::new() });
    }
    let annotations = LiveObject::read(manifest, &live)?.metadata.annotations.unwrap_or_default();
    let version = annotations.get(VERSION_ANNOTATION).cloned();
    let differences = definition_differences(manifest, &live);
    let state = if differences.is_empty() { DefinitionState::Same } else { DefinitionState::Differs };
    Ok(ComparedDefinition { name, state, version, differences })
}

impl VersionReport {
    fn text(&self) -> String {
        let mut text = String::new();
        if let Some(check) = &self.check {
            text.push_str(&check.verdict());
        }
        let SupportedVersions { oldest, newest } = &self.kubernetes;
        let _ = writeln!(text, "Stead:       {} (commit {})", self.version, self.commit);
        let _ = writeln!(text, "Kubernetes:  {oldest} to {newest}");
        if let Some(image) = self.image {
            let _ = writeln!(text, "Image:       {image}");
        }
        if let Some(check) = &self.check {
            let _ = writeln!(text, "Cluster:     {} (Kubernetes {})", check.server, check.server_version);
            text.push_str("CRDs:\n");
            check.definitions.iter().for_each(|definition| text.push_str(&definition.line()));
        }
        text
    }
}

impl DefinitionCheck {
    /// The first line.
    fn verdict(&self) -> String {
        let wrong = self.definitions.iter().filter(|definition| !definition.state.is_as_it_should_be()).count();
        let missing = |definition: &ComparedDefinition| definition.state == DefinitionState::NotInstalled;
        if wrong == 0 {
            return format!("The CRDs in the cluster match Stead {VERSION}.\n");
        }
        if self.definitions.iter().filter(|definition| missing(definition)).count() == definitions().len() {
            return "The operator's CRDs are not installed: run `stead install` or `helm install`.\n".to_owned();
        }
        let crds = if wrong == 1 { "1 CRD does" } else { &format!("{wrong} CRDs do") };
        format!("{crds} not match Stead {VERSION}: run `stead install` or `helm upgrade`.\n")
    }
}

impl ComparedDefinition {
    fn line(&self) -> String {
        let (word, more) = match self.state {
            DefinitionState::Same => ("same", String::new()),
            DefinitionState::Differs => ("differs", format!(": {}", self.shown_differences())),
            DefinitionState::NotInstalled => ("missing", String::new()),
            DefinitionState::NotNeeded => ("missing", ": `stead recover` creates it".to_owned()),
            DefinitionState::Foreign => ("foreign", ": it belongs to another installation".to_owned()),
        };
        let version = self.version.as_ref().filter(|version| *version != VERSION);
        let version = version.map_or(String::new(), |version| format!(" (from Stead {version})"));
        format!("  {word:7}  {}{version}{more}\n", self.name)
    }

    fn shown_differences(&self) -> String {
        let shown = self.differences.iter().take(SHOWN_DIFFERENCES).map(String::as_str);
        let mut shown = shown.collect::<Vec<_>>().join(", ");
        if self.differences.len() > SHOWN_DIFFERENCES {
            let _ = write!(shown, " and {} more", self.differences.len() - SHOWN_DIFFERENCES);
        }
        shown
    }
}
