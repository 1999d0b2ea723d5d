//! An image: the host's own files, and what is added to them.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The images that pods can name. One that is not in the table is the host's files and nothing else.
#[derive(Debug, Clone, Default)]
pub struct Images(BTreeMap<String, Image>);

/// What an image adds to the host's files.
#[derive(Debug, Clone, Default)]
pub struct Image {
    pub(crate) files: Vec<(String, PathBuf)>,
    pub(crate) empty: Vec<String>,
    pub(crate) entrypoint: Vec<String>,
    pub(crate) cmd: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
}

impl Images {
    /// With this one too.
    pub fn with(mut self, name: impl Into<String>, image: Image) -> Images {
        self.0.insert(name.into(), image);
        self
    }

    /// The image of a name.
    pub(crate) fn get(&self, name: &str) -> Image {
        self.0.get(name).cloned().unwrap_or_default()
    }
}

impl Image {
    /// A file or directory of the host that is at this path in the image.
    pub fn file(mut self, path: impl Into<String>, source: impl Into<PathBuf>) -> Image {
        self.files.push((path.into(), source.into()));
        self
    }

    /// A directory that is empty in the image, whatever the host has there.
    pub fn empty(mut self, path: impl Into<String>) -> Image {
        self.empty.push(path.into());
        self
    }

    /// What is run where a container has no `command`.
    pub fn entrypoint<const N: usize>(mut self, words: [&str; N]) -> Image {
        self.entrypoint = words.map(str::to_owned).to_vec();
        self
    }

    /// The arguments where a container has neither `command` nor `args`.
    pub fn cmd<const N: usize>(mut self, words: [&str; N]) -> Image {
        self.cmd = words.map(str::to_owned).to_vec();
        self
    }

    /// A variable of the environment, which a container's own goes before.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Image {
        self.env.push((name.into(), value.into()));
        self
    }
}
