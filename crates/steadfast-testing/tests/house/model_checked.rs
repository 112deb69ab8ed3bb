//! Modules that run under a model checker take locks, threads and the clock from their module `sync`. The model checker
//! would not see others.

use crate::modules::{is_test, next_item};
use crate::repository;
use crate::sources::{files, with_extension};
use crate::tokens::{Tree, read};

/// Folders whose files run under a model checker.
const MODEL_CHECKED: [&str; 2] = ["crates/steadfast-executor/src", "crates/steadfast-controller/src/workqueue"];

/// Names of locks, threads and clocks that a model checker does not see.
const UNSEEN: [&str; 3] = ["parking_lot", "thread", "time"];

/// Items of these modules that neither wait nor read a clock.
const PERMITTED: [&str; 1] = ["Duration"];

/// Appends the paths in `trees` that lead to locks, threads and clocks of the machine.
fn gather_unseen(trees: &[Tree], found: &mut Vec<String>) {
    for (at, tree) in trees.iter().enumerate() {
        if let Tree::Group(_, inner) = tree {
            gather_unseen(inner, found);
        }
        let [Tree::Word(module), Tree::Colons, next, ..] = &trees[at..] else { continue };
        let is_atomic = module == "atomic" && matches!(next, Tree::Word(item) if item.starts_with("Atomic"));
        let is_unseen = UNSEEN.contains(&module.as_str())
            && !matches!(next, Tree::Word(item) if PERMITTED.contains(&item.as_str()));
        if is_atomic || is_unseen {
            found.push(module.clone());
        }
    }
}

/// Returns the modules of the machine's locks, threads and clocks that a source names outside of its tests.
fn unseen(source: &str) -> Vec<String> {
    let trees = read(source);
    let (mut rest, mut found) = (&trees[..], Vec::new());
    while !rest.is_empty() {
        let (item, after) = next_item(rest);
        rest = after;
        if !is_test(item) {
            gather_unseen(item, &mut found);
        }
    }
    found
}

#[test]
fn model_checked_modules_use_sync() {
    let mut violations = String::new();
    for folder in MODEL_CHECKED {
        let mut sources = Vec::new();
        files(&repository().join(folder), &with_extension("rs"), &mut sources);
        assert!(sources.len() > 3, "{folder} has moved");
        for path in sources {
            let place = path.strip_prefix(repository()).unwrap_or(&path).display().to_string();
            if place.contains("/sync") {
                continue;
            }
            let found = unseen(&std::fs::read_to_string(&path).expect("a source"));
            violations.extend(found.into_iter().map(|module| format!("{place}: {module}\n")));
        }
    }
    assert!(violations.is_empty(), "import these items from the module `sync`:\n{violations}");
}

#[test]
fn planted_locks_and_clocks_are_found() {
    let source = "
        use std::time::Duration;
        use std::sync::atomic::Ordering;
        use parking_lot::Mutex;
        fn wait() { std::thread::yield_now(); }
        fn now() -> std::time::Instant { std::time::Instant::now() }
        use std::sync::atomic::AtomicUsize;
        #[cfg(test)] mod tests { use std::thread::spawn; }
    ";
    assert_eq!(unseen(source), ["parking_lot", "thread", "time", "time", "atomic"]);
}
