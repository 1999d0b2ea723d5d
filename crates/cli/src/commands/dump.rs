//! `stead dump`: writes everything that `--from` needs into one file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use serde_json::Value;
use stead_dump::{DumpOrigin, DumpWriter, UnreadKind, redact};
use stead_live::DumpedList;

use crate::args::DumpArgs;
use crate::cluster::{read_dump, unreadable};
use crate::connect::{ConnectArgs, connect};
use crate::output::{ExitWith, Outcome, aside, complain};
use crate::server;

/// Everything that a dump has.
#[derive(Default)]
pub(super) struct Collected {
    pub(super) origin: DumpOrigin,
    /// By API version and kind.
    pub(super) lists: BTreeMap<(String, String), Vec<Value>>,
    /// Kinds that were read completely, even those without a list.
    kinds: Vec<String>,
    pub(super) unread: Vec<UnreadKind>,
}

pub(crate) fn run(args: &DumpArgs) -> anyhow::Result<Outcome> {
    let target = Target::new(args)?;
    let collected = if args.from.is_empty() { server::run(live(&args.connect)) } else { dumped(args) };
    let mut collected = collected.map_err(ExitWith::NoAnswer)?;
    if args.redact {
        let objects = collected.lists.values_mut().flatten();
        redact(objects);
        collected.origin.redacted = true;
    }
    for unread in &collected.unread {
        complain("warning", &format!("not in the dump: {}: {}", unread.kind, unread.reason));
    }
    let objects = target.write(collected)?;
    if let Target::File { path, .. } = &target {
        aside(&format!("{objects} objects written to {}\n", path.display()));
    }
    Ok(Outcome::Yes)
}

/// Where a dump is written to.
enum Target {
    Stdout,
    File { path: PathBuf },
}

impl Target {
    fn new(args: &DumpArgs) -> anyhow::Result<Target> {
        match &args.output {
            None if io::stdout().is_terminal() => {
                Err(ExitWith::Usage(anyhow!("say where to write the dump: -o FILE, or -o - for the terminal")).into())
            }
            None => Ok(Target::Stdout),
            Some(path) if path.as_os_str() == "-" => Ok(Target::Stdout),
            Some(path) if path.exists() && !args.force => {
                bail!("{} exists: choose another name, or replace it with --force", path.display())
            }
            Some(path) => Ok(Target::File { path: path.clone() }),
        }
    }

    /// Writes the dump, to a file by renaming: there is never a half one under its name.
    fn write(&self, collected: Collected) -> anyhow::Result<usize> {
        match self {
            Target::Stdout => Ok(write(collected, BufWriter::new(io::stdout().lock()))?.1),
            Target::File { path } => {
                let part = beside(path);
                let written = write_file(collected, path, &part);
                let renamed = written.and_then(|objects| {
                    fs::rename(&part, path).with_context(|| format!("cannot rename {}", part.display()))?;
                    Ok(objects)
                });
                renamed.inspect_err(|_| {
                    // The error that is reported is the first one.
                    let _ = fs::remove_file(&part);
                })
            }
        }
    }
}

/// A name in the same directory, so that renaming does not copy.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.part", std::process::id()))
}

fn write_file(collected: Collected, path: &Path, part: &Path) -> anyhow::Result<usize> {
    let file = File::create_new(part).with_context(|| format!("cannot write {}", part.display()))?;
    let out = BufWriter::new(file);
    let (out, objects) = if path.extension().is_some_and(|extension| extension == "gz") {
        let (zipped, objects) = write(collected, GzEncoder::new(out, Compression::default()))?;
        (zipped.finish()?, objects)
    } else {
        write(collected, out)?
    };
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    Ok(objects)
}

fn write<W: Write>(collected: Collected, out: W) -> io::Result<(W, usize)> {
    let mut writer = DumpWriter::new(out, &collected.origin)?;
    for ((api_version, kind), objects) in collected.lists {
        writer.list(&api_version, &kind, objects)?;
    }
    for kind in &collected.kinds {
        writer.read_completely(kind);
    }
    for unread in &collected.unread {
        writer.unread(&unread.kind, &unread.reason);
    }
    let objects = writer.objects();
    Ok((writer.finish()?, objects))
}

fn tool() -> String {
    format!("stead {}", env!("CARGO_PKG_VERSION"))
}

/// Reads the cluster, one kind after the other, as far as possible all of one revision.
pub(super) async fn live(args: &ConnectArgs) -> anyhow::Result<Collected> {
    let connection = connect(args).await?;
    let client = &connection.client;
    let kubernetes = stead_live::server_version(client).await;
    let taken = Timestamp::now().to_string();
    let origin = DumpOrigin { tool: tool(), taken, kubernetes, redacted: false };
    let mut out = Collected { origin, ..Collected::default() };
    let resources = stead_live::dumped();
    let mut revision: Option<String> = None;
    for (i, resource) in resources.iter().enumerate() {
        aside(&format!("reading {} ({} of {})\n", resource.full_name(), i + 1, resources.len() + 1));
        let listed = stead_live::read_list(client, resource, revision.as_deref()).await;
        match listed.map_err(|error| unreadable(&error, &connection))? {
            DumpedList::Objects(objects, at) => {
                revision = revision.or(at);
                out.lists.insert((resource.api_version().to_owned(), resource.kind.to_owned()), objects);
            }
            DumpedList::Unknown => out.kinds.push(resource.kind.to_owned()),
            DumpedList::Forbidden => {
                out.unread.push(UnreadKind { kind: resource.full_name(), reason: "not allowed to list it".to_owned() })
            }
        }
    }
    aside(&format!("reading resources of OpenStack ({0} of {0})\n", resources.len() + 1));
    let known = resources.iter().map(|resource| resource.kind.to_owned()).collect();
    let openstack = stead_live::openstack(client, known).await;
    for object in openstack.items {
        let of = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        out.lists.entry((of("apiVersion"), of("kind"))).or_default().push(object);
    }
    let read = openstack.kinds.into_iter().filter(|kind| !resources.iter().any(|resource| resource.kind == kind));
    out.kinds.extend(read);
    let unread = openstack.warnings.into_iter();
    out.unread.extend(unread.map(|reason| UnreadKind { kind: "resources of OpenStack".to_owned(), reason }));
    Ok(out)
}

/// Reads another dump.
fn dumped(args: &DumpArgs) -> anyhow::Result<Collected> {
    let dump = read_dump(&args.from, args.limit, &|_, kind| !matches!(kind, "Secret" | "ConfigMap"))?;
    let taken = dump.taken.unwrap_or_default();
    let origin = DumpOrigin { tool: tool(), taken, kubernetes: dump.kubernetes, redacted: false };
    let mut out = Collected { origin, kinds: dump.kinds.into_iter().collect(), ..Collected::default() };
    for item in &dump.items {
        let of = (item.object.api_version.to_string(), item.object.kind.to_string());
        out.lists.entry(of).or_default().push(item.value());
    }
    Ok(out)
}
