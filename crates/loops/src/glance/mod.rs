//! The loop of a Glance: its database, its configuration, and a GlanceAPI for each part of each API.

mod database;
mod inherit;

use k8s_openapi::api::batch::v1::Job;
use serde_json::{Map, Value, json};
use stead_model::{Glance, GlanceApi, GlanceSpec, ObjectRef};

use crate::conditions::{ConditionState, ReadyCondition};
use crate::finalizers;
use crate::glance::database::JobResult;
use crate::glance_api::base64;
use crate::glance_api::config::{self, Dependencies};
use crate::ini;
use crate::inputs::Inputs;
use crate::layout::{ApiType, SERVICE, api_name};
use crate::metadata::{controls, is_deleting, name, texts, uid};
use crate::optional::{non_empty, text};
use crate::owner::{Owner, named};
use crate::ownership;
use crate::reconciliation::{MISSING, Reconciliation, Stopped};
use crate::step::{LoopStep, Propagation, World, Write};

pub(crate) use inherit::without_nulls;

const FINALIZER: &str = "openstack.org/glance";

const UNDECIDED: [(&str, &str); 8] = [
    ("CronJobReady", "CronJob not started"),
    ("DBSyncReady", "DBsync not started"),
    ("GlanceAPIReady", "GlanceAPI not started"),
    ("InputReady", "Input data not checked"),
    ("RoleBindingReady", "RoleBinding not created"),
    ("RoleReady", "Role not created"),
    ("ServiceAccountReady", "ServiceAccount not created"),
    ("ServiceConfigReady", "Service config create not started"),
];

/// The step of a Glance.
pub(crate) fn step(world: &World<'_>, object: ObjectRef<'_>, glance: &Glance) -> LoopStep {
    let owner = Owner::of(glance);
    if is_deleting(&glance.metadata) {
        return LoopStep { writes: finalizers::remove(owner, FINALIZER).into_iter().collect(), ..LoopStep::default() };
    }
    let mut state = GlanceLoop {
        run: Reconciliation::new(world, object, owner, &glance.status.conditions, &UNDECIDED),
        glance,
        spec: inherit::with_defaults(glance, world.settings),
    };
    state.run.step.writes.extend(finalizers::add(owner, FINALIZER));
    let ready = state.reconcile().is_ok() && state.run.conditions.all_met() && state.parts_observed();
    state.run.finish(ready)
}

struct GlanceLoop<'a> {
    run: Reconciliation<'a>,
    glance: &'a Glance,
    /// The spec with its defaults.
    spec: GlanceSpec,
}

impl GlanceLoop<'_> {
    fn reconcile(&mut self) -> Result<(), Stopped> {
        self.rights()?;
        self.run.input(&Inputs::of_glance(&self.spec))?;
        let dependencies = self.database()?;
        self.configuration(&dependencies)?;
        self.sync(&dependencies)?;
        self.parts(&dependencies)?;
        self.purge(&dependencies)
    }

    /// The ServiceAccount of the pods, and the permission to run as Glance's user on OpenShift.
    fn rights(&mut self) -> Result<(), Stopped> {
        let account = inherit::service_account(self.glance);
        let (role_name, binding_name) = (format!("{account}-role"), format!("{account}-rolebinding"));
        // Only a Cinder store accesses its host.
        let uses_host = |config: &Option<String>| ini::uses_cinder(text(config));
        let privileged = uses_host(&self.spec.custom_service_config)
            || self.spec.glance_apis.values().any(|api| uses_host(&api.custom_service_config));
        let constraints: &[&str] = if privileged { &["anyuid", "privileged"] } else { &["anyuid"] };
        let role = json!({"rules": [{
            "apiGroups": ["security.openshift.io"],
            "resources": ["securitycontextconstraints"],
            "resourceNames": constraints,
            "verbs": ["use"],
        }]});
        let owner = self.run.owner;
        let binding = json!({
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role_name},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": owner.namespace()}],
        });
        for (kind, name, condition, fields) in [
            ("ServiceAccount", &account, "ServiceAccountReady", json!({})),
            ("Role", &role_name, "RoleReady", role),
            ("RoleBinding", &binding_name, "RoleBindingReady", binding),
        ] {
            let object = owner.create(kind, named(name, texts([("service", SERVICE)])), fields);
            if let Some(message) = self.run.apply(object) {
                self.run.conditions.failed(condition, format!("{kind} error occurred {message}"));
                return Err(Stopped);
            }
            self.run.conditions.met(condition, format!("{kind} created"));
        }
        Ok(())
    }

    /// The database exists, and no other Glance uses it.
    fn database(&mut self) -> Result<Dependencies, Stopped> {
        let space = self.run.owner.namespace();
        let age = |glance: &Glance| {
            let created = glance.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (created, name(&glance.metadata).to_owned())
        };
        let is_older =
            |other: &&Glance| uid(&other.metadata) != uid(&self.glance.metadata) && age(other) < age(self.glance);
        if let Some(older) = self.run.world.store.all_in::<Glance>(space).find(is_older) {
            let message = format!(
                "DB create job error occurred database {SERVICE} of this namespace belongs to Glance {}: there is one for each namespace",
                name(&older.metadata)
            );
            self.run.conditions.failed("DBReady", message);
            return Err(Stopped);
        }
        let instance = text(&self.spec.database_instance);
        let Some(host) = config::database_host(self.run.world.store, space, instance) else {
            let message = format!(
                "no database {instance:?}: neither a Service of that name, nor one with the labels app=mariadb, cr=mariadb-{instance}, nor a host name"
            );
            self.run.conditions.waiting("DBReady", message);
            return Err(Stopped);
        };
        self.run.conditions.met("DBReady", "DB create completed");
        self.run.status.insert("databaseHostname".into(), host.clone().into());
        let inputs = Inputs::of_glance(&self.spec);
        let dependencies = Dependencies::find(self.run.world.store, space, &inputs, host);
        self.run.memcached(&dependencies, inputs.memcached);
        if dependencies.keystone {
            let message = "Keystone exists; Stead does not register services and users in it";
            self.run.conditions.report("KeystoneServiceReady", ConditionState::Met, message);
        } else {
            let message = "no Service keystone-internal in this namespace";
            self.run.conditions.report("KeystoneServiceReady", MISSING, message);
        }
        Ok(dependencies)
    }

    fn configuration(&mut self, dependencies: &Dependencies) -> Result<(), Stopped> {
        let inputs = Inputs::of_glance(&self.spec);
        let files = config::database_files(&inputs, dependencies, text(&self.spec.custom_service_config));
        let mut failed = None;
        for (name, files) in [(config_secret(self.glance), files), (SCRIPTS_SECRET.to_owned(), config::scripts())] {
            let data: Map<String, Value> = files.iter().map(|(k, f)| (k.clone(), base64(f).into())).collect();
            let metadata = named(&name, texts([("service", SERVICE)]));
            let secret = self.run.owner.create("Secret", metadata, json!({"type": "Opaque", "data": data}));
            failed = self.run.apply(secret).or(failed);
        }
        if let Some(message) = failed {
            let message = format!("Service config create error occurred {message}");
            self.run.conditions.failed("ServiceConfigReady", message);
            return Err(Stopped);
        }
        self.run.conditions.met("ServiceConfigReady", "Service config create completed");
        Ok(())
    }

    /// Migrates the database's schema, once for each version of what the Job does.
    fn sync(&mut self, dependencies: &Dependencies) -> Result<(), Stopped> {
        let (wanted, digest) = database::sync_job(self.glance, &self.spec, dependencies);
        let is_done = self.glance.status.hash.get("dbsync") == Some(&digest);
        let store = self.run.world.store;
        let is_ours = |live: &&Value| ownership::conflict(&wanted.object, live).is_none();
        let live: Option<&Job> = store.raw(&wanted.key).filter(is_ours).and_then(|_| self.run.find(database::SYNC));
        let is_current = |job: &&Job| database::made_for(job) == digest && !is_deleting(&job.metadata);
        let current = live.filter(is_current);
        if !is_done {
            match current.and_then(database::result) {
                Some(JobResult::Failed { message }) => {
                    self.run.conditions.failed("DBSyncReady", format!("DBsync job error occurred {message}"));
                    return Err(Stopped);
                }
                Some(JobResult::Complete) => {}
                None => {
                    let outdated = live.filter(|job| !is_deleting(&job.metadata) && current.is_none());
                    if let Some(outdated) = outdated {
                        let (key, uid) = (wanted.key.clone(), uid(&outdated.metadata).to_owned());
                        // Two Jobs must not change the schema at the same time: the next one is created when the pods
                        // of this one are gone.
                        self.run.step.writes.push(Write::Delete { key, uid, propagation: Propagation::Foreground });
                    }
                    let failed = if live.is_none() || current.is_some() {
                        self.run.apply(wanted)
                    } else {
                        self.run.failure("Job", database::SYNC).map(str::to_owned)
                    };
                    match failed {
                        Some(message) => {
                            self.run.conditions.failed("DBSyncReady", format!("DBsync job error occurred {message}"));
                        }
                        None => self.run.conditions.waiting("DBSyncReady", "DBsync job still running"),
                    }
                    return Err(Stopped);
                }
            }
            self.run.status.insert("hash".into(), json!({"dbsync": digest}));
        }
        self.run.conditions.met("DBSyncReady", "DBsync completed");
        self.run.conditions.met("NetworkAttachmentsReady", "NetworkAttachments completed");
        Ok(())
    }

    /// Creates a GlanceAPI for each part of each API, and deletes those that are no longer wanted.
    fn parts(&mut self, dependencies: &Dependencies) -> Result<(), Stopped> {
        let owner = self.run.owner;
        let store = self.run.world.store;
        let mut endpoints = Map::new();
        let mut counts = Map::new();
        let mut worst: Option<(ReadyCondition, &str)> = None;
        let mut differ = false;
        let mut failed = None;
        let mut wanted = Vec::new();
        for (api, template) in &self.spec.glance_apis {
            for (index, part) in ApiType::parts(inherit::layout(template)).iter().enumerate() {
                let database = &dependencies.database;
                let object = inherit::glance_api(self.glance, &self.spec, api, template, *part, database);
                if let Some(live) = self.run.find::<GlanceApi>(&object.key.name) {
                    if index == 0 {
                        counts.insert(api.clone(), live.status.ready_count.unwrap_or(0).into());
                    }
                    for (endpoint, address) in &live.status.api_endpoint {
                        endpoints.insert(format!("{api}-{endpoint}"), address.clone().into());
                    }
                    if let Some(ready) = ReadyCondition::of(&live.status.conditions) {
                        differ |= worst.as_ref().is_some_and(|(worst, _)| worst.message != ready.message);
                        if worst.as_ref().is_none_or(|(worst, _)| ready.rank() < worst.rank()) {
                            worst = Some((ready, api));
                        }
                    }
                }
                wanted.push(object.key.clone());
                let problem = self.run.apply_exclusively(object, vec!["/spec"]);
                failed = failed.or(problem);
            }
        }
        for other in store.all_in::<GlanceApi>(owner.namespace()) {
            let metadata = &other.metadata;
            let key = owner.neighbour("GlanceAPI", name(metadata));
            let is_ours = controls(owner.metadata, metadata) && !api_name(other).is_empty();
            if is_ours && !wanted.contains(&key) && !is_deleting(metadata) {
                let uid = uid(metadata).to_owned();
                self.run.step.writes.push(Write::Delete { key, uid, propagation: Propagation::Background });
            }
        }
        for (field, found) in [("glanceAPIReadyCounts", counts), ("apiEndpoint", endpoints)] {
            self.run.status.remove(field);
            if !found.is_empty() {
                self.run.status.insert(field.into(), found.into());
            }
        }
        if let Some(message) = failed {
            self.run.conditions.failed("GlanceAPIReady", format!("GlanceAPI error occured {message}"));
            return Err(Stopped);
        }
        if let Some((mut ready, api)) = worst {
            // Names the API where others report something else.
            if differ && self.spec.glance_apis.len() > 1 && ready.state != ConditionState::Met {
                ready.message = format!("{api}: {}", ready.message);
            }
            ready.copy_to(&mut self.run.conditions, "GlanceAPIReady");
        }
        Ok(())
    }

    fn purge(&mut self, dependencies: &Dependencies) -> Result<(), Stopped> {
        let job = database::purge_job(self.glance, &self.spec, dependencies);
        if let Some(message) = self.run.apply(job) {
            self.run.conditions.failed("CronJobReady", format!("CronJob error occurred {message}"));
            return Err(Stopped);
        }
        self.run.conditions.met("CronJobReady", "CronJob completed");
        Ok(())
    }

    /// Whether the status of each GlanceAPI is about its present spec.
    fn parts_observed(&self) -> bool {
        let apis = self.run.world.store.all_in::<GlanceApi>(self.run.owner.namespace());
        apis.filter(|api| controls(self.run.owner.metadata, &api.metadata))
            .all(|api| api.metadata.generation == api.status.observed_generation)
    }
}

/// The names of the Secrets that the loop of a Glance reads.
pub(crate) fn secrets(glance: &Glance) -> Vec<String> {
    let account = non_empty(&glance.spec.database_account).unwrap_or(SERVICE);
    let rendered = [config_secret(glance), SCRIPTS_SECRET.to_owned()];
    [text(&glance.spec.secret).to_owned(), config::account_secret(account)].into_iter().chain(rendered).collect()
}

/// The Secret with the configuration of a Glance's database jobs.
fn config_secret(glance: &Glance) -> String {
    format!("{}-config-data", name(&glance.metadata))
}

/// The Secret with the scripts of all APIs of a namespace.
const SCRIPTS_SECRET: &str = "glance-scripts";
