//! Tests of the import check: planted cycles are found, and other structures are not reported.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::imports::Imports;
use crate::modules::{Modules, Sources};

/// Crate with files in memory.
pub(crate) struct InMemorySources(BTreeMap<PathBuf, String>);

impl Sources for InMemorySources {
    fn text(&self, path: &Path) -> Option<String> {
        self.0.get(path).cloned()
    }
}

pub(crate) fn in_memory(files: &[(&str, &str)]) -> InMemorySources {
    InMemorySources(files.iter().map(|(path, text)| (PathBuf::from("src").join(path), (*text).to_owned())).collect())
}

/// Returns the modules of a crate with these files.
pub(crate) fn modules(files: &[(&str, &str)]) -> Modules {
    Modules::read(&in_memory(files), Path::new("src/lib.rs"))
}

/// Returns the imports of a crate with these files.
fn imports(files: &[(&str, &str)]) -> Imports {
    Imports::read(&in_memory(files), Path::new("src/lib.rs"))
}

/// Returns the cycles in a crate with these files, by the names of the files.
fn import_cycles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let name = |path: &PathBuf| path.strip_prefix("src").unwrap_or(path).display().to_string();
    imports(files).import_cycles().iter().map(|cycle| cycle.files.iter().map(name).collect()).collect()
}

#[test]
fn mutual_imports_are_reported_as_cycle() {
    let files = [
        ("lib.rs", "mod one; mod two; mod three;"),
        ("one.rs", "use crate::two::Two; pub struct One(Two);"),
        ("two.rs", "use super::one::One; pub struct Two(Option<Box<One>>);"),
        ("three.rs", "use crate::one::One; pub struct Three(One);"),
    ];
    assert_eq!(import_cycles(&files), [["one.rs", "two.rs"]]);
    let imports = imports(&files);
    let described = imports.describe(&imports.import_cycles()[0]);
    assert!(described.contains("src/one.rs imports src/two.rs for crate::two::Two"), "{described}");
}

#[test]
fn cycle_through_third_file_is_found() {
    let files = [
        ("lib.rs", "mod one; mod two; mod three;"),
        ("one.rs", "pub fn one() { crate::two::two() }"),
        ("two.rs", "use crate::three; pub fn two() { three::three() }"),
        ("three.rs", "pub fn three() { use crate::one::{one as again}; again() }"),
    ];
    assert_eq!(import_cycles(&files), [["one.rs", "three.rs", "two.rs"]]);
}

#[test]
fn parent_and_child_form_a_cycle() {
    let files = [
        ("lib.rs", "mod parent;"),
        ("parent.rs", "mod inner; pub struct Item; pub fn caller() { inner::open(Item) }"),
        ("parent/inner.rs", "pub(super) fn open(_: super::Item) {}"),
    ];
    assert_eq!(import_cycles(&files), [["parent/inner.rs", "parent.rs"]]);
}

#[test]
fn reexported_name_resolves_to_definition() {
    let files = [
        ("lib.rs", "mod parent; pub use parent::Item;"),
        ("parent.rs", "mod caller; mod item; pub use item::Item; pub use caller::*;"),
        ("parent/item.rs", "pub struct Item; impl Item { pub fn new() -> Self { crate::parent::enter() } }"),
        ("parent/caller.rs", "pub fn enter() -> crate::Item { crate::Item::new() }"),
    ];
    assert_eq!(import_cycles(&files), [["parent/caller.rs", "parent/item.rs"]]);
}

#[test]
fn used_reexport_counts_as_import() {
    let child = ("parent/inner.rs", "use super::Item; pub struct Inner(Item);");
    let root = ("lib.rs", "mod parent;");
    let parent_with_reexport = ("parent.rs", "mod inner; pub use inner::Inner; pub struct Item;");
    assert!(import_cycles(&[root, parent_with_reexport, child]).is_empty());
    let parent_with_use =
        ("parent.rs", "mod inner; pub use inner::Inner; pub struct Item; pub fn caller() -> Inner { loop {} }");
    assert_eq!(import_cycles(&[root, parent_with_use, child]), [["parent/inner.rs", "parent.rs"]]);
}

#[test]
fn methods_in_child_file_are_not_imports() {
    let root = ("lib.rs", "mod parent;");
    let types = ("parent.rs", "mod part; pub struct Parent<K> { part: part::Part, key: K } pub struct Item;");
    let methods = "use super::Parent; pub struct Part; impl<F: Fn() -> u8, K> Parent<K> { fn enter(&self, f: F) {} }";
    assert!(import_cycles(&[root, types, ("parent/part.rs", methods)]).is_empty());
    let with_function = format!("{methods} pub fn take(item: super::Item) {{}}");
    assert_eq!(import_cycles(&[root, types, ("parent/part.rs", &with_function)]), [["parent/part.rs", "parent.rs"]]);
    let with_trait = "use super::Parent; pub struct Part; impl<K> Drop for Parent<K> { fn drop(&mut self) {} }";
    assert_eq!(import_cycles(&[root, types, ("parent/part.rs", with_trait)]), [["parent/part.rs", "parent.rs"]]);
}

#[test]
fn methods_that_call_back_form_a_cycle() {
    let library = ("lib.rs", "mod parent;");
    let part = |calls: &str| format!("use super::Parent; impl Parent {{ pub fn enter(&self) {{ {calls} }} }}");
    let parent_with = |calls: &str| {
        format!(
            "mod part; pub struct Parent(Key); impl Parent {{ fn leave(&self) {{}} pub fn open(&self) {{ {calls} }} }}"
        )
    };
    let cycles = |parent: &str, part: &str| import_cycles(&[library, ("parent.rs", parent), ("parent/part.rs", part)]);
    let mutual_cycle = [["parent/part.rs", "parent.rs"]];
    let parent_calls_enter = parent_with("if true { self.enter() }");
    assert!(cycles(&parent_calls_enter, &part("")).is_empty(), "calls in one direction");
    assert_eq!(cycles(&parent_calls_enter, &part("self.leave()")), mutual_cycle);
    assert_eq!(cycles(&parent_calls_enter, &part("[1].map(|_| Self::leave(self))")), mutual_cycle);
    assert_eq!(cycles(&parent_with("Parent::enter(self)"), &part("Parent::leave(self)")), mutual_cycle);
    assert!(cycles(&parent_calls_enter, &part("self.0.leave()")).is_empty(), "a method of a field");
    assert!(cycles(&parent_calls_enter, &format!("{} fn leave() {{}}", part("leave()"))).is_empty(), "a function");
    let drop = "use super::Parent; impl Parent { pub fn enter(&self) {} } impl Drop for Parent { fn drop(&mut self) { self.leave() } }";
    assert_eq!(cycles(&parent_calls_enter, drop), mutual_cycle, "a block of a trait calls");
}

#[test]
fn comments_strings_and_tests_are_ignored() {
    let files = [
        ("lib.rs", "mod one; mod two;"),
        ("one.rs", "use crate::two::Two; pub struct One(Two);"),
        (
            "two.rs",
            r##"
            /// See [`One`](crate::one::One). /* crate::one::One /* nested */ */
            pub struct Two<'a>(&'a str, char);
            const TEXT: &str = "\" crate::one::One";
            const RAW: &str = r#"" crate::one::One"#;
            const QUOTES: [char; 3] = ['"', '\'', '\u{22}'];
            #[cfg(test)]
            mod tests { use crate::one::One; }
            #[cfg(test)]
            use crate::one::One;
            "##,
        ),
    ];
    assert!(import_cycles(&files).is_empty());
}

#[test]
fn attribute_path_counts_as_import() {
    let files = [
        ("lib.rs", "mod one; mod two;"),
        ("one.rs", "#[derive(Serialize)] pub struct One { #[serde(with = \"crate::two\")] at: u8 }"),
        ("two.rs", "pub fn serialize(one: &crate::one::One) {}"),
    ];
    assert_eq!(import_cycles(&files), [["one.rs", "two.rs"]]);
}

#[test]
fn macro_arguments_count_as_imports() {
    let files = [
        ("lib.rs", "mod one; mod two;"),
        ("one.rs", "pub fn one() { println!(\"{}\", crate::two::TWO) }"),
        ("two.rs", "macro_rules! make { ($name:ident) => { pub const $name: u8 = $crate::one::one(); } } make!(TWO);"),
    ];
    assert_eq!(import_cycles(&files), [["one.rs", "two.rs"]]);
}

#[test]
#[should_panic(expected = "`crate::one::Missing` cannot be resolved")]
fn unresolved_path_panics() {
    imports(&[("lib.rs", "mod one; mod two;"), ("one.rs", "pub struct One;"), ("two.rs", "use crate::one::Missing;")]);
}
