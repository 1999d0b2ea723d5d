//! Paths to texts: files, standard input, directories, archives.

use std::collections::BTreeMap;
use std::fs::{self, File, FileType};
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;

use crate::budget::Budget;
use crate::collect::{Collector, Origin};
use crate::error::FileKind;
use crate::{DumpError, outline, text_table};

/// How compressed files start that are read.
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const XZ_MAGIC: &[u8] = b"\xfd7zXZ\0";

/// How much memory the decoder of xz may take, in KiB: four times what the highest level of compression needs.
const XZ_MEMORY: u32 = 256 << 10;

/// How files start that are compressed in other ways.
const OTHER_COMPRESSIONS: [(&[u8], &str); 3] =
    [(b"PK\x03\x04", "zip"), (b"BZh", "bzip2"), (b"\x28\xb5\x2f\xfd", "zstd")];

/// Directories of a must-gather, or of `oc adm inspect` output of more than one namespace.
const CLUSTER_SCOPED: &str = "cluster-scoped-resources";
const NAMESPACES: &str = "namespaces";

/// The directory of a support bundle's objects.
const BUNDLE: &str = "cluster-resources";

/// Names of archives inside an archive or a directory: an OpenStack must-gather has `rhoso-data.tar.xz` in `must-gather.tar`.
const NESTED_ARCHIVES: [&str; 5] = [".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz"];

/// Archives inside archives inside archives: more levels are not read.
const MAX_NESTING: usize = 3;

/// The directory of files from hosts, which are no objects.
const HOST_FILES: &str = "sos-reports";

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

/// Reads a file that the user named: a text or an archive, plain or compressed, detected by its first
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
    let mut whole = Cursor::new(head).chain(plain);
    if is_tar {
        return read_archive(name, 1, &mut whole, budget, collector);
    }
    let text = read_text(name, whole, size, budget).map_err(|broken| broken.error)?;
    collector.text(&Arc::from(name), &Arc::new(text), Origin::Named)?;
    Ok(())
}

fn read_error(file: String, source: io::Error) -> DumpError {
    DumpError::Read { file, source }
}

/// A stream without its compression, and whether it had one.
fn decompress<'a>(stream: impl Read + 'a) -> io::Result<(Box<dyn Read + 'a>, bool)> {
    let mut stream = BufReader::with_capacity(1 << 16, stream);
    let head = head(&mut stream, XZ_MAGIC.len())?;
    let (gzip, xz) = (head.starts_with(GZIP_MAGIC), head == XZ_MAGIC);
    let whole = Cursor::new(head).chain(stream);
    let plain: Box<dyn Read + 'a> = match (gzip, xz) {
        (true, _) => Box::new(MultiGzDecoder::new(whole)),
        (_, true) => Box::new(XzReader::new_mem_limit(whole, true, XZ_MEMORY)),
        _ => Box::new(whole),
    };
    Ok((plain, gzip || xz))
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
        let Some(content) = tree.accepts(inside) else { continue };
        let file = path.display().to_string();
        // For example a link whose target was not packed with it.
        if path.is_symlink() && !path.exists() {
            tree.skip(inside, format!("{file} is a broken link"));
            continue;
        }
        let opened = open(&path)?;
        let (plain, _) = decompress(opened).map_err(|source| budget.error(&file, source, read_error))?;
        let mut plain = budget.count(plain);
        match content {
            Content::Archive => tree.archive(inside, &file, 1, &mut plain, budget, collector)?,
            Content::Table(namespace, table) => tree.table(&namespace, table, &file, plain, budget, collector)?,
            Content::Objects => tree.file(inside, &file, plain, budget, collector)?,
        }
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

/// Reads an archive whose bytes already count against the budget. `level` is 1 for one that is in no other.
fn read_archive(
    archive: &str,
    level: usize,
    stream: &mut dyn Read,
    budget: &Budget,
    collector: &mut Collector<'_>,
) -> Result<(), DumpError> {
    let fail = |source| budget.error(archive, source, |archive, source| DumpError::Unpack { archive, source });
    let mut tree = Tree::default();
    let mut tar = tar::Archive::new(EndDetector::new(stream));
    for entry in tar.entries().map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let inside = entry.path().map_err(fail)?.into_owned();
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let Some(content) = tree.accepts(&inside) else { continue };
        let file = format!("{archive}: {}", inside.display());
        let (plain, compressed) = decompress(entry).map_err(|source| budget.error(&file, source, read_error))?;
        let mut plain: Box<dyn Read + '_> = if compressed { Box::new(budget.count(plain)) } else { plain };
        match content {
            Content::Archive => tree.archive(&inside, &file, level + 1, &mut plain, budget, collector)?,
            Content::Table(namespace, table) => tree.table(&namespace, table, &file, plain, budget, collector)?,
            Content::Objects => tree.file(&inside, &file, plain, budget, collector)?,
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

/// What a file may hold, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    Objects,
    Archive,
    /// A table about a namespace.
    Table(String, Table),
}

/// Tables in a namespace's folder of an OpenStack must-gather.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Table {
    Claims,
    Pods,
    Events,
}

/// The namespace, and what a file `namespaces/NAMESPACE/FILE` is a table of.
fn table_of_namespace(path: &Path) -> Option<(String, Table)> {
    let mut parts = path.iter().rev().filter_map(|part| part.to_str());
    let (file, namespace) = (parts.next()?, parts.next()?);
    let table = match file {
        "pvc.log" => Table::Claims,
        "all_resources.log" => Table::Pods,
        "events.log" => Table::Events,
        _ => return None,
    };
    (parts.next()? == NAMESPACES).then(|| (namespace.to_owned(), table))
}

/// A directory or an archive while it is read.
#[derive(Default)]
struct Tree {
    files: usize,
    must_gather: bool,
    /// Pods of which only the description is there.
    described: usize,
    /// The pods that tables name, by namespace and name, with their states.
    listed: BTreeMap<(String, String), String>,
    /// The last event of pods, by namespace and name.
    events: BTreeMap<(String, String), String>,
    /// Archives inside it that cannot be unpacked.
    unreadable: Vec<String>,
    /// Whether the file is one of a must-gather's resources, and why it was skipped.
    skipped: Vec<(bool, String)>,
}

impl Tree {
    /// What a file may hold, by its name.
    fn accepts(&mut self, inside: &Path) -> Option<Content> {
        self.must_gather |= has_directory(inside, CLUSTER_SCOPED) || has_directory(inside, BUNDLE);
        self.must_gather |= is_description(inside);
        let name = inside.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        // macOS adds such a file for each file of an archive.
        if name.starts_with("._") {
            return None;
        }
        if NESTED_ARCHIVES.iter().any(|ending| name.ends_with(ending)) {
            return (!has_directory(inside, HOST_FILES)).then_some(Content::Archive);
        }
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        if let Some((namespace, table)) = table_of_namespace(inside) {
            return Some(Content::Table(namespace, table));
        }
        let accepted = is_description(inside) || [".yaml", ".yml", ".json"].iter().any(|ending| name.ends_with(ending));
        self.files += usize::from(accepted);
        accepted.then_some(Content::Objects)
    }

    /// Reads a table that `oc get` printed.
    fn table(
        &mut self,
        namespace: &str,
        table: Table,
        file: &str,
        stream: impl Read,
        budget: &Budget,
        collector: &mut Collector<'_>,
    ) -> Result<(), DumpError> {
        let text = read_text(file, stream, 0, budget).map_err(|broken| broken.error)?;
        let key = |pod: &str| (namespace.to_owned(), pod.to_owned());
        match table {
            Table::Claims => collector.constructed(file, text_table::claims(&text, namespace))?,
            Table::Pods => {
                self.listed.extend(text_table::pods(&text).into_iter().map(|(pod, is)| (key(pod), is.into())))
            }
            Table::Events => {
                self.events.extend(text_table::pod_events(&text).into_iter().map(|(pod, event)| (key(pod), event)));
            }
        }
        Ok(())
    }

    /// Reads an archive that is in this directory or archive. One that is broken does not hide what is beside it.
    fn archive(
        &mut self,
        inside: &Path,
        file: &str,
        level: usize,
        stream: &mut dyn Read,
        budget: &Budget,
        collector: &mut Collector<'_>,
    ) -> Result<(), DumpError> {
        if level > MAX_NESTING {
            self.skip(inside, format!("{file} is inside of {MAX_NESTING} other archives"));
            return Ok(());
        }
        match read_archive(file, level, stream, budget, collector) {
            Ok(()) => self.files += 1,
            // For example logs.
            Err(DumpError::NoFiles { .. }) => {}
            Err(error @ DumpError::Unpack { .. }) => self.unreadable.push(with_causes(&error)),
            Err(error) => return Err(error),
        }
        Ok(())
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
            let pods = match self.described {
                1 => "1 pod is".to_owned(),
                number => format!("{number} pods are"),
            };
            collector.warnings.push(format!(
                "{name}: {pods} text of `oc describe`, which has no affinity, spread constraints, times or UIDs. `stead \
                 dump` or `oc adm inspect` collects them"
            ));
        }
        for (pod, state) in &self.listed {
            let (namespace, pod_name) = pod;
            if collector.lacks_pod(namespace, pod_name) {
                let event =
                    self.events.get(pod).map(|event| format!(", its last event is {event:?}")).unwrap_or_default();
                collector.warnings.push(format!(
                    "{name}: only the name of pod {namespace}/{pod_name} is there: it is {state}{event}. `stead dump` or `oc \
                     adm inspect` collects it"
                ));
            }
        }
        collector.warnings.extend(self.unreadable.iter().map(|why| format!("skipped: {why}")));
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
