//! Listing of the public API: one line for each public function, field, variant and trait implementation. A change of a
//! signature appears in the diff of the committed listing, so a reviewer sees the change.
//!
//! The listing comes from the tokens of the sources: without lifetimes, and without the methods that macros define.

use std::collections::BTreeSet;
use std::path::Path;

use crate::methods::ImplBlock;
use crate::modules::{Modules, is_public, is_test, next_item, without_attributes};
use crate::surface::{DOCUMENTED_CRATES, surface};
use crate::tokens::{Tree, read};
use crate::{Repository, repository};

/// Returns the names of the public items of a crate, without their modules.
fn public_names(name: &str) -> BTreeSet<String> {
    let root = repository().join("crates").join(name).join("src/lib.rs");
    let paths = surface(&Modules::read(&Repository, &root), 0, "");
    paths.into_iter().filter_map(|path| path.rsplit("::").next().map(str::to_owned)).collect()
}

/// Returns the lines of the public items named `names` in the crate with this root.
fn public_lines(root: &Path, names: &BTreeSet<String>) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    let files: BTreeSet<_> = Modules::read(&Repository, root).all.into_iter().map(|module| module.file).collect();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source");
        add_lines(&read(&text), names, &mut lines);
    }
    lines
}

/// Adds the lines of all items to `lines`.
fn add_lines(trees: &[Tree], names: &BTreeSet<String>, lines: &mut BTreeSet<String>) {
    for item in items(trees).filter(|item| !is_test(item)) {
        let declared = without_attributes(item);
        if let (Some(impl_block), Some(Tree::Group('{', inner))) = (ImplBlock::read(declared), declared.last()) {
            let Some(name) = impl_block.type_path.last().filter(|name| names.contains(*name)) else { continue };
            if impl_block.is_trait_impl {
                lines.insert(text(&declared[..declared.len() - 1]));
            }
            // The methods of a trait implementation have no `pub`, so only inherent methods are listed.
            let methods = items(inner).filter(|method| is_public(method));
            lines.extend(methods.map(|method| format!("{name}::{}", text(signature(method)))));
            continue;
        }
        match declared {
            [Tree::Word(keyword), _, Tree::Group('{', inner)] if keyword == "mod" => add_lines(inner, names, lines),
            [Tree::Word(keyword), Tree::Word(name), ..]
                if keyword != "use" && names.contains(name) && is_public(item) =>
            {
                let header = text(signature(item));
                let attributes = attributes(item);
                lines.insert(if attributes.is_empty() { header } else { format!("{header} #[{attributes}]") });
                if let Some(Tree::Group('{', inner)) = declared.last() {
                    add_members(keyword, name, inner, lines);
                }
            }
            _ => {}
        }
    }
}

/// Adds the public fields of a struct, the variants of an enum, or the items of a trait.
fn add_members(keyword: &str, name: &str, inner: &[Tree], lines: &mut BTreeSet<String>) {
    match keyword {
        "struct" => {
            for field in inner.split(|tree| tree.is_sign(',')).filter(|field| is_public(field)) {
                lines.insert(format!("{name}.{}", text(without_attributes(field))));
            }
        }
        "enum" => {
            for variant in inner.split(|tree| tree.is_sign(',')) {
                let variant = without_attributes(variant);
                if !variant.is_empty() {
                    lines.insert(format!("{name}::{}", text(&without_inner_attributes(variant))));
                }
            }
        }
        "trait" => {
            for part in items(inner) {
                lines.insert(format!("{name}::{}", text(signature(part))));
            }
        }
        _ => {}
    }
}

/// Returns the items in a body.
fn items(trees: &[Tree]) -> impl Iterator<Item = &[Tree]> {
    let mut rest = trees;
    std::iter::from_fn(move || {
        let (item, after) = next_item(rest);
        rest = after;
        (!item.is_empty()).then_some(item)
    })
}

/// Returns the item with its modifiers, and without attributes, body and value.
fn signature(item: &[Tree]) -> &[Tree] {
    let mut item = item;
    while let [Tree::Sign('#'), Tree::Group('[', _), after @ ..] = item {
        item = after;
    }
    // The type of an alias is a part of the API; the value of a constant is not.
    let has_value =
        without_attributes(item).first().is_some_and(|word| word.is_word("const") || word.is_word("static"));
    let end = item.iter().position(|tree| match tree {
        Tree::Group('{', _) | Tree::Sign(';') => true,
        Tree::Sign('=') => has_value,
        _ => false,
    });
    &item[..end.unwrap_or(item.len())]
}

/// Returns the attributes that are part of the API: `derive` and `non_exhaustive`.
fn attributes(item: &[Tree]) -> String {
    let attributes = item[..item.len() - without_attributes(item).len()].iter().filter_map(|tree| match tree {
        Tree::Group('[', inner) if ["derive", "non_exhaustive"].iter().any(|name| inner[0].is_word(name)) => {
            Some(text(inner))
        }
        _ => None,
    });
    attributes.collect::<Vec<_>>().join(", ")
}

/// Returns a variant without the attributes of its fields.
fn without_inner_attributes(variant: &[Tree]) -> Vec<Tree> {
    let mut remaining = Vec::new();
    let mut trees = variant.iter().peekable();
    while let Some(tree) = trees.next() {
        match tree {
            Tree::Sign('#') if matches!(trees.peek(), Some(Tree::Group('[', _))) => drop(trees.next()),
            Tree::Group(bracket, inner) => remaining.push(Tree::Group(*bracket, without_inner_attributes(inner))),
            tree => remaining.push(tree.clone()),
        }
    }
    remaining
}

/// Returns the text of the trees in one line, with the usual spaces.
fn text(trees: &[Tree]) -> String {
    let mut text = String::new();
    for (at, tree) in trees.iter().enumerate() {
        let follows_arrow = at > 0 && trees[at - 1].is_sign('-') && tree.is_sign('>');
        match tree {
            Tree::Word(word) => {
                if text.ends_with(|end: char| end.is_alphanumeric() || ['_', '>', ')', '}', ']'].contains(&end)) {
                    text.push(' ');
                }
                text.push_str(word);
            }
            Tree::Colons => text.push_str("::"),
            Tree::Text(content) => text.extend(["\"", content.as_str(), "\""]),
            Tree::Sign('-') => text.push_str(" -"),
            Tree::Sign('>') if follows_arrow => text.push_str("> "),
            Tree::Sign(sign @ (',' | ':')) => text.extend([*sign, ' ']),
            Tree::Sign(sign @ ('+' | '=' | '|')) => text.extend([' ', *sign, ' ']),
            Tree::Sign(sign) => text.push(*sign),
            Tree::Group(bracket, inner) => {
                let (open, close) = match bracket {
                    '(' => ("(", ")"),
                    '[' => ("[", "]"),
                    _ => (" { ", " }"),
                };
                let inner = self::text(inner);
                text.push_str(open);
                text.push_str(inner.trim_end_matches([',', ' ']));
                text.push_str(close);
            }
        }
    }
    // Omitted lifetimes leave signs and spaces.
    let text = text.replace(" + ,", ",").replace("<, ", "<").replace("  ", " ");
    text.trim_end_matches([' ', ',', '+']).to_owned()
}

#[test]
fn public_signatures_match_committed_listing() {
    for name in DOCUMENTED_CRATES {
        let names = public_names(name);
        let mut lines = public_lines(&repository().join("crates").join(name).join("src/lib.rs"), &names);
        if name == "steadfast" {
            // Many types of `steadfast` are re-exports of these internal crates.
            for internal in ["steadfast-core", "steadfast-executor"] {
                lines.extend(public_lines(&repository().join("crates").join(internal).join("src/lib.rs"), &names));
            }
        }
        assert!(lines.len() > 100, "only {} lines of {name}", lines.len());
        let text = lines.into_iter().map(|line| line + "\n").collect::<String>();
        let path = repository().join(format!("docs/development/public-api/{name}.txt"));
        if std::env::var_os("STEADFAST_REWRITE").is_some() {
            std::fs::write(&path, &text).expect("a listing");
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        let (committed_lines, current_lines): (BTreeSet<_>, BTreeSet<_>) =
            (committed.lines().collect(), text.lines().collect());
        let (removed, added) = (
            committed_lines.difference(&current_lines).collect::<Vec<_>>(),
            current_lines.difference(&committed_lines).collect::<Vec<_>>(),
        );
        assert!(
            removed.is_empty() && added.is_empty(),
            "the public API of {name} differs from {}; run `./x rewrite` and review the diff, \
             and add a row to CHANGELOG.md for a breaking change\nremoved: {removed:#?}\nadded: {added:#?}",
            path.display()
        );
    }
}

#[test]
fn listing_contains_only_public_parts() {
    let source = "
        /// A handle.
        #[derive(Clone, Debug)] #[non_exhaustive]
        pub struct Handle<'a, K> { /// The name.
            pub name: &'a str, secret: Vec<K> }
        impl<K: Kept> Handle<'_, K> {
            #[must_use] pub async fn get(&self, key: impl Into<Key> + Send) -> Option<Arc<K>> { None }
            pub(crate) fn inner(&self) {}
            fn own(&self) {}
        }
        impl<K> fmt::Debug for Handle<'_, K> { fn fmt(&self) {} }
        pub enum Outcome { #[error(\"x\")] Done(#[source] Error), Late { waited: Duration }, }
        pub(crate) struct Handles;
        pub struct Other;
        pub const LIMIT: usize = 4;
        pub type Found = dyn Iterator<Item = Handle>;
        pub use other::Other;
        #[cfg(test)] mod tests { pub fn limit() {} }
    ";
    let names = ["Handle", "Outcome", "LIMIT", "Handles", "Found"].map(str::to_owned).into();
    let mut lines = BTreeSet::new();
    add_lines(&read(source), &names, &mut lines);
    let expected = [
        "Handle.name: &str",
        "Handle::pub async fn get(&self, key: impl Into<Key> + Send) -> Option<Arc<K>>",
        "Outcome::Done(Error)",
        "Outcome::Late { waited: Duration }",
        "impl<K> fmt::Debug for Handle<K>",
        "pub const LIMIT: usize",
        "pub enum Outcome",
        "pub struct Handle<K> #[derive(Clone, Debug), non_exhaustive]",
        "pub type Found = dyn Iterator<Item = Handle>",
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(lines, expected);
}
