//! Images: the host's files with additions.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The images by name. An unknown image is the host's files without additions.
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
    /// Adds an image.
    pub fn with(mut self, name: impl Into<String>, image: Image) -> Images {
        self.0.insert(name.into(), image);
        self
    }

    /// Returns the image of this name.
    pub(crate) fn get(&self, name: &str) -> Image {
        self.0.get(name).cloned().unwrap_or_default()
    }
}

impl Image {
    /// Adds a file or directory of the host at this path.
    pub fn file(mut self, path: impl Into<String>, source: impl Into<PathBuf>) -> Image {
        self.files.push((path.into(), source.into()));
        self
    }

    /// Makes a directory empty, whatever the host has there.
    pub fn empty(mut self, path: impl Into<String>) -> Image {
        self.empty.push(path.into());
        self
    }

    /// Sets the command of containers without `command`.
    pub fn entrypoint<const N: usize>(mut self, command: [&str; N]) -> Image {
        self.entrypoint = command.map(str::to_owned).to_vec();
        self
    }

    /// Sets the arguments of containers with neither `command` nor `args`.
    pub fn cmd<const N: usize>(mut self, command: [&str; N]) -> Image {
        self.cmd = command.map(str::to_owned).to_vec();
        self
    }

    /// Sets an environment variable. The container's variables override it.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Image {
        self.env.push((name.into(), value.into()));
        self
    }
}
