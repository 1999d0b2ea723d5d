//! `stead manifests`: what an installation consists of.

use serde_json::{Value, json};
use stead_manifests::{UNCHECKED, manifests, recover_manifests};

use crate::args::{ManifestFormat, ManifestsArgs, OnlyPart};
use crate::output::{self, Outcome};
use crate::version;

pub(crate) fn run(args: &ManifestsArgs) -> anyhow::Result<Outcome> {
    let version = args.kubernetes.map(|version| version.used).unwrap_or_default();
    let mut all = match args.only {
        Some(OnlyPart::Recover) => recover_manifests(),
        // No CRD has an image.
        Some(OnlyPart::Crds) => manifests(&args.options.options(version, String::new())),
        Some(OnlyPart::Operator) | None => manifests(&args.options.options(version, args.options.operator_image()?)),
    };
    let with_definitions = matches!(args.only, None | Some(OnlyPart::Crds));
    if with_definitions && !version::has_admission_policies(version) {
        version::tell_unchecked(version, UNCHECKED);
    }
    if let Some(part) = args.only.and_then(OnlyPart::part) {
        all.retain(|manifest| manifest.part == part);
    }
    let objects: Vec<Value> = all.into_iter().map(|m| m.object).collect();
    match args.output {
        ManifestFormat::Json => output::json(&json!({"apiVersion": "v1", "kind": "List", "items": objects}))?,
        ManifestFormat::Yaml => {
            for object in &objects {
                output::text("---\n")?;
                output::yaml(object)?;
            }
        }
    }
    Ok(Outcome::Yes)
}
