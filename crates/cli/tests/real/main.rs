//! `stead` on the real Kubernetes, where that is there. Most of the time is waited for Kubernetes' own timers, so all of
//! it is one program, in which the tests run side by side.

mod disturb;
mod gluster;
mod gluster_pool;
mod install;
mod newcomers;
mod recover;
mod recoveries;
mod refusals;
mod report_glance;
mod rights;
mod scale;
mod scene;
mod topologies;
