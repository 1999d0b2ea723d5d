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

/// The demo application, which cargo builds beside the program; skips aloud where it is not built.
fn demo_or_skip() -> Option<std::path::PathBuf> {
    let demo = std::path::Path::new(env!("CARGO_BIN_EXE_stead")).with_file_name("cinder-demo");
    if demo.exists() {
        return Some(demo);
    }
    stead_testbed::skip("the demo application is not built: `cargo build --workspace`");
    None
}
