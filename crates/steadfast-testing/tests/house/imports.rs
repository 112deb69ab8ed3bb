//! Imports between files: each path is resolved to the file that defines its item.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::modules::{Id, Modules, Sources};

/// Imported files with the imported paths, for each file.
#[derive(Debug, Default)]
pub(crate) struct Imports {
    pub(crate) of: BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>,
}

/// Target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Named {
    /// A module.
    Module(Id),
    /// Item that this module defines, with its name there.
    Item(Id, String),
    /// Item of another crate.
    Foreign,
}

/// Maximum number of re-exports that are followed.
const MAX_REEXPORTS: usize = 32;

impl Imports {
    /// Reads the imports of the crate with this root.
    ///
    /// # Panics
    ///
    /// Panics if a path into the crate cannot be resolved, because an import could be missed.
    pub(crate) fn read(sources: &impl Sources, root: &Path) -> Self {
        let modules = Modules::read(sources, root);
        let mut imports = Self::default();
        for (id, module) in modules.all.iter().enumerate() {
            imports.of.entry(module.file.clone()).or_default();
            let globs = module.globs.iter().filter(|(_, is_re_export)| !is_re_export).map(|(path, _)| (path, true));
            let used = module.re_exports.iter().filter(|(name, _)| module.words.contains(*name)).map(|(_, path)| path);
            let paths = module.paths.iter().chain(used).map(|path| (path, false));
            for (path, is_glob) in paths.chain(globs) {
                let named = modules.named(id, path, MAX_REEXPORTS);
                let named = named
                    .unwrap_or_else(|| panic!("{}: `{}` cannot be resolved", module.file.display(), path.join("::")));
                let from = match named {
                    Named::Item(from, name) if modules.is_extended(from, &name, id) => continue,
                    Named::Item(from, _) => from,
                    Named::Module(from) if is_glob => from,
                    // The import of a module counts only where the file uses an item of that module.
                    Named::Module(_) | Named::Foreign => continue,
                };
                let from = &modules.all[from].file;
                if *from != module.file {
                    let taken = imports.of.entry(module.file.clone()).or_default().entry(from.clone()).or_default();
                    taken.insert(path.join("::"));
                }
            }
        }
        for ((_, name), methods) in modules.methods() {
            for ((from, to), calls) in methods.calls_across() {
                let taken = imports.of.entry(from).or_default().entry(to).or_default();
                taken.extend(calls.keys().map(|method| format!("{name}::{method}")));
            }
        }
        imports
    }
}

impl Modules {
    /// Returns the module that defines the item at `path`, and the name of the item there.
    pub(crate) fn defined(&self, here: Id, path: &[String]) -> Option<(Id, String)> {
        match self.named(here, path, MAX_REEXPORTS)? {
            Named::Item(id, name) => Some((id, name)),
            Named::Module(_) | Named::Foreign => None,
        }
    }

    /// Returns `true` if `module`, a part of `owner`, adds methods to a type that `owner` defines.
    fn is_extended(&self, owner: Id, name: &str, module: Id) -> bool {
        let mut above = self.all[module].parent;
        while let Some(id) = above {
            if id == owner {
                let mut extensions = self.all[module].extensions.iter();
                return extensions.any(|block| !block.is_of_trait && block.of.last().is_some_and(|own| own == name));
            }
            above = self.all[id].parent;
        }
        false
    }

    /// Resolves `path` in the module `here`. `None` if the path belongs to this crate but has no target.
    fn named(&self, here: Id, path: &[String], steps: usize) -> Option<Named> {
        assert!(steps > 0, "cyclic re-exports: {}", path.join("::"));
        let module = &self.all[here];
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.within(0, rest, steps),
            "self" => self.within(here, rest, steps),
            "super" => self.within(module.parent?, rest, steps),
            // `Self::NAME`, and items of the standard library and of other crates.
            name if module.children.contains_key(name) || module.imports.contains_key(name) => {
                // Import from another crate, or the name of a crate.
                if module.imports.get(name).is_some_and(|import| import.first() == Some(first)) {
                    return Some(Named::Foreign);
                }
                self.within(here, path, steps)
            }
            name if module.items.iter().any(|item| item == name) => Some(Named::Item(here, name.to_owned())),
            _ => Some(Named::Foreign),
        }
    }

    /// Resolves `path` from outside of the module `at`.
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
