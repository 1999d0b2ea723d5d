//! Volumes: `volume info`, `volume heal V info summary`, and the files in `vols/`.

use super::xml::{child, elements, read, required};
use super::{ParseError, pairs};
use crate::{Brick, BrickPath, GlusterVolume, HostName, PeerId, VolumeName};

/// Parses the output of `gluster volume info all`. It contains no versions and checksums: see [`volume_files`].
pub fn volume_info(text: &str) -> Result<Vec<GlusterVolume>, ParseError> {
    const WHAT: &str = "volume info";
    read(WHAT, text, |root| {
        let mut found = Vec::new();
        let volumes =
            elements(root, "volInfo").flat_map(|i| elements(i, "volumes")).flat_map(|v| elements(v, "volume"));
        for volume in volumes {
            let mut bricks = Vec::new();
            for brick in elements(volume, "bricks").flat_map(|b| elements(b, "brick")) {
                let (host, path) = host_and_path(WHAT, required(WHAT, brick, "name")?)?;
                let uuid = child(brick, "hostUuid").and_then(|u| u.parse().ok());
                bricks.push(Brick { host, uuid, path });
            }
            found.push(GlusterVolume {
                name: required(WHAT, volume, "name")?.parse().map_err(ParseError::invalid(WHAT))?,
                version: None,
                checksum: None,
                started: child(volume, "status") == Some("1"),
                bricks,
            });
        }
        Ok(found)
    })
}

/// The pending heals of a brick.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heal {
    /// The host name that the volume was created with.
    pub host: HostName,
    /// The identity of the peer that holds the brick.
    pub uuid: Option<PeerId>,
    /// The directory.
    pub path: BrickPath,
    /// The number of pending heals from this brick; none if it is unknown, for example because the brick is down.
    pub entries: Option<u64>,
}

/// Parses the output of `gluster volume heal V info summary`.
pub fn heal_summary(text: &str) -> Result<Vec<Heal>, ParseError> {
    const WHAT: &str = "volume heal info";
    read(WHAT, text, |root| {
        let mut found = Vec::new();
        for brick in elements(root, "healInfo").flat_map(|i| elements(i, "bricks")).flat_map(|b| elements(b, "brick")) {
            let (host, path) = host_and_path(WHAT, required(WHAT, brick, "name")?)?;
            let uuid = brick.attribute("hostUuid").and_then(|u| u.parse().ok());
            let entries = child(brick, "totalNumberOfEntries").and_then(|n| n.parse().ok());
            found.push(Heal { host, uuid, path, entries });
        }
        Ok(found)
    })
}

/// Parses a volume from `vols/NAME/info`, `vols/NAME/cksum` and the files in `vols/NAME/bricks/`.
pub fn volume_files<'a>(
    name: &str,
    info: &str,
    cksum: Option<&str>,
    bricks: impl IntoIterator<Item = &'a str>,
) -> Result<GlusterVolume, ParseError> {
    let name: VolumeName = name.parse().map_err(ParseError::invalid("vols/"))?;
    let mut volume =
        GlusterVolume { name: name.clone(), version: None, checksum: None, started: false, bricks: Vec::new() };
    for (key, value) in pairs(info) {
        match key {
            "version" => volume.version = value.parse().ok(),
            "status" => volume.started = value == "1",
            _ => {}
        }
    }
    if volume.version.is_none() {
        return Err(ParseError::new("vols/ info", format!("volume {name} has no version")));
    }
    volume.checksum = cksum.and_then(|t| pairs(t).find(|(key, _)| *key == "info")).map(|(_, value)| value.to_owned());
    for text in bricks {
        const WHAT: &str = "vols/ bricks";
        let value = |name: &str| pairs(text).find(|(key, _)| *key == name).map(|(_, value)| value);
        let (Some(host), Some(path)) = (value("hostname"), value("path")) else {
            return Err(ParseError::new(WHAT, format!("volume {name} has a brick without hostname and path")));
        };
        volume.bricks.push(Brick {
            host: host.parse().map_err(ParseError::invalid(WHAT))?,
            uuid: value("uuid").and_then(|u| u.parse().ok()),
            path: path.parse().map_err(ParseError::invalid(WHAT))?,
        });
    }
    Ok(volume)
}

/// Splits `HOST:PATH`.
fn host_and_path(what: &'static str, name: &str) -> Result<(HostName, BrickPath), ParseError> {
    let parts = name.split_once(":/").ok_or_else(|| ParseError::new(what, "a brick whose name is not HOST:PATH"))?;
    let host = parts.0.parse().map_err(ParseError::invalid(what))?;
    Ok((host, format!("/{}", parts.1).parse().map_err(ParseError::invalid(what))?))
}
