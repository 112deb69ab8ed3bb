//! Cycles of imports between files, direct or through other files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::imports::Imports;

/// Files that reach each other by imports.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ImportCycle {
    pub(crate) files: Vec<PathBuf>,
}

impl Imports {
    /// Returns the cycles. Each file is in at most one.
    pub(crate) fn import_cycles(&self) -> Vec<ImportCycle> {
        let reachable: BTreeMap<&Path, BTreeSet<&Path>> =
            self.by_file.keys().map(|file| (file.as_path(), self.reached_from(file))).collect();
        let mut import_cycles = Vec::new();
        let mut cycle_files = BTreeSet::new();
        for (file, others) in &reachable {
            if !others.contains(file) || cycle_files.contains(file) {
                continue;
            }
            let files: Vec<_> = others.iter().filter(|other| reachable[*other].contains(file)).copied().collect();
            cycle_files.extend(files.iter().copied());
            import_cycles.push(ImportCycle { files: files.into_iter().map(Path::to_owned).collect() });
        }
        import_cycles
    }

    fn reached_from<'a>(&'a self, file: &Path) -> BTreeSet<&'a Path> {
        let mut reachable = BTreeSet::new();
        let mut next: Vec<&Path> = self.by_file[file].keys().map(PathBuf::as_path).collect();
        while let Some(file) = next.pop() {
            if reachable.insert(file) {
                next.extend(self.by_file[file].keys().map(PathBuf::as_path));
            }
        }
        reachable
    }

    /// Describes the cycle with its imports.
    pub(crate) fn describe(&self, cycle: &ImportCycle) -> String {
        let mut text = String::new();
        for file in &cycle.files {
            for (other, names) in self.by_file[file].iter().filter(|(other, _)| cycle.files.contains(other)) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let _ = writeln!(text, "  {} imports {} for {}", file.display(), other.display(), names.join(", "));
            }
        }
        text
    }
}
