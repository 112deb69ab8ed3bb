//! Comparison of the `cargo test` commands in pages and scripts with the tests in the sources. A command whose filter
//! matches no test runs nothing and succeeds.

use std::collections::BTreeSet;
use std::path::Path;

use crate::repository;
use crate::sources::{files, test_functions, with_extension};

/// Pages and scripts with commands.
const PAGES: [&str; 5] =
    ["CONTRIBUTING.md", "docs/controllers.md", "docs/development/testing.md", "docs/testing.md", "x"];

/// Options of `cargo test` with a value, except `--test`.
const OPTIONS_WITH_VALUE: [&str; 3] = ["-p", "--features", "--manifest-path"];

/// Names that a command can select.
#[derive(Default)]
struct Tests {
    functions: BTreeSet<String>,
    modules: BTreeSet<String>,
    targets: BTreeSet<String>,
}

impl Tests {
    /// Adds the test target of `path`: `tests/NAME.rs` or `tests/NAME/main.rs`.
    fn add_target(&mut self, path: &Path) {
        let is_main = path.file_name().is_some_and(|name| name == "main.rs");
        let target = if is_main { path.parent().unwrap_or(path) } else { path };
        let is_target = target.parent().is_some_and(|folder| folder.ends_with("tests"));
        if let Some(name) = target.file_stem().filter(|_| is_target) {
            self.targets.insert(name.to_string_lossy().into_owned());
        }
    }

    /// Adds the test functions and the declared modules of a source.
    fn add_source(&mut self, source: &str) {
        self.functions.extend(test_functions(source).map(str::to_owned));
        for line in source.lines().map(str::trim) {
            if let Some((visibility, name)) = line.split_once("mod ")
                && (visibility.is_empty() || visibility.starts_with("pub"))
                && let Some(name) = name.strip_suffix(';')
            {
                self.modules.insert(name.to_owned());
            }
        }
    }

    /// Returns the targets and filters of a command that select no test.
    fn unmatched<'a>(&self, command: &'a str) -> Vec<&'a str> {
        let mut unmatched = Vec::new();
        let mut words = command.split_whitespace().take_while(|word| *word != "--" && !word.starts_with('#'));
        while let Some(word) = words.next() {
            if OPTIONS_WITH_VALUE.contains(&word) {
                words.next();
            } else if word == "--test" {
                unmatched.extend(words.next().filter(|target| !self.targets.contains(*target)));
            } else if !word.starts_with('-') && !self.matches(word) {
                unmatched.push(word);
            }
        }
        unmatched
    }

    fn matches(&self, filter: &str) -> bool {
        self.modules.contains(filter) || self.functions.iter().any(|name| name.contains(filter))
    }
}

/// Returns the arguments of each `cargo test` in a page, to the end of the line or of the inline code.
fn commands(page: &str) -> impl Iterator<Item = &str> {
    page.split("cargo test ").skip(1).map(|rest| rest.split(['\n', '`']).next().unwrap_or_default())
}

#[test]
fn commands_name_existing_tests() {
    let mut sources = Vec::new();
    for folder in ["crates", "examples"] {
        files(&repository().join(folder), &with_extension("rs"), &mut sources);
    }
    let mut tests = Tests::default();
    for path in &sources {
        tests.add_target(path);
        tests.add_source(&std::fs::read_to_string(path).expect("a source"));
    }
    assert!(tests.functions.len() > 1000 && tests.targets.len() > 20, "the sources were not found");
    let (mut count, mut unmatched) = (0, Vec::new());
    for page in PAGES {
        let text = std::fs::read_to_string(repository().join(page)).expect("a page");
        for command in commands(&text) {
            count += 1;
            unmatched.extend(tests.unmatched(command).into_iter().map(|name| format!("{page}: {name}")));
        }
    }
    assert!(count > 20, "only {count} commands were found");
    assert!(unmatched.is_empty(), "no test has these names: {unmatched:#?}");
}

#[test]
fn unknown_names_are_detected() {
    let mut tests = Tests::default();
    for path in ["a/tests/suite/main.rs", "a/tests/suite/cuts.rs", "a/tests/kernel.rs"] {
        tests.add_target(Path::new(path));
    }
    tests.add_source("pub mod events;\n#[test]\nfn leader_is_replaced() {}\nfn helper() {}\n");
    let page = "`cargo test -p a --test suite events` runs\nX=1 cargo test --test kernel leader_is -- --nocapture\n\
                cargo test --test cuts helper # comment";
    let unmatched: Vec<&str> = commands(page).flat_map(|command| tests.unmatched(command)).collect();
    assert_eq!(unmatched, ["cuts", "helper"]);
}
