//! `stead manifests`: what an installation consists of.

use serde_json::{Value, json};
use stead_manifests::{manifests, recover_manifests};

use crate::args::{ManifestFormat, ManifestsArgs, OnlyPart};
use crate::output::{self, Outcome};

pub(crate) fn run(args: &ManifestsArgs) -> anyhow::Result<Outcome> {
    let mut all = match args.only {
        Some(OnlyPart::Recover) => recover_manifests(),
        // No CRD has an image.
        Some(OnlyPart::Crds) => manifests(&args.options.options_with(String::new())),
        Some(OnlyPart::Operator) | None => manifests(&args.options.options()?),
    };
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
