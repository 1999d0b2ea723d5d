//! Shell completion of commands, flags, kinds and object names.
//!
//! The script of `stead completions` calls this program with the words of the command line; so does kubectl, through
//! `kubectl_complete-stead`. Names come from the cluster that the words select. Whatever goes wrong, nothing is completed:
//! a shell has no place for an error.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use clap::ArgMatches;
use clap::CommandFactory;
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};
use stead_client::{ApiPath, ApiRequest, Client};
use stead_model::Kind;

use crate::args::{self, Cli};
use crate::commands::{SHIPPED, explained_kinds};
use crate::connect::{ConnectArgs, connect};

/// The variable by which the script of a shell asks for completions.
pub(crate) const VARIABLE: &str = "STEAD_COMPLETE";

/// How long the server may take: a person waits.
const PATIENCE: Duration = Duration::from_secs(3);

/// How many names are asked for.
const MOST: &str = "500";

/// Answers a shell, if this process was started by its completion script, and ends the process.
pub(crate) fn answer_shell() {
    CompleteEnv::with_factory(|| args::command(None)).var(VARIABLE).complete();
}

/// The candidates for the last word, as kubectl wants them from a plugin.
pub(crate) fn candidates(words: &[String]) -> std::io::Result<Vec<CompletionCandidate>> {
    let wants_flag = words.last().is_some_and(|word| word.starts_with('-'));
    let words: Vec<OsString> = std::iter::once("stead".into()).chain(words.iter().map(OsString::from)).collect();
    let last = words.len() - 1;
    let mut found = clap_complete::engine::complete(&mut args::command(None), words, last, None)?;
    // As kubectl does, flags are offered only after a dash.
    found.retain(|candidate| wants_flag || !candidate.get_value().to_string_lossy().starts_with('-'));
    Ok(found)
}

/// Completes the targets of `stead explain`.
pub(crate) fn targets() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| complete_target(current, &explained_kinds()))
}

/// Completes the target of `stead recover`.
pub(crate) fn nodes() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| complete_target(current, &[("node", Kind::known("Node"))]))
}

/// Completes the rehearsals of `stead rehearse`: names of shipped ones, and files.
pub(crate) fn rehearsals() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let starts = |name: &str| current.to_str().is_some_and(|current| name.starts_with(current));
        let names = SHIPPED.iter().filter(|shipped| starts(shipped.name));
        let mut found: Vec<CompletionCandidate> =
            names.map(|shipped| CompletionCandidate::new(shipped.name).help(Some(shipped.about.into()))).collect();
        found.extend(PathCompleter::file().complete(current));
        found
    })
}

/// A word for a kind on the command line, and the kind.
type KindWord = (&'static str, &'static Kind);

fn complete_target(current: &OsStr, kinds: &[KindWord]) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let typed = TypedWords::read(current);
    let kind_of = |word: &str| kinds.iter().find(|(name, kind)| *name == word || kind.plural == word).map(|k| k.1);
    let (kind, prefix, name) = match (current.split_once('/'), typed.targets.first()) {
        (Some((word, name)), _) => (kind_of(word), format!("{word}/"), name),
        (None, Some(first)) if !first.contains('/') => (kind_of(first), String::new(), current),
        _ => {
            let words = kinds.iter().map(|(word, _)| *word).filter(|word| word.starts_with(current));
            return words.map(CompletionCandidate::new).collect();
        }
    };
    let names = kind.map(|kind| names(kind, &typed)).unwrap_or_default();
    let starting = names.iter().filter(|other| other.starts_with(name));
    starting.map(|name| CompletionCandidate::new(format!("{prefix}{name}"))).collect()
}

/// What the words before the current one say about the cluster and the objects.
#[derive(Debug, Default, PartialEq, Eq)]
struct TypedWords {
    targets: Vec<String>,
    namespace: Option<String>,
    all_namespaces: bool,
    context: Option<String>,
    kubeconfig: Option<PathBuf>,
    reads_dump: bool,
}

impl TypedWords {
    /// Reads the words of the command line, which the shell passes after `--`.
    fn read(current: &str) -> TypedWords {
        let words: Vec<String> = std::env::args().skip_while(|word| word != "--").skip(1).collect();
        TypedWords::parse(&words, current)
    }

    fn parse(words: &[String], current: &str) -> TypedWords {
        let words = if words.last().is_some_and(|last| last == current) { &words[..words.len() - 1] } else { words };
        let after_program = words.iter().skip_while(|word| !matches!(word.as_str(), "explain" | "recover"));
        let words = std::iter::once("stead").chain(after_program.map(String::as_str));
        let matches = Cli::command().ignore_errors(true).try_get_matches_from(words);
        let Ok(matches) = matches else { return TypedWords::default() };
        matches.subcommand().map(|(_, matches)| TypedWords::of(matches)).unwrap_or_default()
    }

    fn of(matches: &ArgMatches) -> TypedWords {
        let text = |id: &str| matches.try_get_one::<String>(id).ok().flatten().cloned();
        let path = |id: &str| matches.try_get_one::<PathBuf>(id).ok().flatten().cloned();
        let targets = matches.try_get_many::<String>("targets").ok().flatten();
        TypedWords {
            targets: targets.map(|targets| targets.cloned().collect()).unwrap_or_default(),
            namespace: text("namespace"),
            all_namespaces: matches.try_get_one::<bool>("all_namespaces").ok().flatten().copied().unwrap_or_default(),
            context: text("context"),
            kubeconfig: path("kubeconfig"),
            reads_dump: path("from").is_some(),
        }
    }
}

/// The names of the objects of a kind; none where they cannot be read.
fn names(kind: &Kind, typed: &TypedWords) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (Ok(runtime), false) = (runtime, typed.reads_dump) else { return Vec::new() };
    let connect_args = ConnectArgs {
        context: typed.context.clone(),
        kubeconfig: typed.kubeconfig.clone(),
        request_timeout: Some(PATIENCE),
        ..ConnectArgs::default()
    };
    runtime.block_on(async {
        let Ok(connection) = connect(&connect_args).await else { return Vec::new() };
        let namespace = typed.namespace.clone().unwrap_or(connection.namespace);
        let namespace = (kind.namespaced && !typed.all_namespaces).then_some(namespace);
        list_names(&connection.client, kind, namespace.as_deref()).await
    })
}

async fn list_names(client: &Client, kind: &Kind, namespace: Option<&str>) -> Vec<String> {
    let path = ApiPath::from(kind).collection(namespace);
    let Ok(list) = client.send_json(ApiRequest::list(path).with("limit", MOST)).await else { return Vec::new() };
    let items = list["items"].as_array().into_iter().flatten();
    items.filter_map(|item| item.pointer("/metadata/name")?.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_words_before_say_what_to_list() {
        let of = |line: &str, current: &str| TypedWords::parse(&words(line), current);
        let read = of("stead explain -n shop --context c pod w", "w");
        assert_eq!(
            read,
            TypedWords {
                targets: vec!["pod".into()],
                namespace: Some("shop".into()),
                context: Some("c".into()),
                ..TypedWords::default()
            }
        );
        assert!(of("kubectl stead explain pods -A --from x y", "y").reads_dump);
        assert!(of("stead explain pods -A -o js", "js").all_namespaces);
    }

    #[test]
    fn kinds_are_completed_without_a_cluster() {
        let values = |words: &[&str]| -> Vec<String> {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let found = candidates(&words).expect("candidates");
            found.iter().map(|candidate| candidate.get_value().to_string_lossy().into_owned()).collect()
        };
        assert_eq!(values(&["explain", "st"]), ["sts"]);
        assert_eq!(values(&["exp"]), ["explain"]);
        assert!(values(&["explain", ""]).contains(&"pod".to_owned()));
    }
}
