//! A shell in which the commands of a report are run.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stead_testbed::ControlPlane;
use tokio::process::{Child, Command};

/// Longer than any command takes, including Kubernetes' timeouts.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// Runs a command line with a timeout.
async fn output_of(line: &str, mut shell: Command) -> Result<Output> {
    let output = tokio::time::timeout(TIMEOUT, shell.output()).await;
    output.with_context(|| format!("`{line}` timed out"))?.context("running bash")
}

/// A shell in a directory of files, with kubectl, stead and a cluster. It prints the commands and their output.
pub struct Terminal<'a> {
    folder: PathBuf,
    variables: Vec<(&'static str, OsString)>,
    /// The directory for the output of a watch.
    scratch: PathBuf,
    out: &'a mut (dyn Write + Send),
}

impl<'a> Terminal<'a> {
    /// Opens a shell in `folder`. `kubectl` and `stead` are the paths of these programs.
    pub fn open(
        plane: &ControlPlane,
        kubectl: &Path,
        stead: &Path,
        folder: PathBuf,
        out: &'a mut (dyn Write + Send),
    ) -> Result<Terminal<'a>> {
        let scratch = plane.folder().to_owned();
        // A copy: the report changes the current namespace in it.
        let kubeconfig = scratch.join("kubeconfig-terminal");
        std::fs::copy(plane.kubeconfig(), &kubeconfig).context("a kubeconfig for the terminal")?;
        let folder_of = |program: &Path| program.parent().map(Path::to_owned).context("a program without a directory");
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

    /// Prints a heading.
    pub fn heading(&mut self, text: &str) -> Result<()> {
        self.print(&format!("\n{text}\n{}\n", "=".repeat(text.chars().count())))
    }

    /// Prints a comment.
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

    /// Runs a command line, prints its output and returns it. A failure is an error.
    pub async fn run(&mut self, line: &str) -> Result<String> {
        self.print(&format!("$ {line}\n"))?;
        let (code, output) = self.execute(line).await?;
        self.print(&output)?;
        ensure!(code == Some(0), "`{line}` ended with {code:?}: {}", output.trim());
        Ok(output)
    }

    /// Runs a command line that has to fail with exit code 1, prints its output and returns it.
    pub async fn run_failing(&mut self, line: &str) -> Result<String> {
        self.print(&format!("$ {line}\n"))?;
        let (code, output) = self.execute(line).await?;
        self.print(&output)?;
        ensure!(code == Some(1), "`{line}` ended with {code:?}, not with 1: {}", output.trim());
        Ok(output)
    }

    /// Runs a command line without printing it, and returns its standard output. A failure is an error.
    pub async fn run_quietly(&self, line: &str) -> Result<String> {
        let output = output_of(line, self.shell(line)).await?;
        ensure!(output.status.success(), "`{line}`: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    async fn execute(&self, line: &str) -> Result<(Option<i32>, String)> {
        // Standard error is merged into the output, as on a screen.
        let output = output_of(line, self.shell(&format!("exec 2>&1\n{line}"))).await?;
        Ok((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
    }

    /// Edits an object with `kubectl edit`, and applies the changes of a file in the directory.
    pub async fn edit(&mut self, what: &str, edit: &str) -> Result<()> {
        self.print(&format!("$ kubectl edit {what}\n"))?;
        let path = self.folder.join(edit);
        let changes = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        for line in changes.lines() {
            self.print(&format!("  | {line}\n"))?;
        }
        let (code, output) = self.execute(&format!("KUBE_EDITOR='./type-in {edit}' kubectl edit {what}")).await?;
        self.print(&output)?;
        ensure!(code == Some(0) && output.contains(" edited"), "`kubectl edit {what}` with {edit}: {}", output.trim());
        Ok(())
    }

    /// Starts a command line that prints until it is stopped.
    pub fn start_watch(&mut self, line: &str) -> Result<Watch> {
        self.print(&format!("$ {line} &\n"))?;
        let path = self.scratch.join("watch");
        let file = std::fs::File::create(&path).with_context(|| format!("writing {}", path.display()))?;
        let child = self.shell(&format!("exec {line}")).stdout(file).stderr(Stdio::null()).spawn();
        Ok(Watch { child: child.context("running bash")?, path })
    }

    /// Stops a watch, and prints and returns the header and the lines that contain `word`.
    pub async fn stop_watch(&mut self, mut watch: Watch, word: &str) -> Result<Vec<String>> {
        watch.child.kill().await.context("stopping a watch")?;
        let all = watch.output()?;
        self.print("^C\n")?;
        let output: Vec<String> =
            all.lines().enumerate().filter(|(i, l)| *i == 0 || l.contains(word)).map(|(_, l)| l.to_owned()).collect();
        for line in &output {
            self.print(&format!("{line}\n"))?;
        }
        Ok(output)
    }
}

/// A running command line.
pub struct Watch {
    child: Child,
    path: PathBuf,
}

impl Watch {
    /// Returns its output so far.
    pub fn output(&self) -> Result<String> {
        std::fs::read_to_string(&self.path).with_context(|| format!("reading {}", self.path.display()))
    }
}
