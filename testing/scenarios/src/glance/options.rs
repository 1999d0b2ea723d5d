//! Whether a real Glance knows the options of a file.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::glance::needed::Glance;

/// Where Glance and the libraries that it uses say what their options are.
const NAMESPACES: [&str; 13] = [
    "glance.api",
    "glance.store",
    "glance.multi_store",
    "glance.manage",
    "glance",
    "keystonemiddleware.auth_token",
    "oslo.concurrency",
    "oslo.db",
    "oslo.limit",
    "oslo.log",
    "oslo.messaging",
    "oslo.middleware.http_proxy_to_wsgi",
    "oslo.policy",
];

/// Sections that have the name of a store: Glance knows them by what `enabled_backends` says.
const STORES: [&str; 3] = ["default_backend", "os_glance_staging_store", "os_glance_tasks_store"];

/// Options that only an older Glance knows: the address and the processes of the server of its own that it had until
/// 31, and what oslo.policy has been doing without being told since its version 6. A newer one passes over them.
const OLDER: [&str; 4] = ["DEFAULT/bind_host", "DEFAULT/bind_port", "DEFAULT/workers", "oslo_policy/enforce_scope"];

/// An option that oslo.limit adds when it first asks Keystone, and that its list leaves out. That it is understood
/// shows when Keystone is asked for limits.
const UNLISTED: &str = "oslo_limit/auth_type";

/// Asks oslo-config-validator. Gives the number of options, and those of them that only an older Glance knows.
pub(crate) fn check(glance: &Glance, file: &Path) -> Result<(usize, Vec<String>)> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let mut validator = Command::new(glance.environment.join("bin/oslo-config-validator"));
    validator.args(NAMESPACES.iter().flat_map(|namespace| ["--namespace", namespace]));
    validator.args(STORES.iter().flat_map(|store| ["--exclude-group", store]));
    let output = validator.arg("--input-file").arg(file).output().context("running oslo-config-validator")?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let faults: Vec<&str> = said
        .lines()
        .filter_map(|line| line.split_once("ERROR:oslo_config.validator:"))
        .map(|(_, fault)| fault)
        .filter(|fault| !fault.starts_with(UNLISTED))
        .collect();
    ensure!(output.status.success() || !faults.is_empty(), "oslo-config-validator failed:\n{said}");
    let option = |fault: &&str| fault.split(' ').next().unwrap_or_default().to_owned();
    let (older, unknown): (Vec<&str>, Vec<&str>) =
        faults.iter().partition(|fault| OLDER.contains(&option(fault).as_str()));
    ensure!(unknown.is_empty(), "oslo-config-validator says {}", unknown.join("; "));
    Ok((text.lines().filter(|line| line.contains('=')).count(), older.iter().map(option).collect()))
}
