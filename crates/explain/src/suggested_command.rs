//! Commands that a person can run, for the client that the person has.

use std::fmt::{self, Display, Formatter};

use serde::{Serialize, Serializer};

/// The client that commands are written for, and the cluster that it has to be told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientAtHand {
    /// The program.
    pub program: ClientProgram,
    /// Whether Stead runs as a plugin of it, as in `kubectl stead`.
    pub as_plugin: bool,
    /// The context that the user chose.
    pub context: Option<String>,
    /// The kubeconfig file that the user chose.
    pub kubeconfig: Option<String>,
}

/// A client of the Kubernetes API.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClientProgram {
    /// kubectl.
    #[default]
    Kubectl,
    /// OpenShift's client, where there is no kubectl.
    Oc,
}

impl ClientProgram {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ClientProgram::Kubectl => "kubectl",
            ClientProgram::Oc => "oc",
        }
    }

    /// Commands about nodes are below `oc adm`.
    fn prefix(self, arguments: &str) -> &'static str {
        let verb = arguments.split(' ').next().unwrap_or_default();
        match self {
            ClientProgram::Oc if matches!(verb, "drain" | "cordon" | "uncordon" | "taint") => "oc adm",
            program => program.name(),
        }
    }
}

impl ClientAtHand {
    /// The flags that choose the cluster, each with a space before it.
    fn cluster_flags(&self) -> String {
        let flag = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!(" --{name} {value}"));
        [flag("kubeconfig", &self.kubeconfig), flag("context", &self.context)].into_iter().flatten().collect()
    }
}

/// A command, or a remark between commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuggestedCommand {
    client: ClientAtHand,
    /// Why a command is not to be run as it is; such a command is printed as a comment.
    remark: Option<String>,
    action: Action,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Action {
    /// Arguments of the client, in a namespace if there is one.
    Client { namespace: String, arguments: String },
    /// Arguments of Stead.
    Stead(String),
    /// Nothing to run.
    None,
}

impl SuggestedCommand {
    fn new(remark: Option<String>, action: Action) -> SuggestedCommand {
        SuggestedCommand { client: ClientAtHand::default(), remark, action }
    }

    /// A command of the client in a namespace, which is empty for a cluster-scoped object.
    pub(crate) fn client(namespace: &str, arguments: impl Into<String>) -> SuggestedCommand {
        SuggestedCommand::new(None, Action::Client { namespace: namespace.into(), arguments: arguments.into() })
    }

    /// A command of Stead itself.
    pub(crate) fn stead(arguments: impl Into<String>) -> SuggestedCommand {
        SuggestedCommand::new(None, Action::Stead(arguments.into()))
    }

    /// A remark between commands.
    pub(crate) fn remark(text: impl Into<String>) -> SuggestedCommand {
        SuggestedCommand::new(Some(text.into()), Action::None)
    }

    /// The same as a comment, such as `# or by hand: kubectl …`.
    pub(crate) fn after_remark(self, text: &str) -> SuggestedCommand {
        SuggestedCommand { remark: Some(text.into()), ..self }
    }

    /// Writes it for this client.
    pub fn use_client(&mut self, client: &ClientAtHand) {
        self.client.clone_from(client);
    }
}

impl Display for SuggestedCommand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (&self.remark, &self.action) {
            (Some(remark), Action::None) => return write!(f, "# {remark}"),
            (Some(remark), _) => write!(f, "# {remark}: ")?,
            (None, _) => {}
        }
        let (program, cluster) = (self.client.program, self.client.cluster_flags());
        match &self.action {
            Action::Client { namespace, arguments } => {
                write!(f, "{}{cluster}", program.prefix(arguments))?;
                if !namespace.is_empty() {
                    write!(f, " -n {namespace}")?;
                }
                write!(f, " {arguments}")
            }
            Action::Stead(arguments) if self.client.as_plugin => {
                write!(f, "{} stead {arguments}{cluster}", program.name())
            }
            Action::Stead(arguments) => write!(f, "stead {arguments}{cluster}"),
            Action::None => Ok(()),
        }
    }
}

impl Serialize for SuggestedCommand {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An explanation that suggests commands.
pub trait SuggestsCommands {
    /// Writes the commands for this client. Without this they are written for kubectl and its current context.
    fn use_client(&mut self, client: &ClientAtHand);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_written_for_the_client_at_hand() {
        let oc = ClientAtHand { program: ClientProgram::Oc, context: Some("prod".into()), ..ClientAtHand::default() };
        let plugin = ClientAtHand { as_plugin: true, ..ClientAtHand::default() };
        let delete = SuggestedCommand::client("shop", "delete pod web-0");
        let taint = SuggestedCommand::client("", "taint node n a:NoExecute").after_remark("or by hand");
        let recover = SuggestedCommand::stead("recover node/n");
        for (command, client, written) in [
            (&delete, &ClientAtHand::default(), "kubectl -n shop delete pod web-0"),
            (&delete, &oc, "oc --context prod -n shop delete pod web-0"),
            (&taint, &ClientAtHand::default(), "# or by hand: kubectl taint node n a:NoExecute"),
            (&taint, &oc, "# or by hand: oc adm --context prod taint node n a:NoExecute"),
            (&recover, &oc, "stead recover node/n --context prod"),
            (&recover, &plugin, "kubectl stead recover node/n"),
            (&SuggestedCommand::remark("add a node"), &oc, "# add a node"),
        ] {
            let mut command = command.clone();
            command.use_client(client);
            assert_eq!(command.to_string(), written);
        }
    }
}
