//! An image in the OCI image layout: blobs by digest, and an index.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::archive::{ArchiveFile, gzip, sha256, tar};
use crate::program::ARCHITECTURE;
use crate::release::{Release, SUMMARY, VERSION};

/// The user of the image. A Deployment may run it as any other.
const USER: &str = "65532:65532";

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// An image with one program and CA certificates.
pub(crate) struct Image {
    layer: Vec<u8>,
    config: Vec<u8>,
    manifest: Vec<u8>,
    index: Vec<u8>,
}

impl Image {
    /// Creates an image that runs a program.
    pub(crate) fn new(program: &[u8], certificates: &str, release: &Release) -> Result<Image> {
        let files = [
            ArchiveFile::new("etc/ssl/certs/ca-certificates.crt", certificates),
            ArchiveFile::executable("stead", program),
        ];
        let files = tar(&files, release.time.as_second())?;
        let layer = gzip(&files)?;
        let labels = labels(release);
        let config = bytes(&json!({
            "created": release.created(),
            "architecture": ARCHITECTURE,
            "os": "linux",
            "config": {
                "User": USER,
                "Entrypoint": ["/stead"],
                "WorkingDir": "/",
                "Labels": labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [digest(&files)]},
            "history": [{"created": release.created(), "created_by": "cargo xtask dist"}],
        }))?;
        let manifest = bytes(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", &layer)],
            "annotations": labels,
        }))?;
        let mut entry = descriptor(MANIFEST, &manifest);
        entry["platform"] = json!({"architecture": ARCHITECTURE, "os": "linux"});
        entry["annotations"] = json!({"org.opencontainers.image.ref.name": VERSION});
        let index = bytes(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [entry],
            "annotations": labels,
        }))?;
        Ok(Image { layer, config, manifest, index })
    }

    /// The digest of the image.
    pub(crate) fn digest(&self) -> String {
        digest(&self.manifest)
    }

    /// The files of the layout, in order.
    pub(crate) fn files(&self) -> Vec<ArchiveFile> {
        let blobs = [&self.config, &self.layer, &self.manifest];
        let mut files = blobs.map(|blob| ArchiveFile::new(format!("blobs/sha256/{}", sha256(blob)), blob.as_slice()));
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let mut files = files.to_vec();
        files.push(ArchiveFile::new("index.json", self.index.as_slice()));
        files.push(ArchiveFile::new("oci-layout", *br#"{"imageLayoutVersion":"1.0.0"}"#));
        files
    }

    /// Writes the layout to a directory, and replaces an existing layout.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        if folder.join("oci-layout").is_file() {
            std::fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
        }
        let blobs = folder.join("blobs").join("sha256");
        std::fs::create_dir_all(&blobs).with_context(|| format!("creating {}", blobs.display()))?;
        for file in self.files() {
            let path = folder.join(file.path);
            std::fs::write(&path, file.content).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }

    /// Writes the layout as an archive.
    pub(crate) fn archive(&self, file: &Path) -> Result<()> {
        std::fs::write(file, tar(&self.files(), 0)?).with_context(|| format!("writing {}", file.display()))
    }
}

/// The labels of the image, which are annotations of its manifest and index too.
fn labels(release: &Release) -> Value {
    let mut labels = json!({
        "org.opencontainers.image.title": "stead",
        "org.opencontainers.image.description": SUMMARY,
        "org.opencontainers.image.version": VERSION,
        "org.opencontainers.image.revision": release.commit,
        "org.opencontainers.image.created": release.created(),
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.vendor": "The Stead authors",
    });
    if let Some(homepage) = &release.homepage {
        labels["org.opencontainers.image.url"] = homepage.as_str().into();
    }
    labels
}

fn bytes(value: &Value) -> Result<Vec<u8>> {
    Ok(serde_json::to_vec(value)?)
}

fn descriptor(media_type: &str, blob: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest(blob), "size": blob.len()})
}

fn digest(blob: &[u8]) -> String {
    format!("sha256:{}", sha256(blob))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::path::PathBuf;

    use jiff::Timestamp;

    use super::*;

    fn release() -> Release {
        Release {
            root: PathBuf::new(),
            commit: "c0ffee".to_owned(),
            time: Timestamp::UNIX_EPOCH,
            repository: None,
            base_url: String::new(),
            homepage: None,
        }
    }

    #[test]
    fn the_image_is_reproducible() {
        let image = |program: &[u8]| Image::new(program, "", &release()).expect("an image").digest();
        assert_eq!(image(b"a program"), image(b"a program"));
        assert_ne!(image(b"a program"), image(b"another"));
    }

    #[test]
    fn the_label_of_the_homepage_is_that_of_the_release() {
        assert!(labels(&release()).get("org.opencontainers.image.url").is_none());
        let release = Release { homepage: Some("https://stead.example".to_owned()), ..release() };
        assert_eq!(labels(&release)["org.opencontainers.image.url"], "https://stead.example");
    }

    /// Reads a layout like a registry, from the index by digests, and checks each digest.
    #[test]
    fn the_layout_contains_the_program() {
        let folder = std::env::temp_dir().join(format!("stead-image-{}", std::process::id()));
        let image = Image::new(b"a program", "certificates", &release()).expect("an image");
        image.write(&folder).expect("a layout");
        image.write(&folder).expect("a layout replaces another");
        let blob = |descriptor: &Value| {
            let name = descriptor["digest"].as_str().expect("a digest");
            let path = folder.join("blobs/sha256").join(name.trim_start_matches("sha256:"));
            let content = std::fs::read(path).expect("a blob");
            assert_eq!(digest(&content), name);
            assert_eq!(descriptor["size"], content.len());
            content
        };
        let json = |content: &[u8]| serde_json::from_slice::<Value>(content).expect("JSON");
        let index = json(&std::fs::read(folder.join("index.json")).expect("an index"));
        let manifest = json(&blob(&index["manifests"][0]));
        let config = json(&blob(&manifest["config"]));
        let layer = blob(&manifest["layers"][0]);
        std::fs::remove_dir_all(&folder).expect("the folder is removed");

        assert_eq!(index["annotations"]["org.opencontainers.image.revision"], "c0ffee");
        let mut files = Vec::new();
        flate2::read::GzDecoder::new(layer.as_slice()).read_to_end(&mut files).expect("a layer");
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(&files));
        assert_eq!(config["config"]["Entrypoint"], json!(["/stead"]));
        let mut archive = tar::Archive::new(files.as_slice());
        let mut found = Vec::new();
        for entry in archive.entries().expect("an archive") {
            let mut entry = entry.expect("a header");
            let mut content = String::new();
            entry.read_to_string(&mut content).expect("its content");
            let name = entry.path().expect("a name").to_string_lossy().into_owned();
            found.push((name, entry.header().mode().expect("a mode"), content));
        }
        let file = |name: &str, mode, content: &str| (name.to_owned(), mode, content.to_owned());
        let expected =
            [file("etc/ssl/certs/ca-certificates.crt", 0o644, "certificates"), file("stead", 0o755, "a program")];
        assert_eq!(found, expected);
    }
}
