//! A container: processes with their own root file system, process table and host name.
//!
//! Its files are the host's, seen through an overlay: what it writes is removed with it. Its first process is the
//! container's own program, as with any container runtime, so signals behave as there.

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

/// Joins the control group, whose door is the standard input, and becomes the container's program. What only a process
/// within the new process namespace can do is done here: `/proc` is that of whoever mounts it.
const FIRST: &str = r#"echo 0 >&0 || exit 125
exec </dev/null
/bin/mount -t proc proc /proc || exit 125
cd "$1" || exit 125
shift
exec "$@""#;

/// The same for a program that comes to a container that is there.
const ANOTHER: &str = r#"echo 0 >&0 || exit 125
exec </dev/null
exec "$@""#;

/// The same for a program that has an input of its own: it begins when whoever started it has put it into the group.
const AWAITED: &str = r#"read -r go || exit 125
exec "$@""#;

/// Device files that a container has.
const DEVICES: [&str; 7] = ["null", "zero", "full", "random", "urandom", "tty", "fuse"];

/// Where the host's files are while a root is being furnished.
const OUTSIDE: &str = "/.outside";

/// Something of the host at a path of a container.
#[derive(Debug, Clone)]
pub(crate) struct Mount {
    pub(crate) source: PathBuf,
    pub(crate) target: String,
    pub(crate) read_only: bool,
}

/// All that a container is made from.
pub(crate) struct Plan {
    /// A directory of its own, for what it writes to its root.
    pub(crate) folder: PathBuf,
    pub(crate) network: Network,
    pub(crate) group: Group,
    pub(crate) hostname: String,
    /// The files that a kubelet writes: a path below `/etc`, and what it says.
    pub(crate) etc: Vec<(&'static str, String)>,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) words: Vec<String>,
    pub(crate) working_dir: String,
    pub(crate) log: PathBuf,
}

impl Plan {
    /// Starts it.
    pub(crate) fn launch(&self, runtime: &Handle) -> Result<Child> {
        let root = self.folders()?;
        let log = open_log(&self.log)?;
        let door = self.group.door()?;
        on_thread(|| {
            use CloneFlags as C;
            let new = C::CLONE_FS | C::CLONE_NEWNS | C::CLONE_NEWPID | C::CLONE_NEWUTS | C::CLONE_NEWIPC;
            unshare(new).context("making the namespaces of a container")?;
            self.network.enter()?;
            sethostname(&self.hostname).context("the host name of a container")?;
            self.furnish(&root)?;
            let _runtime = runtime.enter();
            let mut command = Command::new("/bin/sh");
            command.args(["-c", FIRST, "sh", &self.working_dir]).args(&self.words);
            command.stdin(door).stdout(log.try_clone().context("the log of a container")?).stderr(log);
            // A Ctrl-C is for the test alone.
            command.env_clear().envs(&self.env).process_group(0).kill_on_drop(true);
            command.spawn().context("starting a container")
        })
    }

    fn folders(&self) -> Result<PathBuf> {
        let make = |name: &str| {
            let path = self.folder.join(name);
            std::fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
            Ok::<PathBuf, anyhow::Error>(path)
        };
        make("work")?;
        let etc = make("upper/etc")?;
        for (name, content) in &self.etc {
            let path = etc.join(name);
            std::fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
        }
        make("root")
    }

    /// Makes the root file system, and makes it this thread's.
    fn furnish(&self, root: &Path) -> Result<()> {
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).context("mounts of its own")?;
        let layers = format!(
            "lowerdir=/,upperdir={},workdir={}",
            self.folder.join("upper").display(),
            self.folder.join("work").display()
        );
        mount(Some("overlay"), root, Some("overlay"), MsFlags::empty(), Some(layers.as_str()))
            .with_context(|| format!("mounting an overlay at {}", root.display()))?;
        let outside = root.join(OUTSIDE.trim_start_matches('/'));
        std::fs::create_dir_all(&outside).with_context(|| format!("making {}", outside.display()))?;
        pivot_root(root, &outside).context("changing the root of a container")?;
        chdir("/").context("changing the root of a container")?;
        for (path, options) in [("/tmp", "mode=1777"), ("/run", "mode=755"), ("/dev", "mode=755")] {
            fresh("tmpfs", path, MsFlags::MS_NOSUID, options)?;
        }
        fresh("sysfs", "/sys", MsFlags::MS_RDONLY, "")?;
        devices()?;
        for mount in &self.mounts {
            bind(mount)?;
        }
        umount2(OUTSIDE, MntFlags::MNT_DETACH).context("leaving the host's files")?;
        std::fs::remove_dir(OUTSIDE).context("leaving the host's files")
    }
}

fn fresh(kind: &str, path: &str, flags: MsFlags, options: &str) -> Result<()> {
    std::fs::create_dir_all(path).with_context(|| format!("making {path}"))?;
    mount(Some(kind), path, Some(kind), flags, Some(options)).with_context(|| format!("mounting {kind} at {path}"))
}

fn devices() -> Result<()> {
    for name in DEVICES {
        let source = PathBuf::from(format!("{OUTSIDE}/dev/{name}"));
        if source.exists() {
            let target = format!("/dev/{name}");
            File::create(&target).with_context(|| format!("making {target}"))?;
            bind_path(&source, Path::new(&target), false)?;
        }
    }
    fresh("tmpfs", "/dev/shm", MsFlags::MS_NOSUID, "mode=1777")?;
    fresh("devpts", "/dev/pts", MsFlags::MS_NOSUID, "newinstance,ptmxmode=0666,mode=620")?;
    for (name, target) in
        [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2"), ("ptmx", "pts/ptmx")]
    {
        symlink(target, format!("/dev/{name}")).with_context(|| format!("making /dev/{name}"))?;
    }
    Ok(())
}

fn bind(mount: &Mount) -> Result<()> {
    let source = PathBuf::from(format!("{OUTSIDE}{}", mount.source.display()));
    let target = Path::new(&mount.target);
    if source.is_dir() {
        std::fs::create_dir_all(target).with_context(|| format!("making {}", mount.target))?;
    } else if !target.exists() {
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
        }
        File::create(target).with_context(|| format!("making {}", mount.target))?;
    }
    bind_path(&source, target, mount.read_only)
}

fn bind_path(source: &Path, target: &Path, read_only: bool) -> Result<()> {
    let none: Option<&str> = None;
    let said = || format!("mounting {} at {}", source.display(), target.display());
    mount(Some(source), target, none, MsFlags::MS_BIND | MsFlags::MS_REC, none).with_context(said)?;
    if read_only {
        let again = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(none, target, none, again, none).with_context(said)?;
    }
    Ok(())
}

fn open_log(path: &Path) -> Result<File> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
    }
    OpenOptions::new().create(true).append(true).open(path).with_context(|| format!("writing {}", path.display()))
}

/// A container that runs, for those who want to run something more in it.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    /// Its first process, as the host counts.
    pub(crate) pid: i32,
    pub(crate) group: Group,
    pub(crate) env: BTreeMap<String, String>,
}

impl Running {
    /// Runs a program in it, which is killed if nobody waits for it any more.
    pub(crate) async fn exec(&self, words: &[String]) -> Result<Output> {
        let runtime = Handle::current();
        let (this, words) = (self.clone(), words.to_vec());
        let door = self.group.door()?;
        let start = move || this.start(ANOTHER, door.into(), &words, &runtime);
        let child = tokio::task::spawn_blocking(start).await.context("a thread that starts a program")??;
        child.wait_with_output().await.context("waiting for a program in a container")
    }

    /// Starts a program in it that can be spoken with. It is killed with the value.
    pub(crate) async fn spawn(&self, words: &[String]) -> Result<Child> {
        let runtime = Handle::current();
        let (this, words) = (self.clone(), words.to_vec());
        let start = move || this.start(AWAITED, Stdio::piped(), &words, &runtime);
        let mut child = tokio::task::spawn_blocking(start).await.context("a thread that starts a program")??;
        let pid = child.id().context("a program in a container ended at once")?;
        self.group.door()?.write_all(pid.to_string().as_bytes()).context("the control group of a container")?;
        let input = child.stdin.as_mut().context("a program without an input")?;
        input.write_all(b"go\n").await.context("starting a program in a container")?;
        Ok(child)
    }

    fn start(&self, script: &str, input: Stdio, words: &[String], runtime: &Handle) -> Result<Child> {
        let open = |name: &str| {
            let path = format!("/proc/{}/ns/{name}", self.pid);
            File::open(&path).context("the container has ended")
        };
        let spaces = [open("net")?, open("uts")?, open("ipc")?, open("pid")?, open("mnt")?];
        on_thread(|| {
            unshare(CloneFlags::CLONE_FS).context("leaving what threads share")?;
            for space in &spaces {
                setns(space, CloneFlags::empty()).context("entering a container")?;
            }
            let _runtime = runtime.enter();
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script, "sh"]).args(words).env_clear().envs(&self.env);
            command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
            command.spawn().context("starting a program in a container")
        })
    }
}
