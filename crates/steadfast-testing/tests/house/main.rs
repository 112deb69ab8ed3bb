//! The house itself: no two files import each other, also not through others, and crates import each other one way.
//!
//! A file imports the file that *defines* what it names by a path, wherever that name was handed on on the way; handing a
//! name on (`pub use`) is such an import too. A module that declares another (`mod name;`) does not import it by that.
//! Tests inside a file do not count.

mod circles;
mod imports;
mod modules;
mod planted;
mod surface;
mod tokens;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use imports::Imports;
use modules::Sources;

/// The repository on disk.
struct Repository;

impl Sources for Repository {
    fn text(&self, path: &Path) -> Option<String> {
        std::fs::read_to_string(path).ok()
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// The folders of all packages, by where they are: below `crates`, or below the repository.
fn packages() -> BTreeMap<String, PathBuf> {
    let repository = repository();
    let crates = std::fs::read_dir(repository.join("crates")).expect("the folder of crates");
    let crates = crates.map(|entry| entry.expect("a crate").path());
    let packages = crates.chain(["bench", "bench/controllers"].map(|folder| repository.join(folder)));
    let packages = packages.filter(|folder| folder.join("Cargo.toml").is_file());
    let place = |folder: &Path| {
        let place = folder.strip_prefix(&repository).expect("it is below the repository");
        place.strip_prefix("crates").unwrap_or(place).to_string_lossy().into_owned()
    };
    packages.map(|folder| (place(&folder), folder)).collect()
}

#[test]
fn no_files_import_each_other() {
    let mut found = String::new();
    for (name, folder) in packages() {
        let roots = ["src/lib.rs", "src/main.rs"].map(|root| folder.join(root));
        let mut roots = roots.iter().filter(|root| root.is_file()).peekable();
        assert!(roots.peek().is_some(), "{name} has no source");
        for root in roots {
            let imports = Imports::read(&Repository, root);
            for circle in imports.circles() {
                let _ = write!(found, "{name}:\n{}", imports.describe(&circle));
            }
        }
    }
    let found = found.replace(&format!("{}/", repository().display()), "");
    assert!(found.is_empty(), "files that import each other; what they share belongs into a file below them:\n{found}");
}

/// Each crate, the crates of ours that it may depend on, and those that its tests may use besides.
const MAY_IMPORT: [(&str, &[&str], &[&str]); 14] = [
    ("steadfast-core", &[], &[]),
    ("steadfast", &["steadfast-core"], &["steadfast-apiserver"]),
    // Itself, with the metrics that its tests look at.
    ("steadfast-controller", &["steadfast"], &["steadfast-controller"]),
    (
        "steadfast-notify",
        &["steadfast", "steadfast-cel", "steadfast-outside"],
        &["steadfast-apiserver", "steadfast-testing"],
    ),
    ("steadfast-cel", &[], &[]),
    ("steadfast-contract", &[], &[]),
    ("steadfast-apiserver", &["steadfast-cel"], &[]),
    ("steadfast-outside", &[], &[]),
    (
        "steadfast-testing",
        &["steadfast", "steadfast-apiserver", "steadfast-contract", "steadfast-core"],
        // Itself, with what its tests alone may break.
        &["steadfast-controller", "steadfast-testing"],
    ),
    (
        "steadfast-cli",
        &[
            "steadfast",
            "steadfast-apiserver",
            "steadfast-contract",
            "steadfast-controller",
            "steadfast-notify",
            "steadfast-testing",
        ],
        &[],
    ),
    ("steadfast-guard", &["steadfast-core"], &[]),
    (
        "bench",
        &[
            "steadfast",
            "steadfast-apiserver",
            "steadfast-bench-controllers",
            "steadfast-controller",
            "steadfast-testing",
        ],
        &[],
    ),
    ("bench/controllers", &["steadfast", "steadfast-controller"], &[]),
    ("fuzz", &["steadfast", "steadfast-core"], &[]),
];

/// The crates of ours in one section of a manifest.
fn dependencies(manifest: &str, section: &str) -> Vec<String> {
    let lines = manifest.lines().skip_while(|line| line.trim() != format!("[{section}]")).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.split(['.', '=', ' ']).next());
    names.filter(|name| name.starts_with("steadfast")).map(str::to_owned).collect()
}

#[test]
fn crates_import_each_other_one_way() {
    for name in packages().keys() {
        assert!(MAY_IMPORT.iter().any(|(known, ..)| known == name), "say what the crate {name} may import");
    }
    for (name, may, tests_may) in MAY_IMPORT {
        let folder = if name.starts_with("steadfast") { Path::new("crates").join(name) } else { name.into() };
        let manifest = repository().join(folder).join("Cargo.toml");
        let manifest = std::fs::read_to_string(&manifest).expect("a manifest");
        let imports = dependencies(&manifest, "dependencies");
        let tests_import = dependencies(&manifest, "dev-dependencies");
        for other in imports.iter().chain(&tests_import) {
            let allowed =
                may.contains(&other.as_str()) || (tests_import.contains(other) && tests_may.contains(&other.as_str()));
            assert!(allowed, "{name} imports {other}, which docs/architecture.md does not know");
        }
        // What is allowed and not done is a line to strike out.
        assert_eq!(imports.len(), may.len(), "{name} imports {imports:?}, and may import {may:?}");
    }
}
