//! Checks that a real Glance knows the options of a configuration file.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::glance::prerequisites::Glance;

/// The namespaces in which Glance and its libraries list their options.
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

/// Sections that are named after a store: Glance learns their names from `enabled_backends`.
const STORES: [&str; 3] = ["default_backend", "os_glance_staging_store", "os_glance_tasks_store"];

/// Options that only older versions know: address and processes of the server that Glance contained until version 31,
/// and an option of oslo.policy that is always on since version 6. Newer versions ignore them.
const OLD_OPTIONS: [&str; 4] =
    ["DEFAULT/bind_host", "DEFAULT/bind_port", "DEFAULT/workers", "oslo_policy/enforce_scope"];

/// An option that oslo.limit registers only when it first contacts Keystone, so its list lacks it. The request for
/// limits to Keystone shows that it works.
const UNLISTED: &str = "oslo_limit/auth_type";

/// Runs oslo-config-validator. Returns the number of options, and the options that only older versions know.
pub(crate) fn check(glance: &Glance, file: &Path) -> Result<(usize, Vec<String>)> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let mut validator = Command::new(glance.environment.join("bin/oslo-config-validator"));
    validator.args(NAMESPACES.iter().flat_map(|namespace| ["--namespace", namespace]));
    validator.args(STORES.iter().flat_map(|store| ["--exclude-group", store]));
    let output = validator.arg("--input-file").arg(file).output().context("running oslo-config-validator")?;
    let report = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let errors: Vec<&str> = report
        .lines()
        .filter_map(|line| line.split_once("ERROR:oslo_config.validator:"))
        .map(|(_, error)| error)
        .filter(|error| !error.starts_with(UNLISTED))
        .collect();
    ensure!(output.status.success() || !errors.is_empty(), "oslo-config-validator failed:\n{report}");
    let option = |error: &&str| error.split(' ').next().unwrap_or_default().to_owned();
    let (old, unknown): (Vec<&str>, Vec<&str>) =
        errors.iter().partition(|error| OLD_OPTIONS.contains(&option(error).as_str()));
    ensure!(unknown.is_empty(), "oslo-config-validator reports: {}", unknown.join("; "));
    Ok((text.lines().filter(|line| line.contains('=')).count(), old.iter().map(option).collect()))
}
