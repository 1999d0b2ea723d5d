//! The loop of a GlanceAPI: one StatefulSet, its Services and its configuration, placed by a Topology.

mod cache_jobs;
pub(crate) mod config;
mod services;
mod stateful_set;
mod waiting;

use ::base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Map, Value, json};
use stead_model::ObjectKey;

use crate::conditions::{Severity, Standing};
use crate::finalizers;
use crate::glance_api::config::Neighbours;
use crate::glance_api::stateful_set::Parts;
use crate::kinds::hex;
use crate::layout::{KEYSTONE_ENDPOINT, api_name, labels, set_name};
use crate::object::{deleting, name, namespace, number, observed, owned, text, texts, uid};
use crate::ownership;
use crate::step::{Propagation, Step, World, Write};
use crate::topology_ref;
use crate::turn::{MISSING, Stopped, Turn};

/// The finalizer by which the loop gets to take its hands off a Topology.
const FINALIZER: &str = "openstack.org/glanceapi";

/// What the loop decides, and what it says until then.
const UNDECIDED: [(&str, &str); 6] = [
    ("CreateServiceReady", "Create service not started"),
    ("CronJobReady", "CronJob not started"),
    ("DeploymentReady", "Deployment not started"),
    ("InputReady", "Input data not checked"),
    ("NetworkAttachmentsReady", "NetworkAttachments not started"),
    ("ServiceConfigReady", "Service config create not started"),
];

/// What a GlanceAPI's loop wants.
pub(crate) fn step(world: &World<'_>, api: &Value) -> Step {
    let mut run = Run::new(world, api);
    if deleting(api) {
        run.leave();
        return run.turn.step;
    }
    run.turn.step.writes.extend(finalizers::add(api, FINALIZER));
    let ready = run.reconcile().is_ok() && run.turn.conditions.all_met();
    run.turn.status.entry("readyCount").or_insert(0.into());
    run.turn.finish(ready)
}

struct Run<'a> {
    turn: Turn<'a>,
    api: &'a Value,
}

impl<'a> Run<'a> {
    fn new(world: &'a World<'a>, api: &'a Value) -> Run<'a> {
        Run { turn: Turn::new(world, api, &UNDECIDED), api }
    }

    fn spec(&self) -> &'a Value {
        &self.api["spec"]
    }

    fn reconcile(&mut self) -> Result<(), Stopped> {
        self.input()?;
        self.certificates()?;
        let networks = self.networks()?;
        let neighbours = Neighbours::find(self.turn.world.store, namespace(self.api), self.spec());
        self.neighbours(&neighbours);
        self.services()?;
        let config = self.configuration(&neighbours)?;
        let topology = self.topology()?;
        self.deployment(&neighbours, topology, &config, &networks)?;
        self.cache_jobs()
    }

    /// The Secret with the service's password is there.
    fn input(&mut self) -> Result<(), Stopped> {
        if api_name(self.api).is_empty() {
            let message = "Input data error occurred no label api-name: a GlanceAPI is made by a Glance";
            self.turn.conditions.failed("InputReady", message);
            return Err(Stopped);
        }
        self.turn.input(self.spec())?;
        let mut custom = texts(self.spec(), "/customServiceConfigSecrets");
        if let Some(name) = custom.find(|name| self.turn.find("Secret", name).is_none()) {
            self.turn.secret_missing(name, format!("Input data resources missing: Secret {name}"));
            return Err(Stopped);
        }
        self.turn.conditions.met("InputReady", "Input data complete");
        Ok(())
    }

    /// The Secrets with certificates are there, where TLS is asked for.
    fn certificates(&mut self) -> Result<(), Stopped> {
        let spec = self.spec();
        let mut names = CERTIFICATES.iter().map(|pointer| text(spec, pointer)).filter(|name| !name.is_empty());
        if let Some(name) = names.find(|name| self.turn.find("Secret", name).is_none()) {
            match self.turn.failure("Secret", name) {
                Some(message) => {
                    let message = format!("TLSInput error occurred in TLS sources {message}");
                    self.turn.conditions.failed("TLSInputReady", message);
                }
                None => self.turn.conditions.waiting("TLSInputReady", format!("TLSInput is missing: {name}")),
            }
            return Err(Stopped);
        }
        self.turn.conditions.met("TLSInputReady", "Input data complete");
        Ok(())
    }

    /// The networks that the pods are to be attached to, as an annotation has them.
    fn networks(&mut self) -> Result<String, Stopped> {
        let space = namespace(self.api);
        let mut networks = Vec::new();
        for network in texts(self.spec(), "/networkAttachments") {
            if self.turn.world.store.find("NetworkAttachmentDefinition", space, network).is_none() {
                let message = format!("NetworkAttachment resources missing: {network}");
                self.turn.conditions.waiting("NetworkAttachmentsReady", message);
                return Err(Stopped);
            }
            let interface: String = network.chars().take(15).collect();
            networks.push(json!({"name": network, "namespace": space, "interface": interface}));
        }
        Ok(Value::Array(networks).to_string())
    }

    /// What is said about the services that a Glance leans on. None of them is in the way of its pods.
    fn neighbours(&mut self, neighbours: &Neighbours) {
        let spec = self.spec();
        match &neighbours.database_password {
            Some((secret, key)) => {
                self.turn.conditions.told(
                    "DBReady",
                    Standing::Met,
                    format!("the password is key {key} of Secret {secret}"),
                );
            }
            None if crate::ini::option(text(spec, "/customServiceConfig"), "database", "connection").is_some() => {
                self.turn.conditions.told("DBReady", Standing::Met, "customServiceConfig names the database");
            }
            None => {
                let message = format!(
                    "no password for the database: Secret {} has no key {}",
                    text(spec, "/secret"),
                    match text(spec, "/passwordSelectors/database") {
                        "" => "GlanceDatabasePassword",
                        key => key,
                    }
                );
                self.turn.conditions.told("DBReady", MISSING, message);
            }
        }
        self.turn.memcached(neighbours, spec);
        let registers = self.api["metadata"]["annotations"][KEYSTONE_ENDPOINT] == "true";
        if !neighbours.keystone {
            let message = "no Service keystone-internal in this namespace: Glance answers its health check and refuses \
                           all else until there is a Keystone";
            self.turn.conditions.told("KeystoneEndpointReady", MISSING, message);
        } else if registers {
            let message = "register this API's addresses (status.apiEndpoint) in Keystone's catalogue: Stead does not";
            self.turn.conditions.told("KeystoneEndpointReady", Standing::Met, message);
        } else {
            self.turn.conditions.told("KeystoneEndpointReady", Standing::Met, "Setup complete");
        }
    }

    fn services(&mut self) -> Result<(), Stopped> {
        let services = services::services(self.api, &self.turn.world.settings.cluster_domain);
        let mut failed = None;
        for service in services {
            let problem = self.turn.apply(service);
            failed = failed.or(problem);
        }
        if let Some(message) = failed {
            self.turn.conditions.failed("CreateServiceReady", format!("Create service error occurred {message}"));
            return Err(Stopped);
        }
        self.turn.conditions.met("CreateServiceReady", "Create service completed");
        self.turn.status.insert("apiEndpoint".into(), json!(services::endpoints(self.api)));
        self.turn.status.insert("domain".into(), services::domain(self.api).into());
        Ok(())
    }

    /// The configuration, and a digest of all that the containers are configured by.
    fn configuration(&mut self, neighbours: &Neighbours) -> Result<String, Stopped> {
        let spec = self.spec();
        let secret_name = config_secret(self.api);
        if let Some(fault) = stateful_set::size_fault(self.api) {
            return Err(self.config_failed(&fault));
        }
        let files = config::api_files(self.api, neighbours, &self.turn.world.settings.cluster_domain);
        let mut secret = owned(self.api, "v1", "Secret", &secret_name, &labels(self.api));
        secret["type"] = "Opaque".into();
        secret["data"] =
            files.iter().map(|(key, file)| (key.clone(), base64(file).into())).collect::<Map<_, _>>().into();
        if let Some(problem) = self.turn.apply(secret) {
            return Err(self.config_failed(&problem));
        }
        let mut digests = vec![hex(&json!(files).to_string())];
        let custom = texts(spec, "/customServiceConfigSecrets");
        let named = CERTIFICATES.iter().map(|pointer| text(spec, pointer));
        for secret in std::iter::once(text(spec, "/secret")).chain(custom).chain(named).filter(|n| !n.is_empty()) {
            let found = self.turn.world.store.find("Secret", namespace(self.api), secret);
            // Of the service's own Secret only what Glance uses: others keep their passwords there too.
            let used = if secret == text(spec, "/secret") {
                found.map(|s| s["data"][text(spec, "/passwordSelectors/service")].to_string())
            } else {
                found.map(|s| s["data"].to_string())
            };
            digests.push(used.unwrap_or_default());
        }
        if let Some((secret, key)) = &neighbours.database_password {
            let found = self.turn.world.store.find("Secret", namespace(self.api), secret);
            digests.push(found.map(|s| s["data"][key.as_str()].to_string()).unwrap_or_default());
        }
        let digest = hex(&digests.join("|"))[..32].to_owned();
        let hashes = json!({"input": digest, "backendHash": stateful_set::storage_digest(self.api)});
        self.turn.status.insert("hash".into(), hashes);
        self.turn.conditions.met("ServiceConfigReady", "Service config create completed");
        Ok(digest)
    }

    fn config_failed(&mut self, problem: &str) -> Stopped {
        self.turn.conditions.failed("ServiceConfigReady", format!("Service config create error occurred {problem}"));
        Stopped
    }

    /// The Topology that applies, held by our finalizer; the one before it is let go.
    fn topology(&mut self) -> Result<Option<&'a Value>, Stopped> {
        let space = namespace(self.api);
        let wanted = topology_ref::of(self.spec());
        self.turn.step.writes.extend(self.release_but(wanted));
        let Some(wanted) = wanted else {
            self.turn.status.remove("lastAppliedTopology");
            return Ok(None);
        };
        let finalizer = self.topology_finalizer();
        let found = self.turn.world.store.find("Topology", space, wanted);
        let resource = "Topology.topology.openstack.org";
        let fault = match found {
            None => Some(format!("{resource} \"{wanted}\" not found")),
            Some(topology) => finalizers::refused(topology, resource, &finalizer),
        };
        let fault = fault.or_else(|| self.turn.failure("Topology", wanted).map(str::to_owned));
        if let Some(fault) = fault {
            self.turn.event(true, "TopologyNotReady", fault.clone());
            self.turn.conditions.failed("TopologyReady", format!("Topology config create error occurred {fault}"));
            return Err(Stopped);
        }
        self.turn.step.writes.extend(found.and_then(|topology| finalizers::add(topology, &finalizer)));
        self.turn.status.insert("lastAppliedTopology".into(), json!({"name": wanted, "namespace": space}));
        self.turn.conditions.met("TopologyReady", "Topology config create completed");
        Ok(found)
    }

    fn topology_finalizer(&self) -> String {
        format!("{FINALIZER}-{}", api_name(self.api))
    }

    /// Lets go every Topology that this API holds and has no use for: not this part of it, and no other part that holds
    /// it by the same finalizer.
    fn release_but(&self, wanted: Option<&str>) -> Vec<Write> {
        let space = namespace(self.api);
        let finalizer = self.topology_finalizer();
        let follows = |other: &&Value, topology: &Value| {
            uid(other) != uid(self.api)
                && !deleting(other)
                && api_name(other) == api_name(self.api)
                && topology_ref::of(&other["spec"]) == Some(name(topology))
        };
        self.turn
            .world
            .store
            .list("Topology", space)
            .filter(|topology| wanted != Some(name(topology)))
            .filter(|topology| !self.turn.world.store.list("GlanceAPI", space).any(|other| follows(&other, topology)))
            .filter_map(|topology| finalizers::remove(topology, &finalizer))
            .collect()
    }

    fn deployment(
        &mut self,
        neighbours: &Neighbours,
        topology: Option<&Value>,
        config: &str,
        networks: &str,
    ) -> Result<(), Stopped> {
        let set_name = set_name(self.api);
        let space = namespace(self.api);
        let domain = services::domain(self.api);
        let replace = self.turn.world.settings.replace_default_anti_affinity;
        let parts = Parts { config, neighbours, topology, replace, networks, domain: &domain };
        let object = stateful_set::stateful_set(self.api, &parts);
        let live = self.turn.world.store.find("StatefulSet", space, &set_name);
        let live = live.filter(|set| !deleting(set) && ownership::conflict(&object, set).is_none());
        let storage = stateful_set::storage_digest(self.api);
        let outdated = live.filter(|set| stateful_set::made_with(set).is_some_and(|digest| digest != storage));
        if let Some(set) = outdated {
            let key = ObjectKey::new("StatefulSet", space, &set_name);
            self.turn.step.writes.push(Write::Delete {
                key,
                uid: uid(set).into(),
                propagation: Propagation::Background,
            });
            let message =
                format!("StatefulSet {set_name} is made anew: its stores or claims cannot be changed. Claims stay.");
            self.turn.event(false, "StatefulSetRecreated", message);
        }
        if let Some(message) = self.turn.apply_whole(object, vec!["/spec/template/spec"]) {
            self.turn.conditions.failed("DeploymentReady", format!("Deployment error occurred {message}"));
            return Err(Stopped);
        }
        let replicas = number(self.spec(), "/replicas").unwrap_or(1);
        let live = live.filter(|_| outdated.is_none());
        self.turn.conditions.met("NetworkAttachmentsReady", "NetworkAttachments completed");
        self.turn.conditions.waiting("DeploymentReady", "Deployment in progress");
        if let Some(set) = live.filter(|set| observed(set)) {
            let ready = number(set, "/status/readyReplicas").unwrap_or(0);
            self.turn.status.insert("readyCount".into(), ready.into());
            if ready == replicas {
                self.turn.conditions.met("DeploymentReady", "Deployment completed");
            }
        }
        if let Some(waiting) = waiting::waiting(self.turn.world, self.api) {
            let standing = Standing::NotMet { reason: "Unschedulable", severity: Severity::Warning };
            self.turn.event(true, "PodsUnschedulable", waiting.reason);
            self.turn.conditions.told("PodsScheduled", standing, waiting.message);
            self.turn.step.wants_cluster = waiting.wants_cluster;
            self.turn.step.again = Some(waiting.again);
        }
        Ok(())
    }

    fn cache_jobs(&mut self) -> Result<(), Stopped> {
        let wanted = cache_jobs::wanted(self.turn.world.store, self.api);
        let mut failed = None;
        self.turn.step.writes.extend(cache_jobs::unwanted(self.turn.world.store, self.api, &wanted));
        for job in wanted {
            let problem = self.turn.apply(job);
            failed = failed.or(problem);
        }
        if let Some(message) = failed {
            self.turn.conditions.failed("CronJobReady", format!("CronJob error occurred {message}"));
            return Err(Stopped);
        }
        self.turn.conditions.met("CronJobReady", "CronJob completed");
        Ok(())
    }

    /// The end of a GlanceAPI: its Topology is let go. What it made goes with it; claims stay.
    fn leave(&mut self) {
        self.turn.step.writes.extend(self.release_but(None));
        self.turn.step.writes.extend(finalizers::remove(self.api, FINALIZER));
    }
}

/// A file as a Secret holds it.
pub(crate) fn base64(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

/// The names of the Secrets that the loop of a GlanceAPI reads.
pub(crate) fn secrets(api: &Value) -> Vec<String> {
    let spec = &api["spec"];
    let named = CERTIFICATES.iter().map(|pointer| text(spec, pointer)).chain([text(spec, "/secret")]);
    let mut names: Vec<String> = named.chain(texts(spec, "/customServiceConfigSecrets")).map(str::to_owned).collect();
    let account = text(spec, "/databaseAccount");
    if !account.is_empty() {
        names.push(config::account_secret(account));
    }
    names.push(config_secret(api));
    names
}

/// The Secret with the configuration of a GlanceAPI.
fn config_secret(api: &Value) -> String {
    format!("{}-config-data", name(api))
}

/// Where a spec names Secrets with certificates.
const CERTIFICATES: [&str; 3] =
    ["/tls/caBundleSecretName", "/tls/api/internal/secretName", "/tls/api/public/secretName"];
