//! Where manifests come from: files, standard input, folders, kustomizations.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// What represents standard input.
const STANDARD_INPUT: &str = "-";

/// The endings of the files that are read in a folder, as kubectl has them.
const ENDINGS: [&str; 3] = ["json", "yaml", "yml"];

/// The names of the file that makes a folder a kustomization.
const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// What can build a kustomization, in the order in which it is tried.
const BUILDERS: [(&str, &str); 2] = [("kubectl", "kustomize"), ("kustomize", "build")];

/// A text with manifests, and where it is from, for errors.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) from: String,
}

/// All texts of `files`, then those of `kustomizations`, in order; folders with those in them where it is `recursive`.
pub(crate) fn read(files: &[PathBuf], recursive: bool, kustomizations: &[PathBuf]) -> Result<Vec<Text>, Failure> {
    let mut texts = Vec::new();
    let mut inputs = 0;
    for file in files {
        if file.as_os_str() == STANDARD_INPUT {
            inputs += 1;
            if inputs > 1 {
                return Err(Failure::usage("standard input can be read once; name `-f -` once"));
            }
            let text = io::read_to_string(io::stdin().lock())
                .map_err(|error| Failure::usage(format!("standard input cannot be read: {error}")))?;
            texts.push(Text { text, from: "standard input".to_owned() });
        } else if is_url(file) {
            let url = file.display();
            return Err(Failure::usage(format!(
                "{url} is a URL, and none is fetched; pipe it: curl -fsSL {url} | steadfast serve -f -"
            )));
        } else if file.is_dir() {
            for inside in manifests_in(file, recursive)? {
                texts.push(read_file(&inside)?);
            }
        } else if is_kustomization(file) && file.is_file() {
            return Err(kustomized(file));
        } else {
            texts.push(read_file(file)?);
        }
    }
    for folder in kustomizations {
        texts.push(Text { text: build(folder)?, from: folder.display().to_string() });
    }
    Ok(texts)
}

fn is_url(file: &Path) -> bool {
    file.to_str().is_some_and(|text| text.starts_with("http://") || text.starts_with("https://"))
}

fn is_kustomization(file: &Path) -> bool {
    file.file_name().and_then(OsStr::to_str).is_some_and(|name| KUSTOMIZATIONS.contains(&name))
}

/// Its resources are patched and renamed before they are applied, so their files must not be read one by one.
fn kustomized(file: &Path) -> Failure {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.display();
    Failure::usage(format!(
        "{} makes {folder} a kustomization, which -f does not build; use -k {folder}",
        file.display()
    ))
}

fn read_file(file: &Path) -> Result<Text, Failure> {
    let text = fs::read_to_string(file).map_err(|error| unreadable(file, &error))?;
    Ok(Text { text, from: file.display().to_string() })
}

/// The manifests in a folder, by their names in order.
fn manifests_in(folder: &Path, recursive: bool) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    let has_folders = collect(folder, recursive, &mut found)?;
    if let Some(inside) = found.iter().find(|file| is_kustomization(file)) {
        return Err(kustomized(inside));
    }
    if found.is_empty() {
        let deeper = if has_folders && !recursive { "; -R looks into its folders too" } else { "" };
        let shown = folder.display();
        return Err(Failure::usage(format!("{shown} has no file that ends in .json, .yaml or .yml{deeper}")));
    }
    Ok(found)
}

/// Adds the manifests in a folder to `found`; tells whether there are folders in it.
fn collect(folder: &Path, recursive: bool, found: &mut Vec<PathBuf>) -> Result<bool, Failure> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut entries = entries.map_err(|error| unreadable(folder, &error))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    let mut has_folders = false;
    for entry in entries {
        let path = entry.path();
        // A link to a folder is not followed: it may lead back here.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            has_folders = true;
            if recursive {
                collect(&path, recursive, found)?;
            }
        } else if path.is_file() && is_kustomization(&path) {
            // Whatever its ending: the folder is not meant to be read file by file.
            found.push(path);
        } else if path.is_file() && path.extension().and_then(OsStr::to_str).is_some_and(|end| ENDINGS.contains(&end)) {
            found.push(path);
        }
    }
    Ok(has_folders)
}

/// What the machine's own kubectl makes of a kustomization, or a kustomize where there is no kubectl.
///
/// What kustomize does is a language of its own, with versions; an imitation of its common part would make other objects
/// than the user's own tool, in silence. So that tool makes them.
fn build(folder: &Path) -> Result<String, Failure> {
    if !folder.is_dir() && !is_url(folder) {
        let shown = folder.display();
        return Err(Failure::usage(format!("{shown} is no folder; -k takes one with a kustomization.yaml in it")));
    }
    for (program, verb) in BUILDERS {
        let built = Command::new(program).arg(verb).arg(folder).stdin(Stdio::null()).output();
        let built = match built {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            built => built.map_err(|error| Failure::run(format!("{program} cannot be run: {error}")))?,
        };
        if !built.status.success() {
            let why = String::from_utf8_lossy(&built.stderr);
            let shown = folder.display();
            return Err(Failure::usage(format!("{program} {verb} {shown} failed ({}): {}", built.status, why.trim())));
        }
        return String::from_utf8(built.stdout)
            .map_err(|_| Failure::run(format!("{program} {verb} {} made no text", folder.display())));
    }
    Err(Failure::run(
        "-k needs `kubectl` or `kustomize` on the path, and there is neither; install one, or build the kustomization \
         elsewhere and pipe it: … | steadfast serve -f -",
    ))
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("{} cannot be read: {error}", path.display()))
}
