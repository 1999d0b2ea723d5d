//! Writes all artifacts to a folder.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::archive::{ArchiveFile, sha256};
use crate::layout::Image;
use crate::release::{Release, VERSION};
use crate::{bundle, certificates, chart, krew, package, program, sbom};

/// The file that marks a folder of artifacts, and may be replaced with it.
const SUMS: &str = "sha256sums.txt";

/// Builds everything, the program too unless one is given, and replaces the folder.
pub(crate) fn write(release: &Release, program: Option<&Path>, folder: &Path) -> Result<()> {
    check_replaceable(folder)?;
    let program = match program {
        Some(program) => program.to_owned(),
        None => program::build_release(release)?,
    };
    let files = files(release, &program)?;
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    for file in &files {
        let path = folder.join(&file.path);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
        std::fs::write(&path, &file.content).with_context(|| format!("writing {}", path.display()))?;
    }
    report(release, &program, &files, folder)
}

/// A folder with anything else in it is not deleted.
fn check_replaceable(folder: &Path) -> Result<()> {
    let Ok(mut entries) = std::fs::read_dir(folder) else { return Ok(()) };
    ensure!(
        folder.join(SUMS).is_file() || entries.next().is_none(),
        "{} is not a folder of artifacts (it has no {SUMS}), and is not replaced",
        folder.display()
    );
    Ok(())
}

/// All artifacts.
fn files(release: &Release, program: &Path) -> Result<Vec<ArchiveFile>> {
    let archive = package::archive(program, release)?;
    let bytes = std::fs::read(program).with_context(|| format!("reading {}", program.display()))?;
    let image = Image::new(&bytes, &certificates::bundle(), release)?;
    let mut files = vec![
        ArchiveFile::new("krew/stead.yaml", krew::manifest(&archive, release)?),
        ArchiveFile::new(format!("stead-{VERSION}.tgz"), chart::package(release)?),
        ArchiveFile::new(package::file_name(), archive),
        ArchiveFile::new("stead.cdx.json", sbom::document(release)?),
    ];
    let below = |folder: &str, file: ArchiveFile| ArchiveFile { path: format!("{folder}/{}", file.path), ..file };
    files.extend(bundle::files(release)?.into_iter().map(|file| below("bundle", file)));
    files.extend(image.files().into_iter().map(|file| below("image", file)));
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let sums: String = files.iter().map(|file| format!("{}  {}\n", sha256(&file.content), file.path)).collect();
    files.push(ArchiveFile::new(SUMS, sums));
    Ok(files)
}

fn report(release: &Release, program: &Path, files: &[ArchiveFile], folder: &Path) -> Result<()> {
    let size = std::fs::metadata(program).with_context(|| format!("reading {}", program.display()))?.len();
    println!("{}: Stead {VERSION}, commit {}", folder.display(), release.commit);
    println!("  {:>10}  the program, before it is compressed", size);
    for file in files.iter().filter(|file| !file.path.starts_with("bundle/") && !file.path.contains("/blobs/")) {
        println!("  {:>10}  {}", file.content.len(), file.path);
    }
    match release.image() {
        Some(image) => println!("image: {image}"),
        None => println!("image: none; `stead install` and the chart need one (set it with --image)"),
    }
    Ok(())
}
