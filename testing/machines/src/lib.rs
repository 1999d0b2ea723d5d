//! Stand-in nodes that run each pod as processes, on a real control plane, for tests.
//!
//! [`Machines`] are the nodes of a testbed's control plane. They do what a kubelet, a container runtime, a network
//! plugin and the cluster's DNS do for a pod, with kernel namespaces, control groups and FUSE.
//!
//! - `host.rs`: the nodes. `pod_lifecycle.rs`: the lifecycle of a pod (`run.rs`).
//! - Volumes: `volumes.rs` creates them. Attachable ones are disks (`storage.rs`, `disk.rs`), which can be detached
//!   while they are mounted; `witness.rs` records who could write.
//! - Containers: `container.rs`, started and stopped by `supervise.rs`, probed by `probes.rs`.
//! - Status: `pod_state.rs` computes it, `report.rs` writes it.
//! - Network: `network.rs` is a switch that can be split in two, `dns.rs` answers from `zone.rs`, `forward.rs` leads to
//!   the API server, which uses `kubelet_port.rs` for logs and commands.
//!
//! ```no_run
//! # async fn test() -> anyhow::Result<()> {
//! use stead_machines::{Machines, Setup};
//! use stead_testbed::{Binaries, ClusterSpec, ControlPlane, Options};
//!
//! let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
//! if !Machines::can_run_or_skip() {
//!     return Ok(());
//! }
//! let plane = ControlPlane::start(&binaries, Options { fast: true, ..Options::default() }).await?;
//! let machines = Machines::start(&plane, Setup { cluster: ClusterSpec::seven(), ..Setup::default() }).await?;
//! machines.ready().await?;
//! # Ok(())
//! # }
//! ```
//!
//! It does not know what the pods do, and of the rest of the project it uses only the testbed.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]
#![cfg(target_os = "linux")]

mod container;
mod disk;
mod dns;
mod egress;
mod enter;
mod environment;
mod forward;
mod group;
mod host;
mod images;
mod kubelet_port;
mod machines;
mod network;
mod objects;
mod pod_lifecycle;
mod pod_state;
mod probes;
mod report;
mod requirements;
mod resolver;
mod run;
mod storage;
mod supervise;
mod volumes;
mod witness;
mod zone;

pub use environment::expand;
pub use group::Usage;
pub use images::{Image, Images};
pub use machines::{Api, Machines, Setup};
pub use witness::{End, Interval, Moment, Violation};
