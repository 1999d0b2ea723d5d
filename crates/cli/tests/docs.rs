//! The documentation is true: links resolve, quoted output is what the program prints, every crate and dependency is named.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The Markdown files under a folder, without hidden folders and build output.
fn markdown_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && !name.starts_with("target") {
            markdown_files(&path, files);
        } else if name.ends_with(".md") {
            files.push(path);
        }
    }
}

/// The text without fenced code blocks, in which brackets are not links.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    prose
}

/// The targets of inline links.
fn links(prose: &str) -> Vec<&str> {
    prose.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
}

/// The anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    heading
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn relative_links_resolve() {
    let mut files = Vec::new();
    markdown_files(&root(), &mut files);
    assert!(files.iter().any(|f| f.ends_with("docs/README.md")), "{files:?}");
    let mut broken = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).expect("a file");
        for link in
            links(&prose(&text)).into_iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:"))
        {
            let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { file.clone() } else { file.parent().expect("a folder").join(path) };
            let exists = match std::fs::read_to_string(&target) {
                Ok(text) if !fragment.is_empty() => {
                    prose(&text).lines().any(|line| line.starts_with('#') && anchor(line) == fragment)
                }
                _ => target.exists(),
            };
            if !exists {
                broken.push(format!("{}: {link}", file.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Compares every quoted command that needs no cluster with what the program prints. `…` stands for lines that are left out.
#[test]
fn quoted_output_is_what_the_program_prints() {
    let mut compared = 0;
    for page in ["README.md", "docs/EXPLAIN.md", "docs/reports/cinder.md", "docs/reports/glance.md"] {
        let text = read(page);
        let mut blocks = text.split("```").skip(1).step_by(2).peekable();
        while let Some(block) = blocks.next() {
            let mut lines = block.lines();
            if lines.next() != Some("console") {
                continue;
            }
            let Some(command) = lines.next().and_then(|line| line.strip_prefix("$ ")) else { continue };
            let command = command.strip_prefix("cargo run --release -p stead -- ");
            let needs_no_cluster =
                |command: &&str| command.contains("--from examples/") || command.starts_with("rehearse");
            let Some(command) = command.filter(needs_no_cluster) else { continue };
            let output = Command::new(env!("CARGO_BIN_EXE_stead"))
                .args(command.split_whitespace())
                .current_dir(root())
                .output()
                .expect("the program runs");
            let output = String::from_utf8(output.stdout).expect("UTF-8");
            let quoted = blocks.peek().and_then(|next| next.strip_prefix("text\n")).expect("a block with the output");
            let mut rest = output.as_str();
            for part in quoted.split("…\n").filter(|part| !part.trim().is_empty()) {
                let at = rest.find(part).unwrap_or_else(|| panic!("{page}: not printed by {command}:\n{part}"));
                rest = &rest[at + part.len()..];
            }
            compared += 1;
        }
    }
    assert!(compared > 0, "no example to compare");
}

#[test]
fn the_architecture_diagram_shows_every_crate() {
    let text = read("docs/ARCHITECTURE.md");
    let diagram = text.split("```").nth(1).expect("a diagram");
    let words: Vec<&str> = diagram.split(|c: char| !c.is_alphanumeric() && c != '-').collect();
    for folder in ["crates", "testing"] {
        for entry in std::fs::read_dir(root().join(folder)).expect("a folder") {
            let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
            assert!(
                words.contains(&name.as_str()),
                "{folder}/{name} is missing in the diagram of docs/ARCHITECTURE.md"
            );
        }
    }
}

#[test]
fn every_dependency_has_a_reason() {
    let manifest = read("Cargo.toml");
    let section = manifest.split("[workspace.dependencies]").nth(1).expect("dependencies").split("\n[").next();
    let text = read("docs/ARCHITECTURE.md");
    let table = text.split("## Dependencies").nth(1).expect("a section");
    let listed: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .flat_map(|names| names.split(", "))
        .collect();
    let used = section.unwrap_or_default().lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
    for name in used.clone().filter(|name| !name.starts_with("stead-")) {
        assert!(listed.contains(&name), "{name} has no line in docs/ARCHITECTURE.md");
    }
    for name in listed.iter().filter(|name| !["crate", "---"].contains(*name)) {
        assert!(used.clone().any(|used| used == *name), "{name} is not a dependency any more");
    }
}
