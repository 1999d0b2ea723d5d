//! A container: processes with their own root file system, process table and host name.
//!
//! Its root file system is an overlay on the host's: what it writes is removed with it. Its first process is the
//! container's command, as with any container runtime, so signals behave the same.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use anyhow::{Context, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{chdir, pivot_root, sethostname};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;

use crate::enter::{Network, on_thread};
use crate::group::Group;

/// Starts a container: joins the control group, whose `cgroup.procs` is the standard input, mounts `/proc`, which must
/// happen inside the new PID namespace, and executes the command.
const START_SCRIPT: &str = r#"echo 0 >&0 || exit 125
exec </dev/null
/bin/mount -t proc proc /proc || exit 125
cd "$1" || exit 125
shift
exec "$@""#;

/// Runs a command in a running container.
const EXEC_SCRIPT: &str = r#"echo 0 >&0 || exit 125
exec </dev/null
exec "$@""#;

/// Runs a command with a standard input in a running container. It waits until it was moved into the control group.
const EXEC_WITH_INPUT_SCRIPT: &str = r#"read -r go || exit 125
exec "$@""#;

/// The device files of a container.
const DEVICES: [&str; 7] = ["null", "zero", "full", "random", "urandom", "tty", "fuse"];

/// Where the host's root is mounted while a container's root is set up.
const HOST_ROOT: &str = "/.outside";

/// A file or directory of the host that is mounted into a container.
#[derive(Debug, Clone)]
pub(crate) struct Mount {
    pub(crate) source: PathBuf,
    pub(crate) target: String,
    pub(crate) read_only: bool,
}

/// Everything that is needed to start a container.
pub(crate) struct ContainerPlan {
    /// The directory for what it writes to its root.
    pub(crate) folder: PathBuf,
    pub(crate) network: Network,
    pub(crate) group: Group,
    pub(crate) hostname: String,
    /// The files that a kubelet writes: path below `/etc`, and content.
    pub(crate) etc: Vec<(&'static str, String)>,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) command: Vec<String>,
    pub(crate) working_dir: String,
    pub(crate) log: PathBuf,
}

impl ContainerPlan {
    /// Starts the container.
    pub(crate) fn launch(&self, runtime: &Handle) -> Result<Child> {
        let root = self.create_directories()?;
        let log = open_log(&self.log)?;
        let procs_file = self.group.procs_file()?;
        on_thread(|| {
            use CloneFlags as C;
            let new = C::CLONE_FS | C::CLONE_NEWNS | C::CLONE_NEWPID | C::CLONE_NEWUTS | C::CLONE_NEWIPC;
            unshare(new).context("creating the namespaces of a container")?;
            self.network.enter()?;
            sethostname(&self.hostname).context("the host name of a container")?;
            self.set_up_root(&root)?;
            let _runtime = runtime.enter();
            let mut command = Command::new("/bin/sh");
            command.args(["-c", START_SCRIPT, "sh", &self.working_dir]).args(&self.command);
            command.stdin(procs_file).stdout(log.try_clone().context("the log of a container")?).stderr(log);
            // Only the test gets Ctrl-C.
            command.env_clear().envs(&self.env).process_group(0).kill_on_drop(true);
            command.spawn().context("starting a container")
        })
    }

    fn create_directories(&self) -> Result<PathBuf> {
        let create = |name: &str| {
            let path = self.folder.join(name);
            std::fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
            Ok::<PathBuf, anyhow::Error>(path)
        };
        create("work")?;
        let etc = create("upper/etc")?;
        for (name, content) in &self.etc {
            let path = etc.join(name);
            std::fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
        }
        create("root")
    }

    /// Sets up the root file system and switches this thread to it.
    fn set_up_root(&self, root: &Path) -> Result<()> {
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).context("making mounts private")?;
        let layers = format!(
            "lowerdir=/,upperdir={},workdir={}",
            self.folder.join("upper").display(),
            self.folder.join("work").display()
        );
        mount(Some("overlay"), root, Some("overlay"), MsFlags::empty(), Some(layers.as_str()))
            .with_context(|| format!("mounting an overlay at {}", root.display()))?;
        let host_root = root.join(HOST_ROOT.trim_start_matches('/'));
        std::fs::create_dir_all(&host_root).with_context(|| format!("creating {}", host_root.display()))?;
        pivot_root(root, &host_root).context("changing the root of a container")?;
        chdir("/").context("changing the root of a container")?;
        for (path, options) in [("/tmp", "mode=1777"), ("/run", "mode=755"), ("/dev", "mode=755")] {
            mount_new("tmpfs", path, MsFlags::MS_NOSUID, options)?;
        }
        mount_new("sysfs", "/sys", MsFlags::MS_RDONLY, "")?;
        mount_devices()?;
        for mount in &self.mounts {
            bind(mount)?;
        }
        umount2(HOST_ROOT, MntFlags::MNT_DETACH).context("unmounting the host's root")?;
        std::fs::remove_dir(HOST_ROOT).context("unmounting the host's root")
    }
}

fn mount_new(kind: &str, path: &str, flags: MsFlags, options: &str) -> Result<()> {
    std::fs::create_dir_all(path).with_context(|| format!("creating {path}"))?;
    mount(Some(kind), path, Some(kind), flags, Some(options)).with_context(|| format!("mounting {kind} at {path}"))
}

fn mount_devices() -> Result<()> {
    for name in DEVICES {
        let source = PathBuf::from(format!("{HOST_ROOT}/dev/{name}"));
        if source.exists() {
            let target = format!("/dev/{name}");
            File::create(&target).with_context(|| format!("creating {target}"))?;
            bind_path(&source, Path::new(&target), false)?;
        }
    }
    mount_new("tmpfs", "/dev/shm", MsFlags::MS_NOSUID, "mode=1777")?;
    mount_new("devpts", "/dev/pts", MsFlags::MS_NOSUID, "newinstance,ptmxmode=0666,mode=620")?;
    for (name, target) in
        [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2"), ("ptmx", "pts/ptmx")]
    {
        symlink(target, format!("/dev/{name}")).with_context(|| format!("creating /dev/{name}"))?;
    }
    Ok(())
}

fn bind(mount: &Mount) -> Result<()> {
    let source = PathBuf::from(format!("{HOST_ROOT}{}", mount.source.display()));
    let target = Path::new(&mount.target);
    if source.is_dir() {
        std::fs::create_dir_all(target).with_context(|| format!("creating {}", mount.target))?;
    } else if !target.exists() {
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
        }
        File::create(target).with_context(|| format!("creating {}", mount.target))?;
    }
    bind_path(&source, target, mount.read_only)
}

fn bind_path(source: &Path, target: &Path, read_only: bool) -> Result<()> {
    let none: Option<&str> = None;
    let action = || format!("mounting {} at {}", source.display(), target.display());
    mount(Some(source), target, none, MsFlags::MS_BIND | MsFlags::MS_REC, none).with_context(action)?;
    if read_only {
        let remount = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(none, target, none, remount, none).with_context(action)?;
    }
    Ok(())
}

fn open_log(path: &Path) -> Result<File> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
    }
    OpenOptions::new().create(true).append(true).open(path).with_context(|| format!("writing {}", path.display()))
}

/// A running container, in which further commands can be run.
#[derive(Debug, Clone)]
pub(crate) struct RunningContainer {
    /// Its first process, in the host's PID namespace.
    pub(crate) pid: i32,
    pub(crate) group: Group,
    pub(crate) env: BTreeMap<String, String>,
}

impl RunningContainer {
    /// Runs a command in the container. It is killed if the future is dropped.
    pub(crate) async fn exec(&self, args: &[String]) -> Result<Output> {
        let runtime = Handle::current();
        let (this, args) = (self.clone(), args.to_vec());
        let procs_file = self.group.procs_file()?;
        let start = move || this.start(EXEC_SCRIPT, procs_file.into(), &args, &runtime);
        let child = tokio::task::spawn_blocking(start).await.context("the thread that starts a command")??;
        child.wait_with_output().await.context("waiting for a command in a container")
    }

    /// Starts a command in the container with piped streams. It is killed when the returned value is dropped.
    pub(crate) async fn spawn(&self, args: &[String]) -> Result<Child> {
        let runtime = Handle::current();
        let (this, args) = (self.clone(), args.to_vec());
        let start = move || this.start(EXEC_WITH_INPUT_SCRIPT, Stdio::piped(), &args, &runtime);
        let mut child = tokio::task::spawn_blocking(start).await.context("the thread that starts a command")??;
        let pid = child.id().context("a command in a container terminated immediately")?;
        self.group.procs_file()?.write_all(pid.to_string().as_bytes()).context("the control group of a container")?;
        let input = child.stdin.as_mut().context("a command without standard input")?;
        input.write_all(b"go\n").await.context("starting a command in a container")?;
        Ok(child)
    }

    fn start(&self, script: &str, input: Stdio, args: &[String], runtime: &Handle) -> Result<Child> {
        let open = |name: &str| {
            let path = format!("/proc/{}/ns/{name}", self.pid);
            File::open(&path).context("the container has ended")
        };
        let spaces = [open("net")?, open("uts")?, open("ipc")?, open("pid")?, open("mnt")?];
        on_thread(|| {
            unshare(CloneFlags::CLONE_FS).context("unsharing the file system attributes")?;
            for space in &spaces {
                setns(space, CloneFlags::empty()).context("entering a container")?;
            }
            let _runtime = runtime.enter();
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script, "sh"]).args(args).env_clear().envs(&self.env);
            command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
            command.spawn().context("starting a command in a container")
        })
    }
}
