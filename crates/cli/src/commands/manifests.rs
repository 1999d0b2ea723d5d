//! `stead manifests`: what an installation consists of.

use serde_json::{Value, json};
use stead_manifests::manifests;

use crate::args::{ManifestFormat, ManifestsArgs};
use crate::output::{self, Outcome};

pub(crate) fn run(args: &ManifestsArgs) -> anyhow::Result<Outcome> {
    let part = args.only.map(|only| only.part());
    let all = manifests(&args.options.options()).into_iter().filter(|m| part.is_none_or(|part| m.part == part));
    let objects: Vec<Value> = all.map(|m| m.object).collect();
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
