//! Child processes and a directory that are always cleaned up.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};

/// Reads process ids and paths of control groups, one per line. If its input ends without `done`, the process that
/// started it has died: then it kills the processes and groups, unmounts what is mounted in the directory, and removes
/// the groups and the directory.
const WATCHDOG: &str = r#"
trap '' INT TERM HUP
pids= groups=
while read -r word; do
    case $word in
        done) exit 0 ;;
        /*) groups="$groups $word" ;;
        *) pids="$pids $word" ;;
    esac
done
kill -9 $pids 2>/dev/null
for group in $groups; do echo 1 >"$group/cgroup.kill"; done
sleep 0.3
for group in $groups; do
    # A group can be removed only after its last killed process has exited.
    tries=0
    while [ -d "$group" ] && [ $tries -lt 50 ]; do
        find "$group" -depth -type d -exec rmdir {} +
        tries=$((tries + 1))
        [ ! -d "$group" ] || sleep 0.1
    done
done
while read -r _ path _; do case $path in "$1"/*) umount -l "$path" ;; esac; done </proc/mounts
rm -rf -- "$1"
"#;

/// Runs programs in a temporary directory. When this value is dropped, the programs are killed and the directory is
/// removed. If this process is killed first, a watchdog process does the same.
#[derive(Debug)]
pub struct Guard {
    folder: PathBuf,
    watchdog: Child,
    children: Vec<(String, Child)>,
}

impl Guard {
    /// Creates an empty temporary directory, and starts the watchdog.
    pub fn new() -> Result<Guard> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("stead-testbed-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("running sh")?;
        Ok(Guard { folder, watchdog, children: Vec::new() })
    }

    /// The directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The log file of a program.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    /// Runs a program in the directory, in a new process group, so that Ctrl-C reaches only this process.
    pub(crate) fn spawn(&mut self, name: &str, program: &Path, args: &[String], env: &[(&str, &str)]) -> Result<()> {
        let log = self.log(name);
        let output = File::create(&log).with_context(|| format!("writing {}", log.display()))?;
        let child = Command::new(program)
            .args(args)
            .envs(env.iter().copied())
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("the log of a program")?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .with_context(|| format!("running {}", program.display()))?;
        let id = child.id();
        self.children.push((name.to_owned(), child));
        let line = self.watchdog.stdin.as_mut().context("the watchdog has no input")?;
        writeln!(line, "{id}").context("writing to the watchdog")
    }

    /// Has the watchdog kill and remove a control group (cgroup v2) if this process is killed. In all other cases the
    /// caller removes it. Its path must not contain spaces.
    pub fn kill_group_on_exit(&mut self, group: &Path) -> Result<()> {
        let line = self.watchdog.stdin.as_mut().context("the watchdog has no input")?;
        writeln!(line, "{}", group.display()).context("writing to the watchdog")
    }

    /// Fails if a program has terminated, with the end of its log.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        for (name, child) in &mut self.children {
            if let Some(status) = child.try_wait().with_context(|| format!("waiting for {name}"))? {
                let log = std::fs::read_to_string(self.folder.join(format!("{name}.log"))).unwrap_or_default();
                let mut last: Vec<&str> = log.lines().rev().take(5).collect();
                last.reverse();
                bail!("{name} ended with {status}:\n{}", last.join("\n"));
            }
        }
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // In reverse order, so that no program loses one that it depends on. An error means that it has terminated
        // already.
        for (_, child) in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
        // The process ids may be reused: the watchdog must not kill them.
        if let Some(mut line) = self.watchdog.stdin.take() {
            let _ = line.write_all(b"done\n");
        }
        let _ = self.watchdog.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(guard: &mut Guard) -> PathBuf {
        guard.spawn("sleep", Path::new("sleep"), &["100".to_owned()], &[]).unwrap();
        PathBuf::from(format!("/proc/{}/exe", guard.children[0].1.id()))
    }

    #[test]
    fn drop_removes_everything() {
        let mut guard = Guard::new().unwrap();
        let (process, folder) = (sleeper(&mut guard), guard.folder().to_owned());
        assert!(process.exists() && folder.is_dir());
        guard.check_running().unwrap();
        drop(guard);
        assert!(!process.exists() && !folder.exists());
    }

    #[test]
    fn watchdog_removes_everything_without_a_drop() {
        let mut guard = Guard::new().unwrap();
        let (process, folder) = (sleeper(&mut guard), guard.folder().to_owned());
        drop(guard.watchdog.stdin.take());
        guard.watchdog.wait().unwrap();
        guard.children[0].1.wait().unwrap();
        assert!(!process.exists() && !folder.exists());
    }

    #[test]
    fn a_terminated_program_is_reported_with_its_log() {
        let mut guard = Guard::new().unwrap();
        let args = ["-c", "echo no such option; exit 3"].map(str::to_owned);
        guard.spawn("etcd", Path::new("sh"), &args, &[]).unwrap();
        guard.children[0].1.wait().unwrap();
        let message = guard.check_running().unwrap_err().to_string();
        assert!(message.contains("etcd ended") && message.contains("no such option"), "{message}");
    }
}
