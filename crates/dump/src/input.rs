//! Paths to texts: files, standard input, folders, archives.

use std::fs::{self, File};
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::MultiGzDecoder;

use crate::collect::{Collector, Strictness};
use crate::{DumpError, outline};

/// The most that is read of one file, unpacked: five times what a large cluster prints.
const MAX_FILE: u64 = 1 << 30;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// What tells a must-gather, and `oc adm inspect` output of more than a namespace, from a folder
/// that someone made.
const CLUSTER_SCOPED: &str = "cluster-scoped-resources";
const NAMESPACES: &str = "namespaces";

pub(crate) fn read_path(path: &Path, collector: &mut Collector<'_>) -> Result<(), DumpError> {
    if path.as_os_str() == "-" {
        return read_stream("standard input", io::stdin().lock(), collector);
    }
    let name = path.display().to_string();
    let fail = |source| DumpError::Read { file: name.clone(), source };
    if fs::metadata(path).map_err(fail)?.is_dir() {
        return read_folder(path, &name, collector);
    }
    read_stream(&name, File::open(path).map_err(fail)?, collector)
}

/// Reads a file that was named: a text or an archive, plain or gzipped, told by its first bytes.
fn read_stream(name: &str, stream: impl Read, collector: &mut Collector<'_>) -> Result<(), DumpError> {
    let fail = |source| DumpError::Read { file: name.to_owned(), source };
    let mut plain = unzip(stream).map_err(fail)?;
    let head = head(&mut plain, 512).map_err(fail)?;
    let is_tar = head.get(257..262) == Some(b"ustar");
    let whole = Cursor::new(head).chain(plain);
    if is_tar {
        return read_archive(name, whole, collector);
    }
    let (bytes, fault) = read_text(name, whole);
    if let Some(fault) = fault {
        return Err(fault);
    }
    let text = String::from_utf8_lossy(&bytes);
    collector.text(&Arc::from(name), &text, Strictness::Named)?;
    Ok(())
}

fn unzip<'a>(stream: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut stream = BufReader::with_capacity(1 << 16, stream);
    let head = head(&mut stream, GZIP_MAGIC.len())?;
    let zipped = head == GZIP_MAGIC;
    let whole = Cursor::new(head).chain(stream);
    Ok(if zipped { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) })
}

fn head(stream: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(length);
    stream.by_ref().take(length as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// The bytes of a file that should be text, as far as they can be read, and what is wrong.
fn read_text(file: &str, stream: impl Read) -> (Vec<u8>, Option<DumpError>) {
    let mut bytes = Vec::new();
    let outcome = stream.take(MAX_FILE + 1).read_to_end(&mut bytes);
    let file = || file.to_owned();
    let fault = match (outcome, str::from_utf8(&bytes)) {
        (Err(source), _) => Some(DumpError::Read { file: file(), source }),
        (Ok(length), _) if length as u64 > MAX_FILE => Some(DumpError::TooLarge { file: file(), limit: MAX_FILE }),
        (Ok(_), Err(source)) => Some(DumpError::NotText { file: file(), source }),
        (Ok(_), Ok(_)) => None,
    };
    (bytes, fault)
}

fn read_folder(folder: &Path, name: &str, collector: &mut Collector<'_>) -> Result<(), DumpError> {
    let mut tree = Tree::default();
    for path in files_below(folder)? {
        let inside = path.strip_prefix(folder).unwrap_or(&path);
        if !tree.admits(inside) {
            continue;
        }
        let file = path.display().to_string();
        // A link to what was not packed along with it.
        if path.is_symlink() && !path.exists() {
            tree.passed_over(inside, format!("{file} is a link to nothing"));
            continue;
        }
        let opened = File::open(&path).map_err(|source| DumpError::Read { file: file.clone(), source })?;
        tree.file(inside, &file, opened, collector)?;
    }
    tree.finish(name, collector)
}

/// All files below a folder, sorted by path. Links to folders are not followed: they may lead
/// round in circles.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>, DumpError> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let fail = |source| DumpError::Read { file: folder.display().to_string(), source };
        for entry in fs::read_dir(&folder).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let path = entry.path();
            if entry.file_type().map_err(fail)?.is_dir() {
                folders.push(path);
            } else if !path.is_dir() {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn read_archive(archive: &str, stream: impl Read, collector: &mut Collector<'_>) -> Result<(), DumpError> {
    let fail = |source| DumpError::Unpack { archive: archive.to_owned(), source };
    let mut tree = Tree::default();
    let mut tar = tar::Archive::new(Ending::new(stream));
    for entry in tar.entries().map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let inside = entry.path().map_err(fail)?.into_owned();
        if entry.header().entry_type().is_file() && tree.admits(&inside) {
            let file = format!("{archive}: {}", inside.display());
            tree.file(&inside, &file, entry, collector)?;
        }
    }
    tar.into_inner().finish().map_err(fail)?;
    tree.finish(archive, collector)
}

/// Tells whether the reader of an archive met the end of the stream. A whole archive says itself
/// where it ends, so one that does not was cut, even if it was cut between two files.
struct Ending<R> {
    stream: R,
    ended: bool,
}

impl<R: Read> Ending<R> {
    fn new(stream: R) -> Self {
        Self { stream, ended: false }
    }

    /// Reads what is left, too, so that gzip's checksum is compared.
    fn finish(mut self) -> io::Result<()> {
        if self.ended {
            let error = "the archive has no end: it was cut short";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, error));
        }
        io::copy(&mut self.stream, &mut io::sink()).map(drop)
    }
}

impl<R: Read> Read for Ending<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.stream.read(buffer)?;
        self.ended |= length == 0 && !buffer.is_empty();
        Ok(length)
    }
}

/// A folder or an archive while it is read.
#[derive(Default)]
struct Tree {
    files: usize,
    must_gather: bool,
    /// Whether the file lies among a must-gather's resources, and why it was passed over.
    passed_over: Vec<(bool, String)>,
}

impl Tree {
    fn admits(&mut self, inside: &Path) -> bool {
        self.must_gather |= has_folder(inside, CLUSTER_SCOPED);
        let name = inside.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        // What macOS puts beside each file of an archive.
        if name.starts_with("._") {
            return false;
        }
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        let admitted = [".yaml", ".yml", ".json"].iter().any(|ending| name.ends_with(ending));
        self.files += usize::from(admitted);
        admitted
    }

    fn passed_over(&mut self, inside: &Path, why: String) {
        let resource = has_folder(inside, CLUSTER_SCOPED) || has_folder(inside, NAMESPACES);
        self.passed_over.push((resource, why));
    }

    fn file(
        &mut self,
        inside: &Path,
        file: &str,
        stream: impl Read,
        collector: &mut Collector<'_>,
    ) -> Result<(), DumpError> {
        let plain = unzip(stream).map_err(|source| DumpError::Read { file: file.to_owned(), source })?;
        let (bytes, fault) = read_text(file, plain);
        // What there is of a broken file still tells whether the file matters.
        let text = String::from_utf8_lossy(&bytes);
        let outcome = match fault {
            Some(fault) => Err(fault),
            None if outline::all_unwanted(&text, collector.wanted) => Ok(Vec::new()),
            None => collector.text(&Arc::from(file), &text, Strictness::Found),
        };
        let faults = match outcome {
            Ok(strangers) => strangers,
            Err(fault) if outline::mentions_wanted(&text, collector.wanted) => return Err(fault),
            Err(fault) => vec![fault],
        };
        for fault in faults {
            self.passed_over(inside, with_causes(&fault));
        }
        Ok(())
    }

    /// A must-gather has logs, alerts and tables in JSON beside its resources; they are no news.
    fn finish(self, name: &str, collector: &mut Collector<'_>) -> Result<(), DumpError> {
        if self.files == 0 {
            return Err(DumpError::NoFiles { path: name.to_owned() });
        }
        let told = self.passed_over.into_iter().filter(|(resource, _)| *resource || !self.must_gather);
        collector.warnings.extend(told.map(|(_, why)| format!("passed over: {why}")));
        Ok(())
    }
}

fn has_folder(path: &Path, folder: &str) -> bool {
    path.parent().is_some_and(|parent| parent.iter().any(|part| part == folder))
}

fn with_causes(error: &DumpError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
