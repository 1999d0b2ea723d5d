//! Reproducible archives and digests: no user names, no times but the commit's.

use std::io::Write;

use anyhow::Result;
use flate2::{Compression, GzBuilder};
use sha2::{Digest, Sha256};

/// A file for an archive.
#[derive(Debug, Clone)]
pub(crate) struct ArchiveFile {
    /// Its path in the archive.
    pub(crate) path: String,
    /// Whether it can be run.
    pub(crate) executable: bool,
    /// What is in it.
    pub(crate) content: Vec<u8>,
}

impl ArchiveFile {
    /// A file that cannot be run.
    pub(crate) fn new(path: impl Into<String>, content: impl Into<Vec<u8>>) -> ArchiveFile {
        ArchiveFile { path: path.into(), executable: false, content: content.into() }
    }

    /// A file that can be run.
    pub(crate) fn executable(path: impl Into<String>, content: impl Into<Vec<u8>>) -> ArchiveFile {
        ArchiveFile { executable: true, ..ArchiveFile::new(path, content) }
    }
}

/// Creates a tar archive with files in this order, all of them with this modification time (seconds since 1970).
pub(crate) fn tar(files: &[ArchiveFile], modified: i64) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for file in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(file.content.len() as u64);
        header.set_mode(if file.executable { 0o755 } else { 0o644 });
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(u64::try_from(modified).unwrap_or_default());
        header.set_entry_type(tar::EntryType::Regular);
        archive.append_data(&mut header, &file.path, file.content.as_slice())?;
    }
    Ok(archive.into_inner()?)
}

/// Compresses, without file name, time and operating system in the header.
pub(crate) fn gzip(content: &[u8]) -> Result<Vec<u8>> {
    let mut writer = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::best());
    writer.write_all(content)?;
    Ok(writer.finish()?)
}

/// The SHA-256 digest in hexadecimal digits.
pub(crate) fn sha256(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}
