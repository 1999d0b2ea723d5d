//! Child processes and a folder that are always cleaned up.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};

/// Reads the ids of processes and the paths of control groups, a line each. When its input ends although nobody said
/// `done`, whoever started them is gone: they are killed, what is mounted in the
/// folder is unmounted, and the groups and the folder are removed.
const WATCHMAN: &str = r#"
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
    # A group is not empty before the last that was killed in it is gone.
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

/// Runs programs in a folder of their own. They end, and the folder goes, with this value; and also when this process
/// is killed before it could drop it: a watchman waits for that.
#[derive(Debug)]
pub struct Guard {
    folder: PathBuf,
    watchman: Child,
    children: Vec<(String, Child)>,
}

impl Guard {
    /// A new, empty folder among the temporary ones, and nothing running yet.
    pub fn new() -> Result<Guard> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("stead-testbed-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let watchman = Command::new("sh")
            .args(["-c", WATCHMAN, "watchman"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("running sh")?;
        Ok(Guard { folder, watchman, children: Vec::new() })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the output of a program goes.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    /// Runs a program in the folder. It is in a process group of its own, so that a Ctrl-C reaches us alone.
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
        let line = self.watchman.stdin.as_mut().context("the watchman has no input")?;
        writeln!(line, "{id}").context("telling the watchman")
    }

    /// All that is in a control group (cgroup v2) is killed, and the group removed, if this process is killed. To do so
    /// before is for whoever made it. Its path has no spaces.
    pub fn mind_group(&mut self, group: &Path) -> Result<()> {
        let line = self.watchman.stdin.as_mut().context("the watchman has no input")?;
        writeln!(line, "{}", group.display()).context("telling the watchman")
    }

    /// Fails if a program has ended by itself, with the last that it said.
    pub(crate) fn all_run(&mut self) -> Result<()> {
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
        // Who depends on another ends first. Their state goes with them, so nobody needs to end in order; and what
        // fails here has ended already.
        for (_, child) in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
        // The ids may soon be those of others: the watchman must not go by them any more.
        if let Some(mut line) = self.watchman.stdin.take() {
            let _ = line.write_all(b"done\n");
        }
        let _ = self.watchman.wait();
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
    fn nothing_is_left_after_a_drop() {
        let mut guard = Guard::new().unwrap();
        let (process, folder) = (sleeper(&mut guard), guard.folder().to_owned());
        assert!(process.exists() && folder.is_dir());
        guard.all_run().unwrap();
        drop(guard);
        assert!(!process.exists() && !folder.exists());
    }

    #[test]
    fn nothing_is_left_when_nobody_could_drop_it() {
        let mut guard = Guard::new().unwrap();
        let (process, folder) = (sleeper(&mut guard), guard.folder().to_owned());
        drop(guard.watchman.stdin.take());
        guard.watchman.wait().unwrap();
        guard.children[0].1.wait().unwrap();
        assert!(!process.exists() && !folder.exists());
    }

    #[test]
    fn a_program_that_ends_is_named() {
        let mut guard = Guard::new().unwrap();
        let args = ["-c", "echo no such option; exit 3"].map(str::to_owned);
        guard.spawn("etcd", Path::new("sh"), &args, &[]).unwrap();
        guard.children[0].1.wait().unwrap();
        let said = guard.all_run().unwrap_err().to_string();
        assert!(said.contains("etcd ended") && said.contains("no such option"), "{said}");
    }
}
