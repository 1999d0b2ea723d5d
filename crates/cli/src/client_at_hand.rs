//! The client that suggested commands are written for: kubectl, or oc where there is no kubectl.

use std::env;
use std::path::{Path, PathBuf};

use stead_explain::{ClientAtHand, ClientProgram};

use crate::args::is_plugin;
use crate::connect::ConnectArgs;

/// The client on this machine, with the cluster that the user chose on the command line.
pub(crate) fn find(connect: &ConnectArgs) -> ClientAtHand {
    let folders: Vec<PathBuf> = env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default();
    let has = |program: ClientProgram| folders.iter().any(|folder| folder.join(program.name()).is_file());
    let only_oc = has(ClientProgram::Oc) && !has(ClientProgram::Kubectl);
    ClientAtHand {
        program: if only_oc { ClientProgram::Oc } else { ClientProgram::Kubectl },
        as_plugin: env::args_os().next().as_deref().map(Path::new).is_some_and(is_plugin),
        context: connect.context.clone(),
        kubeconfig: connect.kubeconfig.as_ref().map(|path| path.display().to_string()),
    }
}
