//! A pod's volumes: which of them are bound to what, and where they are attached.

use serde_json::Value;

use stead_model::{ObjectKey, Objects};

/// A claim of a pod and the volume behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldVolume {
    /// The claim, by its name in the pod's namespace.
    pub claim: String,
    /// The PersistentVolume; none while the claim is not there or not bound.
    pub volume: Option<String>,
    /// The CSI driver, where the volume has one.
    pub driver: Option<String>,
    /// Whether more than one node may have it at a time (ReadWriteMany, ReadOnlyMany).
    pub shared: bool,
    /// Whether it has to be attached to a node before it can be used there.
    pub attached: bool,
    /// Its name among a node's `volumesInUse` and `volumesAttached`, where it has to be attached.
    pub unique_name: Option<String>,
    /// Its attachments, those that are being taken away among them.
    pub attachments: Vec<Attachment>,
    /// The values that the volume's own node affinity wants, key by key; empty where it can be used everywhere.
    pub only: Vec<(String, Vec<String>)>,
    /// Whether it is a directory or a disk of a node, by its kind.
    pub of_a_node: bool,
}

impl HeldVolume {
    /// Whether the volume lives on one node and nowhere else, because of its kind or its affinity to a host.
    pub fn is_local(&self) -> bool {
        let host = |(key, values): &(String, Vec<String>)| {
            values.len() == 1
                && (key == "kubernetes.io/hostname" || key.ends_with("/hostname") || key.ends_with("/node"))
        };
        self.of_a_node || self.only.iter().any(host)
    }
}

/// A VolumeAttachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: String,
    /// The node.
    pub node: String,
    /// Whether the driver has said that it is attached.
    pub attached: bool,
    /// When it was asked for.
    pub created: Option<String>,
    /// When its driver last said how it stands, where `metadata.managedFields` was read too.
    pub said: Option<String>,
    /// Since when it is being taken away.
    pub leaving: Option<String>,
    /// What the driver said of attaching, where it failed.
    pub attach_error: Option<String>,
    /// What the driver said of detaching, where it failed.
    pub detach_error: Option<String>,
}

/// The claims of a pod with the volumes behind them, in the order of the pod's volumes.
pub fn volumes_of(objects: &Objects, namespace: &str, pod: &Value) -> Vec<HeldVolume> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let claims = volumes.filter_map(|volume| match volume["persistentVolumeClaim"]["claimName"].as_str() {
        Some(claim) => Some(claim.to_owned()),
        None => volume.get("ephemeral").map(|_| format!("{name}-{}", volume["name"].as_str().unwrap_or_default())),
    });
    claims.map(|claim| held(objects, namespace, claim)).collect()
}

fn held(objects: &Objects, namespace: &str, claim: String) -> HeldVolume {
    let bound = objects.raw(&ObjectKey::new("PersistentVolumeClaim", namespace, &claim));
    let name = bound.and_then(|c| c["spec"]["volumeName"].as_str()).filter(|n| !n.is_empty()).map(str::to_owned);
    let volume = name.as_ref().and_then(|n| objects.raw(&ObjectKey::new("PersistentVolume", "", n)));
    let spec = volume.map_or(&Value::Null, |v| &v["spec"]);
    let driver = volume.and_then(driver).map(str::to_owned);
    let by_driver = |driver: &String| {
        let known = objects.raw(&ObjectKey::new("CSIDriver", "", driver));
        // A driver that says nothing has its volumes attached; so has one that nobody registered.
        known.and_then(|d| d["spec"]["attachRequired"].as_bool()).unwrap_or(true)
    };
    let attached = driver.as_ref().is_some_and(by_driver);
    let unique_name = volume.filter(|_| attached).and_then(unique_name);
    let modes = spec["accessModes"].as_array().into_iter().flatten();
    HeldVolume {
        attachments: name.as_ref().map(|name| attachments(objects, name)).unwrap_or_default(),
        shared: modes.into_iter().any(|m| m == "ReadWriteMany" || m == "ReadOnlyMany"),
        only: affinity(spec),
        of_a_node: spec.get("local").is_some() || spec.get("hostPath").is_some(),
        claim,
        volume: name,
        driver,
        attached,
        unique_name,
    }
}

/// The kinds of volumes that Kubernetes itself once had drivers for, the field that names the disk, and the driver that took
/// over. Such a volume keeps its form for life; controllers and kubelets read it as one of that driver
/// (csi-translation-lib).
const MIGRATED: [(&str, &str, &str); 6] = [
    ("awsElasticBlockStore", "volumeID", "ebs.csi.aws.com"),
    ("azureDisk", "diskURI", "disk.csi.azure.com"),
    ("cinder", "volumeID", "cinder.csi.openstack.org"),
    ("gcePersistentDisk", "pdName", "pd.csi.storage.gke.io"),
    ("portworxVolume", "volumeID", "pxd.portworx.com"),
    ("vsphereVolume", "volumePath", "csi.vsphere.vmware.com"),
];

/// The CSI driver of a PersistentVolume.
fn driver(volume: &Value) -> Option<&str> {
    let spec = &volume["spec"];
    let migrated = MIGRATED.iter().find(|(kind, ..)| spec.get(kind).is_some());
    spec["csi"]["driver"].as_str().or(migrated.map(|(_, _, driver)| *driver))
}

/// The name of a PersistentVolume among a node's `volumesInUse` and `volumesAttached`.
fn unique_name(volume: &Value) -> Option<String> {
    let spec = &volume["spec"];
    let migrated = || {
        let (kind, field, _) = MIGRATED.iter().find(|(kind, ..)| spec.get(kind).is_some())?;
        let disk = spec[kind][field].as_str()?;
        Some(match *kind {
            // aws://ZONE/VOLUME
            "awsElasticBlockStore" => disk.rsplit('/').next()?.to_owned(),
            "gcePersistentDisk" => google(volume, disk),
            _ => disk.to_owned(),
        })
    };
    let handle = spec["csi"]["volumeHandle"].as_str().map(str::to_owned).or_else(migrated)?;
    Some(format!("kubernetes.io/csi/{}^{handle}", driver(volume)?))
}

/// The handle of a disk of Google's, which has its zone, or the region of its zones, in it.
fn google(volume: &Value, disk: &str) -> String {
    let labels = &volume["metadata"]["labels"];
    let label = |key: &str| labels[key].as_str().filter(|z| !z.is_empty());
    let zones = label("failure-domain.beta.kubernetes.io/zone").or(label("topology.kubernetes.io/zone"));
    let place = match zones.unwrap_or("UNSPECIFIED").split_once("__") {
        None => format!("zones/{}", zones.unwrap_or("UNSPECIFIED")),
        Some((zone, _)) => format!("regions/{}", zone.rsplit_once('-').map_or(zone, |(region, _)| region)),
    };
    format!("projects/UNSPECIFIED/{place}/disks/{disk}")
}

fn attachments(objects: &Objects, volume: &str) -> Vec<Attachment> {
    let all = objects.raw_of_kind("VolumeAttachment").map(|(_, a)| a);
    let ours = all.filter(|a| a["spec"]["source"]["persistentVolumeName"] == volume);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    ours.map(|a| Attachment {
        name: text(&a["metadata"]["name"]).unwrap_or_default(),
        uid: text(&a["metadata"]["uid"]).unwrap_or_default(),
        node: text(&a["spec"]["nodeName"]).unwrap_or_default(),
        attached: a["status"]["attached"] == true,
        created: text(&a["metadata"]["creationTimestamp"]),
        said: {
            let fields = a["metadata"]["managedFields"].as_array().into_iter().flatten();
            fields.filter(|f| f["subresource"] == "status").filter_map(|f| text(&f["time"])).max()
        },
        leaving: text(&a["metadata"]["deletionTimestamp"]),
        attach_error: text(&a["status"]["attachError"]["message"]),
        detach_error: text(&a["status"]["detachError"]["message"]),
    })
    .collect()
}

/// What a volume's node affinity wants, where it is one term of plain values.
fn affinity(spec: &Value) -> Vec<(String, Vec<String>)> {
    let terms = spec["nodeAffinity"]["required"]["nodeSelectorTerms"].as_array();
    let Some([term]) = terms.map(Vec::as_slice) else { return Vec::new() };
    let wants = term["matchExpressions"].as_array().into_iter().flatten().filter(|e| e["operator"] == "In");
    let values = |e: &Value| {
        e["values"].as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    wants.filter_map(|e| Some((e["key"].as_str()?.to_owned(), values(e)))).collect()
}
