//! Names of types: each occurs once in its crate, and each public name once in the workspace.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::modules::Modules;
use crate::surface::surface;
use crate::{Repository, methods, packages};

/// Names that several types of a crate may have, each with the reason.
const REPEATED_TYPE_NAMES: [(&str, &str); 3] = [
    ("Inner", "the data behind a handle; the file and its type say whose"),
    ("Shared", "the data that several tasks of one type share; the file and its type say whose"),
    ("State", "the current state of the file's main type"),
];

/// Public names that several crates have, each with the reason.
const REPEATED_PUBLIC_NAMES: [(&str, &str); 0] = [];

/// Crates that share no code with the others by intention, such as the checker and the server. Their public names may
/// equal those of other crates.
const SEPARATE_CRATES: [&str; 5] =
    ["bench", "bench/controllers", "steadfast-apiserver", "steadfast-contract", "steadfast-guard"];

/// Returns the types of a crate that share their name, with the files that define them.
fn repeated_type_names(modules: &Modules) -> BTreeMap<&str, Vec<&PathBuf>> {
    let mut files: BTreeMap<&str, Vec<&PathBuf>> = BTreeMap::new();
    for module in &modules.all {
        for name in &module.types {
            files.entry(name).or_default().push(&module.file);
        }
    }
    files.retain(|_, files| {
        let all_files = files.clone();
        files.retain(|file| !all_files.iter().any(|other| replaces(file, other)));
        // Two definitions in one file have different `cfg` conditions.
        files.iter().collect::<BTreeSet<_>>().len() > 1
    });
    files
}

/// Returns whether `file` replaces the module of `other` in builds without a feature: `no_x.rs` replaces `x.rs` and the
/// files in `x`.
fn replaces(file: &Path, other: &Path) -> bool {
    let module = file.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.strip_prefix("no_"));
    module.is_some_and(|module| {
        let folder = file.with_file_name(module);
        other == folder.with_extension("rs") || other.starts_with(folder)
    })
}

/// Returns the roots of the libraries and programs of a package.
fn roots(folder: &std::path::Path) -> impl Iterator<Item = PathBuf> {
    ["src/lib.rs", "src/main.rs"].map(|root| folder.join(root)).into_iter().filter(|root| root.is_file())
}

#[test]
fn type_names_occur_once_in_each_crate() {
    let (mut duplicates, mut used_exceptions) = (String::new(), BTreeSet::new());
    for (package, folder) in packages() {
        for root in roots(&folder) {
            for (name, files) in repeated_type_names(&Modules::read(&Repository, &root)) {
                if let Some((allowed, _)) = REPEATED_TYPE_NAMES.iter().find(|(allowed, _)| *allowed == name) {
                    used_exceptions.insert(*allowed);
                } else {
                    let files: Vec<_> = files.iter().map(|file| methods::short_path(file)).collect();
                    duplicates.extend([package.as_str(), ": ", name, " in ", &files.join(", "), "\n"]);
                }
            }
        }
    }
    assert!(duplicates.is_empty(), "types of one crate with the same name; rename them:\n{duplicates}");
    for (name, _) in REPEATED_TYPE_NAMES {
        assert!(used_exceptions.contains(name), "no crate has two types named {name} any more: remove the exception");
    }
}

#[test]
fn public_type_names_occur_once_in_workspace() {
    let mut crates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (package, folder) in packages() {
        let library = folder.join("src/lib.rs");
        if SEPARATE_CRATES.contains(&package.as_str()) || !library.is_file() {
            continue;
        }
        let modules = Modules::read(&Repository, &library);
        let own_types: BTreeSet<&str> =
            modules.all.iter().flat_map(|module| &module.types).map(String::as_str).collect();
        for path in surface(&modules, 0, "") {
            let name = path.rsplit("::").next().unwrap_or_default();
            // A re-export of another crate's type does not count as a second name.
            if own_types.contains(name) {
                crates.entry(name.to_owned()).or_default().insert(package.clone());
            }
        }
    }
    let repeated = crates.iter().filter(|(_, packages)| packages.len() > 1);
    let (permitted, duplicates): (Vec<_>, Vec<_>) =
        repeated.partition(|(name, _)| REPEATED_PUBLIC_NAMES.iter().any(|(allowed, _)| allowed == name));
    assert!(duplicates.is_empty(), "public types of different crates with the same name; rename one:\n{duplicates:#?}");
    assert_eq!(permitted.len(), REPEATED_PUBLIC_NAMES.len(), "remove the exceptions that no crate needs any more");
}

#[test]
fn planted_duplicates_are_detected() {
    let files = [
        ("lib.rs", "mod one; mod two; #[cfg(unix)] struct Twice; #[cfg(not(unix))] struct Twice; struct Once;"),
        ("one.rs", "enum Same { A } fn once() {}"),
        ("two.rs", "pub(crate) trait Same {} #[cfg(test)] mod tests { struct Once; }"),
    ];
    let modules = crate::sample_modules::modules(&files);
    assert_eq!(repeated_type_names(&modules).into_keys().collect::<Vec<_>>(), ["Same"]);
}

#[test]
fn replacement_without_feature_is_not_a_duplicate() {
    let files = [
        ("lib.rs", "mod exec; mod no_exec; mod rules; mod no_rules; mod other;"),
        ("exec.rs", "struct Session;"),
        ("no_exec.rs", "enum Session {} struct Rule;"),
        ("rules/mod.rs", "mod rule;"),
        ("rules/rule.rs", "struct Verdict; struct Found;"),
        ("no_rules.rs", "struct Verdict;"),
        ("other.rs", "struct Rule; struct Found;"),
    ];
    let modules = crate::sample_modules::modules(&files);
    assert_eq!(repeated_type_names(&modules).into_keys().collect::<Vec<_>>(), ["Found", "Rule"]);
}
