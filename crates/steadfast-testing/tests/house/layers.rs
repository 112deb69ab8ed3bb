//! Top-level modules of a crate import each other in one direction. To understand a module, a reader then needs only
//! the modules below it.
//!
//! A top-level module is a file `src/name.rs` together with the folder `src/name`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::imports::Imports;
use crate::{Repository, methods, packages};

/// Crates whose top-level modules still import each other. No crate may be added.
const WITH_CYCLES: [&str; 4] = ["steadfast", "steadfast-cli", "steadfast-core", "steadfast-notify"];

/// Imported modules with the importing and imported files, for each module.
type Graph = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Returns the top-level module of a file; `None` for the root of the crate.
fn module(file: &Path, source: &Path) -> Option<String> {
    let name = file.strip_prefix(source).ok()?.iter().next()?.to_str()?;
    let name = name.strip_suffix(".rs").unwrap_or(name);
    (!matches!(name, "lib" | "main")).then(|| name.to_owned())
}

/// Returns the imports between the top-level modules.
fn graph(imports: &Imports, source: &Path) -> Graph {
    let mut graph = Graph::new();
    for (file, imported) in &imports.of {
        for other in imported.keys() {
            if let (Some(from), Some(to)) = (module(file, source), module(other, source))
                && from != to
            {
                let files = format!("{} imports {}", methods::short(file), methods::short(other));
                graph.entry(from).or_default().entry(to).or_default().insert(files);
            }
        }
    }
    graph
}

/// Returns the modules that `from` imports directly or through others.
fn reachable<'g>(graph: &'g Graph, from: &str) -> BTreeSet<&'g str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(next) = open.pop() {
        let imported = graph.get(next).into_iter().flat_map(BTreeMap::keys);
        open.extend(imported.map(String::as_str).filter(|other| reached.insert(*other)).collect::<Vec<_>>());
    }
    reached
}

/// Returns each import that is part of a cycle of modules.
fn cyclic_imports(graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    for (from, imported) in graph {
        for (to, files) in imported {
            if reachable(graph, to).contains(from.as_str()) {
                found.push(format!("{from} imports {to}: {}", files.iter().cloned().collect::<Vec<_>>().join("; ")));
            }
        }
    }
    found
}

#[test]
fn top_level_modules_import_one_way() {
    for (package, folder) in packages() {
        let source = folder.join("src");
        let mut found = Vec::new();
        for root in ["lib.rs", "main.rs"].map(|root| source.join(root)) {
            if root.is_file() {
                found.extend(cyclic_imports(&graph(&Imports::read(&Repository, &root), &source)));
            }
        }
        if WITH_CYCLES.contains(&package.as_str()) {
            assert!(!found.is_empty(), "the modules of {package} import each other one way now: remove the exception");
        } else {
            assert!(found.is_empty(), "modules of {package} import each other; split one:\n{}", found.join("\n"));
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
    let found = cyclic_imports(&graph(&imports, Path::new("src")));
    // No two of the files import each other.
    assert!(imports.import_cycles().is_empty());
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("high imports low: "), "{found:?}");
}
