//! JSON documents of all shapes and formats: white space, escapes, member order, duplicate members.

use std::fmt::Write as _;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;

/// JSON value with ordered members and possible duplicates.
#[derive(Clone, Debug)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(i64),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// Creates the string `text`.
pub(crate) fn text(text: &str) -> Json {
    Json::Text(text.to_owned())
}

/// Creates the object with `members`.
pub(crate) fn object<const N: usize>(members: [(&str, Json); N]) -> Json {
    Json::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// Random format of a value, from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Style {
    seed: u64,
    spaces: &'static [&'static str],
}

impl Style {
    /// Generates formats with any white space.
    pub(crate) fn any() -> impl Strategy<Value = Self> {
        any::<u64>().prop_map(|seed| Self { seed: seed | 1, spaces: &["", "", "", " ", "\n", "\t\r\n  "] })
    }

    /// Generates formats on one line.
    pub(crate) fn line() -> impl Strategy<Value = Self> {
        any::<u64>().prop_map(|seed| Self { seed: seed | 1, spaces: &["", "", " ", "\t"] })
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 11) % below
    }

    fn space(&mut self, to: &mut String) {
        let choice = self.draw(self.spaces.len() as u64);
        to.push_str(self.spaces[choice as usize]);
    }

    fn string(&mut self, text: &str, to: &mut String) {
        to.push('"');
        for character in text.chars() {
            let plain = !character.is_control() && character != '"' && character != '\\';
            match character {
                _ if plain && self.draw(4) > 0 => to.push(character),
                '"' | '\\' | '/' => to.extend(['\\', character]),
                '\n' => to.push_str("\\n"),
                _ => {
                    let mut units = [0; 2];
                    for unit in character.encode_utf16(&mut units) {
                        write!(to, "\\u{unit:04x}").expect("a write to a string succeeds");
                    }
                }
            }
        }
        to.push('"');
    }
}

impl Json {
    /// Writes the value in the format `style`.
    pub(crate) fn write(&self, style: &mut Style) -> String {
        let mut to = String::new();
        self.write_to(style, &mut to);
        to
    }

    fn write_to(&self, style: &mut Style, to: &mut String) {
        style.space(to);
        match self {
            Self::Null => to.push_str("null"),
            Self::Bool(value) => to.push_str(if *value { "true" } else { "false" }),
            Self::Number(value) => write!(to, "{value}").expect("a write to a string succeeds"),
            Self::Text(value) => style.string(value, to),
            Self::Array(values) => {
                to.push('[');
                style.space(to);
                for (index, value) in values.iter().enumerate() {
                    to.push_str(if index == 0 { "" } else { "," });
                    value.write_to(style, to);
                }
                to.push(']');
            }
            Self::Object(members) => {
                to.push('{');
                style.space(to);
                for (index, (name, value)) in members.iter().enumerate() {
                    to.push_str(if index == 0 { "" } else { "," });
                    style.space(to);
                    style.string(name, to);
                    style.space(to);
                    to.push(':');
                    value.write_to(style, to);
                }
                to.push('}');
            }
        }
        style.space(to);
    }
}

/// Generates strings that are difficult to parse.
pub(crate) fn texts() -> impl Strategy<Value = String> {
    let hard = prop::sample::select(vec!['"', '\\', '{', '}', '[', ']', ',', ':', '/', '\n', 'ü', '€', '🦀', 'u']);
    prop_oneof![
        3 => prop::collection::vec(prop_oneof![hard, any::<char>()], 0..12).prop_map(|all| all.into_iter().collect()),
        2 => "[a-z]{0,8}",
        1 => "[a-z\\\\\"{}]{60,140}",
    ]
}

/// Generates member names, including the relevant ones.
pub(crate) fn names() -> impl Strategy<Value = String> {
    let relevant = prop::sample::select(vec![
        "items",
        "kind",
        "metadata",
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "managedFields",
        "type",
        "object",
    ]);
    prop_oneof![relevant.prop_map(str::to_owned), texts()]
}

/// Generates any value.
pub(crate) fn values() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        any::<i64>().prop_map(Json::Number),
        texts().prop_map(Json::Text),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Json::Array),
            prop::collection::vec((names(), inner), 0..6).prop_map(Json::Object),
        ]
    })
}

/// Generates a few members with any name and value.
pub(crate) fn members() -> impl Strategy<Value = Vec<(String, Json)>> {
    prop::collection::vec((names(), values()), 0..6)
}

/// Parses `written` by `serde_json`.
pub(crate) fn read(written: &[u8]) -> Value {
    serde_json::from_slice(written).expect("valid JSON")
}

/// Splits `body` into chunks of the lengths `cuts`, repeated.
pub(crate) fn chunks(body: &Bytes, cuts: &[usize]) -> Vec<Bytes> {
    let mut chunks = Vec::new();
    let mut start = 0;
    for cut in cuts.iter().cycle() {
        if start == body.len() {
            break;
        }
        let end = (start + cut).min(body.len());
        chunks.push(body.slice(start..end));
        start = end;
    }
    chunks
}

/// Generates lengths of chunks.
pub(crate) fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        Just(vec![1]),
        prop::collection::vec(1_usize..8, 1..8),
        prop::collection::vec(1_usize..200, 1..8),
        // Includes empty chunks.
        (1_usize..100).prop_map(|length| vec![0, length]),
    ]
}
