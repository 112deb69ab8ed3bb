//! Figures of the code's structure: methods and calls of types in several files, conditional code, large structs.
//!
//! `cargo test -p steadfast-testing --test house structure -- --ignored --nocapture` prints them. To measure another
//! tree, build the test alone with that tree's `crates/steadfast-testing` as `CARGO_MANIFEST_DIR`.

use std::collections::BTreeSet;
use std::path::Path;

use crate::methods::Methods;
use crate::modules::Modules;
use crate::sources::{files, with_extension};
use crate::tokens::{Tree, read};
use crate::{Repository, packages};

/// Number of structs in the report.
const REPORTED_STRUCTS: usize = 10;

/// Types of the report, with the file that defines each.
const REPORTED_TYPES: [(&str, &str); 3] =
    [("reflector.rs", "Reflector"), ("driver.rs", "Driver"), ("shared.rs", "Shared")];

/// Returns one line with the figures of a type.
fn describe(name: &str, methods: &Methods) -> String {
    let calls = methods.calls_across();
    let count: usize = calls.values().flat_map(|calls| calls.values()).sum();
    let defined: usize = methods.by_file.values().map(BTreeSet::len).sum();
    let files = methods.by_file.len();
    let mutual = methods.mutual_callers().len();
    format!("{name}: {defined} methods in {files} files, {count} calls across files, {mutual} pairs call both ways")
}

/// Adds the structs in `trees` with the number of their named fields.
fn add_structs(trees: &[Tree], file: &str, structs: &mut Vec<(usize, String)>) {
    for (at, tree) in trees.iter().enumerate() {
        if let Tree::Group('{', inner) = tree {
            add_structs(inner, file, structs);
        }
        let [keyword, Tree::Word(name), rest @ ..] = &trees[at..] else { continue };
        if !keyword.is_word("struct") {
            continue;
        }
        let end = rest.iter().find(|tree| tree.is_sign(';') || matches!(tree, Tree::Group('{', _)));
        if let Some(Tree::Group(_, fields)) = end {
            let count = fields.iter().filter(|tree| tree.is_sign(':')).count();
            structs.push((count, format!("{file} {name}")));
        }
    }
}

/// Returns the number of conditions on a feature in `trees`.
fn count_conditions(trees: &[Tree]) -> usize {
    let mut count = 0;
    for (at, tree) in trees.iter().enumerate() {
        if let Tree::Group(_, inner) = tree {
            let previous = trees[..at].iter().rev().find(|tree| !tree.is_sign('!'));
            let is_condition = previous.is_some_and(|previous| previous.is_word("cfg") || previous.is_word("cfg_attr"));
            count += if is_condition { usize::from(mentions_feature(inner)) } else { count_conditions(inner) };
        }
    }
    count
}

fn mentions_feature(trees: &[Tree]) -> bool {
    trees.iter().any(|tree| match tree {
        Tree::Group(_, inner) => mentions_feature(inner),
        _ => tree.is_word("feature"),
    })
}

fn parse_sources(folder: &Path) -> Vec<(String, Vec<Tree>)> {
    let mut sources = Vec::new();
    files(&folder.join("src"), &with_extension("rs"), &mut sources);
    let text = |path: &Path| std::fs::read_to_string(path).expect("a readable source");
    sources.iter().map(|path| (crate::methods::short_path(path), read(&text(path)))).collect()
}

#[test]
#[ignore = "a report, not a check"]
fn structure_report() {
    let (mut largest, mut all_conditions) = (Vec::new(), Vec::new());
    let (mut mutual_pairs, mut split_types) = (0, 0);
    for (name, folder) in packages() {
        let root = folder.join("src/lib.rs");
        let root = if root.is_file() { root } else { folder.join("src/main.rs") };
        let modules = Modules::read(&Repository, &root);
        for ((id, type_name), methods) in modules.methods() {
            if REPORTED_TYPES.contains(&(&crate::methods::short_path(&modules.all[id].file), &type_name)) {
                println!("{name} {}", describe(&type_name, &methods));
            }
            mutual_pairs += methods.mutual_callers().len();
            split_types += usize::from(!methods.calls_across().is_empty());
        }
        let sources = parse_sources(&folder);
        for (file, trees) in &sources {
            add_structs(trees, &format!("{name}/{file}"), &mut largest);
        }
        let count: usize = sources.iter().map(|(_, trees)| count_conditions(trees)).sum();
        if count > 0 {
            all_conditions.push(format!("{name} {count}"));
        }
    }
    println!("all types: {split_types} with calls across files, {mutual_pairs} pairs call both ways");
    println!("conditions on features: {}", all_conditions.join(", "));
    largest.sort();
    println!("largest structs, by fields:");
    for (fields, name) in largest.iter().rev().take(REPORTED_STRUCTS) {
        println!("  {fields} {name}");
    }
}

#[test]
fn condition_on_feature_is_counted_once() {
    let text = "#[cfg(all(feature = \"a\", not(feature = \"b\")))] fn one() { if cfg!(feature = \"a\") {} }
        #[cfg_attr(feature = \"a\", derive(Debug))] #[cfg(test)] struct Two { one: u8, two: std::vec::Vec<u8> }";
    let trees = read(text);
    assert_eq!(count_conditions(&trees), 3);
    let mut structs = Vec::new();
    add_structs(&trees, "a.rs", &mut structs);
    assert_eq!(structs, [(2, "a.rs Two".to_owned())]);
}
