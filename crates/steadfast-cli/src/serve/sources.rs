//! Sources of manifests: files, standard input, folders and kustomizations.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::atomic_file;
use crate::failure::Failure;

/// File name that selects standard input.
const STANDARD_INPUT: &str = "-";

/// Extensions of files that are read from a folder, as in kubectl.
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];

/// File names that make a folder a kustomization.
const KUSTOMIZATION_FILES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// Programs that build a kustomization, in order of preference.
const BUILD_COMMANDS: [(&str, &str); 2] = [("kubectl", "kustomize"), ("kustomize", "build")];

/// Text of manifests with its origin, for errors.
#[derive(Debug)]
pub(crate) struct ManifestText {
    pub(crate) text: String,
    pub(crate) origin: String,
}

/// Reads all `files`, then `kustomizations`, in order; subfolders too with `recursive`.
pub(crate) fn read(
    files: &[PathBuf],
    recursive: bool,
    kustomizations: &[PathBuf],
) -> Result<Vec<ManifestText>, Failure> {
    let mut texts = Vec::new();
    let mut stdin_count = 0;
    for file in files {
        if file.as_os_str() == STANDARD_INPUT {
            stdin_count += 1;
            if stdin_count > 1 {
                return Err(Failure::usage("standard input can be read once; name `-f -` once"));
            }
            let text = io::read_to_string(io::stdin().lock())
                .map_err(|error| Failure::usage(format!("standard input cannot be read: {error}")))?;
            texts.push(ManifestText { text, origin: "standard input".to_owned() });
        } else if is_url(file) {
            let url = file.display();
            return Err(Failure::usage(format!(
                "{url} is a URL, and none is fetched; pipe it: curl -fsSL {url} | steadfast serve -f -"
            )));
        } else if file.is_dir() {
            for file_in_folder in manifests_in(file, recursive)? {
                texts.push(read_file(&file_in_folder)?);
            }
        } else if is_kustomization(file) && file.is_file() {
            return Err(kustomization_error(file));
        } else {
            texts.push(read_file(file)?);
        }
    }
    for folder in kustomizations {
        texts.push(ManifestText { text: build(folder)?, origin: folder.display().to_string() });
    }
    Ok(texts)
}

fn is_url(file: &Path) -> bool {
    file.to_str().is_some_and(|text| text.starts_with("http://") || text.starts_with("https://"))
}

fn is_kustomization(file: &Path) -> bool {
    file.file_name().and_then(OsStr::to_str).is_some_and(|name| KUSTOMIZATION_FILES.contains(&name))
}

/// Returns the error for a kustomization given with `-f`: its resources are patched before use, so their files must not
/// be read one by one.
fn kustomization_error(file: &Path) -> Failure {
    let folder = atomic_file::folder_of(file);
    let folder = folder.display();
    Failure::usage(format!(
        "{} makes {folder} a kustomization, which -f does not build; use -k {folder}",
        file.display()
    ))
}

fn read_file(file: &Path) -> Result<ManifestText, Failure> {
    let text = fs::read_to_string(file).map_err(|error| read_failure(file, &error))?;
    Ok(ManifestText { text, origin: file.display().to_string() })
}

/// Returns the manifests in a folder, sorted by name.
fn manifests_in(folder: &Path, recursive: bool) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    let has_folders = collect_manifests(folder, recursive, &mut files)?;
    if let Some(file_in_folder) = files.iter().find(|file| is_kustomization(file)) {
        return Err(kustomization_error(file_in_folder));
    }
    if files.is_empty() {
        let hint = if has_folders && !recursive { "; use -R to include subfolders" } else { "" };
        let folder_text = folder.display();
        return Err(Failure::usage(format!("{folder_text} has no file that ends in .json, .yaml or .yml{hint}")));
    }
    Ok(files)
}

/// Adds the manifests in a folder to `files`. Returns whether the folder has subfolders.
fn collect_manifests(folder: &Path, recursive: bool, files: &mut Vec<PathBuf>) -> Result<bool, Failure> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut entries = entries.map_err(|error| read_failure(folder, &error))?;
    // File systems list folders in any order. Manifests are created in the order of their names, as by kubectl.
    entries.sort_by_key(fs::DirEntry::file_name);
    let mut has_folders = false;
    for entry in entries {
        let path = entry.path();
        // Symbolic links to folders are not followed: they may form a cycle.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            has_folders = true;
            if recursive {
                collect_manifests(&path, recursive, files)?;
            }
        } else if path.is_file() && is_kustomization(&path) {
            // The file is included regardless of its extension, so that the caller rejects the folder.
            files.push(path);
        } else if path.is_file()
            && path.extension().and_then(OsStr::to_str).is_some_and(|end| EXTENSIONS.contains(&end))
        {
            files.push(path);
        }
    }
    Ok(has_folders)
}

/// Builds a kustomization with the installed kubectl, or else kustomize.
///
/// Kustomize is a language with versions. A partial implementation here could silently create other objects than the
/// user's tool, so the user's tool builds them.
fn build(folder: &Path) -> Result<String, Failure> {
    // Kustomize accepts URLs of remote folders, too.
    if !folder.is_dir() && !is_url(folder) {
        let folder_text = folder.display();
        return Err(Failure::usage(format!(
            "{folder_text} is not a folder; -k takes a folder that contains a kustomization.yaml"
        )));
    }
    for (program, subcommand) in BUILD_COMMANDS {
        // The child has no standard input, so that it does not consume the manifests for `-f -`.
        let output = Command::new(program).arg(subcommand).arg(folder).stdin(Stdio::null()).output();
        let output = match output {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            output => output.map_err(|error| Failure::run(format!("{program} cannot be run: {error}")))?,
        };
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr);
            let folder_text = folder.display();
            return Err(Failure::usage(format!(
                "{program} {subcommand} {folder_text} failed ({}): {}",
                output.status,
                reason.trim()
            )));
        }
        return String::from_utf8(output.stdout)
            .map_err(|_| Failure::run(format!("{program} {subcommand} {} made no text", folder.display())));
    }
    Err(Failure::run(
        "-k needs `kubectl` or `kustomize` on the path, but neither is installed; install one, or build the kustomization \
         elsewhere and pipe it: … | steadfast serve -f -",
    ))
}

fn read_failure(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("{} cannot be read: {error}", path.display()))
}
