//! Several paths after one `--from`, as a shell writes them for `--from *.yaml`.

use std::ffi::OsString;
use std::path::Path;

const OPTION: &str = "--from";

/// Gives each path an option of its own. The words that follow a path are paths too as long as such a file exists; the
/// first that does not ends them, so that an object can be named after the dump: `explain --from dump.json pod web-0`.
pub(super) fn one_for_each_option(words: Vec<OsString>, exists: impl Fn(&Path) -> bool) -> Vec<OsString> {
    let mut out = Vec::with_capacity(words.len());
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let is_option = word == OPTION;
        let ends_options = word == "--";
        out.push(word);
        if ends_options {
            out.extend(words);
            break;
        }
        if !is_option {
            continue;
        }
        out.extend(words.next());
        while let Some(path) = words.next_if(|word| !is_flag(word) && exists(Path::new(word))) {
            out.extend([OPTION.into(), path]);
        }
    }
    out
}

fn is_flag(word: &OsString) -> bool {
    word.as_encoded_bytes().starts_with(b"-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_end_where_no_file_exists() {
        let cases = [
            ("stead explain --from a.yaml b.yaml", "stead explain --from a.yaml --from b.yaml"),
            ("stead explain --from a.yaml pod web-0", "stead explain --from a.yaml pod web-0"),
            ("stead explain --from missing b.yaml -A", "stead explain --from missing --from b.yaml -A"),
            ("stead recover --from a.yaml node/a", "stead recover --from a.yaml node/a"),
            ("stead explain --from a.yaml -n b.yaml", "stead explain --from a.yaml -n b.yaml"),
            ("stead explain --from=a.yaml b.yaml", "stead explain --from=a.yaml b.yaml"),
            ("stead explain pod -- --from a.yaml b.yaml", "stead explain pod -- --from a.yaml b.yaml"),
            ("stead explain --from", "stead explain --from"),
        ];
        for (typed, expected) in cases {
            let words = typed.split(' ').map(OsString::from).collect();
            let found = one_for_each_option(words, |path| path.extension().is_some_and(|end| end == "yaml"));
            let found: Vec<_> = found.iter().map(|word| word.to_string_lossy()).collect();
            assert_eq!(found.join(" "), expected, "{typed}");
        }
    }
}
