//! An image in the OCI image layout: blobs by digest, and an index.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The user of the image. A Deployment may run it as any other.
const USER: &str = "65532:65532";

/// An image with one program.
pub(crate) struct Image {
    layer: Vec<u8>,
    config: Vec<u8>,
    manifest: Vec<u8>,
    index: Vec<u8>,
}

impl Image {
    /// Creates an image that runs a program.
    pub(crate) fn new(program: &[u8], architecture: &str, version: &str) -> Result<Image> {
        let files = tar(&[("stead", 0o755, program)])?;
        let layer = gzip(&files)?;
        let config = bytes(&json!({
            "architecture": architecture,
            "os": "linux",
            "config": {
                "User": USER,
                "Entrypoint": ["/stead"],
                "WorkingDir": "/",
                "Labels": {
                    "org.opencontainers.image.title": "stead",
                    "org.opencontainers.image.version": version,
                    "org.opencontainers.image.licenses": "Apache-2.0",
                },
            },
            "rootfs": {"type": "layers", "diff_ids": [digest(&files)]},
        }))?;
        let manifest = bytes(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", &layer)],
        }))?;
        let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
        entry["platform"] = json!({"architecture": architecture, "os": "linux"});
        entry["annotations"] = json!({"org.opencontainers.image.ref.name": version});
        let index = bytes(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [entry],
        }))?;
        Ok(Image { layer, config, manifest, index })
    }

    /// The digest of the image.
    pub(crate) fn digest(&self) -> String {
        digest(&self.manifest)
    }

    /// The files of the layout, in order.
    fn files(&self) -> Vec<(String, &[u8])> {
        let blobs = [&self.config, &self.layer, &self.manifest];
        let blob = |b: &Vec<u8>| format!("blobs/sha256/{}", digest(b).trim_start_matches("sha256:"));
        let mut files: Vec<(String, &[u8])> = blobs.map(|b| (blob(b), b.as_slice())).to_vec();
        files.sort();
        files.push(("index.json".to_owned(), &self.index));
        files.push(("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#));
        files
    }

    /// Writes the layout to a directory, and replaces an existing layout.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        if folder.join("oci-layout").is_file() {
            std::fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
        }
        let blobs = folder.join("blobs").join("sha256");
        std::fs::create_dir_all(&blobs).with_context(|| format!("creating {}", blobs.display()))?;
        for (name, content) in self.files() {
            let file = folder.join(name);
            std::fs::write(&file, content).with_context(|| format!("writing {}", file.display()))?;
        }
        Ok(())
    }

    /// Writes the layout as an archive.
    pub(crate) fn archive(&self, file: &Path) -> Result<()> {
        let files = self.files();
        let entries: Vec<(&str, u32, &[u8])> = files.iter().map(|(name, c)| (name.as_str(), 0o644, *c)).collect();
        std::fs::write(file, tar(&entries)?).with_context(|| format!("writing {}", file.display()))
    }
}

fn bytes(value: &Value) -> Result<Vec<u8>> {
    Ok(serde_json::to_vec(value)?)
}

fn descriptor(media_type: &str, blob: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest(blob), "size": blob.len()})
}

fn digest(blob: &[u8]) -> String {
    let hex: String = Sha256::digest(blob).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// Creates a reproducible archive: without times and user names.
fn tar(files: &[(&str, u32, &[u8])]) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, mode, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(*mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_entry_type(tar::EntryType::Regular);
        archive.append_data(&mut header, name, *content)?;
    }
    Ok(archive.into_inner()?)
}

fn gzip(content: &[u8]) -> Result<Vec<u8>> {
    // Without file name, time and operating system, so that it is reproducible.
    let mut writer = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::best());
    writer.write_all(content)?;
    Ok(writer.finish()?)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn the_image_is_reproducible() {
        let image = |program: &[u8]| Image::new(program, "amd64", "1.2.3").expect("an image").digest();
        assert_eq!(image(b"a program"), image(b"a program"));
        assert_ne!(image(b"a program"), image(b"another"));
    }

    /// Reads a layout like a registry, from the index by digests, and checks each digest.
    #[test]
    fn the_layout_contains_the_program() {
        let folder = std::env::temp_dir().join(format!("stead-image-{}", std::process::id()));
        let image = Image::new(b"a program", "amd64", "1.2.3").expect("an image");
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

        let mut files = Vec::new();
        flate2::read::GzDecoder::new(layer.as_slice()).read_to_end(&mut files).expect("a layer");
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(&files));
        assert_eq!(config["config"]["Entrypoint"], json!(["/stead"]));
        let mut archive = tar::Archive::new(files.as_slice());
        let mut entries = archive.entries().expect("an archive");
        let mut entry = entries.next().expect("one file").expect("a header");
        let mut content = String::new();
        entry.read_to_string(&mut content).expect("its content");
        assert_eq!((entry.path().expect("a name").to_str(), content.as_str()), (Some("stead"), "a program"));
        assert_eq!(entry.header().mode().expect("a mode"), 0o755);
    }
}
