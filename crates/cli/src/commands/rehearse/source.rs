//! Finds rehearsals and reads them, with the line and column of whatever is wrong.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use serde::Deserialize;
use stead_dump::{LocatedDocument, located_documents};
use stead_kubectl::KubectlCommand;
use stead_whatif::{Manifests, Rehearsal};

use super::shipped::SHIPPED;
use crate::cluster::read_file;
use crate::output::{ExitWith, Hinted};

/// A file with rehearsals.
pub(super) struct Text {
    /// What to call it in messages.
    place: String,
    /// The folder that other files are relative to; none for a shipped file.
    folder: Option<PathBuf>,
    pub(super) text: String,
}

/// A rehearsal that was read.
pub(super) struct Source {
    pub(super) rehearsal: Rehearsal,
    /// The files that its commands name.
    pub(super) manifests: Manifests,
    /// How to name it on the command line.
    pub(super) argument: String,
    place: String,
    folder: Option<PathBuf>,
    document: LocatedDocument,
}

/// Something is wrong with a rehearsal.
#[derive(Debug)]
struct BrokenFile(String);

impl fmt::Display for BrokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BrokenFile {}

fn broken(message: String) -> anyhow::Error {
    ExitWith::Usage(anyhow::Error::new(BrokenFile(message))).into()
}

/// Whether a word on the command line is a path, and not a name.
fn is_path(word: &str) -> bool {
    let extension = Path::new(word).extension().and_then(|extension| extension.to_str());
    word == "-" || word.contains('/') || matches!(extension, Some("yaml" | "yml" | "json")) || Path::new(word).exists()
}

/// The text of a file or of a shipped rehearsal.
pub(super) fn text(word: &str) -> anyhow::Result<Text> {
    if !is_path(word) {
        let Some(shipped) = SHIPPED.iter().find(|shipped| shipped.name == word) else {
            let message = format!("there is no rehearsal {word:?}: it is neither a file nor the name of a shipped one");
            let names: Vec<&str> = SHIPPED.iter().map(|shipped| shipped.name).collect();
            let hint = format!("the shipped ones are {}", names.join(", "));
            return Err(ExitWith::Usage(Hinted { message, hint }.into()).into());
        };
        return Ok(Text { place: format!("{word}.yaml"), folder: None, text: shipped.text.to_owned() });
    }
    let read = if word == "-" { standard_input() } else { std::fs::read(word).map_err(anyhow::Error::from) };
    let bytes = read.with_context(|| format!("cannot read {word}")).map_err(ExitWith::NoAnswer)?;
    let text = String::from_utf8(bytes).map_err(|_| broken(format!("{word}: not UTF-8 text")))?;
    let folder = Path::new(word).parent().map(Path::to_path_buf).filter(|_| word != "-").unwrap_or_default();
    let place = if word == "-" { "standard input".to_owned() } else { word.to_owned() };
    Ok(Text { place, folder: Some(folder), text })
}

fn standard_input() -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The rehearsals of a file.
pub(super) fn read(word: &str) -> anyhow::Result<Vec<Source>> {
    let Text { place, folder, text } = text(word)?;
    let documents = located_documents(&text)
        .map_err(|error| broken(format!("{place}:{}:{}: {}", error.line, error.column, error.problem)))?;
    if documents.is_empty() {
        return Err(broken(format!("{place}: the file has no rehearsal")));
    }
    let parse = |document: LocatedDocument| {
        let mut source = Source {
            rehearsal: parse(&place, &document)?,
            manifests: Manifests::default(),
            argument: word.to_owned(),
            place: place.clone(),
            folder: folder.clone(),
            document,
        };
        source.rehearsal.check().map_err(|error| source.broken(&error.field, &error.message))?;
        source.read_manifests()?;
        Ok(source)
    };
    documents.into_iter().map(parse).collect()
}

fn parse(place: &str, document: &LocatedDocument) -> anyhow::Result<Rehearsal> {
    let mut track = serde_path_to_error::Track::new();
    let deserializer = serde_path_to_error::Deserializer::new(&document.value, &mut track);
    Rehearsal::deserialize(deserializer).map_err(|error| {
        let path = track.path().to_string();
        // Of a missing field the path is that of what it is missing in; "." is the document.
        let field = if path == "." { "" } else { &path };
        broken(located(place, document, field, &error.to_string()))
    })
}

/// A message with file, line, column and field.
fn located(place: &str, document: &LocatedDocument, field: &str, message: &str) -> String {
    let at = document.position(field);
    let field = if field.is_empty() { String::new() } else { format!("{field}: ") };
    format!("{place}:{}:{}: {field}{message}", at.line, at.column)
}

impl Source {
    /// An error about a field.
    pub(super) fn broken(&self, field: &str, message: &str) -> anyhow::Error {
        broken(located(&self.place, &self.document, field, message))
    }

    /// A path in the rehearsal, which is relative to its file.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.folder.as_ref().map_or_else(|| PathBuf::from(path), |folder| folder.join(path))
    }

    /// Reads the files that the commands name.
    fn read_manifests(&mut self) -> anyhow::Result<()> {
        for (i, step) in self.rehearsal.steps.iter().enumerate() {
            let Some(command) = step.run.as_ref().and_then(|line| KubectlCommand::parse(line).ok()) else { continue };
            for file in command.action.files() {
                if file == "-" {
                    continue;
                }
                let path = self.path(file);
                let objects = match &self.folder {
                    Some(_) => read_file(&path),
                    None => Err(anyhow!("a shipped rehearsal has no files beside it")),
                };
                let problem = |error: anyhow::Error| self.broken(&format!("steps[{i}].run"), &format!("{error:#}"));
                self.manifests.add(file.as_str(), objects.map_err(problem)?);
            }
        }
        Ok(())
    }
}
