//! The suites that need real components, or too much time for `cargo xtask ci`.

/// A suite.
pub(super) struct Suite {
    pub(super) name: &'static str,
    /// What it shows.
    pub(super) about: &'static str,
    pub(super) run: Run,
    /// Whether it is about seconds, so that nothing else may run beside it.
    pub(super) alone: bool,
    /// Its environment variables.
    pub(super) env: &'static [(&'static str, &'static str)],
}

/// How a suite is run.
#[derive(Clone, Copy)]
pub(super) enum Run {
    /// A test program, and which of its tests.
    Tests(&'static str, &'static [&'static str]),
    /// A program of `testing/`, and its arguments.
    Program(&'static str, &'static [&'static str]),
}

use Run::{Program, Tests};

const fn suite(name: &'static str, about: &'static str, run: Run) -> Suite {
    Suite { name, about, run, alone: false, env: &[] }
}

const fn alone(name: &'static str, about: &'static str, run: Run) -> Suite {
    Suite { name, about, run, alone: true, env: &[] }
}

const SCENARIOS: &str = "stead-scenarios";
const ORACLE: &str = "stead-oracle";
const AGREE: &str = "stead-agree";

/// All suites. Those that take longest come first, so that the end is not one long suite alone.
pub(super) const SUITES: &[Suite] = &[
    suite("gluster", "every scene of a pool on real glusterd", Program(SCENARIOS, &["gluster", "--scenes"])),
    suite(
        "recoveries",
        "20 random recoveries under random faults",
        Program(SCENARIOS, &["recoveries", "--runs", "20"]),
    ),
    Suite {
        env: &[("STEAD_RECOVERY_RUNS", "25000")],
        ..suite(
            "recovery-seeds",
            "25,000 seeded recoveries in a simulated cluster",
            Tests("recovery", &["seeds::never_two_writers"]),
        )
    },
    suite("operators", "the recordings of the OpenStack operators", Program(SCENARIOS, &["operators"])),
    suite(
        "gluster-faults",
        "5 random runs of a pool with two faults at a time",
        Program(SCENARIOS, &["gluster", "--runs", "5"]),
    ),
    suite("report-cinder", "the field reports about Cinder", Program(SCENARIOS, &["report", "cinder"])),
    suite("report-gluster", "the field report about Gluster", Program(SCENARIOS, &["report", "gluster"])),
    suite(
        "report-glance",
        "the field report about Glance, with its recovery",
        Program(SCENARIOS, &["report", "glance"]),
    ),
    suite(
        "disturb",
        "a walk-through with the operator killed 20 times, and behind a faulty proxy",
        Program(SCENARIOS, &["disturb", "--kills", "20", "--proxies", "2"]),
    ),
    suite("recover", "stead recover, also killed after every write", Tests("stead", &["recover::", "recoveries::"])),
    suite("machines", "pods as processes, and their volumes", Tests("machines", &[])),
    suite("rights", "the operator uses exactly the rights that it is granted", Tests("stead", &["rights::"])),
    suite("refusals", "what stead recover refuses, without writing anything", Tests("stead", &["refusals::"])),
    suite("topologies", "Topologies in every place that refers to one", Tests("stead", &["topologies::"])),
    suite("newcomers", "what stead says about common mistakes", Tests("stead", &["newcomers::"])),
    suite("dump", "a dump gives the answers of the cluster", Tests("stead", &["dump::"])),
    suite("install", "stead install and uninstall", Tests("stead", &["install::"])),
    suite("kubernetes-1.29", "install, Glance, Gluster and explain on 1.29", Tests("stead", &["kubernetes_1_29::"])),
    suite("monitoring", "the alert rules, judged by promtool", Tests("monitoring", &[])),
    suite(
        "helm",
        "the chart with Helm 3 and 4: render, install, upgrade, uninstall",
        Tests("dist", &["chart::", "helm::"]),
    ),
    suite("dist", "the release artifacts, judged by the tools that read them", Tests("dist", &["artifacts::"])),
    suite("gluster-command", "stead gluster manifests and status", Tests("stead", &["gluster::"])),
    suite("manifests", "admission policies, and the takeover of a pool", Tests("manifests", &[])),
    suite("operator", "the operator's life: elections, restarts, drift", Tests("operator", &[])),
    suite("testbed", "the testbed itself", Tests("testbed", &[])),
    suite("smoke", "the smoke test of cargo xtask ci", Tests("smoke", &[])),
    suite("glance", "a real Glance from the rendered objects", Program(SCENARIOS, &["glance"])),
    suite("fixes", "every fix for the recorded cases, judged by kube-scheduler", Program(ORACLE, &["fixes"])),
    suite("verdicts", "4000 fresh cases, judged by kube-scheduler", Program(ORACLE, &["verdicts", "--count", "4000"])),
    suite(
        "verdicts-odd",
        "2000 odd cases, judged by kube-scheduler",
        Program(ORACLE, &["verdicts", "--count", "2000", "--gen", "real/odd_cases.py"]),
    ),
    alone("scale", "200 GlanceAPIs, and a restart of the operator", Program(SCENARIOS, &["scale"])),
    alone("agree", "the simulation in 30 random situations", Program(AGREE, &["--count", "30"])),
    alone("forecasts", "forecasts for 40 random outages", Program(SCENARIOS, &["forecasts"])),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SUITES.len());
    }
}
