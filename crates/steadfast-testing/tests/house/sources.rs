//! Files of the repository, and the names of the tests in them.

use std::path::{Path, PathBuf};

/// Adds all wanted files below `folder` to `paths`, without builds, dependencies and hidden folders.
pub(super) fn files(folder: &Path, is_wanted: &impl Fn(&Path) -> bool, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !name.starts_with('.') && !name.starts_with("venv") {
            if !["target", "node_modules", "vendor"].contains(&&*name) {
                files(&path, is_wanted, paths);
            }
        } else if path.is_file() && is_wanted(&path) {
            paths.push(path);
        }
    }
}

/// Returns true for files with this extension.
pub(super) fn with_extension(extension: &str) -> impl Fn(&Path) -> bool {
    move |path| path.extension().is_some_and(|other| other == extension)
}

/// Returns the names of the test functions in a source.
pub(super) fn test_functions(source: &str) -> impl Iterator<Item = &str> {
    let mut is_test = false;
    source.lines().map(str::trim).filter_map(move |line| {
        // Other attributes may follow the test attribute before the function.
        if line.starts_with("#[") {
            is_test |= line.contains("test");
            return None;
        }
        let follows_attribute = std::mem::take(&mut is_test);
        let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        function.filter(|_| follows_attribute).and_then(|rest| rest.split('(').next())
    })
}
