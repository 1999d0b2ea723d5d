//! What is reached over the network: endpoints of a service, and containers.

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use stead_sim::{MachineState, Simulation};

use super::{ExecExpectation, Pattern, ServingExpectation, View};

impl ServingExpectation {
    pub(super) fn holds(&self, view: View<'_>) -> Result<(), String> {
        let of_service = |slice: &&std::sync::Arc<EndpointSlice>| {
            let labels = slice.metadata.labels.as_ref();
            labels.and_then(|labels| labels.get("kubernetes.io/service-name")) == Some(&self.service)
        };
        let slices = view.simulation.store().all_in::<EndpointSlice>(view.namespace).filter(of_service);
        let endpoints = slices.flat_map(|slice| slice.endpoints.iter().flatten());
        let ready = endpoints.filter(|e| e.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true)).count();
        match ready == self.endpoints {
            true => Ok(()),
            false => Err(format!("service {} has {ready} ready endpoints, not {}", self.service, self.endpoints)),
        }
    }
}

/// The port of the kubelet.
const KUBELET_PORT: u16 = 10250;

impl ExecExpectation {
    pub(super) fn holds(&self, view: View<'_>) -> Result<(), String> {
        let pod = view.simulation.store().get::<Pod>(view.namespace, &self.pod);
        let Some(pod) = pod else { return Err(format!("there is no pod {}", self.pod)) };
        let name = &self.pod;
        match (exec_error(view.simulation, pod), &self.error) {
            (None, None) => Ok(()),
            (None, Some(wanted)) => Err(format!("a command runs in pod {name}, instead of failing with {wanted:?}")),
            (Some(error), None) => Err(format!("a command in pod {name} fails: {error}")),
            (Some(error), Some(wanted)) if Pattern::new(wanted).matches(&error) => Ok(()),
            (Some(error), Some(wanted)) => Err(format!("a command in pod {name} fails with {error:?}, not {wanted:?}")),
        }
    }
}

/// The error of `kubectl exec`, which goes through the API server to the kubelet; none if the command runs.
fn exec_error(simulation: &Simulation, pod: &Pod) -> Option<String> {
    let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let node = spec.and_then(|spec| spec.node_name.as_deref()).filter(|node| !node.is_empty());
    let Some(node) = node else {
        return Some(format!("Error from server (BadRequest): pod {name} does not have a host assigned"));
    };
    let cannot_dial = |why: &str| {
        let address = address(simulation, node);
        Some(format!("Error from server: error dialing backend: dial tcp {address}:{KUBELET_PORT}: connect: {why}"))
    };
    match simulation.world().state(node) {
        MachineState::Off | MachineState::Suspended | MachineState::Partitioned | MachineState::Unknown => {
            cannot_dial("no route to host")
        }
        MachineState::KubeletStopped => cannot_dial("connection refused"),
        MachineState::Running => {
            let statuses = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
            let first = spec.and_then(|spec| spec.containers.first()).map(|container| container.name.as_str());
            let state = statuses.iter().find(|status| Some(status.name.as_str()) == first)?.state.as_ref();
            let runs = state.is_some_and(|state| state.running.is_some());
            let container = first.unwrap_or_default();
            (!runs).then(|| format!("error: Internal error occurred: unable to upgrade connection: container not found (\"{container}\")"))
        }
    }
}

fn address(simulation: &Simulation, node: &str) -> String {
    let node = simulation.store().get::<Node>("", node);
    let addresses = node.and_then(|node| node.status.as_ref()?.addresses.as_ref());
    let internal = addresses.and_then(|all| all.iter().find(|address| address.type_ == "InternalIP"));
    internal.map(|address| address.address.clone()).unwrap_or_default()
}
