//! Structure of the project: no two files import each other, directly or through others, and crates import each other in
//! one direction.
//!
//! If a file names an item by a path, it imports the file that *defines* the item, through all re-exports. A re-export
//! (`pub use`) counts only if the file itself uses the re-exported name. The declaration of a module (`mod name;`) is
//! not an import. A file with an `impl` block of a type imports each file whose methods of that type it calls through `self`, `Self` or the type's name.
//! Tests inside a file are ignored.

mod commands;
mod duplicates;
mod errors;
mod import_cycles;
mod imports;
mod layers;
mod links;
mod listing;
mod methods;
mod model_checked;
mod modules;
mod platforms;
mod prose;
mod sample_modules;
mod sources;
mod structure;
mod surface;
mod tokens;
mod variables;

use std::collections::{BTreeMap, BTreeSet};
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

/// Returns the folders of all packages with a folder `src`, except `python`: by their path below `crates`, or below the
/// repository. The packages `examples` and `fuzz` have no `src`: each of their programs is a file or a folder.
fn packages() -> BTreeMap<String, PathBuf> {
    let repository = repository();
    let crates = std::fs::read_dir(repository.join("crates")).expect("the folder of crates");
    let crates = crates.map(|entry| entry.expect("a crate").path());
    let packages = crates.chain(["bench", "bench/controllers", "bench/terminal"].map(|folder| repository.join(folder)));
    let packages = packages.filter(|folder| folder.join("Cargo.toml").is_file());
    let package_path = |folder: &Path| {
        let package_path = folder.strip_prefix(&repository).expect("the folder is below the repository");
        package_path.strip_prefix("crates").unwrap_or(package_path).to_string_lossy().into_owned()
    };
    packages.map(|folder| (package_path(&folder), folder)).collect()
}

/// Permitted import cycles: the crate, the files, and the reason. Without the calls of methods between these files, they
/// would be no cycles.
const PERMITTED_METHOD_CYCLES: [(&str, &[&str], &str); 6] = [
    (
        "steadfast",
        &["shared/pending_deliveries.rs", "shared.rs"],
        "one invariant needs both files: the publication of a change also records its pending deliveries",
    ),
    (
        "steadfast-apiserver",
        &["apply/mod.rs", "apply/scale.rs"],
        "scale.rs only reads a field of the type, through one accessor",
    ),
    (
        "steadfast-controller",
        &["controller/start.rs", "controller.rs"],
        "start.rs is the constructor: the builder calls it once, and it only uses the errors of controller.rs",
    ),
    (
        "steadfast-notify",
        &["fields.rs", "plan/checks/bodies.rs", "plan/checks/source.rs", "plan/checks.rs", "plan.rs"],
        "the checks share one collector of errors; fields.rs only reads the document of the plan",
    ),
    (
        "steadfast-targets",
        &["dns/owner.rs", "dns/term.rs", "dns/update.rs", "dns/wire.rs", "dns.rs"],
        "owner.rs and term.rs are operations of the target; both send their queries through dns.rs",
    ),
    (
        "steadfast-targets",
        &["etcd/owner.rs", "etcd/term.rs", "etcd/watch.rs", "etcd.rs"],
        "owner.rs, term.rs and watch.rs are operations of the target; they send their requests through etcd.rs",
    ),
];

#[test]
fn no_files_import_each_other() {
    let (mut cycles, mut used_exceptions) = (String::new(), BTreeSet::new());
    for (name, folder) in packages() {
        let roots = ["src/lib.rs", "src/main.rs"].map(|root| folder.join(root));
        let mut roots = roots.iter().filter(|root| root.is_file()).peekable();
        assert!(roots.peek().is_some(), "{name} has no source");
        for root in roots {
            let imports = Imports::read(&Repository, root);
            for cycle in imports.import_cycles() {
                let files: Vec<_> = cycle.files.iter().map(|file| methods::short_path(file)).collect();
                match PERMITTED_METHOD_CYCLES
                    .iter()
                    .position(|(package, allowed, _)| name == *package && files == *allowed)
                {
                    Some(exception) => drop(used_exceptions.insert(exception)),
                    None => cycles.extend([name.as_str(), ":\n", &imports.describe(&cycle)]),
                }
            }
        }
    }
    for (at, (name, files, _)) in PERMITTED_METHOD_CYCLES.iter().enumerate() {
        assert!(used_exceptions.contains(&at), "no cycle in {name} of {files:?} any more: remove the exception");
    }
    let cycles = cycles.replace(&format!("{}/", repository().display()), "");
    assert!(cycles.is_empty(), "files that import each other; move the shared items into a file below them:\n{cycles}");
}

/// Each crate, its allowed dependencies within the project, and the additional ones of its tests.
const ALLOWED_IMPORTS: [(&str, &[&str], &[&str]); 20] = [
    ("steadfast-core", &[], &[]),
    ("steadfast-executor", &[], &[]),
    ("steadfast", &["steadfast-core", "steadfast-executor"], &["steadfast-apiserver"]),
    ("steadfast-audit", &["steadfast"], &["steadfast-apiserver", "steadfast-testing"]),
    // Its tests depend on the crate itself, with the metrics that they check.
    ("steadfast-controller", &["steadfast"], &["steadfast-controller"]),
    (
        "steadfast-notify",
        &["steadfast", "steadfast-cel", "steadfast-targets"],
        &["steadfast-apiserver", "steadfast-testing"],
    ),
    ("steadfast-cel", &[], &[]),
    ("steadfast-contract", &[], &[]),
    ("steadfast-apiserver", &["steadfast-cel"], &["steadfast-apiserver"]),
    ("steadfast-targets", &[], &[]),
    (
        "steadfast-testing",
        &["steadfast", "steadfast-apiserver", "steadfast-contract", "steadfast-core"],
        // Its tests depend on the crate itself, with the injected faults that only they use.
        &["steadfast-controller", "steadfast-testing"],
    ),
    (
        "steadfast-cli",
        &[
            "steadfast",
            "steadfast-apiserver",
            "steadfast-audit",
            "steadfast-cel",
            "steadfast-contract",
            "steadfast-controller",
            "steadfast-notify",
            "steadfast-testing",
        ],
        &[],
    ),
    ("steadfast-guard", &["steadfast-core"], &[]),
    ("workspace-hack", &[], &[]),
    (
        "bench",
        &[
            "steadfast",
            "steadfast-apiserver",
            "steadfast-bench-controllers",
            "steadfast-controller",
            "steadfast-executor",
            "steadfast-testing",
        ],
        &[],
    ),
    ("bench/controllers", &["steadfast", "steadfast-controller"], &[]),
    ("bench/terminal", &["steadfast-apiserver"], &[]),
    (
        "examples",
        &["steadfast", "steadfast-apiserver", "steadfast-contract", "steadfast-controller", "steadfast-testing"],
        &[],
    ),
    ("fuzz", &["steadfast", "steadfast-core"], &[]),
    (
        "python",
        &["steadfast", "steadfast-apiserver", "steadfast-contract", "steadfast-controller", "steadfast-testing"],
        &[],
    ),
];

/// Packages that [`packages`] does not contain.
const OTHER_PACKAGES: [&str; 3] = ["examples", "fuzz", "python"];

/// Returns the project's own crates in the section `section` of a manifest, for all platforms.
///
/// Dependencies are lines of `[section]` and `[target.'cfg(…)'.section]`, or tables such as `[section.NAME]`.
fn dependencies(manifest: &str, section: &str) -> BTreeSet<String> {
    let is_section =
        |header: &str| header == section || (header.starts_with("target.") && header.ends_with(&format!(".{section}")));
    let (mut names, mut is_inside) = (BTreeSet::new(), false);
    for line in manifest.lines() {
        if let Some(header) = line.trim().strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            is_inside = is_section(header);
            if let Some((_, name)) = header.rsplit_once('.').filter(|(section, _)| is_section(section)) {
                names.insert(name);
            }
        } else if is_inside {
            names.extend(line.split(['.', '=', ' ']).next());
        }
    }
    names.into_iter().filter(|name| name.starts_with("steadfast")).map(str::to_owned).collect()
}

#[test]
fn dependencies_of_all_platforms_are_found() {
    let manifest = "[package]\nname = \"steadfast-a\"\n[dependencies]\nsteadfast-b.workspace = true\nserde = \"1\"\n\
        [dependencies.steadfast-c]\npath = \"c\"\n[target.'cfg(unix)'.dependencies]\nsteadfast-d = { path = \"d\" }\n\
        [dev-dependencies]\nsteadfast-e = { path = \"e\" }\n[target.'cfg(unix)'.dev-dependencies.steadfast-f]\n";
    let names = |section| dependencies(manifest, section).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(names("dependencies"), "steadfast-b steadfast-c steadfast-d");
    assert_eq!(names("dev-dependencies"), "steadfast-e steadfast-f");
}

#[test]
fn crates_import_each_other_one_way() {
    for name in packages().keys().map(String::as_str).chain(OTHER_PACKAGES) {
        assert!(
            ALLOWED_IMPORTS.iter().any(|(known, ..)| *known == name),
            "add the allowed imports of the crate {name}"
        );
    }
    for (name, allowed_imports, allowed_test_imports) in ALLOWED_IMPORTS {
        let folder = if name.starts_with("steadfast") || name == "workspace-hack" {
            Path::new("crates").join(name)
        } else {
            name.into()
        };
        let manifest = repository().join(folder).join("Cargo.toml");
        let manifest = std::fs::read_to_string(&manifest).expect("a manifest");
        let imports = dependencies(&manifest, "dependencies");
        let test_imports = dependencies(&manifest, "dev-dependencies");
        for other in imports.iter().chain(&test_imports) {
            let is_allowed = allowed_imports.contains(&other.as_str())
                || (test_imports.contains(other) && allowed_test_imports.contains(&other.as_str()));
            assert!(
                is_allowed,
                "{name} imports {other}, which `ALLOWED_IMPORTS` does not permit; also update docs/architecture.md"
            );
        }
        // An allowed but unused import must be removed from the list.
        let mut unused = allowed_imports.iter().filter(|allowed| !imports.contains(**allowed));
        let mut unused_by_tests = allowed_test_imports.iter().filter(|allowed| !test_imports.contains(**allowed));
        let unused = unused.next().or_else(|| unused_by_tests.next());
        assert_eq!(unused, None, "{name} does not import it any more: remove it from `ALLOWED_IMPORTS`");
    }
}
