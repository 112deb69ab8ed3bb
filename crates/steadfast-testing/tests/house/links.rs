//! Links of the pages and of the rustdoc to files of this repository, and to headings in them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::repository;
use crate::sources::files;

/// Address of the repository's files, for pages that are also read elsewhere.
const ADDRESS: &str = "https://github.com/steadfast-rs/steadfast/";

/// Returns the targets of the links `[text](target)` in a page, without code.
fn targets(page: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    let mut is_code = false;
    for line in page.lines() {
        if line.trim_start().trim_start_matches("//!").trim_start_matches("///").trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            targets.extend(line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()));
        }
    }
    targets
}

/// Returns the anchors of the headings in a page, as GitHub derives them.
fn anchors(page: &str) -> Vec<String> {
    let mut anchors = Vec::new();
    let mut occurrences = BTreeMap::<String, usize>::new();
    let mut is_code = false;
    for line in page.lines() {
        is_code ^= line.starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !is_code) else { continue };
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let characters = heading.chars().filter(|char| char.is_alphanumeric() || [' ', '-', '_'].contains(char));
        let anchor: String = characters.map(|char| if char == ' ' { '-' } else { char }).collect();
        let earlier_count = occurrences.entry(anchor.clone()).or_default();
        anchors.push(if *earlier_count == 0 { anchor } else { format!("{anchor}-{earlier_count}") });
        *earlier_count += 1;
    }
    anchors
}

/// Returns why a target in the file `from` is broken, or `None` if the link works or leaves the repository.
fn link_error(from: &Path, target: &str) -> Option<String> {
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let file = if let Some(path) = path.strip_prefix(ADDRESS) {
        let path = ["blob/main/", "tree/main/"].iter().find_map(|prefix| path.strip_prefix(prefix))?;
        repository().join(path)
    } else if path.contains("://") || path.starts_with("mailto:") {
        return None;
    } else if path.is_empty() {
        from.to_owned()
    } else {
        from.parent().expect("a file is in a folder").join(path)
    };
    if !file.exists() {
        return Some("no such file".to_owned());
    }
    let is_page = file.extension().is_some_and(|extension| extension == "md");
    let anchor = anchor.filter(|_| is_page)?;
    let headings = anchors(&std::fs::read_to_string(&file).expect("a page"));
    (!headings.iter().any(|heading| heading == anchor)).then(|| format!("no such heading; headings: {headings:?}"))
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut pages: Vec<PathBuf> =
        ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].map(|page| repository().join(page)).into();
    for folder in ["docs", "crates", "examples", "bench", "conformance", "fuzz"] {
        files(
            &repository().join(folder),
            &|path| path.extension().is_some_and(|extension| extension == "md"),
            &mut pages,
        );
    }
    let mut sources = Vec::new();
    files(
        &repository().join("crates"),
        &|path| path.extension().is_some_and(|extension| extension == "rs"),
        &mut sources,
    );
    let (mut count, mut errors) = (0, Vec::new());
    for path in pages.iter().chain(&sources) {
        let text = std::fs::read_to_string(path).expect("a text");
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        // In sources, rustdoc checks links to items.
        for target in targets(&text).into_iter().filter(|target| !is_source || target.starts_with(ADDRESS)) {
            count += 1;
            errors.extend(link_error(path, target).map(|reason| format!("{}: {target}: {reason}", path.display())));
        }
    }
    assert!(count > 100, "only {count} links were found");
    assert!(errors.is_empty(), "broken links: {errors:#?}");
}

#[test]
fn broken_links_are_detected() {
    let page =
        "# The `x` of y\n## Same\n## Same\nSee [a](b.md#c-d) and [e](#f \"title\").\n```\n[code](nothing)\n```\n";
    assert_eq!(targets(page), ["b.md#c-d", "#f"]);
    assert_eq!(anchors(page), ["the-x-of-y", "same", "same-1"]);
    let readme = repository().join("README.md");
    assert_eq!(link_error(&readme, "docs/api.md#public-api"), None);
    assert_eq!(link_error(&readme, "https://example.org/nothing"), None);
    assert_eq!(link_error(&readme, "docs/nothing.md").as_deref(), Some("no such file"));
    let missing_heading = format!("{ADDRESS}blob/main/docs/api.md#nothing");
    assert!(link_error(&readme, &missing_heading).is_some_and(|reason| reason.starts_with("no such heading")));
}
