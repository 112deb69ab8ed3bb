//! Strict parser for the markup of a page: XML without namespaces, processing instructions and CDATA.

/// Start tag of an element.
#[derive(Debug)]
pub(super) struct Element {
    pub(super) name: String,
    attributes: Vec<(String, String)>,
}

/// Returns an attribute of an element.
pub(super) fn attribute<'a>(element: &'a Element, name: &str) -> Option<&'a str> {
    element.attributes.iter().find(|(attribute, _)| attribute == name).map(|(_, value)| value.as_str())
}

/// Returns all elements of a document, in order. Panics if the document is not well-formed.
pub(super) fn elements(document: &str) -> Vec<Element> {
    let mut rest = document.strip_prefix("<!DOCTYPE html>").expect("a document type");
    let (mut found, mut open) = (Vec::new(), Vec::new());
    while let Some(start) = rest.find('<') {
        let text = &rest[..start];
        check_text(text);
        assert!(!open.is_empty() || text.trim().is_empty(), "text outside of the root: {text:?}");
        let end = start + rest[start..].find('>').expect("the tag ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "the end tag matches");
            continue;
        }
        let element = parse_tag(tag.trim_end_matches('/'));
        if !tag.ends_with('/') {
            open.push(element.name.clone());
        }
        found.push(element);
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "open elements: {open:?}, rest: {rest:?}");
    assert_eq!(found[0].name, "html");
    found
}

/// Returns the texts of all elements with this name, which have no attributes and no children.
pub(super) fn texts_of<'a>(markup: &'a str, name: &str) -> Vec<&'a str> {
    let (start, end) = (format!("<{name}>"), format!("</{name}>"));
    let parts = markup.split(start.as_str()).skip(1);
    parts.map(|part| part.split_once(end.as_str()).expect("an end tag").0).collect()
}

fn parse_tag(tag: &str) -> Element {
    let (name, mut rest) = tag.split_once([' ', '\n']).unwrap_or((tag, ""));
    assert!(!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()), "{tag}");
    let mut attributes: Vec<(String, String)> = Vec::new();
    while !rest.trim().is_empty() {
        let (attribute, after) = rest.trim_start().split_once("=\"").unwrap_or_else(|| panic!("no value in {tag}"));
        let (value, after) = after.split_once('"').unwrap_or_else(|| panic!("an open value in {tag}"));
        assert!(attribute.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'), "{attribute:?} in {tag}");
        assert!(attributes.iter().all(|(earlier, _)| earlier != attribute), "{attribute} twice in {tag}");
        check_text(value);
        attributes.push((attribute.to_owned(), value.to_owned()));
        rest = after;
    }
    Element { name: name.to_owned(), attributes }
}

/// Checks that text has only known references and printable characters.
fn check_text(text: &str) {
    assert!(!text.contains(['<', '>']), "{text:?}");
    assert!(text.chars().all(|character| character == '\n' || !character.is_control()), "{text:?}");
    for reference in text.split('&').skip(1) {
        let name = reference.split_once(';').map(|(name, _)| name);
        assert!(matches!(name, Some("amp" | "lt" | "gt" | "quot" | "#39")), "{reference:?}");
    }
}
