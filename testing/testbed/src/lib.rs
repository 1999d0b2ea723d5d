//! A real Kubernetes control plane on loopback, with stand-in nodes, for tests.
//!
//! [`Binaries`] finds the Kubernetes programs, [`ControlPlane`] runs them, [`Nodes`] simulates the machines, their
//! kubelets and their storage through the public API, and [`FaultProxy`] injects faults between a client and the API
//! server. A test that needs the programs begins with
//!
//! ```no_run
//! # async fn test() -> anyhow::Result<()> {
//! use stead_testbed::{Binaries, ClusterSpec, ControlPlane, Nodes, Options};
//!
//! let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
//! let plane = ControlPlane::start(&binaries, Options::default()).await?;
//! let nodes = Nodes::start(&plane, ClusterSpec::seven()).await?;
//! nodes.ready().await?;
//! # Ok(())
//! # }
//! ```
//!
//! It does not know the rest of the project: the test decides what runs on the cluster.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod audit;
mod control_plane;
mod guard;
mod kubeconfig;
mod kubectl;
mod nodes;
mod options;
mod proxy;
mod spec;

pub use audit::{AuditEvent, ObjectRef};
pub use control_plane::ControlPlane;
pub use guard::Guard;
pub use kubectl::KubectlOutput;
pub use nodes::{Disks, Instance, JobEnd, Kubelets, Nodes, World, observe};
pub use options::{Options, User};
pub use proxy::{FaultProxy, Faults, RecordedWrite, Tally};
pub use spec::{ClusterSpec, DriverSpec, NodeSpec};
pub use stead_real::{Binaries, Outcome, skip};
