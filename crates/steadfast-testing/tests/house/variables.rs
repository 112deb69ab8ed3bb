//! Comparison of the environment variables in the sources with the page that documents them.

use std::collections::BTreeSet;
use std::path::Path;

use crate::repository;

const PREFIX: &str = "STEADFAST_";

/// Values of tests that no program reads.
const FIXTURES: [&str; 3] = ["STEADFAST_NOT_SET", "STEADFAST_NO_SUCH_VARIABLE", "STEADFAST_ONE"];

/// Adds the variables in `text` to `names`. The prefix alone is not a variable.
fn gather(text: &str, names: &mut BTreeSet<String>) {
    for (start, _) in text.match_indices(PREFIX) {
        let name = text[start..].split(|char: char| !char.is_ascii_uppercase() && char != '_').next().unwrap_or(PREFIX);
        if name != PREFIX {
            names.insert(name.to_owned());
        }
    }
}

/// Adds the variables in all sources below `folder`.
fn gather_sources(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry of a folder").path();
        if path.is_dir() && !path.ends_with("target") {
            gather_sources(&path, names);
        } else if path.is_file()
            && let Ok(text) = std::fs::read_to_string(&path)
        {
            gather(&text, names);
        }
    }
}

#[test]
fn page_lists_exactly_read_variables() {
    let mut used = BTreeSet::new();
    for folder in [".ci", "bench", "conformance", "crates", "examples", "fuzz"] {
        gather_sources(&repository().join(folder), &mut used);
    }
    for fixture in FIXTURES {
        assert!(used.remove(fixture), "{fixture} is not used any more; remove it from this list");
    }
    let page = std::fs::read_to_string(repository().join("docs/environment-variables.md")).expect("the page");
    let mut documented = BTreeSet::new();
    gather(&page, &mut documented);
    let missing: Vec<_> = used.difference(&documented).collect();
    let removed: Vec<_> = documented.difference(&used).collect();
    assert!(missing.is_empty(), "used, but not in docs/environment-variables.md: {missing:#?}");
    assert!(removed.is_empty(), "in docs/environment-variables.md, but not used: {removed:#?}");
}

#[test]
fn variables_end_at_other_characters() {
    let mut names = BTreeSet::new();
    gather("`STEADFAST_SEEDS=9` STEADFAST_ $STEADFAST_LOG.", &mut names);
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["STEADFAST_LOG", "STEADFAST_SEEDS"]);
}
