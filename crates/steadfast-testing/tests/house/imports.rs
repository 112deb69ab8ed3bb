//! Which file imports which: each path is followed to the file that defines what it names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::modules::{Id, Modules, Sources};

/// For each file the files that it imports, and what it takes from there.
#[derive(Debug, Default)]
pub(crate) struct Imports {
    pub(crate) of: BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>,
}

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Named {
    /// A module.
    Module(Id),
    /// What this module defines, by its name there.
    Item(Id, String),
    /// Nothing of this crate.
    Foreign,
}

/// How often a name may be handed on.
const STEPS: usize = 32;

impl Imports {
    /// What the files of the crate with this root import.
    ///
    /// # Panics
    ///
    /// Where a path into the crate leads to nothing that was read: then an import could be missed.
    pub(crate) fn read(sources: &impl Sources, root: &Path) -> Self {
        let modules = Modules::read(sources, root);
        let mut imports = Self::default();
        for (id, module) in modules.all.iter().enumerate() {
            imports.of.entry(module.file.clone()).or_default();
            let globs = module.globs.iter().filter(|(_, is_handed_on)| !is_handed_on).map(|(path, _)| (path, true));
            let used = module.handed_on.iter().filter(|(name, _)| module.words.contains(*name)).map(|(_, path)| path);
            let paths = module.paths.iter().chain(used).map(|path| (path, false));
            for (path, is_glob) in paths.chain(globs) {
                let named = modules.named(id, path, STEPS);
                let named = named.unwrap_or_else(|| {
                    panic!("{}: `{}` leads to nothing that was read", module.file.display(), path.join("::"))
                });
                let from = match named {
                    Named::Item(from, name) if modules.is_extended(from, &name, id) => continue,
                    Named::Item(from, _) => from,
                    Named::Module(from) if is_glob => from,
                    // What is taken from it is named where that is done.
                    Named::Module(_) | Named::Foreign => continue,
                };
                let from = &modules.all[from].file;
                if *from != module.file {
                    let taken = imports.of.entry(module.file.clone()).or_default().entry(from.clone()).or_default();
                    taken.insert(path.join("::"));
                }
            }
        }
        imports
    }
}

impl Modules {
    /// Whether `module`, which is part of `owner`, adds methods to a type that is defined there.
    fn is_extended(&self, owner: Id, name: &str, module: Id) -> bool {
        let mut above = self.all[module].parent;
        while let Some(id) = above {
            if id == owner {
                return self.all[module].extended.contains(name);
            }
            above = self.all[id].parent;
        }
        false
    }

    /// What `path` names in the module `here`; nothing where it is of this crate and leads nowhere.
    fn named(&self, here: Id, path: &[String], steps: usize) -> Option<Named> {
        assert!(steps > 0, "names that are handed on in a circle: {}", path.join("::"));
        let module = &self.all[here];
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.within(0, rest, steps),
            "self" => self.within(here, rest, steps),
            "super" => self.within(module.parent?, rest, steps),
            // `Self::NAME`, and what the standard library and other crates have.
            name if module.children.contains_key(name) || module.imports.contains_key(name) => {
                // An import of another crate's, or a crate's name itself.
                if module.imports.get(name).is_some_and(|import| import.first() == Some(first)) {
                    return Some(Named::Foreign);
                }
                self.within(here, path, steps)
            }
            name if module.items.iter().any(|item| item == name) => Some(Named::Item(here, name.to_owned())),
            _ => Some(Named::Foreign),
        }
    }

    /// What `path` names, seen from outside of the module `at`.
    fn within(&self, at: Id, path: &[String], steps: usize) -> Option<Named> {
        let module = &self.all[at];
        let Some((first, rest)) = path.split_first() else { return Some(Named::Module(at)) };
        if first == "super" {
            return self.within(module.parent?, rest, steps);
        }
        // A module and a function may have the same name.
        if let Some(child) = module.children.get(first)
            && !(rest.is_empty() && module.imports.contains_key(first))
        {
            return self.within(*child, rest, steps);
        }
        if module.items.iter().any(|item| item == first) {
            return Some(Named::Item(at, first.clone()));
        }
        if let Some(import) = module.imports.get(first) {
            let path: Vec<String> = import.iter().chain(rest).cloned().collect();
            return self.named(at, &path, steps - 1);
        }
        module.globs.iter().find_map(|(glob, _)| {
            let path: Vec<String> = glob.iter().chain(path).cloned().collect();
            self.named(at, &path, steps - 1).filter(|named| *named != Named::Foreign)
        })
    }
}
