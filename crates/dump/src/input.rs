//! Paths to texts: files, standard input, directories, archives.

use std::fs::{self, File, FileType};
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::MultiGzDecoder;

use crate::budget::Budget;
use crate::collect::{Collector, Origin};
use crate::error::FileKind;
use crate::{DumpError, outline};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// How files start that are compressed in other ways.
const OTHER_COMPRESSIONS: [(&[u8], &str); 4] =
    [(b"\xfd7zXZ\0", "xz"), (b"PK\x03\x04", "zip"), (b"BZh", "bzip2"), (b"\x28\xb5\x2f\xfd", "zstd")];

/// Directories of a must-gather, or of `oc adm inspect` output of more than one namespace.
const CLUSTER_SCOPED: &str = "cluster-scoped-resources";
const NAMESPACES: &str = "namespaces";

/// The directory of a support bundle's objects.
const BUNDLE: &str = "cluster-resources";

/// Archives inside an archive or a directory, which are not read.
const NESTED_ARCHIVES: [&str; 4] = [".tar.gz", ".tgz", ".tar.xz", ".zip"];

pub(crate) fn read_path(path: &Path, budget: &Budget, collector: &mut Collector<'_>) -> Result<(), DumpError> {
    if path.as_os_str() == "-" {
        return read_stream("standard input", io::stdin().lock(), 0, budget, collector);
    }
    let name = path.display().to_string();
    let fail = |source| DumpError::Read { file: name.clone(), source };
    let metadata = fs::metadata(path).map_err(fail)?;
    if metadata.is_dir() {
        return read_directory(path, &name, budget, collector);
    }
    read_stream(&name, open(path)?, metadata.len(), budget, collector)
}

/// Opens a regular file. Opening a FIFO would block until a process writes to it, and a device may
/// never end, so neither is opened.
fn open(path: &Path) -> Result<File, DumpError> {
    let fail = |source| DumpError::Read { file: path.display().to_string(), source };
    match special(fs::metadata(path).map_err(fail)?.file_type()) {
        Some(kind) => Err(DumpError::SpecialFile { path: path.display().to_string(), kind }),
        None => File::open(path).map_err(fail),
    }
}

#[cfg(unix)]
fn special(file: FileType) -> Option<FileKind> {
    use std::os::unix::fs::FileTypeExt;
    match file {
        file if file.is_file() => None,
        file if file.is_fifo() => Some(FileKind::Fifo),
        file if file.is_socket() => Some(FileKind::Socket),
        _ => Some(FileKind::Device),
    }
}

#[cfg(not(unix))]
fn special(file: FileType) -> Option<FileKind> {
    (!file.is_file()).then_some(FileKind::Device)
}

/// Reads a file that the user named: a text or an archive, plain or gzipped, detected by its first
/// bytes. It has about `size` bytes.
fn read_stream(
    name: &str,
    stream: impl Read,
    size: u64,
    budget: &Budget,
    collector: &mut Collector<'_>,
) -> Result<(), DumpError> {
    let fail = |source| budget.error(name, source, read_error);
    let (plain, _) = decompress(stream).map_err(fail)?;
    let mut plain = budget.count(plain);
    let head = head(&mut plain, 512).map_err(fail)?;
    if let Some((_, format)) = OTHER_COMPRESSIONS.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Err(DumpError::OtherCompression { file: name.to_owned(), format });
    }
    let is_tar = head.get(257..262) == Some(b"ustar");
    let whole = Cursor::new(head).chain(plain);
    if is_tar {
        return read_archive(name, whole, budget, collector);
    }
    let text = read_text(name, whole, size, budget).map_err(|broken| broken.error)?;
    collector.text(&Arc::from(name), &Arc::new(text), Origin::Named)?;
    Ok(())
}

fn read_error(file: String, source: io::Error) -> DumpError {
    DumpError::Read { file, source }
}

/// A stream without its gzip compression, and whether it had one.
fn decompress<'a>(stream: impl Read + 'a) -> io::Result<(Box<dyn Read + 'a>, bool)> {
    let mut stream = BufReader::with_capacity(1 << 16, stream);
    let head = head(&mut stream, GZIP_MAGIC.len())?;
    let zipped = head == GZIP_MAGIC;
    let whole = Cursor::new(head).chain(stream);
    Ok((if zipped { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) }, zipped))
}

fn head(stream: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(length);
    stream.by_ref().take(length as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// A file that is not complete text: the error, and the part that could be read.
struct BrokenText {
    error: DumpError,
    readable: String,
}

fn read_text(file: &str, mut stream: impl Read, size: u64, budget: &Budget) -> Result<String, BrokenText> {
    // A buffer that grows would be copied several times. The end is found by reading a little more than there is.
    let mut bytes = Vec::with_capacity(budget.at_most(size) + 64);
    let broken = |error, bytes: &[u8]| BrokenText { error, readable: String::from_utf8_lossy(bytes).into_owned() };
    if let Err(source) = stream.read_to_end(&mut bytes) {
        return Err(broken(budget.error(file, source, read_error), &bytes));
    }
    String::from_utf8(bytes).map_err(|invalid| {
        let error = DumpError::NotText { file: file.to_owned(), source: invalid.utf8_error() };
        broken(error, invalid.as_bytes())
    })
}

fn read_directory(
    directory: &Path,
    name: &str,
    budget: &Budget,
    collector: &mut Collector<'_>,
) -> Result<(), DumpError> {
    let mut tree = Tree::default();
    for path in files_below(directory)? {
        let inside = path.strip_prefix(directory).unwrap_or(&path);
        if !tree.accepts(inside) {
            continue;
        }
        let file = path.display().to_string();
        // For example a link whose target was not packed with it.
        if path.is_symlink() && !path.exists() {
            tree.skip(inside, format!("{file} is a broken link"));
            continue;
        }
        let opened = open(&path)?;
        let (plain, _) = decompress(opened).map_err(|source| budget.error(&file, source, read_error))?;
        tree.file(inside, &file, budget.count(plain), budget, collector)?;
    }
    tree.finish(name, collector)
}

/// All files below a directory, sorted by path. Links to directories are not followed: they may
/// form a loop.
fn files_below(directory: &Path) -> Result<Vec<PathBuf>, DumpError> {
    let mut files = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        let fail = |source| DumpError::Read { file: directory.display().to_string(), source };
        for entry in fs::read_dir(&directory).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let path = entry.path();
            if entry.file_type().map_err(fail)?.is_dir() {
                directories.push(path);
            } else if !path.is_dir() {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Reads an archive whose bytes already count against the budget.
fn read_archive(
    archive: &str,
    stream: impl Read,
    budget: &Budget,
    collector: &mut Collector<'_>,
) -> Result<(), DumpError> {
    let fail = |source| budget.error(archive, source, |archive, source| DumpError::Unpack { archive, source });
    let mut tree = Tree::default();
    let mut tar = tar::Archive::new(EndDetector::new(stream));
    for entry in tar.entries().map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let inside = entry.path().map_err(fail)?.into_owned();
        if entry.header().entry_type().is_file() && tree.accepts(&inside) {
            let file = format!("{archive}: {}", inside.display());
            let (plain, zipped) = decompress(entry).map_err(|source| budget.error(&file, source, read_error))?;
            if zipped {
                tree.file(&inside, &file, budget.count(plain), budget, collector)?;
            } else {
                tree.file(&inside, &file, plain, budget, collector)?;
            }
        }
    }
    tar.into_inner().finish().map_err(fail)?;
    tree.finish(archive, collector)
}

/// Detects whether the reader of an archive met the end of the stream. A complete archive has an
/// end marker, so one without it was truncated, even if it was truncated between two files.
struct EndDetector<R> {
    stream: R,
    ended: bool,
}

impl<R: Read> EndDetector<R> {
    fn new(stream: R) -> Self {
        Self { stream, ended: false }
    }

    /// Also reads what is left, so that gzip's checksum is compared.
    fn finish(mut self) -> io::Result<()> {
        if self.ended {
            let error = "the archive has no end marker: it was truncated";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, error));
        }
        io::copy(&mut self.stream, &mut io::sink()).map(drop)
    }
}

impl<R: Read> Read for EndDetector<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.stream.read(buffer)?;
        self.ended |= length == 0 && !buffer.is_empty();
        Ok(length)
    }
}

/// A directory or an archive while it is read.
#[derive(Default)]
struct Tree {
    files: usize,
    must_gather: bool,
    /// Pods of which only the description is there.
    described: usize,
    /// Archives inside it that look like parts of a must-gather.
    nested: Vec<String>,
    /// Whether the file is one of a must-gather's resources, and why it was skipped.
    skipped: Vec<(bool, String)>,
}

impl Tree {
    /// Whether a file's name says that it may hold objects.
    fn accepts(&mut self, inside: &Path) -> bool {
        self.must_gather |= has_directory(inside, CLUSTER_SCOPED) || has_directory(inside, BUNDLE);
        self.must_gather |= is_description(inside);
        let name = inside.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        // macOS adds such a file for each file of an archive.
        if name.starts_with("._") {
            return false;
        }
        if NESTED_ARCHIVES.iter().any(|ending| name.ends_with(ending)) {
            self.nested.push(inside.display().to_string());
            return false;
        }
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        let accepted = is_description(inside) || [".yaml", ".yml", ".json"].iter().any(|ending| name.ends_with(ending));
        self.files += usize::from(accepted);
        accepted
    }

    fn skip(&mut self, inside: &Path, why: String) {
        let resource = has_directory(inside, CLUSTER_SCOPED) || has_directory(inside, NAMESPACES);
        self.skipped.push((resource, why));
    }

    fn file(
        &mut self,
        inside: &Path,
        file: &str,
        stream: impl Read,
        budget: &Budget,
        collector: &mut Collector<'_>,
    ) -> Result<(), DumpError> {
        if is_description(inside) {
            let text = read_text(file, stream, 0, budget).map_err(|broken| broken.error)?;
            let described = collector.described(file, &text)?;
            self.described += usize::from(described);
            return Ok(());
        }
        let (text, outcome) = match read_text(file, stream, 0, budget) {
            // The readable part of a broken file still shows whether the file matters.
            Err(broken) => (Arc::new(broken.readable), Err(broken.error)),
            Ok(text) if outline::all_unwanted(&text, collector.wanted) => (Arc::new(text), Ok(Vec::new())),
            Ok(text) => {
                let text = Arc::new(text);
                let outcome = collector.text(&Arc::from(file), &text, Origin::Found);
                (text, outcome)
            }
        };
        let errors = match outcome {
            Ok(not_objects) => not_objects,
            Err(error @ DumpError::TooLarge { .. }) => return Err(error),
            Err(error) if outline::mentions_wanted(&text, collector.wanted) => return Err(error),
            Err(error) => vec![error],
        };
        for error in errors {
            self.skip(inside, with_causes(&error));
        }
        Ok(())
    }

    /// A must-gather has logs, alerts and tables in JSON beside its resources: these are skipped
    /// without a warning.
    fn finish(self, name: &str, collector: &mut Collector<'_>) -> Result<(), DumpError> {
        if self.files == 0 {
            return Err(DumpError::NoFiles { path: name.to_owned() });
        }
        if self.described > 0 {
            collector.warnings.push(format!(
                "{name}: {} pods are text of `oc describe`, which has no affinity, spread constraints, times or UIDs; pods \
                 without a node, events and claims are missing. `stead dump` or `oc adm inspect` collects them",
                self.described
            ));
        }
        if !self.nested.is_empty() {
            let nested = self.nested.join(", ");
            collector
                .warnings
                .push(format!("{name}: archives inside it are not read: {nested}; unpack them, and name them too"));
        }
        let reported = self.skipped.into_iter().filter(|(resource, _)| *resource || !self.must_gather);
        collector.warnings.extend(reported.map(|(_, why)| format!("skipped: {why}")));
        Ok(())
    }
}

/// Whether a file is the description of a pod, `pods/POD/POD-describe`, of an older OpenStack must-gather.
fn is_description(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    has_directory(path, "pods") && name.ends_with("-describe")
}

fn has_directory(path: &Path, directory: &str) -> bool {
    path.parent().is_some_and(|parent| parent.iter().any(|part| part == directory))
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
