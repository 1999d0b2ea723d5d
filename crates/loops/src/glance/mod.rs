//! The loop of a Glance: its database, its configuration, and a GlanceAPI for each part of each API.

mod database;
mod inherit;

use serde_json::{Map, Value, json};
use stead_model::ObjectKey;

use crate::conditions::{Mirrored, Standing, mirror};
use crate::finalizers;
use crate::glance_api::base64;
use crate::glance_api::config::{self, Neighbours};
use crate::ini;
use crate::layout::{ApiType, SERVICE, api_name};
use crate::object::{controls, deleting, fields, name, namespace, number, observed, owned, pairs, set, text, uid};
use crate::ownership;
use crate::step::{Propagation, Step, World, Write};
use crate::turn::{MISSING, Stopped, Turn};

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

/// What a Glance's loop wants.
pub(crate) fn step(world: &World<'_>, glance: &Value) -> Step {
    if deleting(glance) {
        return Step { writes: finalizers::remove(glance, FINALIZER).into_iter().collect(), ..Step::default() };
    }
    let mut run = Run::new(world, glance);
    run.turn.step.writes.extend(finalizers::add(glance, FINALIZER));
    let ready = run.reconcile().is_ok() && run.turn.conditions.all_met() && run.parts_observed();
    run.turn.finish(ready)
}

struct Run<'a> {
    turn: Turn<'a>,
    glance: &'a Value,
    /// The spec with what it leaves to be understood.
    spec: Value,
}

impl<'a> Run<'a> {
    fn new(world: &'a World<'a>, glance: &'a Value) -> Run<'a> {
        Run { turn: Turn::new(world, glance, &UNDECIDED), glance, spec: inherit::understood(glance, world.settings) }
    }

    fn reconcile(&mut self) -> Result<(), Stopped> {
        self.rights()?;
        self.turn.input(&self.spec)?;
        let neighbours = self.database()?;
        self.configuration(&neighbours)?;
        self.sync(&neighbours)?;
        self.parts(&neighbours)?;
        self.purge(&neighbours)
    }

    /// The account that the pods run as, and the right to run as Glance's user where a cluster asks for that.
    fn rights(&mut self) -> Result<(), Stopped> {
        let account = inherit::service_account(self.glance);
        let labels = pairs([("service", SERVICE)]);
        let (role_name, binding_name) = (format!("{account}-role"), format!("{account}-rolebinding"));
        let mut role = owned(self.glance, "rbac.authorization.k8s.io/v1", "Role", &role_name, &labels);
        // Only a Cinder store touches its host.
        let touches_host = |config: &str| ini::enabled_backends(config).iter().any(|b| b.ends_with(":cinder"));
        let privileged = touches_host(text(&self.spec, "/customServiceConfig"))
            || fields(&self.spec, "/glanceAPIs").any(|(_, api)| touches_host(text(api, "/customServiceConfig")));
        let constraints: &[&str] = if privileged { &["anyuid", "privileged"] } else { &["anyuid"] };
        role["rules"] = json!([{
            "apiGroups": ["security.openshift.io"],
            "resources": ["securitycontextconstraints"],
            "resourceNames": constraints,
            "verbs": ["use"],
        }]);
        let mut binding = owned(self.glance, "rbac.authorization.k8s.io/v1", "RoleBinding", &binding_name, &labels);
        binding["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role_name});
        binding["subjects"] = json!([{"kind": "ServiceAccount", "name": account, "namespace": namespace(self.glance)}]);
        let made = [
            ("ServiceAccount", owned(self.glance, "v1", "ServiceAccount", &account, &labels)),
            ("Role", role),
            ("RoleBinding", binding),
        ];
        for (kind, object) in made {
            let condition = match kind {
                "ServiceAccount" => "ServiceAccountReady",
                "Role" => "RoleReady",
                _ => "RoleBindingReady",
            };
            if let Some(message) = self.turn.apply(object) {
                self.turn.conditions.failed(condition, format!("{kind} error occurred {message}"));
                return Err(Stopped);
            }
            self.turn.conditions.met(condition, format!("{kind} created"));
        }
        Ok(())
    }

    /// There is a database, and it is nobody else's.
    fn database(&mut self) -> Result<Neighbours, Stopped> {
        let space = namespace(self.glance);
        let older = self.turn.world.store.list("Glance", space).find(|other| {
            let since = |g: &Value| (text(g, "/metadata/creationTimestamp").to_owned(), name(g).to_owned());
            uid(other) != uid(self.glance) && since(other) < since(self.glance)
        });
        if let Some(older) = older {
            let message = format!(
                "DB create job error occurred database {SERVICE} of this namespace is that of Glance {}: there is one for each namespace",
                name(older)
            );
            self.turn.conditions.failed("DBReady", message);
            return Err(Stopped);
        }
        let instance = text(&self.spec, "/databaseInstance");
        let Some(host) = config::database_host(self.turn.world.store, space, instance) else {
            let message = format!(
                "no database {instance:?}: neither a Service of that name, nor one with the labels app=mariadb, cr=mariadb-{instance}, nor a host name"
            );
            self.turn.conditions.waiting("DBReady", message);
            return Err(Stopped);
        };
        self.turn.conditions.met("DBReady", "DB create completed");
        self.turn.status.insert("databaseHostname".into(), host.clone().into());
        let mut spec = self.spec.clone();
        set(&mut spec, "databaseHostname", host.into());
        let neighbours = Neighbours::find(self.turn.world.store, space, &spec);
        self.turn.memcached(&neighbours, &spec);
        if neighbours.keystone {
            let message = "Keystone is referred to; its services and users are not registered by Stead";
            self.turn.conditions.told("KeystoneServiceReady", Standing::Met, message);
        } else {
            let message = "no Service keystone-internal in this namespace";
            self.turn.conditions.told("KeystoneServiceReady", MISSING, message);
        }
        Ok(neighbours)
    }

    fn configuration(&mut self, neighbours: &Neighbours) -> Result<(), Stopped> {
        let config = config_secret(self.glance);
        let scripts = SCRIPTS_SECRET.to_owned();
        let mut failed = None;
        for (secret_name, files) in
            [(&config, config::database_files(&self.spec, neighbours)), (&scripts, config::scripts())]
        {
            let mut secret = owned(self.glance, "v1", "Secret", secret_name, &pairs([("service", SERVICE)]));
            secret["type"] = "Opaque".into();
            secret["data"] = files.iter().map(|(k, f)| (k.clone(), base64(f).into())).collect::<Map<_, _>>().into();
            failed = self.turn.apply(secret).or(failed);
        }
        if let Some(message) = failed {
            self.turn
                .conditions
                .failed("ServiceConfigReady", format!("Service config create error occurred {message}"));
            return Err(Stopped);
        }
        self.turn.conditions.met("ServiceConfigReady", "Service config create completed");
        Ok(())
    }

    /// The database's tables are brought up to date, once for each thing that the Job would do.
    fn sync(&mut self, neighbours: &Neighbours) -> Result<(), Stopped> {
        let wanted = database::sync_job(self.glance, &self.spec, neighbours);
        let digest = database::made_for(&wanted).to_owned();
        let done = text(self.glance, "/status/hash/dbsync") == digest;
        let live = self.turn.world.store.find("Job", namespace(self.glance), database::SYNC);
        let live = live.filter(|job| ownership::conflict(&wanted, job).is_none());
        let ours = live.filter(|job| database::made_for(job) == digest && !deleting(job));
        if !done {
            let ended = ours.and_then(database::ended);
            if let Some(Err(why)) = &ended {
                self.turn.conditions.failed("DBSyncReady", format!("DBsync job error occurred {why}"));
                return Err(Stopped);
            }
            if ended.is_none() {
                if let Some(other) = live.filter(|job| database::made_for(job) != digest && !deleting(job)) {
                    let key = ObjectKey::new("Job", namespace(self.glance), database::SYNC);
                    let uid = uid(other).to_owned();
                    // Two must not change the tables at the same time: the next one is made when this one's pod is gone.
                    self.turn.step.writes.push(Write::Delete { key, uid, propagation: Propagation::Foreground });
                }
                let failed = if live.is_none() || ours.is_some() {
                    self.turn.apply(wanted)
                } else {
                    self.turn.failure("Job", database::SYNC).map(str::to_owned)
                };
                match failed {
                    Some(message) => {
                        self.turn.conditions.failed("DBSyncReady", format!("DBsync job error occurred {message}"))
                    }
                    None => self.turn.conditions.waiting("DBSyncReady", "DBsync job still running"),
                }
                return Err(Stopped);
            }
            self.turn.status.insert("hash".into(), json!({"dbsync": digest}));
        }
        self.turn.conditions.met("DBSyncReady", "DBsync completed");
        self.turn.conditions.met("NetworkAttachmentsReady", "NetworkAttachments completed");
        Ok(())
    }

    /// A GlanceAPI for each part of each API, and the end of those that are no longer asked for.
    fn parts(&mut self, neighbours: &Neighbours) -> Result<(), Stopped> {
        let space = namespace(self.glance);
        let mut endpoints = Map::new();
        let mut counts = Map::new();
        let mut worst: Option<(Mirrored, String)> = None;
        let mut failed = None;
        let apis: Vec<(String, Value)> =
            fields(&self.spec, "/glanceAPIs").map(|(k, v)| (k.clone(), v.clone())).collect();
        let mut differ = false;
        let mut wanted = Vec::new();
        for (api, template) in &apis {
            for (index, part) in ApiType::parts(inherit::layout(template)).iter().enumerate() {
                let object = inherit::glance_api(self.glance, &self.spec, api, template, *part, &neighbours.database);
                let part_name = name(&object).to_owned();
                if let Some(live) = self.turn.world.store.find("GlanceAPI", space, &part_name) {
                    if index == 0 {
                        counts.insert(api.clone(), number(live, "/status/readyCount").unwrap_or(0).into());
                    }
                    for (side, address) in fields(live, "/status/apiEndpoint") {
                        endpoints.insert(format!("{api}-{side}"), address.clone());
                    }
                    if let Some(said) = mirror(live) {
                        differ |= worst.as_ref().is_some_and(|(w, _)| w.message != said.message);
                        let is_worse = worst.as_ref().is_none_or(|(w, _)| said.rank() < w.rank());
                        if is_worse {
                            worst = Some((said, api.clone()));
                        }
                    }
                }
                wanted.push(part_name);
                let problem = self.turn.apply_whole(object, vec!["/spec"]);
                failed = failed.or(problem);
            }
        }
        for other in self.turn.world.store.list("GlanceAPI", space) {
            if controls(self.glance, other)
                && !wanted.iter().any(|w| w == name(other))
                && !deleting(other)
                && !api_name(other).is_empty()
            {
                let key = ObjectKey::new("GlanceAPI", space, name(other));
                let uid = uid(other).to_owned();
                self.turn.step.writes.push(Write::Delete { key, uid, propagation: Propagation::Background });
            }
        }
        for (field, found) in [("glanceAPIReadyCounts", counts), ("apiEndpoint", endpoints)] {
            self.turn.status.remove(field);
            if !found.is_empty() {
                self.turn.status.insert(field.into(), found.into());
            }
        }
        if let Some(message) = failed {
            self.turn.conditions.failed("GlanceAPIReady", format!("GlanceAPI error occured {message}"));
            return Err(Stopped);
        }
        if let Some((mut said, api)) = worst {
            // Which one it is has to be said where others say something else.
            if differ && apis.len() > 1 && said.standing != Standing::Met {
                said.message = format!("{api}: {}", said.message);
            }
            said.tell(&mut self.turn.conditions, "GlanceAPIReady");
        }
        Ok(())
    }

    fn purge(&mut self, neighbours: &Neighbours) -> Result<(), Stopped> {
        let job = database::purge_job(self.glance, &self.spec, neighbours);
        if let Some(message) = self.turn.apply(job) {
            self.turn.conditions.failed("CronJobReady", format!("CronJob error occurred {message}"));
            return Err(Stopped);
        }
        self.turn.conditions.met("CronJobReady", "CronJob completed");
        Ok(())
    }

    /// Whether what the GlanceAPIs say is about what they were last told.
    fn parts_observed(&self) -> bool {
        self.turn
            .world
            .store
            .list("GlanceAPI", namespace(self.glance))
            .filter(|a| controls(self.glance, a))
            .all(observed)
    }
}

/// The names of the Secrets that the loop of a Glance reads.
pub(crate) fn secrets(glance: &Value) -> Vec<String> {
    let spec = &glance["spec"];
    let account = match text(spec, "/databaseAccount") {
        "" => SERVICE,
        account => account,
    };
    let rendered = [config_secret(glance), SCRIPTS_SECRET.to_owned()];
    [text(spec, "/secret").to_owned(), config::account_secret(account)].into_iter().chain(rendered).collect()
}

/// The Secret with the configuration of a Glance's database jobs.
fn config_secret(glance: &Value) -> String {
    format!("{}-config-data", name(glance))
}

/// The Secret with the scripts of all APIs of a namespace.
const SCRIPTS_SECRET: &str = "glance-scripts";
