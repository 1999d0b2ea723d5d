//! A Glance from its custom resource to an image that one replica took and another gave back.

use std::fmt;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::glance::checks::{self, Client};
use crate::glance::database::Database;
use crate::glance::keystone::{self, Keystone};
use crate::glance::kubelet::container;
use crate::glance::needed::Glance;
use crate::glance::process::{Running, Stage};
use crate::glance::rendered::{NAMESPACE, Rendered, secret, service};
use crate::glance::{Addresses, http, image, options, saw};

/// Passwords with all that means something to an address, a shell, a configuration file or Kubernetes. That of the
/// database is of ASCII: PyMySQL sends others as Latin-1, which a database whose client spoke UTF-8 then refuses.
const DATABASE_PASSWORD: &str = "p@ss/w:rd%41 $(PATH) $$x #?&+='\"\\";
const SERVICE_PASSWORD: &str = "s$cret ${debug} $$ $(PATH) %40 #;'\" é";

/// Where Glance writes its log.
const LOGS: &str = "/var/log/glance";
/// So many replicas.
const REPLICAS: u32 = 2;

/// What stands beside the Glance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Scenario {
    /// Nothing: its owner has switched authentication off.
    Alone,
    /// A Keystone that checks passwords; the Glance has a cache and limits.
    #[value(name = "keystone")]
    WithKeystone,
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scenario::Alone => "a Glance alone, without authentication",
            Scenario::WithKeystone => "a Glance with a cache and limits, and a stand-in for Keystone",
        })
    }
}

impl Scenario {
    /// A word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Scenario::Alone => "alone",
            Scenario::WithKeystone => "keystone",
        }
    }

    /// What its owner wrote.
    fn given(self) -> Vec<Value> {
        let mut glance = json!({
            "apiVersion": "glance.openstack.org/v1beta1",
            "kind": "Glance",
            "metadata": {"name": "glance", "namespace": NAMESPACE, "creationTimestamp": "2020-01-01T00:00:00Z"},
            "spec": {
                "secret": "osp-secret",
                "databaseInstance": "openstack",
                "storage": {"storageRequest": "1G"},
                "keystoneEndpoint": "default",
                "glanceAPIs": {"default": {"type": "single", "replicas": REPLICAS}},
            },
        });
        let passwords = [("GlancePassword", SERVICE_PASSWORD), ("GlanceDatabasePassword", DATABASE_PASSWORD)];
        let mut given = vec![secret("osp-secret", &passwords), service("openstack")];
        match self {
            // Nobody is a member of anything then, which the new rules would ask for.
            Scenario::Alone => {
                let custom = "[paste_deploy]\nflavor =\n[oslo_policy]\nenforce_new_defaults = false\n";
                glance["spec"]["customServiceConfig"] = json!(custom);
            }
            Scenario::WithKeystone => {
                glance["spec"]["imageCache"] = json!({"size": "100M"});
                glance["spec"]["quotas"] = json!({"imageSizeTotal": 1000});
                given.push(service("keystone-internal"));
            }
        }
        given.push(glance);
        given
    }
}

/// All that one run has at hand.
struct Run<'a> {
    glance: &'a Glance,
    rendered: Rendered,
    folder: &'a Path,
    addresses: &'a Addresses,
    hosts: String,
}

/// Plays a scenario.
pub(crate) fn play(
    glance: &Glance,
    database: &Database,
    folder: &Path,
    addresses: &Addresses,
    scenario: Scenario,
) -> Result<()> {
    let rendered = Rendered::settle(scenario.given())?;
    let set = rendered.of_kind("StatefulSet").next().context("the loops made no StatefulSet")?.clone();
    let secrets: Vec<&str> = rendered.of_kind("Secret").filter_map(|s| s["metadata"]["name"].as_str()).collect();
    saw(&format!("the loops made StatefulSet {} and Secrets {}", name(&set), secrets.join(", ")));
    let hosts = hosts(&set, addresses)?;
    let run = Run { glance, rendered, folder, addresses, hosts };
    run.nothing_secret()?;
    run.options(&set)?;
    let keystone = match scenario {
        Scenario::Alone => None,
        Scenario::WithKeystone => {
            let internal = format!("http://keystone-internal.{NAMESPACE}.svc:5000");
            Some(Keystone::start(&format!("{}:5000", addresses.keystone()), &internal, SERVICE_PASSWORD)?)
        }
    };
    database.make("glance", "glance", DATABASE_PASSWORD)?;
    run.sync(database)?;
    let mut replicas = (0..REPLICAS).map(|index| run.replica(&set, index)).collect::<Result<Vec<_>>>()?;
    run.healthy(&set, &mut replicas)?;
    let token = keystone.as_ref().map(|_| keystone::TOKEN);
    let clients: Vec<Client> =
        (0..REPLICAS).map(|i| Client::new(format!("{}:9292", addresses.replica(i)), token)).collect();
    let [first, second] = clients.as_slice() else { anyhow::bail!("{REPLICAS} replicas, not two") };
    let mut checked = checks::upload(first, second);
    if token.is_some() {
        checked = checked.and_then(|()| checks::import(first, second));
    }
    for replica in &replicas {
        checked.as_ref().map_err(|error| anyhow::anyhow!("{error:#}; a replica said\n{}", replica.said()))?;
    }
    if let Some(keystone) = keystone {
        run.keystone(&keystone, first)?;
        run.caches(&set)?;
    }
    run.purge(database)?;
    run.nothing_said()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The cluster's names, as its DNS would have them.
fn hosts(set: &Value, addresses: &Addresses) -> Result<String> {
    let domain = format!("{}.{NAMESPACE}.svc", set["spec"]["serviceName"].as_str().context("no serviceName")?);
    let mut hosts = format!("127.0.0.1 localhost\n{} openstack.{NAMESPACE}.svc\n", addresses.database());
    hosts += &format!("{} keystone-internal.{NAMESPACE}.svc\n", addresses.keystone());
    for index in 0..REPLICAS {
        hosts +=
            &format!("{} {pod}.{domain} {pod}\n", addresses.replica(index), pod = format!("{}-{index}", name(set)));
    }
    Ok(hosts)
}

impl Run<'_> {
    /// No password stands in anything that was rendered.
    fn nothing_secret(&self) -> Result<()> {
        let mut looked = 0;
        for object in self.rendered.of_kind("Secret").filter(|s| name(s) != "osp-secret") {
            for (key, content) in self.rendered.secret(name(object))? {
                let content = String::from_utf8_lossy(&content).into_owned();
                let found = [DATABASE_PASSWORD, SERVICE_PASSWORD].iter().any(|password| content.contains(password));
                ensure!(!found, "Secret {}, key {key}: a password", name(object));
                looked += 1;
            }
        }
        saw(&format!("no password stands in any of their {looked} files"));
        Ok(())
    }

    /// Every option of the files is one of Glance's.
    fn options(&self, set: &Value) -> Result<()> {
        let owners = ["glance".to_owned(), owner(set)];
        for owner in owners {
            let files = self.rendered.secret(&format!("{owner}-config-data"))?;
            for (key, content) in files.iter().filter(|(key, _)| key.ends_with("-config.conf")) {
                let path = self.folder.join(format!("{owner}-{key}"));
                crate::glance::kubelet::write(&path, content, 0o644)?;
                let (count, older) =
                    options::check(self.glance, &path).with_context(|| format!("{owner}-config-data, {key}"))?;
                let but = match older.as_slice() {
                    [] => String::new(),
                    older => format!(", but for {}, which are for older versions", older.join(", ")),
                };
                if count > 0 {
                    saw(&format!("{owner}-config-data, {key}: oslo-config-validator knows its {count} options{but}"));
                }
            }
        }
        Ok(())
    }

    /// A container of a pod, ready to be started.
    fn prepare(&self, pod: &Value, container_name: &str, hostname: &str, index: u32) -> Result<Command> {
        let own = self.folder.join(format!("{hostname}-{container_name}"));
        let stage = Stage::new(&own, hostname)?;
        image::lay_out(self.glance, &stage.files(), &self.addresses.replica(index), &self.hosts)?;
        let folder = |volume: &str| -> PathBuf {
            match volume {
                // Both replicas have the same store, as on a file system that they share.
                "glance" => self.folder.join("store"),
                // A claim of a cache is its pod's, and so is its name to a job that looks after it.
                "glance-cache" => self.folder.join(format!("cache-{index}")),
                other => own.join(other),
            }
        };
        let mut container = container(&self.rendered, pod, container_name, &stage.files(), &folder)?;
        // The image has a folder for logs; here it is one that can be read afterwards.
        if !container.mounts.iter().any(|(_, target)| target == LOGS) {
            let logs = own.join("logs");
            std::fs::create_dir_all(&logs).with_context(|| format!("making {}", logs.display()))?;
            chown(&logs, Some(container.user), Some(container.group))?;
            container.mounts.push((logs, LOGS.to_owned()));
        }
        if stage.files().join("var/lib/kolla").is_dir() {
            image::configure(&stage.files(), &container)?;
        }
        Ok(stage.command(self.glance, &container))
    }

    /// Runs a job's only container to its end.
    fn run(&self, pod: &Value, hostname: &str, index: u32) -> Result<()> {
        let container = pod["containers"][0]["name"].as_str().context("a pod without a container")?;
        let output = self.prepare(pod, container, hostname, index)?.output().context("running unshare")?;
        let said = [output.stdout, output.stderr].concat();
        let log = self.folder.join(format!("{hostname}.log"));
        std::fs::write(&log, &said).with_context(|| format!("writing {}", log.display()))?;
        ensure!(output.status.success(), "{hostname}: {}\n{}", output.status, String::from_utf8_lossy(&said));
        Ok(())
    }

    fn sync(&self, database: &Database) -> Result<()> {
        let job = self.rendered.get("Job", "glance-db-sync")?;
        self.run(&job["spec"]["template"]["spec"], name(job), 0)?;
        let count = |query: &str| database.ask(query);
        let tables = count("SELECT count(*) FROM information_schema.tables WHERE table_schema = 'glance'")?;
        let definitions = count("SELECT count(*) FROM glance.metadef_namespaces")?;
        ensure!(definitions != "0", "the Job loaded no metadata definitions");
        saw(&format!("Job {}: {tables} tables, {definitions} namespaces of metadata definitions", name(job)));
        Ok(())
    }

    fn replica(&self, set: &Value, index: u32) -> Result<Running> {
        let pod = format!("{}-{index}", name(set));
        let command = self.prepare(&set["spec"]["template"]["spec"], "glance-api", &pod, index)?;
        Running::start(&command, &self.folder.join(format!("{pod}.log")))
    }

    /// The probe of the container answers.
    fn healthy(&self, set: &Value, replicas: &mut [Running]) -> Result<()> {
        let probe = &set["spec"]["template"]["spec"]["containers"][2]["livenessProbe"]["httpGet"];
        let path = probe["path"].as_str().context("a probe without a path")?;
        let port = probe["port"].as_u64().context("a probe without a port")?;
        for (index, replica) in replicas.iter_mut().enumerate() {
            let server = format!("{}:{port}", self.addresses.replica(u32::try_from(index)?));
            let answers = || http::ask(&server, "GET", path, &[], b"").is_ok_and(|answer| answer.code() == 200);
            replica.wait_until(&format!("{path} of replica {index}"), Duration::from_secs(90), &answers)?;
        }
        saw(&format!("{} replicas: {path} answers 200 on each", replicas.len()));
        Ok(())
    }

    /// Keystone took the service's password, and nobody gets in without a token.
    fn keystone(&self, keystone: &Keystone, client: &Client) -> Result<()> {
        let stranger = client.without_token();
        ensure!(stranger.get("/v2/images")?.code() == 401, "a request without a token was not refused");
        let asked = keystone.asked();
        let times = |what: &str| asked.iter().filter(|line| line.starts_with(what)).count();
        ensure!(times("POST /v3/auth/tokens: 201") > 0, "nobody gave Keystone a password that is right");
        ensure!(times("POST /v3/auth/tokens: 401") == 0, "somebody gave Keystone a password that is wrong");
        ensure!(times("GET /v3/registered_limits") > 0, "nobody asked Keystone for a limit");
        saw("without a token 401; Keystone was given the service's password, and was asked for limits");
        Ok(())
    }

    /// The jobs that look after a cache run. They are made for claims and pods that only a cluster has.
    fn caches(&self, set: &Value) -> Result<()> {
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": format!("glance-cache-{}-0", name(set)), "namespace": NAMESPACE,
                "labels": {"owner": owner(set)}, "annotations": {"image-cache": "true"},
            },
        });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("{}-0", name(set)), "namespace": NAMESPACE},
        });
        let given = Scenario::WithKeystone.given().into_iter().chain([claim, pod]).collect();
        let run = Run { rendered: Rendered::settle(given)?, hosts: self.hosts.clone(), ..*self };
        let jobs: Vec<&Value> = run.rendered.of_kind("CronJob").filter(|job| name(job).contains("cache")).collect();
        ensure!(jobs.len() == 2, "{} jobs for one cache, not two", jobs.len());
        for job in jobs {
            run.run(&job["spec"]["jobTemplate"]["spec"]["template"]["spec"], name(job), 0)?;
            saw(&format!("CronJob {} ran", name(job)));
        }
        Ok(())
    }

    /// What belonged to images that were deleted long ago goes. The images' own rows stay: Glance has a command of its
    /// own for those, lest an id be used twice.
    fn purge(&self, database: &Database) -> Result<()> {
        let rows = "SELECT count(*) FROM glance.image_locations WHERE deleted = 1";
        let before = database.ask(rows)?;
        database.ask("UPDATE glance.image_locations SET deleted_at = '2020-01-01' WHERE deleted = 1")?;
        let job = self.rendered.get("CronJob", "glance-db-purge")?;
        self.run(&job["spec"]["jobTemplate"]["spec"]["template"]["spec"], name(job), 0)?;
        let after = database.ask(rows)?;
        ensure!(
            before != "0" && after == "0",
            "{before} deleted locations of images before the purge, {after} after it"
        );
        saw(&format!("CronJob {}: {before} deleted locations of images before it, {after} after it", name(job)));
        Ok(())
    }

    /// No password was said by anything that ran.
    fn nothing_said(&self) -> Result<()> {
        let quoted: String = DATABASE_PASSWORD.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let doubled = SERVICE_PASSWORD.replace('$', "$$");
        let mut logs = Vec::new();
        find(self.folder, "log", &mut logs)?;
        for log in &logs {
            let text = std::fs::read(log).with_context(|| format!("reading {}", log.display()))?;
            let text = String::from_utf8_lossy(&text).into_owned();
            let said = [DATABASE_PASSWORD, SERVICE_PASSWORD, &quoted, &doubled].iter().any(|p| text.contains(p));
            ensure!(!said, "{}: a password", log.display());
        }
        saw(&format!("no password stands in any of the {} logs", logs.len()));
        Ok(())
    }
}

/// The GlanceAPI that a StatefulSet belongs to.
fn owner(set: &Value) -> String {
    set["metadata"]["ownerReferences"][0]["name"].as_str().unwrap_or_default().to_owned()
}

/// The files below a folder whose names end so.
fn find(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, extension, found)?;
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    Ok(())
}
