//! Stand-in nodes that run each pod as processes, on a real control plane, for tests.
//!
//! [`Machines`] are the nodes of a test bed's control plane. What a kubelet, a container runtime, a network plugin and a
//! cluster's DNS do for a pod is done here with the kernel's own means: `host.rs` has the nodes and `life.rs` the life
//! of a pod (`run.rs`), with its volumes (`volumes.rs`; those that are attached are disks of `storage.rs`, which can be
//! pulled out of a machine, `disk.rs`, under the eyes of `witness.rs`), containers (`container.rs`, started and ended by
//! `supervise.rs`, asked by `probes.rs`) and status (`pod_state.rs`, written by `report.rs`). `network.rs` is a switch
//! that can be cut in two, `dns.rs` answers from what `zone.rs` knows, `forward.rs` leads to the API server, which
//! comes to `kubelet_port.rs` for logs and commands.
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
//! It knows nothing of what the pods do, and nothing of the rest of the project but the test bed.

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
mod life;
mod machines;
mod network;
mod objects;
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
