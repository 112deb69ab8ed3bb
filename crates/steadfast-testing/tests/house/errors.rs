//! `Debug` of public errors. If `main` returns an error, Rust prints it with `Debug`, so the `Debug` text must be the
//! message.

use crate::sources::{files, with_extension};
use crate::{packages, repository};

/// Crates whose errors reach the `main` function of other programs.
const LIBRARIES: [&str; 6] = [
    "steadfast",
    "steadfast-apiserver",
    "steadfast-cel",
    "steadfast-controller",
    "steadfast-notify",
    "steadfast-targets",
];

/// Returns the public error types in `source` that derive `Debug`.
fn errors_with_derived_debug(source: &str) -> Vec<String> {
    let (mut attributes, mut errors) = (String::new(), Vec::new());
    for line in source.lines().map(str::trim) {
        if let Some(derive) = line.strip_prefix("#[derive(") {
            attributes += derive;
        } else if let Some(name) = public_type(line) {
            let derives: Vec<_> = attributes.split([',', '(', ')', ']', ' ']).collect();
            let is_error =
                derives.iter().any(|name| name.ends_with("Error")) || source.contains(&format!("Error for {name} "));
            if is_error && derives.contains(&"Debug") {
                errors.push(name.to_owned());
            }
            attributes.clear();
        } else if line.ends_with(['{', '}', ';']) {
            attributes.clear();
        }
    }
    errors
}

/// Returns the name of the public type that starts in `line`.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ")?;
    let rest = rest.strip_prefix("enum ").or_else(|| rest.strip_prefix("struct "))?;
    rest.split(|character: char| !character.is_alphanumeric() && character != '_').next()
}

#[test]
fn public_errors_print_messages_as_debug() {
    let mut errors = Vec::new();
    let packages = packages();
    for name in LIBRARIES {
        let mut sources = Vec::new();
        files(&packages[name].join("src"), &with_extension("rs"), &mut sources);
        for path in sources {
            let source = std::fs::read_to_string(&path).expect("a readable source");
            let file = path.strip_prefix(repository()).unwrap_or(&path).display().to_string();
            errors.extend(errors_with_derived_debug(&source).into_iter().map(|error| format!("{file}: {error}")));
        }
    }
    assert!(errors.is_empty(), "errors with a derived Debug; use the macro debug_as_message instead: {errors:#?}");
}

#[test]
fn derived_debug_of_errors_is_found() {
    let source = "
        #[derive(Clone, Debug, thiserror::Error)]
        #[error(\"one\")]
        pub enum One { A }
        #[derive(Debug)]
        pub(crate) struct Inner;
        #[derive(Debug)]
        pub struct Two(pub u8);
        impl std::error::Error for Two {}
        #[derive(thiserror::Error)]
        pub struct Three;
        #[derive(Debug)]
        pub struct NoFailure;
    ";
    assert_eq!(errors_with_derived_debug(source), ["One", "Two"]);
}
