//! Comparison of the environment variables in the sources with the page that documents them.

use std::collections::BTreeSet;

use crate::repository;
use crate::sources::files;

const PREFIX: &str = "STEADFAST_";

/// Names that only tests use, and no program reads.
const TEST_ONLY_VARIABLES: [&str; 3] = ["STEADFAST_NOT_SET", "STEADFAST_NO_SUCH_VARIABLE", "STEADFAST_ONE"];

/// Adds the variables in `text` to `names`. The prefix alone is not a variable.
fn add_variables(text: &str, names: &mut BTreeSet<String>) {
    for (start, _) in text.match_indices(PREFIX) {
        let name = text[start..].split(|char: char| !char.is_ascii_uppercase() && char != '_').next().unwrap_or(PREFIX);
        if name != PREFIX {
            names.insert(name.to_owned());
        }
    }
}

#[test]
fn page_lists_exactly_read_variables() {
    let (mut used, mut sources) = (BTreeSet::new(), Vec::new());
    for folder in [".ci", "bench", "conformance", "crates", "examples", "fuzz"] {
        files(&repository().join(folder), &|_| true, &mut sources);
    }
    // Pictures and other binary files are skipped.
    for text in sources.into_iter().filter_map(|path| std::fs::read_to_string(path).ok()) {
        add_variables(&text, &mut used);
    }
    for variable in TEST_ONLY_VARIABLES {
        assert!(used.remove(variable), "{variable} is not used any more; remove it from this list");
    }
    let page = std::fs::read_to_string(repository().join("docs/environment-variables.md")).expect("the page");
    let mut documented = BTreeSet::new();
    add_variables(&page, &mut documented);
    let undocumented: Vec<_> = used.difference(&documented).collect();
    let unused: Vec<_> = documented.difference(&used).collect();
    assert!(undocumented.is_empty(), "used, but not in docs/environment-variables.md: {undocumented:#?}");
    assert!(unused.is_empty(), "in docs/environment-variables.md, but not used: {unused:#?}");
}

#[test]
fn variables_end_at_other_characters() {
    let mut names = BTreeSet::new();
    add_variables("`STEADFAST_SEEDS=9` STEADFAST_ $STEADFAST_LOG.", &mut names);
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["STEADFAST_LOG", "STEADFAST_SEEDS"]);
}
