//! A crate as a tree of modules: the file, the items, the imports and the paths of each module.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::methods::ImplBlock;
use crate::tokens::{Tree, read};

/// Index of a module in its crate.
pub(crate) type ModuleId = usize;

/// One module: a file, or a part of one.
#[derive(Debug)]
pub(crate) struct Module {
    /// File of the module.
    pub(crate) file: PathBuf,
    pub(crate) parent: Option<ModuleId>,
    /// Declared modules, by name.
    pub(crate) children: BTreeMap<String, ModuleId>,
    /// Names of the module's own items.
    pub(crate) items: Vec<String>,
    /// Names of the module's own types and traits.
    pub(crate) types: Vec<String>,
    /// Imports and re-exports, by their name in this module.
    pub(crate) imports: BTreeMap<String, Vec<String>>,
    /// Modules of glob imports and paths in attributes, and whether the import is a re-export.
    pub(crate) globs: Vec<(Vec<String>, bool)>,
    /// Paths in the code, including imports.
    pub(crate) paths: Vec<Vec<String>>,
    /// Re-exports (`pub use`), by their name in this module.
    pub(crate) re_exports: BTreeMap<String, Vec<String>>,
    /// Names of public items (`pub`, without `#[doc(hidden)]`), including modules.
    pub(crate) public: BTreeSet<String>,
    /// `impl` blocks.
    pub(crate) impl_blocks: Vec<ImplBlock>,
    /// Identifiers in the code, without imports.
    pub(crate) words: BTreeSet<String>,
}

/// Modules of a crate, the root first. Test modules are omitted.
#[derive(Debug)]
pub(crate) struct Modules {
    pub(crate) all: Vec<Module>,
}

/// Source of the text of files.
pub(crate) trait Sources {
    /// Returns the text of the file at `path`, or `None` if the file does not exist.
    fn text(&self, path: &Path) -> Option<String>;
}

impl Modules {
    /// Reads the modules below the file `root`.
    pub(crate) fn read(sources: &impl Sources, root: &Path) -> Self {
        let mut modules = Self { all: Vec::new() };
        let text = sources.text(root).unwrap_or_else(|| panic!("no file {}", root.display()));
        let folder = root.parent().expect("a file is in a folder").to_owned();
        modules.add(sources, root, &folder, None, &read(&text));
        modules
    }

    /// Adds a module with its child modules in `folder`.
    fn add(
        &mut self,
        sources: &impl Sources,
        file: &Path,
        folder: &Path,
        parent: Option<ModuleId>,
        body: &[Tree],
    ) -> ModuleId {
        let id = self.all.len();
        self.all.push(Module {
            file: file.to_owned(),
            parent,
            children: BTreeMap::new(),
            items: Vec::new(),
            types: Vec::new(),
            imports: BTreeMap::new(),
            globs: Vec::new(),
            paths: Vec::new(),
            re_exports: BTreeMap::new(),
            public: BTreeSet::new(),
            impl_blocks: Vec::new(),
            words: BTreeSet::new(),
        });
        let mut rest = body;
        while !rest.is_empty() {
            let (item, after) = next_item(rest);
            rest = after;
            if is_test(item) {
                continue;
            }
            let declared = without_attributes(item);
            if is_public(item) {
                self.all[id].public.extend(names_declared(declared));
            }
            if let [Tree::Word(keyword), Tree::Word(name), body] = declared
                && keyword == "mod"
            {
                let child_folder = folder.join(name);
                let child = if let Tree::Group('{', body) = body {
                    self.add(sources, file, &child_folder, Some(id), body)
                } else {
                    let (child_file, body) = module_file(sources, file, folder, name);
                    self.add(sources, &child_file, &child_folder, Some(id), &body)
                };
                self.all[id].children.insert(name.clone(), child);
                continue;
            }
            let module = &mut self.all[id];
            module.items.extend(names_defined(declared));
            module.types.extend(type_defined(declared));
            module.impl_blocks.extend(ImplBlock::read(declared));
            if let [Tree::Word(keyword), names @ .., Tree::Sign(';')] = declared
                && keyword == "use"
            {
                let is_re_export = item.iter().any(|tree| tree.is_word("pub"));
                module.add_use_tree(&[], names, is_re_export);
            } else {
                module.add_tokens(item);
            }
        }
        id
    }
}

impl Module {
    /// Processes the imports and paths in `trees`.
    fn add_tokens(&mut self, trees: &[Tree]) {
        let mut at = 0;
        while let Some(tree) = trees.get(at) {
            match tree {
                Tree::Group(_, inner) => {
                    self.add_tokens(inner);
                    at += 1;
                }
                // Not the `use<'a>` of a type.
                Tree::Word(word) if word == "use" && !trees.get(at + 1).is_some_and(|next| next.is_sign('<')) => {
                    let length = trees[at..].iter().position(|tree| tree.is_sign(';')).unwrap_or(trees.len() - at);
                    self.add_use_tree(&[], &trees[at + 1..at + length], false);
                    at += length;
                }
                Tree::Word(_) => {
                    let mut path = Vec::new();
                    let start = at;
                    while let Some(Tree::Word(word)) = trees.get(at) {
                        path.push(word.clone());
                        self.words.insert(word.clone());
                        at += 1;
                        if !matches!(trees.get(at..at + 2), Some([Tree::Colons, Tree::Word(_)])) {
                            break;
                        }
                        at += 1;
                    }
                    let is_foreign = start > 0 && trees[start - 1] == Tree::Colons;
                    if path.len() > 1 && !is_foreign {
                        self.paths.push(path);
                    }
                }
                Tree::Sign('#') => {
                    if let Some(Tree::Group('[', attribute)) = trees.get(at + 1) {
                        self.add_attribute_paths(attribute);
                    }
                    at += 1;
                }
                Tree::Colons | Tree::Sign(_) | Tree::Text(_) => at += 1,
            }
        }
    }

    /// Processes the paths in the strings of an attribute, which usually name a module.
    fn add_attribute_paths(&mut self, attribute: &[Tree]) {
        for tree in attribute {
            match tree {
                Tree::Group(_, inner) => self.add_attribute_paths(inner),
                Tree::Text(text) if text.starts_with("crate::") || text.starts_with("super::") => {
                    self.globs.push((text.split("::").map(str::to_owned).collect(), false));
                }
                _ => {}
            }
        }
    }

    /// Processes one tree of a `use` declaration.
    fn add_use_tree(&mut self, prefix: &[String], trees: &[Tree], is_re_export: bool) {
        let mut path = prefix.to_vec();
        let mut rest = trees;
        if prefix.is_empty() && rest.first() == Some(&Tree::Colons) {
            return;
        }
        loop {
            match rest {
                [Tree::Word(word), Tree::Colons, after @ ..] => {
                    path.push(word.clone());
                    rest = after;
                }
                [Tree::Group('{', inner)] => {
                    for part in inner.split(|tree| tree.is_sign(',')).filter(|part| !part.is_empty()) {
                        self.add_use_tree(&path, part, is_re_export);
                    }
                    return;
                }
                [Tree::Sign('*')] => {
                    self.globs.push((path, is_re_export));
                    return;
                }
                [Tree::Word(word), alias @ ..] => {
                    if word != "self" || path.is_empty() {
                        path.push(word.clone());
                    }
                    let name = match alias {
                        [Tree::Word(keyword), Tree::Word(name)] if keyword == "as" => name,
                        [] => path.last().expect("a path has a name"),
                        other => panic!("unexpected tokens after `use`: {other:?}"),
                    };
                    self.imports.insert(name.clone(), path.clone());
                    if is_re_export {
                        self.re_exports.insert(name.clone(), path);
                    } else {
                        self.paths.push(path);
                    }
                    return;
                }
                other => panic!("unexpected tokens after `use`: {other:?}"),
            }
        }
    }
}

/// Modifiers before the keyword of an item.
const MODIFIERS: [&str; 6] = ["pub", "async", "unsafe", "extern", "default", "safe"];
/// Keywords before the name of an item that may end with a body in braces.
const KEYWORDS_WITH_BODY: [&str; 5] = ["fn", "struct", "enum", "union", "trait"];
/// Keywords before the name of an item that ends with a semicolon.
const KEYWORDS_WITH_SEMICOLON: [&str; 3] = ["const", "static", "type"];

/// Splits off the first item.
pub(crate) fn next_item(trees: &[Tree]) -> (&[Tree], &[Tree]) {
    let declared = without_attributes(trees);
    let ends_by_semicolon = match declared {
        [Tree::Word(first), Tree::Word(second), ..] if first == "const" => {
            !matches!(second.as_str(), "fn" | "async" | "unsafe" | "extern")
        }
        [Tree::Word(first), ..] => first == "use" || KEYWORDS_WITH_SEMICOLON.contains(&first.as_str()),
        _ => false,
    };
    let prefix_length = trees.len() - declared.len();
    let is_end = |tree: &Tree| tree.is_sign(';') || (!ends_by_semicolon && matches!(tree, Tree::Group('{', _)));
    let length = declared.iter().position(is_end).map_or(declared.len(), |at| at + 1);
    trees.split_at(prefix_length + length)
}

/// Returns the item without attributes, visibility and modifiers.
pub(crate) fn without_attributes(item: &[Tree]) -> &[Tree] {
    let mut rest = item;
    loop {
        rest = match rest {
            [Tree::Sign('#'), Tree::Group('[', _), after @ ..]
            | [Tree::Sign('#'), Tree::Sign('!'), Tree::Group('[', _), after @ ..] => after,
            [Tree::Word(word), Tree::Group('(', _), after @ ..] if word == "pub" => after,
            [Tree::Word(word), after @ ..] if MODIFIERS.contains(&word.as_str()) => after,
            [Tree::Word(word), Tree::Word(next), ..]
                if word == "const" && matches!(next.as_str(), "fn" | "async" | "unsafe" | "extern") =>
            {
                &rest[1..]
            }
            _ => return rest,
        };
    }
}

/// Returns `true` if the item is `pub` and not `#[doc(hidden)]`.
pub(crate) fn is_public(item: &[Tree]) -> bool {
    let attributes = &item[..item.len() - without_attributes(item).len()];
    let doc_hidden = [Tree::Word("doc".into()), Tree::Group('(', vec![Tree::Word("hidden".into())])];
    let is_hidden = attributes.iter().any(|tree| matches!(tree, Tree::Group('[', inner) if inner[..] == doc_hidden));
    let visibility = attributes.iter().position(|tree| tree.is_word("pub"));
    let is_restricted = visibility.is_some_and(|at| matches!(attributes.get(at + 1), Some(Tree::Group('(', _))));
    visibility.is_some() && !is_restricted && !is_hidden
}

/// Returns the names of the item for use from outside.
fn names_declared(declared: &[Tree]) -> Vec<String> {
    match declared {
        [Tree::Word(keyword), Tree::Word(name), ..] if keyword == "mod" => vec![name.clone()],
        [Tree::Word(keyword), names @ .., Tree::Sign(';')] if keyword == "use" => names_used(names),
        _ => names_defined(declared),
    }
}

/// Returns the names that one tree of a `use` declaration introduces.
fn names_used(tree: &[Tree]) -> Vec<String> {
    match tree {
        [.., Tree::Group('{', inner)] => inner.split(|tree| tree.is_sign(',')).flat_map(names_used).collect(),
        [.., Tree::Word(module_name), Tree::Colons, Tree::Word(name)] if name == "self" => vec![module_name.clone()],
        [.., Tree::Word(name)] => vec![name.clone()],
        [.., Tree::Sign('*')] => vec!["*".to_owned()],
        [] => Vec::new(),
        other => panic!("unexpected tokens after `pub use`: {other:?}"),
    }
}

/// Returns the file of the module `name`, which `file` declares in `folder`, and its content.
pub(crate) fn module_file(sources: &impl Sources, file: &Path, folder: &Path, name: &str) -> (PathBuf, Vec<Tree>) {
    let candidates = [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")];
    let module = candidates.into_iter().find_map(|path| sources.text(&path).map(|text| (path, read(&text))));
    module.unwrap_or_else(|| panic!("no file of mod {name}, of {}", file.display()))
}

/// Returns `true` if the item exists only in tests.
pub(crate) fn is_test(item: &[Tree]) -> bool {
    let attributes = &item[..item.len() - without_attributes(item).len()];
    attributes.iter().any(|attribute| {
        let Tree::Group('[', inner) = attribute else { return false };
        assert!(!inner.first().is_some_and(|word| word.is_word("path")), "`#[path]` is not supported");
        matches!(&inner[..], [cfg, Tree::Group('(', condition)] if cfg.is_word("cfg") && condition == &[Tree::Word("test".into())])
    })
}

/// Returns the name of the type or trait that the item defines.
fn type_defined(declared: &[Tree]) -> Option<String> {
    match declared {
        [Tree::Word(keyword), Tree::Word(name), ..]
            if matches!(keyword.as_str(), "struct" | "enum" | "union" | "trait" | "type") =>
        {
            Some(name.clone())
        }
        _ => None,
    }
}

/// Returns the names that the item defines. A macro call may define any name in its arguments.
fn names_defined(declared: &[Tree]) -> Vec<String> {
    match declared {
        [Tree::Word(keyword), Tree::Word(name), ..]
            if KEYWORDS_WITH_BODY.contains(&keyword.as_str())
                || KEYWORDS_WITH_SEMICOLON.contains(&keyword.as_str()) =>
        {
            let name = if name == "mut" { declared.get(2).and_then(Tree::word).unwrap_or(name) } else { name };
            vec![name.to_owned()]
        }
        [Tree::Word(keyword), Tree::Sign('!'), Tree::Word(name), ..] if keyword == "macro_rules" => vec![name.clone()],
        [Tree::Word(_), Tree::Sign('!'), Tree::Group(_, arguments), ..] => {
            let mut names = Vec::new();
            collect_words(arguments, &mut names);
            names
        }
        _ => Vec::new(),
    }
}

fn collect_words(trees: &[Tree], words: &mut Vec<String>) {
    for tree in trees {
        match tree {
            Tree::Word(word) => words.push(word.clone()),
            Tree::Group(_, inner) => collect_words(inner, words),
            Tree::Colons | Tree::Sign(_) | Tree::Text(_) => {}
        }
    }
}
