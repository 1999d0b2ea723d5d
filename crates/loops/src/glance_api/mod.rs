//! The loop of a GlanceAPI: one StatefulSet, its Services and its configuration, placed by a Topology.

mod cache_jobs;
pub(crate) mod config;
mod services;
mod stateful_set;
mod unschedulable;

use ::base64::prelude::{BASE64_STANDARD, Engine};
use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::{Map, Value, json};
use stead_model::{GlanceApi, ObjectRef, Topology};

use crate::conditions::{ConditionState, Severity};
use crate::finalizers;
use crate::glance_api::config::Dependencies;
use crate::glance_api::stateful_set::Parts;
use crate::ini;
use crate::inputs::Inputs;
use crate::kinds::hex;
use crate::layout::{Endpoint, KEYSTONE_ENDPOINT, api_name, labels, set_name};
use crate::metadata::{annotation, is_deleting, name, uid};
use crate::optional::{non_empty, text};
use crate::owner::{Owner, named};
use crate::ownership;
use crate::reconciliation::{MISSING, Reconciliation, Stopped};
use crate::secret::DigestedSecret;
use crate::step::{LoopStep, Propagation, World, Write};
use crate::topology_ref::{other_namespace, topology as topology_name};

/// The finalizer of a GlanceAPI: its Topology is released before it is deleted.
const FINALIZER: &str = "openstack.org/glanceapi";

/// The conditions that the loop decides, and their messages until then.
const UNDECIDED: [(&str, &str); 6] = [
    ("CreateServiceReady", "Create service not started"),
    ("CronJobReady", "CronJob not started"),
    ("DeploymentReady", "Deployment not started"),
    ("InputReady", "Input data not checked"),
    ("NetworkAttachmentsReady", "NetworkAttachments not started"),
    ("ServiceConfigReady", "Service config create not started"),
];

/// The step of a GlanceAPI.
pub(crate) fn step(world: &World<'_>, object: ObjectRef<'_>, api: &GlanceApi) -> LoopStep {
    let owner = Owner::of(api);
    let run = Reconciliation::new(world, object, owner, &api.status.conditions, &UNDECIDED);
    let mut state = GlanceApiLoop { run, api };
    if is_deleting(&api.metadata) {
        state.clean_up();
        return state.run.step;
    }
    state.run.step.writes.extend(finalizers::add(owner, FINALIZER));
    let ready = state.reconcile().is_ok() && state.run.conditions.all_met();
    state.run.status.entry("readyCount").or_insert(0.into());
    state.run.finish(ready)
}

struct GlanceApiLoop<'a> {
    run: Reconciliation<'a>,
    api: &'a GlanceApi,
}

impl<'a> GlanceApiLoop<'a> {
    fn reconcile(&mut self) -> Result<(), Stopped> {
        self.input()?;
        self.certificates()?;
        let networks = self.networks()?;
        let inputs = Inputs::of_api(&self.api.spec);
        let host = text(&self.api.spec.database_hostname).to_owned();
        let dependencies = Dependencies::find(self.run.world.store, self.run.owner.namespace(), &inputs, host);
        self.dependencies(&dependencies);
        self.services()?;
        let config = self.configuration(&dependencies)?;
        let topology = self.topology()?;
        self.deployment(&dependencies, topology, &config, &networks)?;
        self.cache_jobs()
    }

    /// The Secret with the service's password exists.
    fn input(&mut self) -> Result<(), Stopped> {
        if api_name(self.api).is_empty() {
            let message = "Input data error occurred no label api-name: a GlanceAPI is created by a Glance";
            self.run.conditions.failed("InputReady", message);
            return Err(Stopped);
        }
        self.run.input(&Inputs::of_api(&self.api.spec))?;
        let mut custom = self.api.spec.custom_service_config_secrets.iter().flatten();
        if let Some(name) = custom.find(|name| self.run.find::<DigestedSecret>(name).is_none()) {
            self.run.secret_missing(name, format!("Input data resources missing: Secret {name}"));
            return Err(Stopped);
        }
        self.run.conditions.met("InputReady", "Input data complete");
        Ok(())
    }

    /// The Secrets with certificates exist, where TLS is configured.
    fn certificates(&mut self) -> Result<(), Stopped> {
        let missing = certificates(self.api).find(|name| self.run.find::<DigestedSecret>(name).is_none());
        if let Some(name) = missing {
            match self.run.failure("Secret", name) {
                Some(message) => {
                    let message = format!("TLSInput error occurred in TLS sources {message}");
                    self.run.conditions.failed("TLSInputReady", message);
                }
                None => self.run.conditions.waiting("TLSInputReady", format!("TLSInput is missing: {name}")),
            }
            return Err(Stopped);
        }
        self.run.conditions.met("TLSInputReady", "Input data complete");
        Ok(())
    }

    /// The networks that the pods are attached to, as the value of their annotation.
    fn networks(&mut self) -> Result<String, Stopped> {
        let owner = self.run.owner;
        let mut networks = Vec::new();
        for network in self.api.spec.network_attachments.iter().flatten() {
            if !self.run.world.store.contains(&owner.neighbour("NetworkAttachmentDefinition", network)) {
                let message = format!("NetworkAttachment resources missing: {network}");
                self.run.conditions.waiting("NetworkAttachmentsReady", message);
                return Err(Stopped);
            }
            let interface: String = network.chars().take(15).collect();
            networks.push(json!({"name": network, "namespace": owner.namespace(), "interface": interface}));
        }
        Ok(Value::Array(networks).to_string())
    }

    /// Reports the services that Glance depends on. The pods are created without them, too.
    fn dependencies(&mut self, dependencies: &Dependencies) {
        let spec = &self.api.spec;
        let inputs = Inputs::of_api(spec);
        let (state, message) = match &dependencies.database_password {
            Some((secret, key)) => (ConditionState::Met, format!("the password is key {key} of Secret {secret}")),
            None if ini::option(text(&spec.custom_service_config), "database", "connection").is_some() => {
                (ConditionState::Met, "customServiceConfig names the database".to_owned())
            }
            None => {
                let (secret, key) = (inputs.secret, inputs.database_password);
                (MISSING, format!("no password for the database: Secret {secret} has no key {key}"))
            }
        };
        self.run.conditions.report("DBReady", state, message);
        self.run.memcached(dependencies, inputs.memcached);
        let is_registered = annotation(&self.api.metadata, KEYSTONE_ENDPOINT) == Some("true");
        let (state, message) = match (dependencies.keystone, is_registered) {
            (false, _) => (
                MISSING,
                "no Service keystone-internal in this namespace: Glance answers health checks and rejects all other \
                 requests until there is a Keystone",
            ),
            (true, true) => (
                ConditionState::Met,
                "register this API's addresses (status.apiEndpoint) in Keystone's catalogue: Stead does not",
            ),
            (true, false) => (ConditionState::Met, "Setup complete"),
        };
        self.run.conditions.report("KeystoneEndpointReady", state, message);
    }

    fn services(&mut self) -> Result<(), Stopped> {
        let services = services::services(self.api, &self.run.world.settings.cluster_domain);
        let mut failed = None;
        for service in services {
            let problem = self.run.apply(service);
            failed = failed.or(problem);
        }
        if let Some(message) = failed {
            self.run.conditions.failed("CreateServiceReady", format!("Create service error occurred {message}"));
            return Err(Stopped);
        }
        self.run.conditions.met("CreateServiceReady", "Create service completed");
        self.run.status.insert("apiEndpoint".into(), json!(services::endpoints(self.api)));
        self.run.status.insert("domain".into(), services::domain(self.api).into());
        Ok(())
    }

    /// Applies the configuration, and computes a digest of everything that the containers are configured with.
    fn configuration(&mut self, dependencies: &Dependencies) -> Result<String, Stopped> {
        if let Err(error) = stateful_set::check_sizes(self.api) {
            return Err(self.config_failed(&error.to_string()));
        }
        let files = config::api_files(self.api, dependencies, &self.run.world.settings.cluster_domain);
        let data: Map<String, Value> = files.iter().map(|(key, file)| (key.clone(), base64(file).into())).collect();
        let metadata = named(&config_secret(self.api), labels(self.api));
        let secret = self.run.owner.create("Secret", metadata, json!({"type": "Opaque", "data": data}));
        if let Some(problem) = self.run.apply(secret) {
            return Err(self.config_failed(&problem));
        }
        let mut digests = vec![hex(&json!(files).to_string())];
        let inputs = Inputs::of_api(&self.api.spec);
        let custom = self.api.spec.custom_service_config_secrets.iter().flatten().map(String::as_str);
        let named = std::iter::once(inputs.secret).chain(custom).chain(certificates(self.api));
        for name in named.filter(|name| !name.is_empty()) {
            let found = self.run.find::<DigestedSecret>(name);
            // Of the service's own Secret only the key that Glance uses: it may have the passwords of others, too.
            let used = if name == inputs.secret {
                found.map(|secret| secret.digest(inputs.service_password))
            } else {
                found.map(DigestedSecret::digests)
            };
            digests.push(used.unwrap_or_default());
        }
        if let Some((secret, key)) = &dependencies.database_password {
            let found = self.run.find::<DigestedSecret>(secret);
            digests.push(found.map(|secret| secret.digest(key)).unwrap_or_default());
        }
        let digest = hex(&digests.join("|"))[..32].to_owned();
        let hashes = json!({"input": digest, "backendHash": stateful_set::storage_digest(self.api)});
        self.run.status.insert("hash".into(), hashes);
        self.run.conditions.met("ServiceConfigReady", "Service config create completed");
        Ok(digest)
    }

    fn config_failed(&mut self, problem: &str) -> Stopped {
        self.run.conditions.failed("ServiceConfigReady", format!("Service config create error occurred {problem}"));
        Stopped
    }

    /// The Topology that applies, protected by our finalizer. The previous one is released.
    fn topology(&mut self) -> Result<Option<&'a Topology>, Stopped> {
        let wanted = topology_name(&self.api.spec.topology_ref);
        self.run.step.writes.extend(self.release_except(wanted));
        let Some(wanted) = wanted else {
            self.run.status.remove("lastAppliedTopology");
            return Ok(None);
        };
        let owner = self.run.owner;
        let finalizer = self.topology_finalizer();
        let resource = "Topology.topology.openstack.org";
        let found = self.run.world.store.get::<Topology>(&owner.neighbour("Topology", wanted));
        let fault = other_namespace(&self.api.spec.topology_ref, owner.namespace());
        let fault = fault.or_else(|| match &found {
            Err(error) => Some(error.to_string()),
            Ok(None) => Some(format!("{resource} \"{wanted}\" not found")),
            Ok(Some(topology)) => finalizers::refused(&topology.metadata, resource, &finalizer),
        });
        let fault = fault.or_else(|| self.run.failure("Topology", wanted).map(str::to_owned));
        if let Some(fault) = fault {
            self.run.event(true, "TopologyNotReady", fault.clone());
            self.run.conditions.failed("TopologyReady", format!("Topology config create error occurred {fault}"));
            return Err(Stopped);
        }
        let found = found.ok().flatten();
        self.run.step.writes.extend(found.and_then(|topology| finalizers::add(Owner::of(topology), &finalizer)));
        let applied = json!({"name": wanted, "namespace": owner.namespace()});
        self.run.status.insert("lastAppliedTopology".into(), applied);
        self.run.conditions.met("TopologyReady", "Topology config create completed");
        Ok(found)
    }

    fn topology_finalizer(&self) -> String {
        format!("{FINALIZER}-{}", api_name(self.api))
    }

    /// Removes our finalizer from every Topology that neither this GlanceAPI nor another part of the same API, which has
    /// the same finalizer, refers to.
    fn release_except(&self, wanted: Option<&str>) -> Vec<Write> {
        let space = self.run.owner.namespace();
        let store = self.run.world.store;
        let finalizer = self.topology_finalizer();
        let follows = |other: &GlanceApi, topology: &str| {
            uid(&other.metadata) != uid(&self.api.metadata)
                && !is_deleting(&other.metadata)
                && api_name(other) == api_name(self.api)
                && topology_name(&other.spec.topology_ref) == Some(topology)
        };
        let is_used = |topology: &str| store.all_in::<GlanceApi>(space).any(|other| follows(other, topology));
        store
            .all_in::<Topology>(space)
            .filter(|topology| wanted != Some(name(&topology.metadata)) && !is_used(name(&topology.metadata)))
            .filter_map(|topology| finalizers::remove(Owner::of(topology), &finalizer))
            .collect()
    }

    fn deployment(
        &mut self,
        dependencies: &Dependencies,
        topology: Option<&Topology>,
        config: &str,
        networks: &str,
    ) -> Result<(), Stopped> {
        let set_name = set_name(self.api);
        let domain = services::domain(self.api);
        let replace = self.run.world.settings.replace_default_anti_affinity;
        let parts = Parts { config, dependencies, topology, replace, networks, domain: &domain };
        let wanted = stateful_set::stateful_set(self.api, &parts);
        let is_ours = |live: &&Value| ownership::conflict(&wanted.object, live).is_none();
        let live: Option<&StatefulSet> =
            self.run.world.store.raw(&wanted.key).filter(is_ours).and_then(|_| self.run.find(&set_name));
        let live = live.filter(|set| !is_deleting(&set.metadata));
        let storage = stateful_set::storage_digest(self.api);
        let outdated = live.filter(|set| stateful_set::made_with(set).is_some_and(|digest| digest != storage));
        if let Some(set) = outdated {
            let (key, uid) = (wanted.key.clone(), uid(&set.metadata).into());
            self.run.step.writes.push(Write::Delete { key, uid, propagation: Propagation::Background });
            let message = format!(
                "StatefulSet {set_name} is recreated: its stores or claim templates cannot be changed. Claims are kept."
            );
            self.run.event(false, "StatefulSetRecreated", message);
        }
        if let Some(message) = self.run.apply_exclusively(wanted, vec!["/spec/template/spec"]) {
            self.run.conditions.failed("DeploymentReady", format!("Deployment error occurred {message}"));
            return Err(Stopped);
        }
        let replicas = self.api.spec.replicas.unwrap_or(1);
        let live = live.filter(|_| outdated.is_none());
        self.run.conditions.met("NetworkAttachmentsReady", "NetworkAttachments completed");
        self.run.conditions.waiting("DeploymentReady", "Deployment in progress");
        let observed = |set: &StatefulSet| set.status.as_ref().and_then(|status| status.observed_generation);
        if let Some(set) = live.filter(|set| set.metadata.generation == observed(set)) {
            let ready = set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
            self.run.status.insert("readyCount".into(), ready.into());
            if ready == replicas {
                self.run.conditions.met("DeploymentReady", "Deployment completed");
            }
        }
        if let Some(unschedulable) = unschedulable::unschedulable(self.run.world, self.api) {
            let state = ConditionState::NotMet { reason: "Unschedulable", severity: Severity::Warning };
            self.run.event(true, "PodsUnschedulable", unschedulable.reason);
            self.run.conditions.report("PodsScheduled", state, unschedulable.message);
            self.run.step.wants_cluster = unschedulable.wants_cluster;
            self.run.step.again = Some(unschedulable.again);
        }
        Ok(())
    }

    fn cache_jobs(&mut self) -> Result<(), Stopped> {
        let store = self.run.world.store;
        let wanted = cache_jobs::wanted(store, self.api);
        let mut failed = None;
        self.run.step.writes.extend(cache_jobs::unwanted(store, self.api, &wanted));
        for job in wanted {
            let problem = self.run.apply(job);
            failed = failed.or(problem);
        }
        if let Some(message) = failed {
            self.run.conditions.failed("CronJobReady", format!("CronJob error occurred {message}"));
            return Err(Stopped);
        }
        self.run.conditions.met("CronJobReady", "CronJob completed");
        Ok(())
    }

    /// Releases the Topology of a GlanceAPI that is being deleted. The objects that it controls are deleted with it;
    /// claims are kept.
    fn clean_up(&mut self) {
        self.run.step.writes.extend(self.release_except(None));
        self.run.step.writes.extend(finalizers::remove(self.run.owner, FINALIZER));
    }
}

/// A file as the value of a key in a Secret.
pub(crate) fn base64(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

/// The names of the Secrets that the loop of a GlanceAPI reads.
pub(crate) fn secrets(api: &GlanceApi) -> Vec<String> {
    let spec = &api.spec;
    let custom = spec.custom_service_config_secrets.iter().flatten().map(String::as_str);
    let named = certificates(api).chain(non_empty(&spec.secret)).chain(custom).map(str::to_owned);
    let account = non_empty(&spec.database_account).map(config::account_secret);
    named.chain(account).chain([config_secret(api)]).collect()
}

/// The Secret with the configuration of a GlanceAPI.
fn config_secret(api: &GlanceApi) -> String {
    format!("{}-config-data", name(&api.metadata))
}

/// The Secrets with certificates that a spec names.
fn certificates(api: &GlanceApi) -> impl Iterator<Item = &str> {
    let authority = api.spec.tls.as_ref().and_then(|tls| non_empty(&tls.ca_bundle_secret_name));
    let endpoints = [Endpoint::Internal, Endpoint::Public];
    authority.into_iter().chain(endpoints.into_iter().filter_map(|endpoint| endpoint.certificate(&api.spec)))
}
