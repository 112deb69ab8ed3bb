//! Interfaces of one operating system are used only below a `cfg` condition, so that all crates compile on macOS and
//! Windows. No continuous integration machine of this project can compile for them.

use std::fmt::Write as _;
use std::path::Path;

use crate::modules::{Sources, is_test, module_file, next_item, without_attributes};
use crate::tokens::{Tree, read};
use crate::{Repository, packages};

/// Names that exist only on some operating systems.
const PLATFORM_NAMES: [&str; 8] =
    ["rustix", "UnixStream", "UnixListener", "UnixDatagram", "OwnedFd", "BorrowedFd", "AsRawFd", "AsFd"];

/// Modules that exist only on some operating systems.
const PLATFORM_MODULES: [[&str; 2]; 6] =
    [["os", "unix"], ["os", "linux"], ["os", "fd"], ["os", "windows"], ["signal", "unix"], ["signal", "windows"]];

/// Folders of Linux.
const LINUX_FOLDERS: [&str; 3] = ["/proc/", "/sys/", "/dev/"];

/// Package and file that may use an interface without a condition, with the reason.
const EXCEPTIONS: [(&str, &str, &str); 0] = [];

/// Returns `true` for `#[cfg(…)]` with an operating system in its condition.
fn is_platform_condition(attribute: &[Tree]) -> bool {
    let [Tree::Word(cfg), Tree::Group('(', condition)] = attribute else { return false };
    cfg == "cfg" && mentions_platform(condition)
}

fn mentions_platform(condition: &[Tree]) -> bool {
    condition.iter().any(|tree| match tree {
        Tree::Word(word) => matches!(word.as_str(), "unix" | "windows" | "target_os" | "target_family"),
        Tree::Group(_, inner) => mentions_platform(inner),
        Tree::Colons | Tree::Text(_) | Tree::Sign(_) => false,
    })
}

/// Appends the interfaces in `trees` that no condition guards.
fn collect_unguarded(trees: &[Tree], interfaces: &mut Vec<String>) {
    let mut rest = trees;
    while let Some((first, after)) = rest.split_first() {
        rest = match rest {
            // The condition guards the statement, item, field or arm that follows.
            [Tree::Sign('#'), Tree::Group('[', attribute), guarded @ ..] if is_platform_condition(attribute) => {
                let end = guarded
                    .iter()
                    .position(|tree| tree.is_sign(';') || tree.is_sign(',') || matches!(tree, Tree::Group('{', _)));
                end.map_or(&[][..], |end| &guarded[end + 1..])
            }
            // The inner attribute of a file or module guards all of it.
            [Tree::Sign('#'), Tree::Sign('!'), Tree::Group('[', attribute), ..] if is_platform_condition(attribute) => {
                return;
            }
            [Tree::Word(parent), Tree::Colons, Tree::Word(child), ..]
                if PLATFORM_MODULES.contains(&[parent.as_str(), child.as_str()]) =>
            {
                interfaces.push(format!("{parent}::{child}"));
                after
            }
            _ => {
                match first {
                    Tree::Word(word) if PLATFORM_NAMES.contains(&word.as_str()) => interfaces.push(word.clone()),
                    Tree::Text(text) if LINUX_FOLDERS.iter().any(|folder| text.starts_with(folder)) => {
                        interfaces.push(text.clone());
                    }
                    Tree::Group(_, inner) => collect_unguarded(inner, interfaces),
                    _ => {}
                }
                after
            }
        };
    }
}

/// Appends the unguarded interfaces of a file and of the modules below it, with the file.
fn add_unguarded(
    sources: &impl Sources,
    file: &Path,
    folder: &Path,
    body: &[Tree],
    interfaces: &mut Vec<(String, String)>,
) {
    let mut rest = body;
    while !rest.is_empty() {
        let (item, after) = next_item(rest);
        rest = after;
        let declared = without_attributes(item);
        let attributes = &item[..item.len() - declared.len()];
        let is_guarded =
            attributes.iter().any(|tree| matches!(tree, Tree::Group('[', inner) if is_platform_condition(inner)));
        if is_guarded || is_test(item) {
            continue;
        }
        if let [Tree::Word(keyword), Tree::Word(name), Tree::Sign(';')] = declared
            && keyword == "mod"
        {
            let (child_file, body) = module_file(sources, file, folder, name);
            add_unguarded(sources, &child_file, &folder.join(name), &body, interfaces);
        } else {
            let mut names = Vec::new();
            collect_unguarded(item, &mut names);
            interfaces.extend(names.into_iter().map(|name| (file.display().to_string(), name)));
        }
    }
}

/// Returns the unguarded interfaces of the crate with this root file.
fn unguarded_interfaces(sources: &impl Sources, root: &Path) -> Vec<(String, String)> {
    let text = sources.text(root).unwrap_or_else(|| panic!("no file {}", root.display()));
    let mut interfaces = Vec::new();
    add_unguarded(sources, root, root.parent().expect("a file is in a folder"), &read(&text), &mut interfaces);
    interfaces
}

#[test]
fn platform_interfaces_are_guarded() {
    let (mut violations, mut used_exceptions) = (String::new(), 0);
    for (package, folder) in packages() {
        // The benchmark measures processes with Linux's interfaces.
        if package.starts_with("bench") {
            continue;
        }
        for root in ["src/lib.rs", "src/main.rs"].map(|root| folder.join(root)) {
            if !root.is_file() {
                continue;
            }
            for (file, name) in unguarded_interfaces(&Repository, &root) {
                let is_permitted = EXCEPTIONS.iter().any(|(exempt_package, exempt_file, _)| {
                    package == *exempt_package && Path::new(&file).ends_with(exempt_file)
                });
                if is_permitted {
                    used_exceptions += 1;
                } else {
                    let file =
                        Path::new(&file).strip_prefix(&folder).map_or(file.clone(), |file| file.display().to_string());
                    writeln!(violations, "{package}: {name} in {file}").expect("a write to a string succeeds");
                }
            }
        }
    }
    assert!(violations.is_empty(), "guard these with `#[cfg(unix)]` or `#[cfg(target_os = …)]`:\n{violations}");
    assert!(used_exceptions >= EXCEPTIONS.len(), "remove the exceptions that no file needs any more");
}

#[test]
fn planted_platform_interfaces_are_found() {
    let files = [
        ("lib.rs", "mod socket; #[cfg(unix)] mod guarded; fn plain() { use std::os::unix::fs::MetadataExt; }"),
        (
            "socket.rs",
            "use tokio::net::UnixStream; #[cfg(unix)] use std::os::fd::OwnedFd; fn one() { open(\"/proc/self\") }",
        ),
        ("guarded.rs", "use rustix::process::kill;"),
    ];
    let found = unguarded_interfaces(&crate::sample_modules::in_memory(&files), Path::new("src/lib.rs"));
    let found: Vec<_> = found.iter().map(|(file, name)| (file.as_str(), name.as_str())).collect();
    let expected = [("src/socket.rs", "UnixStream"), ("src/socket.rs", "/proc/self"), ("src/lib.rs", "os::unix")];
    assert_eq!(found, expected);
}

#[test]
fn guarded_platform_interfaces_are_permitted() {
    let sources = [
        "fn one() { #[cfg(unix)] std::os::unix::fs::mode(); #[cfg(unix)] { rustix::kill() } plain() }",
        "struct One { #[cfg(unix)] signal: tokio::signal::unix::Signal, plain: u8 }",
        "#[cfg(any(target_os = \"linux\", target_os = \"android\"))] fn two() { rustix::time() }",
        "#[cfg(test)] mod tests { fn three() { rustix::time() } }",
    ];
    for text in sources {
        let files = [("lib.rs", text)];
        assert_eq!(
            unguarded_interfaces(&crate::sample_modules::in_memory(&files), Path::new("src/lib.rs")),
            [],
            "{text}"
        );
    }
}
