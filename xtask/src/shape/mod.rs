//! Figures about the shape of the code: accesses to JSON by field names in strings, errors that are mere strings, lines,
//! and public types of the same name.

mod accesses;
mod names;
mod source;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use stead_real::Outcome;

use crate::root;
use source::Source;

/// At most this many string-indexed JSON accesses in [`LIMITED`] together.
const MOST_ACCESSES: usize = 300;

/// At most this many `Result<_, String>` in the core.
const MOST_STRING_ERRORS: usize = 3;

/// The crates that the limit is for; of explain, all but the predictive half of `outage`.
const LIMITED: [&str; 7] = ["explain", "recovery", "loops", "cli", "operator", "agent", "pool"];

/// The core, by folder.
const CORE: [&str; 7] = ["semantics", "model", "placement", "explain", "loops", "recovery", "pool"];

/// The predictive half of `crates/explain/src/outage`, which a simulation is going to replace.
const PREDICTIVE: [&str; 14] = [
    "course",
    "detaching",
    "eviction",
    "fate",
    "forecast",
    "jobs",
    "moment",
    "placing",
    "risk",
    "rollout",
    "stages",
    "starting",
    "timers",
    "way",
];

/// The name under which the predictive half is listed.
const PREDICTIVE_ROW: &str = "explain (predictive)";

/// The figures of a crate.
#[derive(Debug, Default, Clone, Copy)]
struct Figures {
    indexed: usize,
    gets: usize,
    pointers: usize,
    helpers: usize,
    string_errors: usize,
    product: usize,
    tests: usize,
}

impl Figures {
    fn accesses(&self) -> usize {
        self.indexed + self.gets + self.pointers + self.helpers
    }

    fn add(&mut self, other: &Figures) {
        self.indexed += other.indexed;
        self.gets += other.gets;
        self.pointers += other.pointers;
        self.helpers += other.helpers;
        self.string_errors += other.string_errors;
        self.product += other.product;
        self.tests += other.tests;
    }
}

pub(crate) fn run() -> Result<Outcome> {
    let mut rows: BTreeMap<String, Figures> = BTreeMap::new();
    for folder in folders(&root().join("crates"))? {
        let name = file_name(&folder);
        for (row, figures) in of_crate(&name, &folder)? {
            rows.entry(row).or_default().add(&figures);
        }
    }
    let head = ["crate", "[\"…\"]", ".get", ".pointer", "helpers", "accesses", "Err(String)", "product", "tests"];
    line(head.map(str::to_owned));
    let mut all = Figures::default();
    for (name, figures) in &rows {
        print(name, figures);
        all.add(figures);
    }
    print("crates/", &all);
    for folder in ["testing", "xtask", "examples"] {
        let mut lines = Figures::default();
        for file in rust_files(&root().join(folder))? {
            lines.tests += Source::read(&file)?.lines();
        }
        print(&format!("{folder}/"), &lines);
    }
    let limited: usize =
        rows.iter().filter(|(name, _)| LIMITED.contains(&name.as_str())).map(|(_, f)| f.accesses()).sum();
    let core = |name: &str| CORE.contains(&name) || name == PREDICTIVE_ROW;
    let errors: usize = rows.iter().filter(|(name, _)| core(name)).map(|(_, f)| f.string_errors).sum();
    println!();
    verdict(
        &format!("string-indexed JSON accesses in {} (without the predictive half)", LIMITED.join(", ")),
        limited,
        MOST_ACCESSES,
    );
    verdict("Result<_, String> in core crates", errors, MOST_STRING_ERRORS);
    let duplicates = names::duplicates()?;
    let listed = duplicates.iter().map(|(name, crates)| format!("{name} ({})", crates.join(", ")));
    println!("public types of the same name: {}", listed.collect::<Vec<_>>().join("; "));
    Ok(Outcome::Passed)
}

fn verdict(what: &str, found: usize, most: usize) {
    println!("{what}: {found}, at most {most}: {}", if found <= most { "within the limit" } else { "OVER THE LIMIT" });
}

fn print(name: &str, figures: &Figures) {
    let Figures { indexed, gets, pointers, helpers, string_errors, product, tests } = figures;
    let numbers = [*indexed, *gets, *pointers, *helpers, figures.accesses(), *string_errors, *product, *tests];
    let mut cells = numbers.map(|n| n.to_string()).to_vec();
    cells.insert(0, name.to_owned());
    line(cells.try_into().unwrap_or_default());
}

fn line(cells: [String; 9]) {
    let [name, rest @ ..] = cells;
    println!("{name:<21}{}", rest.map(|cell| format!("{cell:>12}")).concat());
}

/// The figures of a crate; the predictive half of explain in a row of its own.
fn of_crate(name: &str, folder: &Path) -> Result<Vec<(String, Figures)>> {
    let mut sources = Vec::new();
    for file in rust_files(&folder.join("src"))? {
        sources.push((file.clone(), Source::read(&file)?));
    }
    let test_files: Vec<PathBuf> = sources.iter().flat_map(|(file, source)| source.test_files(file)).collect();
    let is_test = |file: &Path| test_files.iter().any(|test| file == test || file.starts_with(test.with_extension("")));
    let product = || sources.iter().filter(|(file, _)| !is_test(file));
    let helpers: Vec<String> = product().flat_map(|(_, source)| accesses::helpers(source.product())).collect();
    let mut rows = Vec::new();
    for (file, source) in &sources {
        let mut figures = Figures::default();
        if is_test(file) {
            figures.tests = source.lines();
        } else {
            figures.add(&accesses::count(source.product(), &helpers));
            figures.tests = source.test_lines();
            figures.product = source.lines() - figures.tests;
        }
        rows.push((row(name, folder, file), figures));
    }
    for file in rust_files(&folder.join("tests"))? {
        let tests = Source::read(&file)?.lines();
        rows.push((name.to_owned(), Figures { tests, ..Figures::default() }));
    }
    Ok(rows)
}

fn row(name: &str, folder: &Path, file: &Path) -> String {
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let outage = name == "explain" && file.parent() == Some(&folder.join("src/outage"));
    if outage && PREDICTIVE.contains(&stem.as_str()) { PREDICTIVE_ROW.to_owned() } else { name.to_owned() }
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The entries of a folder, in the order of their names; none if there is no such folder.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}

fn folders(folder: &Path) -> Result<Vec<PathBuf>> {
    Ok(entries(folder)?.into_iter().filter(|path| path.is_dir()).collect())
}

/// The Rust files of a folder, and of those in it.
fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in entries(folder)? {
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(files)
}
