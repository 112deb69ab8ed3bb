//! What of the library is promised: the page that says it, held against the sources.

use std::collections::BTreeSet;

use crate::modules::{Id, Modules};
use crate::{Repository, repository};

/// The names that everybody may use of the module `id`, whose own name is `path`.
fn surface(modules: &Modules, id: Id, path: &str) -> BTreeSet<String> {
    let module = &modules.all[id];
    let mut names = BTreeSet::new();
    for name in &module.public {
        assert_ne!(name, "*", "{path} hands on all of another module; name what is promised");
        let name_of = format!("{path}::{name}");
        match module.children.get(name).filter(|_| !module.imports.contains_key(name)) {
            Some(child) => names.extend(surface(modules, *child, &name_of)),
            None => drop(names.insert(name_of)),
        }
    }
    names
}

/// The names in the first columns of the page's tables, each below the module that its section is about.
fn promised(page: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut module = None;
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            module = heading.strip_prefix('`').and_then(|name| name.strip_suffix('`'));
        }
        let row = line.strip_prefix("| ").and_then(|row| row.split_once(" | "));
        if let (Some(module), Some((cell, _))) = (module, row) {
            let spans = cell.split('`').skip(1).step_by(2);
            for name in spans {
                assert!(names.insert(format!("{module}::{name}")), "{name} is twice on the page");
            }
        }
    }
    names
}

#[test]
fn the_page_of_what_is_promised_has_all_that_is_public_and_nothing_else() {
    let modules = Modules::read(&Repository, &repository().join("crates/steadfast/src/lib.rs"));
    let public = surface(&modules, 0, "steadfast");
    let page = std::fs::read_to_string(repository().join("docs/api.md")).expect("docs/api.md");
    let promised = promised(&page);
    let missing: Vec<_> = public.difference(&promised).collect();
    let gone: Vec<_> = promised.difference(&public).collect();
    assert!(missing.is_empty(), "public, and not in docs/api.md; is it for users? {missing:#?}");
    assert!(gone.is_empty(), "in docs/api.md, and not public: {gone:#?}");
}

#[test]
fn what_is_hidden_or_restricted_is_no_surface() {
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
    let public = surface(&crate::planted::modules(&files), 0, "it");
    let expected = ["it::Here", "it::One", "it::Three", "it::act", "it::open::Door"];
    assert_eq!(public.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}
