//! The test of imports, tested: circles that are planted are found, and what is none is not.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::imports::Imports;
use crate::modules::{Modules, Sources};

/// A crate that is written here.
struct Written(BTreeMap<PathBuf, String>);

impl Sources for Written {
    fn text(&self, path: &Path) -> Option<String> {
        self.0.get(path).cloned()
    }
}

fn written(files: &[(&str, &str)]) -> Written {
    Written(files.iter().map(|(path, text)| (PathBuf::from("src").join(path), (*text).to_owned())).collect())
}

/// The modules of a crate with these files.
pub(crate) fn modules(files: &[(&str, &str)]) -> Modules {
    Modules::read(&written(files), Path::new("src/lib.rs"))
}

/// The imports of a crate with these files.
fn imports(files: &[(&str, &str)]) -> Imports {
    Imports::read(&written(files), Path::new("src/lib.rs"))
}

/// The circles in a crate with these files, by the files' names.
fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let name = |path: &PathBuf| path.strip_prefix("src").unwrap_or(path).display().to_string();
    imports(files).circles().iter().map(|circle| circle.files.iter().map(name).collect()).collect()
}

#[test]
fn two_files_that_import_each_other_are_a_circle_and_named() {
    let files = [
        ("lib.rs", "mod one; mod two; mod three;"),
        ("one.rs", "use crate::two::Two; pub struct One(Two);"),
        ("two.rs", "use super::one::One; pub struct Two(Option<Box<One>>);"),
        ("three.rs", "use crate::one::One; pub struct Three(One);"),
    ];
    assert_eq!(circles(&files), [["one.rs", "two.rs"]]);
    let imports = imports(&files);
    let described = imports.describe(&imports.circles()[0]);
    assert!(described.contains("src/one.rs imports src/two.rs for crate::two::Two"), "{described}");
}

#[test]
fn a_circle_through_a_third_file_is_found() {
    let files = [
        ("lib.rs", "mod one; mod two; mod three;"),
        ("one.rs", "pub fn one() { crate::two::two() }"),
        ("two.rs", "use crate::three; pub fn two() { three::three() }"),
        ("three.rs", "pub fn three() { use crate::one::{one as again}; again() }"),
    ];
    assert_eq!(circles(&files), [["one.rs", "three.rs", "two.rs"]]);
}

#[test]
fn a_parent_and_its_child_that_import_each_other_are_a_circle() {
    let files = [
        ("lib.rs", "mod room;"),
        ("room.rs", "mod inner; pub struct Word; pub fn door() { inner::open(Word) }"),
        ("room/inner.rs", "pub(super) fn open(_: super::Word) {}"),
    ];
    assert_eq!(circles(&files), [["room/inner.rs", "room.rs"]]);
}

#[test]
fn a_name_is_followed_to_the_file_that_defines_it() {
    let files = [
        ("lib.rs", "mod room; pub use room::Word;"),
        ("room.rs", "mod door; mod word; pub use word::Word; pub use door::*;"),
        ("room/word.rs", "pub struct Word; impl Word { pub fn new() -> Self { crate::room::enter() } }"),
        ("room/door.rs", "pub fn enter() -> crate::Word { crate::Word::new() }"),
    ];
    assert_eq!(circles(&files), [["room/door.rs", "room/word.rs"]]);
}

#[test]
fn what_is_handed_on_is_imported_where_it_is_used_as_well() {
    let below = ("room/inner.rs", "use super::Word; pub struct Inner(Word);");
    let root = ("lib.rs", "mod room;");
    let hands_on = ("room.rs", "mod inner; pub use inner::Inner; pub struct Word;");
    assert!(circles(&[root, hands_on, below]).is_empty());
    let uses = ("room.rs", "mod inner; pub use inner::Inner; pub struct Word; pub fn door() -> Inner { loop {} }");
    assert_eq!(circles(&[root, uses, below]), [["room/inner.rs", "room.rs"]]);
}

#[test]
fn methods_below_the_file_of_their_type_are_no_import_of_it() {
    let root = ("lib.rs", "mod room;");
    let types = ("room.rs", "mod part; pub struct Room<K> { part: part::Part, key: K } pub struct Word;");
    let methods = "use super::Room; pub struct Part; impl<F: Fn() -> u8, K> Room<K> { fn enter(&self, f: F) {} }";
    assert!(circles(&[root, types, ("room/part.rs", methods)]).is_empty());
    let more = format!("{methods} pub fn say(word: super::Word) {{}}");
    assert_eq!(circles(&[root, types, ("room/part.rs", &more)]), [["room/part.rs", "room.rs"]]);
    let foreign = "use super::Room; pub struct Part; impl<K> Drop for Room<K> { fn drop(&mut self) {} }";
    assert_eq!(circles(&[root, types, ("room/part.rs", foreign)]), [["room/part.rs", "room.rs"]]);
}

#[test]
fn comments_strings_and_tests_are_no_imports() {
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
    assert!(circles(&files).is_empty());
}

#[test]
fn a_path_in_an_attribute_counts() {
    let files = [
        ("lib.rs", "mod one; mod two;"),
        ("one.rs", "#[derive(Serialize)] pub struct One { #[serde(with = \"crate::two\")] at: u8 }"),
        ("two.rs", "pub fn serialize(one: &crate::one::One) {}"),
    ];
    assert_eq!(circles(&files), [["one.rs", "two.rs"]]);
}

#[test]
fn what_macros_are_given_counts() {
    let files = [
        ("lib.rs", "mod one; mod two;"),
        ("one.rs", "pub fn one() { println!(\"{}\", crate::two::TWO) }"),
        ("two.rs", "macro_rules! make { ($name:ident) => { pub const $name: u8 = $crate::one::one(); } } make!(TWO);"),
    ];
    assert_eq!(circles(&files), [["one.rs", "two.rs"]]);
}

#[test]
#[should_panic(expected = "`crate::one::Missing` leads to nothing that was read")]
fn a_path_that_leads_nowhere_is_not_passed_over() {
    imports(&[("lib.rs", "mod one; mod two;"), ("one.rs", "pub struct One;"), ("two.rs", "use crate::one::Missing;")]);
}
