//! Runs that were recorded on the real control plane, replayed in the simulation.
//!
//! `cargo xtask agree --save-all --save testdata/agree` records runs. Those that differ are in the file of known ones.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use expect_test::expect_file;
use stead_agree::{Judgement, Recording, judge};

fn recordings() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/agree");
    let files = std::fs::read_dir(folder).expect("recordings").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "gz")).collect();
    files.sort();
    files
}

/// The judgements about all recordings, in the order of their names.
fn judgements(files: &[PathBuf]) -> Vec<Judgement> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let judgement = judge(&Recording::read(file).expect("a recording"));
            found.lock().unwrap_or_else(PoisonError::into_inner).push(judgement);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// The runs that differ have to be those of the file of known ones: none more, none less. `UPDATE_EXPECT=1` writes the file.
#[test]
fn recordings_agree() {
    let files = recordings();
    assert!(!files.is_empty(), "there are recordings");
    let judgements = judgements(&files);
    let differs = judgements.iter().filter(|judgement| !judgement.agrees());
    let text: String = differs
        .map(|judgement| format!("{}: {}\n", judgement.name, judgement.kind.as_deref().unwrap_or("never")))
        .collect();
    expect_file!["known.txt"].assert_eq(&text);
    for judgement in judgements {
        assert_eq!(judgement.wrong_never, Vec::<String>::new(), "{}: a wrong \"never\"", judgement.name);
    }
}

/// The same recording gives the same judgement.
#[test]
fn a_replay_repeats() {
    let files = recordings();
    let recording = Recording::read(&files[0]).expect("a recording");
    assert_eq!(judge(&recording), judge(&recording));
}
