//! Top-level modules of a crate import each other in one direction. To understand a module, a reader then needs only
//! the modules below it.
//!
//! A top-level module is a file `src/name.rs` together with the folder `src/name`.

use std::path::{Path, PathBuf};

use crate::imports::Imports;
use crate::{Repository, methods, packages};

/// Crates whose top-level modules still import each other. No crate may be added.
const CRATES_WITH_CYCLES: [&str; 4] = ["steadfast", "steadfast-cli", "steadfast-core", "steadfast-notify"];

/// Returns the top-level module of a file; `None` for the root of the crate.
fn top_level_module(file: &Path, source: &Path) -> Option<PathBuf> {
    let name = file.strip_prefix(source).ok()?.iter().next()?.to_str()?;
    let name = name.strip_suffix(".rs").unwrap_or(name);
    (!matches!(name, "lib" | "main")).then(|| name.into())
}

/// Returns the imports between the top-level modules. The description of each import names the imported and the
/// importing file.
fn module_imports(imports: &Imports, source: &Path) -> Imports {
    let mut imports_of_modules = Imports::default();
    for (file, imported) in &imports.by_file {
        let Some(from) = top_level_module(file, source) else { continue };
        imports_of_modules.by_file.entry(from.clone()).or_default();
        for other in imported.keys() {
            if let Some(to) = top_level_module(other, source).filter(|to| *to != from) {
                let files = format!("{} in {}", methods::short_path(other), methods::short_path(file));
                imports_of_modules.by_file.entry(from.clone()).or_default().entry(to).or_default().insert(files);
            }
        }
    }
    imports_of_modules
}

/// Describes each cycle of the top-level modules below `source`.
fn module_cycles(imports: &Imports, source: &Path) -> Vec<String> {
    let modules = module_imports(imports, source);
    modules.import_cycles().iter().map(|cycle| modules.describe(cycle)).collect()
}

#[test]
fn top_level_modules_import_one_way() {
    for (package, folder) in packages() {
        let source = folder.join("src");
        let mut cycles = Vec::new();
        for root in ["lib.rs", "main.rs"].map(|root| source.join(root)) {
            if root.is_file() {
                cycles.extend(module_cycles(&Imports::read(&Repository, &root), &source));
            }
        }
        if CRATES_WITH_CYCLES.contains(&package.as_str()) {
            assert!(!cycles.is_empty(), "the modules of {package} import each other one way now: remove the exception");
        } else {
            assert!(cycles.is_empty(), "modules of {package} import each other; split one:\n{}", cycles.join("\n"));
        }
    }
}

#[test]
fn planted_module_cycles_are_found() {
    let files = [
        ("lib.rs", "mod low; mod high;"),
        ("low.rs", "mod part; pub struct Low;"),
        ("low/part.rs", "use crate::high::High; pub struct Part(High);"),
        ("high.rs", "use crate::low::Low; pub struct High(Low);"),
    ];
    let sources = crate::sample_modules::in_memory(&files);
    let imports = Imports::read(&sources, Path::new("src/lib.rs"));
    let cycles = module_cycles(&imports, Path::new("src"));
    // No two of the files import each other.
    assert!(imports.import_cycles().is_empty());
    assert_eq!(cycles.len(), 1, "{cycles:?}");
    assert_eq!(cycles[0].lines().count(), 2, "{cycles:?}");
    assert!(cycles[0].starts_with("  high imports low for "), "{cycles:?}");
}
