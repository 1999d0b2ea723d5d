//! Plays a Glance from its custom resource to an image that is uploaded through one replica and read through another.

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
use crate::glance::prerequisites::Glance;
use crate::glance::process::{ContainerRoot, Running};
use crate::glance::rendered::{NAMESPACE, Rendered, secret, service};
use crate::glance::{Addresses, http, image, options, passed};

/// Passwords with all characters that are special in a URL, a shell, a configuration file or Kubernetes. The database
/// password is ASCII: PyMySQL sends other characters as Latin-1, which a user created with a UTF-8 client does not
/// match.
const DATABASE_PASSWORD: &str = "p@ss/w:rd%41 $(PATH) $$x #?&+='\"\\";
const SERVICE_PASSWORD: &str = "s$cret ${debug} $$ $(PATH) %40 #;'\" é";

/// Where Glance writes its log.
const LOGS: &str = "/var/log/glance";
const REPLICAS: u32 = 2;

/// What runs next to the Glance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Scenario {
    /// Nothing: authentication is switched off.
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
    /// Returns the name of the scenario on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Scenario::Alone => "alone",
            Scenario::WithKeystone => "keystone",
        }
    }

    /// Returns the objects that a user creates.
    fn input_objects(self) -> Vec<Value> {
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
        let mut objects = vec![secret("osp-secret", &passwords), service("openstack")];
        match self {
            // Without authentication nobody has the roles that the new default policies require.
            Scenario::Alone => {
                let custom = "[paste_deploy]\nflavor =\n[oslo_policy]\nenforce_new_defaults = false\n";
                glance["spec"]["customServiceConfig"] = json!(custom);
            }
            Scenario::WithKeystone => {
                glance["spec"]["imageCache"] = json!({"size": "100M"});
                glance["spec"]["quotas"] = json!({"imageSizeTotal": 1000});
                objects.push(service("keystone-internal"));
            }
        }
        objects.push(glance);
        objects
    }
}

/// The inputs of a run.
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
    let rendered = Rendered::render(scenario.input_objects())?;
    let set = rendered.of_kind("StatefulSet").next().context("the loops rendered no StatefulSet")?.clone();
    let secrets: Vec<&str> = rendered.of_kind("Secret").filter_map(|s| s["metadata"]["name"].as_str()).collect();
    passed(&format!("the loops rendered StatefulSet {} and Secrets {}", name(&set), secrets.join(", ")));
    let hosts = hosts(&set, addresses)?;
    let run = Run { glance, rendered, folder, addresses, hosts };
    run.check_rendered_secrets()?;
    run.check_options(&set)?;
    let keystone = match scenario {
        Scenario::Alone => None,
        Scenario::WithKeystone => {
            let internal = format!("http://keystone-internal.{NAMESPACE}.svc:5000");
            Some(Keystone::start(&format!("{}:5000", addresses.keystone()), &internal, SERVICE_PASSWORD)?)
        }
    };
    database.create("glance", "glance", DATABASE_PASSWORD)?;
    run.sync_database(database)?;
    let mut replicas = (0..REPLICAS).map(|index| run.start_replica(&set, index)).collect::<Result<Vec<_>>>()?;
    run.wait_until_healthy(&set, &mut replicas)?;
    let token = keystone.as_ref().map(|_| keystone::TOKEN);
    let clients: Vec<Client> =
        (0..REPLICAS).map(|i| Client::new(format!("{}:9292", addresses.replica(i)), token)).collect();
    let [first, second] = clients.as_slice() else { anyhow::bail!("{REPLICAS} replicas, not two") };
    let mut checked = checks::upload(first, second);
    if token.is_some() {
        checked = checked.and_then(|()| checks::import(first, second));
    }
    for replica in &replicas {
        checked.as_ref().map_err(|error| anyhow::anyhow!("{error:#}; log of a replica:\n{}", replica.log_tail()))?;
    }
    if let Some(keystone) = keystone {
        run.check_keystone(&keystone, first)?;
        run.run_cache_jobs(&set)?;
    }
    run.purge_database(database)?;
    run.check_logs()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Returns a hosts file with the names that the cluster's DNS would resolve.
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
    /// Checks that no rendered Secret contains a password.
    fn check_rendered_secrets(&self) -> Result<()> {
        let mut files = 0;
        for object in self.rendered.of_kind("Secret").filter(|s| name(s) != "osp-secret") {
            for (key, content) in self.rendered.secret(name(object))? {
                let content = String::from_utf8_lossy(&content).into_owned();
                let found = [DATABASE_PASSWORD, SERVICE_PASSWORD].iter().any(|password| content.contains(password));
                ensure!(!found, "Secret {}, key {key}: contains a password", name(object));
                files += 1;
            }
        }
        passed(&format!("none of their {files} files contains a password"));
        Ok(())
    }

    /// Checks that Glance knows all options in the configuration files.
    fn check_options(&self, set: &Value) -> Result<()> {
        let owners = ["glance".to_owned(), owner(set)];
        for owner in owners {
            let files = self.rendered.secret(&format!("{owner}-config-data"))?;
            for (key, content) in files.iter().filter(|(key, _)| key.ends_with("-config.conf")) {
                let path = self.folder.join(format!("{owner}-{key}"));
                crate::glance::kubelet::write(&path, content, 0o644)?;
                let (count, old) =
                    options::check(self.glance, &path).with_context(|| format!("{owner}-config-data, {key}"))?;
                let except = match old.as_slice() {
                    [] => String::new(),
                    old => format!(", except {}, which are for older versions", old.join(", ")),
                };
                if count > 0 {
                    passed(&format!(
                        "{owner}-config-data, {key}: oslo-config-validator knows its {count} options{except}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Prepares a container of a pod. Returns the command that runs it.
    fn prepare(&self, pod: &Value, container_name: &str, hostname: &str, index: u32) -> Result<Command> {
        let container_folder = self.folder.join(format!("{hostname}-{container_name}"));
        let root = ContainerRoot::new(&container_folder, hostname)?;
        image::write_files(self.glance, &root.files(), &self.addresses.replica(index), &self.hosts)?;
        let folder = |volume: &str| -> PathBuf {
            match volume {
                // Both replicas use the same store, as on a shared file system.
                "glance" => self.folder.join("store"),
                // A cache claim belongs to one pod, and its cache jobs use the same claim.
                "glance-cache" => self.folder.join(format!("cache-{index}")),
                other => container_folder.join(other),
            }
        };
        let mut container = container(&self.rendered, pod, container_name, &root.files(), &folder)?;
        // Mount the image's log folder, so that the logs can be read afterwards.
        if !container.mounts.iter().any(|(_, target)| target == LOGS) {
            let logs = container_folder.join("logs");
            std::fs::create_dir_all(&logs).with_context(|| format!("creating {}", logs.display()))?;
            chown(&logs, Some(container.user), Some(container.group))?;
            container.mounts.push((logs, LOGS.to_owned()));
        }
        if root.files().join("var/lib/kolla").is_dir() {
            image::configure(&root.files(), &container)?;
        }
        Ok(root.command(self.glance, &container))
    }

    /// Runs the only container of a Job's pod until it exits.
    fn run_job(&self, pod: &Value, hostname: &str, index: u32) -> Result<()> {
        let container = pod["containers"][0]["name"].as_str().context("the pod has no container")?;
        let output = self.prepare(pod, container, hostname, index)?.output().context("running unshare")?;
        let text = [output.stdout, output.stderr].concat();
        let log = self.folder.join(format!("{hostname}.log"));
        std::fs::write(&log, &text).with_context(|| format!("writing {}", log.display()))?;
        ensure!(output.status.success(), "{hostname}: {}\n{}", output.status, String::from_utf8_lossy(&text));
        Ok(())
    }

    /// Runs the database Job, and checks that it created tables and metadata definitions.
    fn sync_database(&self, database: &Database) -> Result<()> {
        let job = self.rendered.get("Job", "glance-db-sync")?;
        self.run_job(&job["spec"]["template"]["spec"], name(job), 0)?;
        let count = |query: &str| database.query(query);
        let tables = count("SELECT count(*) FROM information_schema.tables WHERE table_schema = 'glance'")?;
        let definitions = count("SELECT count(*) FROM glance.metadef_namespaces")?;
        ensure!(definitions != "0", "the Job loaded no metadata definitions");
        passed(&format!("Job {}: {tables} tables, {definitions} namespaces of metadata definitions", name(job)));
        Ok(())
    }

    fn start_replica(&self, set: &Value, index: u32) -> Result<Running> {
        let pod = format!("{}-{index}", name(set));
        let command = self.prepare(&set["spec"]["template"]["spec"], "glance-api", &pod, index)?;
        Running::start(&command, &self.folder.join(format!("{pod}.log")))
    }

    /// Waits until the liveness probe of every replica succeeds.
    fn wait_until_healthy(&self, set: &Value, replicas: &mut [Running]) -> Result<()> {
        let probe = &set["spec"]["template"]["spec"]["containers"][2]["livenessProbe"]["httpGet"];
        let path = probe["path"].as_str().context("the probe has no path")?;
        let port = probe["port"].as_u64().context("the probe has no port")?;
        for (index, replica) in replicas.iter_mut().enumerate() {
            let server = format!("{}:{port}", self.addresses.replica(u32::try_from(index)?));
            let answers = || http::send(&server, "GET", path, &[], b"").is_ok_and(|response| response.code() == 200);
            replica.wait_until(&format!("{path} of replica {index} answers"), Duration::from_secs(90), &answers)?;
        }
        passed(&format!("{} replicas: {path} answers 200 on each", replicas.len()));
        Ok(())
    }

    /// Checks that Keystone accepted the service's password, and that requests without a token are refused.
    fn check_keystone(&self, keystone: &Keystone, client: &Client) -> Result<()> {
        let anonymous = client.without_token();
        ensure!(anonymous.get("/v2/images")?.code() == 401, "a request without a token was not refused");
        let requests = keystone.requests();
        let times = |what: &str| requests.iter().filter(|line| line.starts_with(what)).count();
        ensure!(times("POST /v3/auth/tokens: 201") > 0, "Keystone received no correct password");
        ensure!(times("POST /v3/auth/tokens: 401") == 0, "Keystone received a wrong password");
        ensure!(times("GET /v3/registered_limits") > 0, "Keystone received no request for limits");
        passed("401 without a token; Keystone received the service's password and requests for limits");
        Ok(())
    }

    /// Runs the CronJobs of the image cache. The loops render them only if there are claims and pods, which this
    /// scenario adds.
    fn run_cache_jobs(&self, set: &Value) -> Result<()> {
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
        let objects = Scenario::WithKeystone.input_objects().into_iter().chain([claim, pod]).collect();
        let run = Run { rendered: Rendered::render(objects)?, hosts: self.hosts.clone(), ..*self };
        let jobs: Vec<&Value> = run.rendered.of_kind("CronJob").filter(|job| name(job).contains("cache")).collect();
        ensure!(jobs.len() == 2, "{} jobs for one cache, not two", jobs.len());
        for job in jobs {
            run.run_job(&job["spec"]["jobTemplate"]["spec"]["template"]["spec"], name(job), 0)?;
            passed(&format!("CronJob {} ran", name(job)));
        }
        Ok(())
    }

    /// Runs the purge CronJob, and checks that it removes the locations of images that were deleted long ago. The rows
    /// of the images stay, so that no id is used twice; Glance has another command for them.
    fn purge_database(&self, database: &Database) -> Result<()> {
        let rows = "SELECT count(*) FROM glance.image_locations WHERE deleted = 1";
        let before = database.query(rows)?;
        database.query("UPDATE glance.image_locations SET deleted_at = '2020-01-01' WHERE deleted = 1")?;
        let job = self.rendered.get("CronJob", "glance-db-purge")?;
        self.run_job(&job["spec"]["jobTemplate"]["spec"]["template"]["spec"], name(job), 0)?;
        let after = database.query(rows)?;
        ensure!(before != "0" && after == "0", "{before} deleted image locations before the purge, {after} after it");
        passed(&format!("CronJob {}: {before} deleted image locations before it, {after} after it", name(job)));
        Ok(())
    }

    /// Checks that no log contains a password.
    fn check_logs(&self) -> Result<()> {
        let quoted: String = DATABASE_PASSWORD.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let doubled = SERVICE_PASSWORD.replace('$', "$$");
        let mut logs = Vec::new();
        find_files(self.folder, "log", &mut logs)?;
        for log in &logs {
            let text = std::fs::read(log).with_context(|| format!("reading {}", log.display()))?;
            let text = String::from_utf8_lossy(&text).into_owned();
            let found = [DATABASE_PASSWORD, SERVICE_PASSWORD, &quoted, &doubled].iter().any(|p| text.contains(p));
            ensure!(!found, "{}: contains a password", log.display());
        }
        passed(&format!("none of the {} logs contains a password", logs.len()));
        Ok(())
    }
}

/// Returns the GlanceAPI that owns a StatefulSet.
fn owner(set: &Value) -> String {
    set["metadata"]["ownerReferences"][0]["name"].as_str().unwrap_or_default().to_owned()
}

/// Collects the files with this extension in a folder and its subfolders.
fn find_files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            find_files(&path, extension, found)?;
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    Ok(())
}
