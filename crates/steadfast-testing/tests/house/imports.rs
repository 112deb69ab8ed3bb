//! Imports between files: each path is resolved to the file that defines its item.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::modules::{ModuleId, Modules, Sources};

/// Imported files with the imported paths, for each file.
#[derive(Debug, Default)]
pub(crate) struct Imports {
    pub(crate) by_file: BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>,
}

/// Target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ResolvedPath {
    /// A module.
    Module(ModuleId),
    /// Item that this module defines, with its name there.
    Item(ModuleId, String),
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
            imports.by_file.entry(module.file.clone()).or_default();
            let globs = module.globs.iter().filter(|(_, is_re_export)| !is_re_export).map(|(path, _)| (path, true));
            let used_reexports =
                module.re_exports.iter().filter(|(name, _)| module.words.contains(*name)).map(|(_, path)| path);
            let paths = module.paths.iter().chain(used_reexports).map(|path| (path, false));
            for (path, is_glob) in paths.chain(globs) {
                let resolved = modules.resolve(id, path, MAX_REEXPORTS);
                let resolved = resolved
                    .unwrap_or_else(|| panic!("{}: `{}` cannot be resolved", module.file.display(), path.join("::")));
                let from = match resolved {
                    ResolvedPath::Item(from, name) if modules.is_extended_by(from, &name, id) => continue,
                    ResolvedPath::Item(from, _) => from,
                    ResolvedPath::Module(from) if is_glob => from,
                    // The import of a module counts only where the file uses an item of that module.
                    ResolvedPath::Module(_) | ResolvedPath::Foreign => continue,
                };
                let from = &modules.all[from].file;
                if *from != module.file {
                    let imported_names =
                        imports.by_file.entry(module.file.clone()).or_default().entry(from.clone()).or_default();
                    imported_names.insert(path.join("::"));
                }
            }
        }
        for ((_, name), methods) in modules.methods() {
            for ((from, to), calls) in methods.calls_across() {
                let imported_names = imports.by_file.entry(from).or_default().entry(to).or_default();
                imported_names.extend(calls.keys().map(|method| format!("{name}::{method}")));
            }
        }
        imports
    }
}

impl Modules {
    /// Returns the module that defines the item at `path`, and the name of the item there.
    pub(crate) fn definition_of(&self, scope: ModuleId, path: &[String]) -> Option<(ModuleId, String)> {
        match self.resolve(scope, path, MAX_REEXPORTS)? {
            ResolvedPath::Item(id, name) => Some((id, name)),
            ResolvedPath::Module(_) | ResolvedPath::Foreign => None,
        }
    }

    /// Returns `true` if `module`, a part of `owner`, adds methods to a type that `owner` defines.
    fn is_extended_by(&self, owner: ModuleId, name: &str, module: ModuleId) -> bool {
        let mut ancestor = self.all[module].parent;
        while let Some(id) = ancestor {
            if id == owner {
                let mut impl_blocks = self.all[module].impl_blocks.iter();
                return impl_blocks.any(|block| {
                    !block.is_trait_impl && block.type_path.last().is_some_and(|type_name| type_name == name)
                });
            }
            ancestor = self.all[id].parent;
        }
        false
    }

    /// Resolves `path` in the module `scope`. `None` if the path belongs to this crate but has no target.
    fn resolve(&self, scope: ModuleId, path: &[String], reexports_left: usize) -> Option<ResolvedPath> {
        assert!(reexports_left > 0, "cyclic re-exports: {}", path.join("::"));
        let module = &self.all[scope];
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.resolve_in(0, rest, reexports_left),
            "self" => self.resolve_in(scope, rest, reexports_left),
            "super" => self.resolve_in(module.parent?, rest, reexports_left),
            // `Self::NAME`, and items of the standard library and of other crates.
            name if module.children.contains_key(name) || module.imports.contains_key(name) => {
                // Import from another crate, or the name of a crate.
                if module.imports.get(name).is_some_and(|import| import.first() == Some(first)) {
                    return Some(ResolvedPath::Foreign);
                }
                self.resolve_in(scope, path, reexports_left)
            }
            name if module.items.iter().any(|item| item == name) => Some(ResolvedPath::Item(scope, name.to_owned())),
            _ => Some(ResolvedPath::Foreign),
        }
    }

    /// Resolves `path` from outside of the module `at`.
    fn resolve_in(&self, at: ModuleId, path: &[String], reexports_left: usize) -> Option<ResolvedPath> {
        let module = &self.all[at];
        let Some((first, rest)) = path.split_first() else { return Some(ResolvedPath::Module(at)) };
        if first == "super" {
            return self.resolve_in(module.parent?, rest, reexports_left);
        }
        // A module and a function may have the same name.
        if let Some(child) = module.children.get(first)
            && !(rest.is_empty() && module.imports.contains_key(first))
        {
            return self.resolve_in(*child, rest, reexports_left);
        }
        if module.items.iter().any(|item| item == first) {
            return Some(ResolvedPath::Item(at, first.clone()));
        }
        if let Some(import) = module.imports.get(first) {
            let path: Vec<String> = import.iter().chain(rest).cloned().collect();
            return self.resolve(at, &path, reexports_left - 1);
        }
        module.globs.iter().find_map(|(glob, _)| {
            let path: Vec<String> = glob.iter().chain(path).cloned().collect();
            self.resolve(at, &path, reexports_left - 1).filter(|resolved| *resolved != ResolvedPath::Foreign)
        })
    }
}
