//! The files that a Glance is configured by: a base that follows from the spec, and what the owner wants on top of it.
//!
//! No password stands in them. A container gets those as references to the Secret that holds them, by the names that
//! oslo.config reads from the environment. Nobody here knows them, so that the containers themselves put them into the
//! form that oslo.config and a database's address need.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::ini;
use crate::layout::{ApiType, SERVICE};
use crate::object::{Texts, flag, name, namespace, number, text, texts};
use crate::store::Store;

/// Where Keystone, the database and the caches are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Neighbours {
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

impl Neighbours {
    /// Finds them in the namespace, by the names that a spec refers to. None where there is no database.
    pub(crate) fn find(store: &Store, namespace: &str, spec: &Value) -> Neighbours {
        let service = |name: &str| store.find("Service", namespace, name).is_some();
        let keystone = service("keystone-internal");
        let memcached = match text(spec, "/memcachedInstance") {
            host if host.contains(['.', ':']) => host.to_owned(),
            name if service(name) => format!("{name}.{namespace}.svc:11211"),
            _ => String::new(),
        };
        Neighbours {
            database: text(spec, "/databaseHostname").to_owned(),
            database_password: database_password(store, namespace, spec),
            keystone_internal: format!("http://keystone-internal.{namespace}.svc:5000"),
            keystone_public: format!("http://keystone-public.{namespace}.svc:5000"),
            keystone,
            memcached,
        }
    }
}

/// The host of a database: the Service of a Galera of that name, a Service of that name, or a host as it stands.
pub(crate) fn database_host(store: &Store, namespace: &str, instance: &str) -> Option<String> {
    let galera = format!("mariadb-{instance}");
    let by_label = store
        .list("Service", namespace)
        .find(|s| s["metadata"]["labels"]["app"] == "mariadb" && s["metadata"]["labels"]["cr"] == galera.as_str());
    if let Some(service) = by_label.or_else(|| store.find("Service", namespace, instance)) {
        return Some(format!("{}.{namespace}.svc", name(service)));
    }
    instance.contains('.').then(|| instance.to_owned())
}

/// The Secret and key with the password of the database's user: the service's own Secret, or the account's.
fn database_password(store: &Store, namespace: &str, spec: &Value) -> Option<(String, String)> {
    let key = match text(spec, "/passwordSelectors/database") {
        "" => "GlanceDatabasePassword",
        key => key,
    };
    let account = account_secret(text(spec, "/databaseAccount"));
    let candidates = [(text(spec, "/secret"), key), (account.as_str(), "DatabasePassword")];
    candidates
        .into_iter()
        .find(|(secret, key)| store.find("Secret", namespace, secret).is_some_and(|s| s["data"].get(*key).is_some()))
        .map(|(secret, key)| (secret.to_owned(), key.to_owned()))
}

/// The Secret that the MariaDB operator keeps an account's password in.
pub(crate) fn account_secret(account: &str) -> String {
    format!("{account}-db-secret")
}

/// The environment that gives a container its passwords. What the owner configures by hand is left to the owner.
pub(crate) fn password_environment(spec: &Value, neighbours: &Neighbours, custom: &str) -> Vec<Value> {
    let reference = |name: &str, secret: &str, key: &str| json!({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}});
    let mut environment = Vec::new();
    if let Some((secret, key)) = &neighbours.database_password
        && ini::option(custom, "database", "connection").is_none()
    {
        environment.push(reference("GLANCE_DATABASE_PASSWORD", secret, key));
        environment.push(json!({"name": "OS_DATABASE__CONNECTION", "value": connection(spec, neighbours)}));
    }
    let (secret, key) = (text(spec, "/secret"), text(spec, "/passwordSelectors/service"));
    for section in ["keystone_authtoken", "service_user", "oslo_limit"] {
        if ini::option(custom, section, "password").is_none() {
            environment.push(reference(&format!("OS_{}__PASSWORD", section.to_uppercase()), secret, key));
        }
    }
    environment
}

/// The database's address, without the password.
fn connection(spec: &Value, neighbours: &Neighbours) -> String {
    let user = text(spec, "/databaseAccount");
    let host = &neighbours.database;
    format!("mysql+pymysql://{user}@{host}/{SERVICE}?read_default_file=/etc/my.cnf")
}

/// What a container's shell does before all else: the password goes into the database's address, every byte of it
/// quoted, so that it may hold any character. A `$(` that is no variable's name means to kubelet what it means to the
/// shell.
const COMPLETE_CONNECTION: &str = r#"if [[ -n "${GLANCE_DATABASE_PASSWORD:-}" ]]; then export OS_DATABASE__CONNECTION="${OS_DATABASE__CONNECTION/@/:$(printf %s "${GLANCE_DATABASE_PASSWORD}" | od -An -v -tx1 | tr ' ' % | tr -d '\n')@}"; fi"#;

/// A shell's command that needs the database.
pub(crate) fn with_database(command: &str) -> String {
    format!("{COMPLETE_CONNECTION}; {command}")
}

/// The files of a GlanceAPI.
pub(crate) fn api_files(api: &Value, neighbours: &Neighbours, domain: &str) -> Texts {
    let spec = &api["spec"];
    let mut files = Texts::new();
    files.insert("00-config.conf".into(), base(api, neighbours));
    files.insert("02-config.conf".into(), text(spec, "/customServiceConfig").to_owned());
    files.insert("my.cnf".into(), client());
    files.insert("glance-api-config.json".into(), start_api(spec));
    files.insert("glance-httpd-config.json".into(), start_proxy());
    files.insert("httpd.conf".into(), proxy_base());
    files.insert("10-glance-httpd.conf".into(), proxy(api, domain));
    files
}

/// The files of the jobs that look after a Glance's database.
pub(crate) fn database_files(spec: &Value, neighbours: &Neighbours) -> Texts {
    let mut base = section("DEFAULT", &[("debug", "false")]);
    base += &section("database", &[("connection", &connection(spec, neighbours))]);
    let mut files = Texts::new();
    files.insert("00-config.conf".into(), base);
    files.insert("01-config.conf".into(), text(spec, "/customServiceConfig").to_owned());
    files.insert("my.cnf".into(), client());
    files
}

/// The script that is run in a replica's container before Glance, by the shell that Glance then takes the place of. It
/// completes the passwords, and tells Glance the replica's own address.
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
    crate::object::pairs([("kolla_extend_start", script.as_str())])
}

fn base(api: &Value, neighbours: &Neighbours) -> String {
    let spec = &api["spec"];
    let custom = text(spec, "/customServiceConfig");
    let shows_places = if ApiType::of(api) == ApiType::External { "false" } else { "true" };
    let log = format!("/var/log/glance/{}.log", name(api));
    let cache = cache_size(spec);
    let quota = if flag(spec, "/quota") { "true" } else { "false" };
    let mut default = vec![
        ("show_image_direct_url", shows_places),
        ("show_multiple_locations", shows_places),
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
    let connection = connection(spec, neighbours);
    file += &section("database", &[("connection", &connection), ("max_retries", "-1"), ("db_max_retries", "-1")]);
    file += &section("glance_store", &[("default_backend", first)]);
    file += &section("default_backend", &[("filesystem_store_datadir", "/var/lib/glance/images")]);
    for store in ["os_glance_staging_store", "os_glance_tasks_store"] {
        file += &section(store, &[("filesystem_store_datadir", &format!("/var/lib/glance/{store}"))]);
    }
    let user = text(spec, "/serviceUser");
    let mut keystone = vec![
        ("www_authenticate_uri", neighbours.keystone_public.as_str()),
        ("auth_url", neighbours.keystone_internal.as_str()),
        ("auth_type", "password"),
        ("username", user),
        ("project_domain_name", "Default"),
        ("user_domain_name", "Default"),
        ("project_name", "service"),
    ];
    if !neighbours.memcached.is_empty() {
        keystone.extend([
            ("memcached_servers", neighbours.memcached.as_str()),
            ("memcache_pool_dead_retry", "10"),
            ("memcache_pool_conn_get_timeout", "2"),
        ]);
    }
    file += &section("keystone_authtoken", &keystone);
    if flag(spec, "/quota") {
        let limits = [
            ("auth_url", neighbours.keystone_internal.as_str()),
            ("auth_type", "password"),
            ("username", user),
            ("system_scope", "all"),
            ("user_domain_id", "default"),
            // Limits belong to an endpoint, whose id only Keystone knows: it is found by its type.
            ("endpoint_service_type", "image"),
        ];
        file += &section("oslo_limit", &limits);
    }
    let flavour = if cache.is_some() { "keystone+cachemanagement" } else { "keystone" };
    file += &section("paste_deploy", &[("flavor", flavour)]);
    file += &section("oslo_messaging_notifications", &[("driver", "noop")]);
    file += &section("oslo_middleware", &[("enable_proxy_headers_parsing", "true")]);
    file += &section("oslo_policy", &[("enforce_new_defaults", "true"), ("enforce_scope", "true")]);
    if ini::enabled_backends(custom).iter().any(|b| b.ends_with(":cinder")) {
        file += &section("os_brick", &[("lock_path", "/var/locks/openstack/os-brick")]);
    }
    if ApiType::of(api) == ApiType::External && ini::enabled_backends(custom).iter().any(|b| b.ends_with(":rbd")) {
        file += &section("image_import_opts", &[("image_import_plugins", "['image_conversion']")]);
        file += &section("image_conversion", &[("output_format", "raw")]);
    }
    file
}

/// The size of the image cache in bytes, where there is one.
fn cache_size(spec: &Value) -> Option<String> {
    let size = text(spec, "/imageCache/size");
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

fn client() -> String {
    "[client]\nssl=0\n".to_owned()
}

/// How the image's own start script puts the files in place and what it runs then.
fn start_api(spec: &Value) -> String {
    let place = |source: &str, target: &str, optional: bool| json!({"source": source, "dest": target, "owner": "glance", "perm": "0600", "optional": optional});
    let data = "/var/lib/config-data/default";
    let folder = "/etc/glance/glance.conf.d";
    let mut files = vec![
        place(&format!("{data}/00-config.conf"), &format!("{folder}/00-config.conf"), false),
        place(&format!("{data}/02-config.conf"), &format!("{folder}/02-config.conf"), true),
    ];
    for (index, _) in texts(spec, "/customServiceConfigSecrets").enumerate() {
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
        // The folder of the configuration too: the script above adds a file to it.
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

fn proxy_base() -> String {
    "ServerTokens Prod\nServerSignature Off\nTraceEnable Off\nServerRoot \"/etc/httpd\"\nServerName \"glance\"\n\
     User apache\nGroup apache\nListen 9292\nTypesConfig /etc/mime.types\nInclude conf.modules.d/*.conf\n\
     LogFormat \"%h %l %u %t \\\"%r\\\" %>s %b\" plain\nCustomLog /dev/stdout plain\nErrorLog /dev/stdout\n\
     Include conf.d/10-glance.conf\n"
        .to_owned()
}

/// The proxy in front of the API: a virtual host for each side that it is reached from.
fn proxy(api: &Value, domain: &str) -> String {
    let timeout = number(&api["spec"], "/apiTimeout").unwrap_or(60);
    let api_name = crate::layout::api_name(api);
    let mut file = String::new();
    for endpoint in ApiType::of(api).endpoints() {
        let host = format!("{SERVICE}-{api_name}-{endpoint}.{}.svc", namespace(api));
        let tls = !text(&api["spec"], &format!("/tls/api/{endpoint}/secretName")).is_empty();
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
