//! A shell that somebody types into, and its output.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stead_testbed::ControlPlane;
use tokio::process::{Child, Command};

/// Longer than any line takes, Kubernetes' own timers included: what goes on is told of, and not waited for.
const MOST: Duration = Duration::from_secs(1800);

/// Waits until a line has ended.
async fn ends(line: &str, mut shell: Command) -> Result<Output> {
    let output = tokio::time::timeout(MOST, shell.output()).await;
    output.with_context(|| format!("`{line}` does not end"))?.context("running bash")
}

/// A shell in a folder of files, with kubectl and stead at hand and a cluster to talk to. What is typed is printed, and
/// what comes of it.
pub struct Terminal<'a> {
    folder: PathBuf,
    variables: Vec<(&'static str, OsString)>,
    /// Where a watch writes what it sees.
    scratch: PathBuf,
    out: &'a mut (dyn Write + Send),
}

impl<'a> Terminal<'a> {
    /// A shell in `folder`. `kubectl` and `stead` are the programs that these words stand for.
    pub fn open(
        plane: &ControlPlane,
        kubectl: &Path,
        stead: &Path,
        folder: PathBuf,
        out: &'a mut (dyn Write + Send),
    ) -> Result<Terminal<'a>> {
        let scratch = plane.folder().to_owned();
        // A file of its own: whoever works in a namespace says so in it.
        let kubeconfig = scratch.join("kubeconfig-terminal");
        std::fs::copy(plane.kubeconfig(), &kubeconfig).context("a kubeconfig for the terminal")?;
        let folder_of = |program: &Path| program.parent().map(Path::to_owned).context("a program without a folder");
        let mut path = vec![folder_of(kubectl)?, folder_of(stead)?];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let variables = vec![
            ("PATH", std::env::join_paths(path).context("PATH")?),
            ("KUBECONFIG", kubeconfig.into()),
            ("KUBECACHEDIR", scratch.join("cache").into()),
            ("NO_COLOR", "1".into()),
        ];
        Ok(Terminal { folder, variables, scratch, out })
    }

    /// A heading.
    pub fn heading(&mut self, text: &str) -> Result<()> {
        self.print(&format!("\n{text}\n{}\n", "=".repeat(text.chars().count())))
    }

    /// A remark that is no command.
    pub fn remark(&mut self, text: &str) -> Result<()> {
        self.print(&format!("# {text}\n"))
    }

    fn print(&mut self, text: &str) -> Result<()> {
        self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()).context("printing")
    }

    fn shell(&self, line: &str) -> Command {
        let mut shell = Command::new("bash");
        shell
            .args(["-c", line])
            .current_dir(&self.folder)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        shell
    }

    /// Types a line and prints what comes; that is also the answer. A line that fails is an error.
    pub async fn types(&mut self, line: &str) -> Result<String> {
        self.print(&format!("$ {line}\n"))?;
        let (code, seen) = self.runs(line).await?;
        self.print(&seen)?;
        ensure!(code == Some(0), "`{line}` ended with {code:?}: {}", seen.trim());
        Ok(seen)
    }

    /// Types a line that has to fail, and prints what comes; that is also the answer.
    pub async fn fails(&mut self, line: &str) -> Result<String> {
        self.print(&format!("$ {line}\n"))?;
        let (code, seen) = self.runs(line).await?;
        self.print(&seen)?;
        ensure!(code == Some(1), "`{line}` ended with {code:?}, not with 1: {}", seen.trim());
        Ok(seen)
    }

    /// What a line prints on its standard output, without anybody seeing it. A line that fails is an error.
    pub async fn quietly(&self, line: &str) -> Result<String> {
        let output = ends(line, self.shell(line)).await?;
        ensure!(output.status.success(), "`{line}`: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    async fn runs(&self, line: &str) -> Result<(Option<i32>, String)> {
        // What is complained of stands among what is printed, as on a screen.
        let output = ends(line, self.shell(&format!("exec 2>&1\n{line}"))).await?;
        Ok((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
    }

    /// Edits an object with `kubectl edit`: types into it what a file of the folder says.
    pub async fn edits(&mut self, what: &str, edit: &str) -> Result<()> {
        self.print(&format!("$ kubectl edit {what}\n"))?;
        let path = self.folder.join(edit);
        let typed = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        for line in typed.lines() {
            self.print(&format!("  | {line}\n"))?;
        }
        let (code, seen) = self.runs(&format!("KUBE_EDITOR='./type-in {edit}' kubectl edit {what}")).await?;
        self.print(&seen)?;
        ensure!(code == Some(0) && seen.contains(" edited"), "`kubectl edit {what}` with {edit}: {}", seen.trim());
        Ok(())
    }

    /// Types a line that goes on printing until somebody stops it.
    pub fn watches(&mut self, line: &str) -> Result<Watch> {
        self.print(&format!("$ {line} &\n"))?;
        let path = self.scratch.join("watch");
        let file = std::fs::File::create(&path).with_context(|| format!("writing {}", path.display()))?;
        let child = self.shell(&format!("exec {line}")).stdout(file).stderr(Stdio::null()).spawn();
        Ok(Watch { child: child.context("running bash")?, path })
    }

    /// Stops a watch and prints those of its lines that hold `word`, under their heading; they are also the answer.
    pub async fn stops(&mut self, mut watch: Watch, word: &str) -> Result<Vec<String>> {
        watch.child.kill().await.context("stopping a watch")?;
        let all = watch.seen()?;
        self.print("^C\n")?;
        let seen: Vec<String> =
            all.lines().enumerate().filter(|(i, l)| *i == 0 || l.contains(word)).map(|(_, l)| l.to_owned()).collect();
        for line in &seen {
            self.print(&format!("{line}\n"))?;
        }
        Ok(seen)
    }
}

/// A line that goes on printing.
pub struct Watch {
    child: Child,
    path: PathBuf,
}

impl Watch {
    /// What it has printed so far.
    pub fn seen(&self) -> Result<String> {
        std::fs::read_to_string(&self.path).with_context(|| format!("reading {}", self.path.display()))
    }
}
