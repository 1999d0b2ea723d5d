//! The check for two writers finds a controller with a planted bug, and nothing to complain about without it.
#![expect(clippy::unwrap_used, reason = "tests may fail")]

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use stead_sim::{
    Change, Choices, Context, DeleteOptions, DriverSettings, Item, MachineSpec, MachineState, ObjectKind, Operator,
    Settings, SimKey, SimObject, SimType, Simulation, Step, Wakes, Write,
};

/// A storage driver that leaves a machine its access to a volume that is detached from it.
const DRIVER: &str = "not-revoking.test";

/// The planted bug: a Terminating pod of a StatefulSet is replaced, whether or not its containers have ended.
#[derive(Debug, Clone)]
struct ReplacesTerminatingPods;

fn is_terminating(object: &SimObject) -> bool {
    Pod::of(object).is_some_and(|pod| pod.metadata.deletion_timestamp.is_some())
}

impl Operator for ReplacesTerminatingPods {
    fn affected(&mut self, _: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        if change.key.kind == ObjectKind::Pod && change.after.as_ref().is_some_and(is_terminating) {
            wakes.now(change.key.clone());
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        let Item::Object(key) = item else { return Step::none() };
        if !cx.store.object(key).is_some_and(is_terminating) {
            return Step::none();
        }
        Step::writes(vec![Write::Delete(key.clone(), DeleteOptions { grace: Some(0), ..DeleteOptions::default() })])
    }

    fn fork(&self) -> Box<dyn Operator> {
        Box::new(self.clone())
    }
}

/// A StatefulSet with a volume, on one of three nodes.
fn cluster(seed: u64) -> Simulation {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut settings = Settings::default();
    let keeps_access = DriverSettings { detach_revokes: false, ..DriverSettings::default() };
    settings.storage.drivers.insert(DRIVER.into(), keeps_access);
    let mut simulation = Simulation::new(start, settings, Choices::seeded(seed));
    for name in ["a", "b", "c"] {
        simulation.add_machine(MachineSpec::named(name).with_driver(DRIVER, &[])).unwrap();
    }
    let claim = json!({ "metadata": { "name": "data" }, "spec": { "storageClassName": "disks",
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    for object in [
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": DRIVER },
            "spec": { "attachRequired": true } }),
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "disks" },
            "provisioner": DRIVER }),
        json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db", "namespace": "n" },
            "spec": { "replicas": 1, "serviceName": "db", "selector": { "matchLabels": { "app": "db" } },
                "template": { "metadata": { "labels": { "app": "db" } },
                    "spec": { "containers": [{ "name": "c", "image": "i" }] } },
                "volumeClaimTemplates": [claim] } }),
    ] {
        simulation.request(Write::Create(SimObject::from_json(&object).unwrap())).unwrap();
    }
    simulation.run_for(SignedDuration::from_mins(1)).unwrap();
    simulation
}

fn node_of_pod(simulation: &Simulation) -> String {
    let pod = simulation.store().at::<Pod>(&SimKey::pod("n", "db-0")).unwrap();
    pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap()
}

/// The node of the pod fails for a while. Gives the moments at which two machines could write.
fn outage(mut simulation: Simulation, state: MachineState) -> Vec<String> {
    let node = node_of_pod(&simulation);
    simulation.fail(&node, state).unwrap();
    simulation.run_for(SignedDuration::from_mins(20)).unwrap();
    simulation.heal(&node).unwrap();
    simulation.run_for(SignedDuration::from_mins(5)).unwrap();
    simulation.world().violations().iter().map(ToString::to_string).collect()
}

#[test]
fn a_controller_that_replaces_terminating_pods_is_caught() {
    for seed in 0..10 {
        for (state, caught) in [
            (MachineState::Partitioned, true),
            (MachineState::KubeletStopped, true),
            (MachineState::Suspended, true),
            // Nothing that ran before runs after it.
            (MachineState::Off, false),
        ] {
            let simulation = cluster(seed);
            assert_eq!(outage(simulation.clone(), state), [""; 0], "seed {seed}, {state:?}, without the bug");
            let mut planted = simulation;
            planted.add_operator(Box::new(ReplacesTerminatingPods));
            let found = outage(planted, state);
            assert_eq!(!found.is_empty(), caught, "seed {seed}, {state:?}, with the bug: {found:?}");
            assert!(found.iter().all(|text| text.starts_with("two writers: volume pvc-")), "{found:?}");
        }
    }
}

#[test]
fn a_fork_has_its_own_operator() {
    let mut planted = cluster(1);
    let plain = planted.clone();
    planted.add_operator(Box::new(ReplacesTerminatingPods));
    let both = [planted.clone(), planted, plain].map(|simulation| outage(simulation, MachineState::Partitioned).len());
    assert!(both[0] > 0 && both[0] == both[1] && both[2] == 0, "{both:?}");
}
