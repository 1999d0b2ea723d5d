//! The configuration files of a Glance: those that follow from the spec, and what the user adds.
//!
//! They contain no passwords. A container gets these as references to the Secret that holds them, in the environment
//! variables that oslo.config reads. The operator does not know them, so the containers put them into the form that
//! oslo.config and the address of a database need.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};
use stead_model::{GlanceApi, GlanceApiSpec, ObjectKey};

use crate::ini;
use crate::inputs::Inputs;
use crate::layout::{ApiType, SERVICE, api_name};
use crate::metadata::{Texts, label, name, namespace, texts};
use crate::optional::text;
use crate::secret::DigestedSecret;
use crate::store::Store;

/// The services that Glance depends on, as they are found in its namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dependencies {
    /// The database's host.
    pub(crate) database: String,
    /// Where the password of the database's user is: the Secret and the key in it.
    pub(crate) database_password: Option<(String, String)>,
    /// Keystone, as the service reaches it.
    pub(crate) keystone_internal: String,
    /// Keystone, as clients reach it.
    pub(crate) keystone_public: String,
    /// Whether there is a Keystone at all.
    pub(crate) keystone: bool,
    /// The caches; empty where there are none.
    pub(crate) memcached: String,
}

impl Dependencies {
    /// Finds them in the namespace, by the names in a spec.
    pub(crate) fn find(store: &Store, namespace: &str, inputs: &Inputs<'_>, database: String) -> Dependencies {
        let has_service = |name: &str| store.contains(&ObjectKey::namespaced("Service", namespace, name));
        let memcached = match inputs.memcached {
            host if host.contains(['.', ':']) => host.to_owned(),
            name if has_service(name) => format!("{name}.{namespace}.svc:11211"),
            _ => String::new(),
        };
        Dependencies {
            database,
            database_password: database_password(store, namespace, inputs),
            keystone_internal: format!("http://keystone-internal.{namespace}.svc:5000"),
            keystone_public: format!("http://keystone-public.{namespace}.svc:5000"),
            keystone: has_service("keystone-internal"),
            memcached,
        }
    }
}

/// The host of a database: the Service of a Galera of that name, a Service of that name, or a host name as it is.
pub(crate) fn database_host(store: &Store, space: &str, instance: &str) -> Option<String> {
    let galera = format!("mariadb-{instance}");
    let is_of_galera = |service: &&Service| {
        label(&service.metadata, "app") == Some("mariadb") && label(&service.metadata, "cr") == Some(&galera)
    };
    let by_label = store.all_in::<Service>(space).find(is_of_galera);
    if let Some(service) = by_label.or_else(|| store.find(space, instance)) {
        return Some(format!("{}.{space}.svc", name(&service.metadata)));
    }
    instance.contains('.').then(|| instance.to_owned())
}

/// The Secret and key with the password of the database's user: the service's own Secret, or the account's.
fn database_password(store: &Store, namespace: &str, inputs: &Inputs<'_>) -> Option<(String, String)> {
    let account = account_secret(inputs.database_account);
    let candidates = [(inputs.secret, inputs.database_password), (account.as_str(), "DatabasePassword")];
    candidates
        .into_iter()
        .find(|(secret, key)| store.find::<DigestedSecret>(namespace, secret).is_some_and(|found| found.has(key)))
        .map(|(secret, key)| (secret.to_owned(), key.to_owned()))
}

/// The Secret in which the MariaDB operator keeps an account's password.
pub(crate) fn account_secret(account: &str) -> String {
    format!("{account}-db-secret")
}

/// The environment variables that give a container its passwords, by name. What the user configures in `custom` is left
/// to the user.
pub(crate) fn password_environment(
    inputs: &Inputs<'_>,
    dependencies: &Dependencies,
    custom: &str,
) -> Vec<(String, Value)> {
    let reference = |name: &str, secret: &str, key: &str| json!({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}});
    let mut environment = Vec::new();
    if let Some((secret, key)) = &dependencies.database_password
        && ini::option(custom, "database", "connection").is_none()
    {
        let (password, address) = ("GLANCE_DATABASE_PASSWORD", "OS_DATABASE__CONNECTION");
        environment.push((password.to_owned(), reference(password, secret, key)));
        let value = connection(inputs, dependencies);
        environment.push((address.to_owned(), json!({"name": address, "value": value})));
    }
    for section in ["keystone_authtoken", "service_user", "oslo_limit"] {
        if ini::option(custom, section, "password").is_none() {
            let name = format!("OS_{}__PASSWORD", section.to_uppercase());
            let variable = reference(&name, inputs.secret, inputs.service_password);
            environment.push((name, variable));
        }
    }
    environment
}

/// The database's address, without the password.
fn connection(inputs: &Inputs<'_>, dependencies: &Dependencies) -> String {
    let (user, host) = (inputs.database_account, &dependencies.database);
    format!("mysql+pymysql://{user}@{host}/{SERVICE}?read_default_file=/etc/my.cnf")
}

/// The first command of a container's shell: puts the password into the database's address, with every byte escaped, so
/// that it may contain any character. kubelet leaves a `$(` alone that is not followed by the name of a variable.
const COMPLETE_CONNECTION: &str = r#"if [[ -n "${GLANCE_DATABASE_PASSWORD:-}" ]]; then export OS_DATABASE__CONNECTION="${OS_DATABASE__CONNECTION/@/:$(printf %s "${GLANCE_DATABASE_PASSWORD}" | od -An -v -tx1 | tr ' ' % | tr -d '\n')@}"; fi"#;

/// A shell command that needs the database.
pub(crate) fn with_database(command: &str) -> String {
    format!("{COMPLETE_CONNECTION}; {command}")
}

/// The files of a GlanceAPI.
pub(crate) fn api_files(api: &GlanceApi, dependencies: &Dependencies, domain: &str) -> Texts {
    texts([
        ("00-config.conf", &base(api, dependencies)),
        ("02-config.conf", text(&api.spec.custom_service_config)),
        ("my.cnf", CLIENT),
        ("glance-api-config.json", &start_api(&api.spec)),
        ("glance-httpd-config.json", &start_proxy()),
        ("httpd.conf", PROXY_BASE),
        ("10-glance-httpd.conf", &proxy(api, domain)),
    ])
}

/// The files of the jobs that maintain a Glance's database.
pub(crate) fn database_files(inputs: &Inputs<'_>, dependencies: &Dependencies, custom: &str) -> Texts {
    let mut base = section("DEFAULT", &[("debug", "false")]);
    base += &section("database", &[("connection", &connection(inputs, dependencies))]);
    texts([("00-config.conf", &base), ("01-config.conf", custom), ("my.cnf", CLIENT)])
}

/// The script that a replica's container runs before Glance, in the shell that then becomes Glance. It completes the
/// passwords, and configures the replica's own address.
pub(crate) fn scripts() -> Texts {
    let script = format!(
        r#"#!/bin/bash
# Passwords are nobody's business: what runs this script may trace its commands.
{{ set +x; }} 2>/dev/null
{COMPLETE_CONNECTION}
# oslo.config takes a dollar sign for the name of another option, unless there are two.
for name in OS_KEYSTONE_AUTHTOKEN__PASSWORD OS_SERVICE_USER__PASSWORD OS_OSLO_LIMIT__PASSWORD; do
  if [[ -n "${{!name:-}}" ]]; then export "${{name}}=${{!name//\$/\$\$}}"; fi
done
# Each replica tells the others where it is reached: they hand an import on to the one that staged it.
if [[ -n "${{GLANCE_DOMAIN:-}}" ]]; then
  printf '[DEFAULT]\nworker_self_reference_url=%s://%s.%s:%s\n' \
    "${{URISCHEME,,}}" "$(hostname)" "${{GLANCE_DOMAIN}}" "${{GLANCE_PORT:-9292}}" \
    > /etc/glance/glance.conf.d/01-config.conf
fi
"#
    );
    texts([("kolla_extend_start", &script)])
}

fn base(api: &GlanceApi, dependencies: &Dependencies) -> String {
    let spec = &api.spec;
    let custom = text(&spec.custom_service_config);
    let shows_locations = if ApiType::of(api) == ApiType::External { "false" } else { "true" };
    let log = format!("/var/log/glance/{}.log", name(&api.metadata));
    let cache = cache_size(spec);
    let has_quota = spec.quota == Some(true);
    let quota = if has_quota { "true" } else { "false" };
    let mut default = vec![
        ("show_image_direct_url", shows_locations),
        ("show_multiple_locations", shows_locations),
        ("enabled_import_methods", "[web-download,glance-direct]"),
        ("bind_host", "localhost"),
        ("bind_port", "9293"),
        ("workers", "3"),
        ("log_file", log.as_str()),
        ("log_rotation_type", "size"),
        ("max_logfile_count", "1"),
        ("max_logfile_size_mb", "20"),
        ("enabled_backends", "default_backend:file"),
        ("use_keystone_limits", quota),
    ];
    if let Some(size) = &cache {
        default.extend([
            ("image_cache_dir", "/var/lib/glance/image-cache"),
            ("image_cache_max_size", size.as_str()),
            ("image_cache_stall_time", "86400"),
        ]);
    }
    let first = ini::enabled_backends(custom).first().and_then(|b| b.split(':').next()).unwrap_or("default_backend");
    let mut file = section("DEFAULT", &default);
    let connection = connection(&Inputs::of_api(spec), dependencies);
    file += &section("database", &[("connection", &connection), ("max_retries", "-1"), ("db_max_retries", "-1")]);
    file += &section("glance_store", &[("default_backend", first)]);
    file += &section("default_backend", &[("filesystem_store_datadir", "/var/lib/glance/images")]);
    for store in ["os_glance_staging_store", "os_glance_tasks_store"] {
        file += &section(store, &[("filesystem_store_datadir", &format!("/var/lib/glance/{store}"))]);
    }
    let user = text(&spec.service_user);
    let mut keystone = vec![
        ("www_authenticate_uri", dependencies.keystone_public.as_str()),
        ("auth_url", dependencies.keystone_internal.as_str()),
        ("auth_type", "password"),
        ("username", user),
        ("project_domain_name", "Default"),
        ("user_domain_name", "Default"),
        ("project_name", "service"),
    ];
    if !dependencies.memcached.is_empty() {
        keystone.extend([
            ("memcached_servers", dependencies.memcached.as_str()),
            ("memcache_pool_dead_retry", "10"),
            ("memcache_pool_conn_get_timeout", "2"),
        ]);
    }
    file += &section("keystone_authtoken", &keystone);
    if has_quota {
        let limits = [
            ("auth_url", dependencies.keystone_internal.as_str()),
            ("auth_type", "password"),
            ("username", user),
            ("system_scope", "all"),
            ("user_domain_id", "default"),
            // Limits belong to an endpoint. Only Keystone knows its ID, so it is found by its type.
            ("endpoint_service_type", "image"),
        ];
        file += &section("oslo_limit", &limits);
    }
    let flavour = if cache.is_some() { "keystone+cachemanagement" } else { "keystone" };
    file += &section("paste_deploy", &[("flavor", flavour)]);
    file += &section("oslo_messaging_notifications", &[("driver", "noop")]);
    file += &section("oslo_middleware", &[("enable_proxy_headers_parsing", "true")]);
    file += &section("oslo_policy", &[("enforce_new_defaults", "true"), ("enforce_scope", "true")]);
    if ini::uses_cinder(custom) {
        file += &section("os_brick", &[("lock_path", "/var/locks/openstack/os-brick")]);
    }
    if ApiType::of(api) == ApiType::External && ini::enabled_backends(custom).iter().any(|b| b.ends_with(":rbd")) {
        file += &section("image_import_opts", &[("image_import_plugins", "['image_conversion']")]);
        file += &section("image_conversion", &[("output_format", "raw")]);
    }
    file
}

/// The size of the image cache in bytes, where there is one.
fn cache_size(spec: &GlanceApiSpec) -> Option<String> {
    let size = spec.image_cache.as_ref()?.size.as_deref()?;
    let quantity = stead_semantics::Quantity::parse(size).ok()?;
    Some(quantity.value().to_string())
}

fn section(name: &str, options: &[(&str, &str)]) -> String {
    let mut text = format!("[{name}]\n");
    for (key, value) in options {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{key} = {value}");
    }
    text.push('\n');
    text
}

const CLIENT: &str = "[client]\nssl=0\n";

/// The configuration of the image's start script: where it copies files to, and what it runs then.
fn start_api(spec: &GlanceApiSpec) -> String {
    let place = |source: &str, target: &str, optional: bool| json!({"source": source, "dest": target, "owner": "glance", "perm": "0600", "optional": optional});
    let data = "/var/lib/config-data/default";
    let folder = "/etc/glance/glance.conf.d";
    let mut files = vec![
        place(&format!("{data}/00-config.conf"), &format!("{folder}/00-config.conf"), false),
        place(&format!("{data}/02-config.conf"), &format!("{folder}/02-config.conf"), true),
    ];
    for (index, _) in spec.custom_service_config_secrets.iter().flatten().enumerate() {
        files.push(place(&format!("/var/lib/config-data/secret-{index}/*"), &format!("{folder}/"), true));
    }
    files.push(json!({
        "source": "/usr/local/bin/container-scripts/kolla_extend_start",
        "dest": "/usr/local/bin/kolla_extend_start",
        "owner": "root:root",
        "perm": "0755",
    }));
    let own = |path: &str| json!({"path": path, "owner": "glance:glance", "recurse": true});
    pretty(&json!({
        "command": format!("/usr/bin/glance-api --config-dir {folder}"),
        "config_files": files,
        // The folder of the configuration too: the script adds a file to it.
        "permissions": [own("/var/log/glance"), own("/var/lib/glance"), own(folder)],
    }))
}

fn start_proxy() -> String {
    let place = |source: &str, target: &str| json!({"source": format!("/var/lib/config-data/default/{source}"), "dest": target, "owner": "glance:apache", "perm": "0644", "optional": true});
    pretty(&json!({
        "command": "/usr/sbin/httpd -DFOREGROUND",
        "config_files": [
            place("httpd.conf", "/etc/httpd/conf/httpd.conf"),
            place("10-glance-httpd.conf", "/etc/httpd/conf.d/10-glance.conf"),
        ],
        "permissions": [{"path": "/etc/httpd/run", "owner": "glance:apache", "recurse": true}],
    }))
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

const PROXY_BASE: &str = "ServerTokens Prod\nServerSignature Off\nTraceEnable Off\nServerRoot \"/etc/httpd\"\nServerName \"glance\"\n\
     User apache\nGroup apache\nListen 9292\nTypesConfig /etc/mime.types\nInclude conf.modules.d/*.conf\n\
     LogFormat \"%h %l %u %t \\\"%r\\\" %>s %b\" plain\nCustomLog /dev/stdout plain\nErrorLog /dev/stdout\n\
     Include conf.d/10-glance.conf\n";

/// The proxy in front of the API: a virtual host for each endpoint.
fn proxy(api: &GlanceApi, domain: &str) -> String {
    let timeout = api.spec.api_timeout.unwrap_or(60);
    let mut file = String::new();
    for endpoint in ApiType::of(api).endpoints() {
        let tls = endpoint.certificate(&api.spec).is_some();
        let endpoint = endpoint.name();
        let host = format!("{SERVICE}-{}-{endpoint}.{}.svc", api_name(api), namespace(&api.metadata));
        let scheme = if tls { "https" } else { "http" };
        let certificate = if tls {
            format!(
                "  SSLEngine on\n  SSLCertificateFile \"/etc/pki/tls/certs/{endpoint}.crt\"\n  SSLCertificateKeyFile \"/etc/pki/tls/private/{endpoint}.key\"\n"
            )
        } else {
            String::new()
        };
        let _ = write!(
            file,
            "<VirtualHost *:9292>\n  ServerName {host}\n  ServerAlias {host}.{domain}\n  TimeOut {timeout}\n\
             \x20 RequestHeader setIfEmpty X-Forwarded-Proto \"{scheme}\"\n  ProxyRequests Off\n  ProxyPreserveHost Off\n\
             \x20 ProxyPass / http://localhost:9293/ retry=10\n  ProxyPassReverse / http://localhost:9293/\n{certificate}</VirtualHost>\n",
        );
    }
    file
}
