//! YAML with edits that preserve everything else.
//!
//! A scalar keeps its quotes, and a scalar without quotes gets none. Parsers disagree on whether `yes` or `0123` is a
//! string, and this module must not decide that. Comments are lost, as with `kubectl config`.

use std::fmt::{self, Write};

use granit_parser::{Event, Parser, ScalarStyle, Tag};

/// Maximum nesting depth of a document.
const MAX_DEPTH: usize = 64;

/// A value of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// ID that aliases refer to; 0 without an anchor.
    anchor: usize,
    tag: Option<String>,
    content: YamlContent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum YamlContent {
    /// A scalar without quotes, of any type; the empty scalar is null.
    Plain(String),
    /// A string.
    Quoted(String),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    /// The node with this anchor.
    Alias(usize),
}

/// Reason why a text cannot be edited. Never contains parts of the text, which may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct YamlError(String);

impl fmt::Display for YamlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Node {
    /// Creates a string.
    pub(crate) fn text(text: &str) -> Self {
        YamlContent::Quoted(text.to_owned()).into()
    }

    /// Creates a mapping.
    pub(crate) fn map<'a>(fields: impl IntoIterator<Item = (&'a str, Node)>) -> Self {
        let plain_key = |key: &str| YamlContent::Plain(key.to_owned()).into();
        YamlContent::Map(fields.into_iter().map(|(key, value)| (plain_key(key), value)).collect()).into()
    }

    /// Creates a list.
    pub(crate) fn list(items: impl IntoIterator<Item = Node>) -> Self {
        YamlContent::List(items.into_iter().collect()).into()
    }

    /// Returns a scalar without its quotes.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.content {
            YamlContent::Plain(text) | YamlContent::Quoted(text) => Some(text),
            _ => None,
        }
    }

    /// Returns whether this is null, including an empty value after a key.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.content, YamlContent::Plain(text) if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    pub(crate) fn is_map(&self) -> bool {
        matches!(self.content, YamlContent::Map(_))
    }

    /// Returns a field of a mapping.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        let YamlContent::Map(fields) = &self.content else { return None };
        fields.iter().find(|(name, _)| name.as_text() == Some(key)).map(|(_, value)| value)
    }

    /// Returns a field of a mapping for changes.
    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        let YamlContent::Map(fields) = &mut self.content else { return None };
        fields.iter_mut().find(|(name, _)| name.as_text() == Some(key)).map(|(_, value)| value)
    }

    /// Sets a field of a mapping; `None` removes it.
    pub(crate) fn set(&mut self, key: &str, value: Option<Node>) {
        let YamlContent::Map(fields) = &mut self.content else { return };
        match (fields.iter().position(|(name, _)| name.as_text() == Some(key)), value) {
            (Some(index), Some(value)) => fields[index].1 = value,
            (Some(index), None) => drop(fields.remove(index)),
            (None, Some(value)) => fields.push((YamlContent::Plain(key.to_owned()).into(), value)),
            (None, None) => {}
        }
    }

    /// Returns the items of a list.
    pub(crate) fn items(&self) -> Option<&[Node]> {
        match &self.content {
            YamlContent::List(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the items of a list for changes.
    pub(crate) fn items_mut(&mut self) -> Option<&mut Vec<Node>> {
        match &mut self.content {
            YamlContent::List(items) => Some(items),
            _ => None,
        }
    }
}

impl From<YamlContent> for Node {
    fn from(content: YamlContent) -> Self {
        Self { anchor: 0, tag: None, content }
    }
}

/// Parses the only document of `text`; returns `None` for an empty or null document.
pub(crate) fn parse(text: &str) -> Result<Option<Node>, YamlError> {
    let mut reader = Reader { parser: Parser::new_from_str(text) };
    let mut document = None;
    loop {
        match reader.next()? {
            Event::StreamEnd => return Ok(document.filter(|document: &Node| !document.is_null())),
            Event::DocumentStart(..) if document.is_some() => {
                return Err(YamlError("it has several documents".to_owned()));
            }
            Event::DocumentStart(..) => {
                let event = reader.next()?;
                document = Some(reader.read_node(event, MAX_DEPTH)?);
            }
            _ => {}
        }
    }
}

struct Reader<'a> {
    parser: Parser<'a, granit_parser::StrInput<'a>>,
}

impl<'a> Reader<'a> {
    /// Returns the next event, skipping comments.
    fn next(&mut self) -> Result<Event<'a>, YamlError> {
        loop {
            match self.parser.next() {
                None => return Ok(Event::StreamEnd),
                Some(Ok((Event::Comment(..), _))) => {}
                Some(Ok((event, _))) => return Ok(event),
                Some(Err(error)) => {
                    let (line, column) = (error.marker().line(), error.marker().col() + 1);
                    return Err(YamlError(format!("it is not YAML, at line {line}, column {column}")));
                }
            }
        }
    }

    fn read_node(&mut self, event: Event<'a>, depth: usize) -> Result<Node, YamlError> {
        // This function recurses: a deeply nested text must not overflow the stack.
        let Some(depth) = depth.checked_sub(1) else {
            return Err(YamlError(format!("it is nested deeper than {MAX_DEPTH} levels")));
        };
        let (anchor, tag, content) = match event {
            Event::Alias(anchor) => (0, None, YamlContent::Alias(anchor)),
            Event::Scalar(text, style, anchor, tag) => {
                // A scalar of several lines is a string for all parsers, and must be quoted to be written on one line.
                let is_plain = style == ScalarStyle::Plain && !text.contains('\n');
                let text = text.into_owned();
                (anchor, tag, if is_plain { YamlContent::Plain(text) } else { YamlContent::Quoted(text) })
            }
            Event::SequenceStart(_, anchor, tag) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        Event::SequenceEnd => break,
                        event => items.push(self.read_node(event, depth)?),
                    }
                }
                (anchor, tag, YamlContent::List(items))
            }
            Event::MappingStart(_, anchor, tag) => {
                let mut fields = Vec::new();
                loop {
                    let key = match self.next()? {
                        Event::MappingEnd => break,
                        event => self.read_node(event, depth)?,
                    };
                    // Keys that are collections or aliases do not occur in kubeconfigs, and could not be written on one
                    // line.
                    if key.as_text().is_none() {
                        return Err(YamlError("it has a key that is not a string".to_owned()));
                    }
                    let event = self.next()?;
                    fields.push((key, self.read_node(event, depth)?));
                }
                (anchor, tag, YamlContent::Map(fields))
            }
            _ => return Err(YamlError("it is cut off".to_owned())),
        };
        let tag = tag.map(|tag: std::borrow::Cow<'_, Tag>| format!("{}{}", tag.handle(), tag.suffix()));
        Ok(Node { anchor, tag, content })
    }
}

/// Writes a document with a newline at the end.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write_after("", 0, &mut text);
        f.write_str(text.trim_start_matches(['\n', ' ']))?;
        f.write_char('\n')
    }
}

impl Node {
    /// Writes the node after the colon of a key or the dash of an item. `indent` is the indentation of the fields of a
    /// mapping.
    fn write_after(&self, prefix: &str, indent: usize, out: &mut String) {
        out.push_str(prefix);
        if self.anchor > 0 {
            let _ = write!(out, " &a{}", self.anchor);
        }
        match &self.tag {
            // The non-specific tag of a quoted string.
            Some(tag) if tag == "!" => out.push_str(" !"),
            Some(tag) if tag.starts_with('!') => {
                let _ = write!(out, " {tag}");
            }
            // The tag is written verbatim, since the prefix of its handle is already resolved.
            Some(tag) => {
                let _ = write!(out, " !<{tag}>");
            }
            None => {}
        }
        match &self.content {
            YamlContent::Plain(text) if text.is_empty() => {}
            YamlContent::Plain(text) => {
                let _ = write!(out, " {text}");
            }
            YamlContent::Quoted(text) => {
                out.push(' ');
                quote(text, out);
            }
            YamlContent::Alias(anchor) => {
                let _ = write!(out, " *a{anchor}");
            }
            YamlContent::List(items) if items.is_empty() => out.push_str(" []"),
            YamlContent::Map(fields) if fields.is_empty() => out.push_str(" {}"),
            YamlContent::List(items) => {
                for item in items {
                    let _ = write!(out, "\n{:indent$}", "");
                    item.write_item(indent, out);
                }
            }
            YamlContent::Map(fields) => {
                for (key, value) in fields {
                    let _ = write!(out, "\n{:indent$}", "");
                    write_field(key, value, indent, out);
                }
            }
        }
    }

    fn write_item(&self, indent: usize, out: &mut String) {
        match &self.content {
            // The first field follows the dash on its line, but an anchor or a tag must precede the mapping.
            YamlContent::Map(fields) if !fields.is_empty() && self.anchor == 0 && self.tag.is_none() => {
                out.push_str("- ");
                for (number, (key, value)) in fields.iter().enumerate() {
                    if number > 0 {
                        let _ = write!(out, "\n{:width$}", "", width = indent + 2);
                    }
                    write_field(key, value, indent + 2, out);
                }
            }
            _ => self.write_after("-", indent + 2, out),
        }
    }
}

fn write_field(key: &Node, value: &Node, indent: usize, out: &mut String) {
    let mut name = String::new();
    key.write_after("", indent, &mut name);
    out.push_str(name.trim_start());
    // The items of a list have the indentation of the key, as in kubectl's output.
    let value_indent = if matches!(value.content, YamlContent::List(_)) { indent } else { indent + 2 };
    value.write_after(":", value_indent, out);
}

/// Writes a string in quotes that every YAML and JSON parser accepts.
fn quote(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // U+2028 and U+2029 are line breaks in YAML 1.1, and U+FEFF may be read as a byte order mark.
            _ if character.is_control() || matches!(character, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rewrite(text: &str) -> String {
        parse(text).expect("valid YAML").expect("a document").to_string()
    }

    #[test]
    fn rewritten_document_keeps_its_meaning() {
        let texts = [
            "a: yes\nb: \"yes\"\nc: 0123\nd: '0123'\ne: 1e3\nf: ~\ng:\nh: null\ni: 'it''s'\n",
            "list:\n- a\n-\n- - nested\n  - 'list'\n- {flow: [1, two], empty: {}, none: []}\n",
            "block: |\n  one\n  two\nfolded: >-\n  one\n  two\nplain: one\n  two\n",
            "a:\n  b:\n    c: [{d: e}, {f: {g: h}}]\n",
            "\"quoted key\": \"a \\u00e9\\t\\x07\\\"\\\\\"\n",
            "tagged: !!str 123\nempty: !!str\n",
            "{\"json\": {\"list\": [1, 2.5, true, null, \"x\\n\"]}}",
        ];
        for text in texts {
            let (before, after): (Value, Value) = (
                serde_saphyr::from_str(text).expect("valid YAML"),
                serde_saphyr::from_str(&rewrite(text)).unwrap_or_else(|error| panic!("{error}\n{}", rewrite(text))),
            );
            assert_eq!(before, after, "{}", rewrite(text));
            assert_eq!(rewrite(&rewrite(text)), rewrite(text), "written once, it stays");
        }
    }

    #[test]
    fn scalars_keep_their_quoting() {
        assert_eq!(rewrite("a: yes\nb: 'yes'\nc: 0123\n"), "a: yes\nb: \"yes\"\nc: 0123\n");
        assert_eq!(rewrite("a: # a comment\n"), "a: ~\n", "an empty value is written as null");
    }

    #[test]
    fn aliases_stay_aliases() {
        let text = "a: &anchor {b: c}\nd: *anchor\n";
        assert_eq!(rewrite(text), "a: &a1\n  b: c\nd: *a1\n");
        let read: Value = serde_saphyr::from_str(&rewrite(text)).expect("valid YAML");
        assert_eq!(read, json!({"a": {"b": "c"}, "d": {"b": "c"}}));
    }

    #[test]
    fn set_changes_only_its_field() {
        let mut node = parse("b: 1\na: [x]\n").expect("YAML").expect("a document");
        node.set("b", Some(Node::text("2")));
        node.set("c", Some(Node::map([("name", Node::text("n"))])));
        assert_eq!(node.to_string(), "b: \"2\"\na:\n- x\nc:\n  name: \"n\"\n");
        node.set("b", None);
        node.set("c", Some(Node::list([Node::text("y")])));
        assert_eq!(node.to_string(), "a:\n- x\nc:\n- \"y\"\n");
    }

    #[test]
    fn error_for_unsupported_yaml_omits_content() {
        for (text, reason) in [
            ("a: [hunter2", "it is not YAML, at line "),
            ("a: hunter2\n---\nb: 1\n", "it has several documents"),
            ("? [hunter2]\n: 1\n", "it has a key that is not a string"),
        ] {
            let message = parse(text).expect_err("invalid YAML").to_string();
            assert!(message.starts_with(reason) && !message.contains("hunter2"), "{message}");
        }
        assert_eq!(parse("# nothing\n"), Ok(None));
        assert_eq!(parse(""), Ok(None));
        assert!(parse(&"[".repeat(MAX_DEPTH + 1)).is_err());
    }
}
