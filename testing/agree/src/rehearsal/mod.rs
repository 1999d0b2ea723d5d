//! Rehearsals, played on the real control plane and in the simulation: the same steps, the same checks.

mod arm;
mod cluster;
mod shifted_time;

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use jiff::SignedDuration;
use serde::Deserialize;
use stead_dump::located_documents;
use stead_kubectl::KubectlCommand;
use stead_testbed::Binaries;
use stead_whatif::{Manifests, PlayedStep, Rehearsal, Scene, play, play_steps};

use arm::{RealArm, is_about_kubelet};

/// A rehearsal that both arms have played.
#[derive(Debug)]
pub struct PlayedRehearsal {
    /// Its name.
    pub name: String,
    /// How many steps it has.
    steps: usize,
    /// How many checks are about events of kubelets, which the stand-ins do not report.
    unjudged: usize,
    /// What the simulation did.
    simulated: Vec<PlayedStep>,
    /// What the real control plane did.
    real: Vec<PlayedStep>,
}

impl PlayedRehearsal {
    /// Whether both arms passed all steps, or failed at the same one.
    pub fn agrees(&self) -> bool {
        failed(&self.simulated).map(|step| step.index) == failed(&self.real).map(|step| step.index)
    }
}

fn failed(steps: &[PlayedStep]) -> Option<&PlayedStep> {
    steps.iter().find(|step| step.failure.is_some())
}

impl fmt::Display for PlayedRehearsal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        if self.agrees() && failed(&self.real).is_none() {
            let unjudged = match self.unjudged {
                0 => String::new(),
                1 => "; 1 check of a kubelet's event is not made on the real one".to_owned(),
                count => format!("; {count} checks of kubelets' events are not made on the real one"),
            };
            return write!(f, "{name} agrees: both arms pass its {} steps{unjudged}", self.steps);
        }
        write!(f, "{name} {}:", if self.agrees() { "agrees" } else { "differs" })?;
        for (arm, steps) in [("real", &self.real), ("simulated", &self.simulated)] {
            match failed(steps) {
                None => write!(f, "\n    {arm}: passes its {} steps", self.steps)?,
                Some(step) => {
                    let problem = step.failure.as_deref().unwrap_or_default().replace('\n', "\n        ");
                    write!(f, "\n    {arm}: step {} ({}) fails: {problem}", step.index, step.title)?;
                }
            }
        }
        Ok(())
    }
}

/// Plays all rehearsals of a file both ways. A longer skip than this is shortened on the real control plane.
pub async fn play_both(binaries: &Binaries, path: &Path, longest_skip: SignedDuration) -> Result<Vec<PlayedRehearsal>> {
    let mut played = Vec::new();
    for (rehearsal, manifests) in read(path)? {
        let name = rehearsal.metadata.name.clone();
        let cluster = &rehearsal.cluster;
        ensure!(
            cluster.from.is_none() && !cluster.live,
            "{name}: cluster: only `example` and `objects` can be set up on a real control plane"
        );
        let scene = Scene::new(&rehearsal, None).with_context(|| format!("{name}: its cluster"))?;
        let start = scene.start(0).with_context(|| format!("{name}: its cluster"))?;
        let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        let mut arm = RealArm::start(binaries, &rehearsal, &start, folder, longest_skip).await?;
        let (real, rehearsal, files) = {
            let (rehearsal, files) = (rehearsal.clone(), manifests.clone());
            // The arm blocks its thread while it waits.
            let steps = tokio::task::spawn_blocking(move || {
                let steps = play_steps(&rehearsal, &mut arm, &files);
                (steps, rehearsal, files)
            });
            steps.await?
        };
        let simulated = play(&rehearsal, start, &files).steps;
        let expectations = rehearsal.steps.iter().filter_map(|step| step.expect.as_ref());
        let unjudged = expectations.filter(|expectation| is_about_kubelet(expectation)).count();
        played.push(PlayedRehearsal { name, steps: rehearsal.steps.len(), unjudged, simulated, real });
    }
    Ok(played)
}

/// The rehearsals of a file, with the objects of the files that their commands name.
fn read(path: &Path) -> Result<Vec<(Rehearsal, Manifests)>> {
    let mut rehearsals = Vec::new();
    for value in documents(path)? {
        let rehearsal = Rehearsal::deserialize(&value).with_context(|| path.display().to_string())?;
        rehearsal.check().with_context(|| path.display().to_string())?;
        let mut manifests = Manifests::default();
        for step in &rehearsal.steps {
            let Some(command) = step.run.as_ref().and_then(|line| KubectlCommand::parse(line).ok()) else { continue };
            for file in command.action.files().iter().filter(|file| *file != "-") {
                let folder = path.parent().unwrap_or_else(|| Path::new("."));
                manifests.add(file.as_str(), documents(&folder.join(file))?);
            }
        }
        rehearsals.push((rehearsal, manifests));
    }
    Ok(rehearsals)
}

fn documents(path: &Path) -> Result<Vec<serde_json::Value>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let documents = located_documents(&text)
        .map_err(|error| anyhow!("{}:{}:{}: {}", path.display(), error.line, error.column, error.problem))?;
    Ok(documents.into_iter().map(|document| document.value).collect())
}
