//! Comparison of the public API with the page that documents it.

use std::collections::BTreeSet;

use crate::modules::{ModuleId, Modules};
use crate::{Repository, repository};

/// Returns the public names of the module `id` with the full path `path`.
pub(crate) fn surface(modules: &Modules, id: ModuleId, path: &str) -> BTreeSet<String> {
    let module = &modules.all[id];
    let mut names = BTreeSet::new();
    for name in &module.public {
        assert_ne!(name, "*", "{path} re-exports a whole module; list the public names instead");
        let full_name = format!("{path}::{name}");
        match module.children.get(name).filter(|_| !module.imports.contains_key(name)) {
            Some(child) => names.extend(surface(modules, *child, &full_name)),
            None => drop(names.insert(full_name)),
        }
    }
    names
}

/// Returns the names in the first columns of the page's tables, each after the path of its section's module.
fn documented_names(page: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut module = None;
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            module = heading.strip_prefix('`').and_then(|name| name.strip_suffix('`'));
        }
        let row = line.strip_prefix("| ").and_then(|row| row.split_once(" | "));
        if let (Some(module), Some((cell, _))) = (module, row) {
            let code_spans = cell.split('`').skip(1).step_by(2);
            for name in code_spans {
                assert!(names.insert(format!("{module}::{name}")), "{name} occurs twice on the page");
            }
        }
    }
    names
}

/// Crates that the page documents, and whose signatures are listed.
pub(crate) const DOCUMENTED_CRATES: [&str; 3] = ["steadfast", "steadfast-controller", "steadfast-testing"];

#[test]
fn api_page_lists_exactly_public_names() {
    let mut public = BTreeSet::new();
    for name in DOCUMENTED_CRATES {
        let root = repository().join("crates").join(name).join("src/lib.rs");
        public.extend(surface(&Modules::read(&Repository, &root), 0, &name.replace('-', "_")));
    }
    let page = std::fs::read_to_string(repository().join("docs/api.md")).expect("docs/api.md");
    let documented_names = documented_names(&page);
    let undocumented: Vec<_> = public.difference(&documented_names).collect();
    let unknown: Vec<_> = documented_names.difference(&public).collect();
    assert!(
        undocumented.is_empty(),
        "public, but not in docs/api.md; document it or make it private: {undocumented:#?}"
    );
    assert!(unknown.is_empty(), "in docs/api.md, but not public: {unknown:#?}");
}

#[test]
fn hidden_and_restricted_items_are_not_public() {
    let text = "
        mod inner;
        pub mod open;
        #[doc(hidden)] pub mod unstable;
        pub use inner::{One, Two as Three};
        pub(crate) use inner::Two;
        #[cfg(feature = \"extra\")] #[doc(hidden)] pub use inner::Four;
        pub async fn act() {}
        #[derive(Debug)] pub struct Here<T>(pub T);
        struct Within;
    ";
    let files = [
        ("lib.rs", text),
        ("inner.rs", "pub struct One; pub struct Two; pub struct Four;"),
        ("open.rs", "pub trait Door {} pub(super) fn shut() {}"),
        ("unstable.rs", "pub fn look() {}"),
    ];
    let public = surface(&crate::sample_modules::modules(&files), 0, "it");
    let expected = ["it::Here", "it::One", "it::Three", "it::act", "it::open::Door"];
    assert_eq!(public.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}
