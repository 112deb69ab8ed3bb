//! The types of the built-in kinds, read from a table that was made from a real server's `OpenAPI` documents.
//!
//! Each line of `types.txt` is a type: its name, then its fields as `name:type`. A type is `s` (text), `n` (number), `b`
//! (boolean), `u` (any plain value), `*` (nothing is known), `?` (nothing is known, one value), `@name`, `{T}` (a map) or
//! `[T]` (a list); a list is whole unless followed by `#` (a set) or by its keys. `!` makes a map or a struct one value.
//! `name+` is always there as an empty struct, `name-` as null, `name=value` has a default: zero ones are always there.
//! Lines that begin with `=` tell the type of a kind.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::types::{Atom, Field, Fields, List, Merging, Scalar, Type};

pub(super) static TYPES: LazyLock<Table> = LazyLock::new(|| Table::parse(include_str!("types.txt")));

/// The types by name, and the kinds they are of. The maps are only looked up, never walked.
#[derive(Debug, Default)]
pub(super) struct Table {
    types: HashMap<&'static str, Atom>,
    /// The same types, each as one value.
    whole: HashMap<&'static str, Atom>,
    kinds: HashMap<(&'static str, &'static str), &'static str>,
}

impl Table {
    pub(super) fn atom(&self, name: &str) -> Option<&Atom> {
        match name.strip_suffix('!') {
            Some(name) => self.whole.get(name),
            None => self.types.get(name),
        }
    }

    pub(super) fn root(&self, api_version: &str, kind: &str) -> Option<Type> {
        self.kinds.get(&(api_version, kind)).copied().map(Type::Named)
    }

    fn parse(text: &'static str) -> Self {
        let mut table = Self::default();
        for line in text.lines() {
            let mut words = line.split(' ');
            match words.next().unwrap_or_default() {
                "" => {}
                "=" => {
                    if let (Some(version), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) {
                        table.kinds.insert((version, kind), name);
                    }
                }
                name => table.insert(name, words),
            }
        }
        table
    }

    fn insert(&mut self, name: &'static str, words: impl Iterator<Item = &'static str>) {
        let plain = name.trim_end_matches('!');
        let map = Fields { named: words.filter_map(field).collect(), others: None, atomic: plain != name };
        let whole = Fields { atomic: true, ..map.clone() };
        self.types.insert(plain, Atom { map: Some(map), ..Atom::default() });
        self.whole.insert(plain, Atom { map: Some(whole), ..Atom::default() });
    }
}

/// `name+:type`, `name=default:type`.
fn field(word: &'static str) -> Option<(String, Field)> {
    let (name, of) = word.split_once(':')?;
    let of = parsed(of)?;
    let (name, default, always) = match name.split_once('=') {
        Some((name, default)) => {
            let default: Value = serde_json::from_str(default).ok()?;
            let zero = [json!(""), json!(0), json!(false)].contains(&default);
            (name, Some(default.clone()), zero.then_some(default))
        }
        None => match (name.strip_suffix('+'), name.strip_suffix('-')) {
            (Some(name), _) => (name, None, Some(json!({}))),
            (_, Some(name)) => (name, None, Some(Value::Null)),
            _ => (name, None, None),
        },
    };
    Some((name.to_owned(), Field { of, default, always }))
}

fn parsed(text: &'static str) -> Option<Type> {
    let scalar = |scalar| Some(Type::Inline(Arc::new(Atom { scalar: Some(scalar), ..Atom::default() })));
    match text {
        "s" => return scalar(Scalar::Text),
        "n" => return scalar(Scalar::Number),
        "b" => return scalar(Scalar::Bool),
        "u" => return scalar(Scalar::Any),
        "*" => return Some(Type::Deduced),
        "?" => return Some(Type::Raw),
        _ => {}
    }
    if let Some(name) = text.strip_prefix('@') {
        return Some(Type::Named(name));
    }
    if let Some(rest) = text.strip_prefix('{') {
        let (inner, mark) = rest.rsplit_once('}')?;
        let map = Fields { others: Some(parsed(inner)?), atomic: mark == "!", ..Fields::default() };
        return Some(Type::Inline(Arc::new(Atom { map: Some(map), ..Atom::default() })));
    }
    let (inner, mark) = text.strip_prefix('[')?.rsplit_once(']')?;
    let merging = match mark {
        "" => Merging::Atomic,
        "#" => Merging::Set,
        keys => Merging::Keys(keys.split(',').map(str::to_owned).collect()),
    };
    let list = List { item: parsed(inner)?, merging };
    Some(Type::Inline(Arc::new(Atom { list: Some(list), ..Atom::default() })))
}
