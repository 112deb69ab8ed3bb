//! The table of all messages of the built-in kinds.
//!
//! A line with a message's name and the kinds that it is, then one for each field: number, name in JSON, type. `?` is before
//! the type of what may be missing, `[]` and `{}` before that of several, `-` in place of the name of what is written inline,
//! `o` or `z` after what JSON leaves out where it is empty.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::id::MessageId;
use super::message::{Count, Field, Message, Value};

/// What is known of all messages.
pub(crate) struct Table {
    messages: Vec<Message>,
    /// By `apiVersion` and `kind`.
    kinds: HashMap<(&'static str, &'static str), MessageId>,
    /// `ObjectMeta`.
    pub(crate) metadata: MessageId,
    /// The same, as if it had no `managedFields`.
    pub(crate) trimmed: MessageId,
    /// A schema of a custom resource.
    pub(crate) schema: MessageId,
    /// Metadata in place of an object.
    pub(crate) partial: MessageId,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::read(include_str!("table.txt")));

/// The table, read when it is first asked for.
#[inline]
pub(crate) fn table() -> &'static Table {
    &TABLE
}

impl MessageId {
    /// The message that an object of a built-in kind is, or a list of such; none where the table does not have it.
    pub fn of_kind(api_version: &str, kind: &str) -> Option<Self> {
        table().kinds.get(&(api_version, kind)).copied()
    }

    /// What is known of it.
    #[inline]
    pub(crate) fn message(self) -> &'static Message {
        &table().messages[usize::from(self.0)]
    }

    /// What the elements of the list are that this message is: its field `items`.
    pub fn items(self) -> Option<Self> {
        let items = self.message().fields.iter().find(|field| field.name == "items" && field.count == Count::List)?;
        match items.value {
            Value::Message(id) => Some(id),
            _ => None,
        }
    }
}

impl Table {
    fn read(text: &'static str) -> Self {
        let lines = || text.lines().filter(|line| !line.starts_with('#'));
        let heads = || lines().filter(|line| !line.starts_with(' '));
        let (mut ids, mut kinds) = (HashMap::new(), HashMap::new());
        for (place, head) in heads().enumerate() {
            let mut words = head.split(' ');
            let id = MessageId(place as u16);
            ids.insert(words.next().unwrap_or_default(), id);
            kinds.extend(words.filter_map(|kind| Some((kind.rsplit_once('/')?, id))));
        }
        let mut messages: Vec<Vec<Field>> = Vec::with_capacity(ids.len() + 1);
        for line in lines() {
            match (line.strip_prefix(' '), messages.last_mut()) {
                (Some(field), Some(fields)) => fields.extend(read_field(field, &ids)),
                (Some(_), None) => {}
                (None, _) => messages.push(Vec::new()),
            }
        }
        let (metadata, schema) = (ids["meta.v1.ObjectMeta"], ids["apiextensions.v1.JSONSchemaProps"]);
        let partial = ids["meta.v1.PartialObjectMetadata"];
        let trimmed = MessageId(messages.len() as u16);
        let mut fields = messages[usize::from(metadata.0)].clone();
        fields.retain(|field| field.name != "managedFields");
        messages.push(fields);
        let messages = messages.into_iter().map(Message::new).collect();
        Self { messages, kinds, metadata, trimmed, schema, partial }
    }
}

fn read_field(line: &'static str, ids: &HashMap<&str, MessageId>) -> Option<Field> {
    let mut words = line.split(' ');
    let number = words.next()?.parse().ok()?;
    let name = words.next()?;
    let written = words.next()?;
    let (mut count, kind) = match written.split_at_checked(1)? {
        ("?", kind) => (Count::Maybe, kind),
        ("[", kind) => (Count::List, kind.strip_prefix(']')?),
        ("{", kind) => (Count::Map, kind.strip_prefix('}')?),
        _ => (Count::One, written),
    };
    let value = match kind {
        "string" => Value::Text,
        "bool" => Value::Bool,
        "int32" => Value::Int32,
        "int64" => Value::Int64,
        "double" => Value::Double,
        "bytes" => Value::Bytes,
        "time" => Value::Time,
        "microtime" => Value::MicroTime,
        "duration" => Value::Duration,
        "quantity" => Value::Quantity,
        "intorstring" => Value::IntOrString,
        "raw" => Value::Raw,
        "orbool" => Value::SchemaOrBool,
        "orarray" => Value::SchemaOrArray,
        "orstrings" => Value::SchemaOrTexts,
        name => Value::Message(*ids.get(name)?),
    };
    let options = words.next().unwrap_or_default();
    // `omitempty` says nothing of a struct in Go, as a time is one; `omitzero` does.
    let (omit, inline) = if count == Count::One && value == Value::Time {
        (line.ends_with(" z"), false)
    } else {
        (options == "o", name == "-" && count == Count::One)
    };
    if inline {
        count = Count::Inline;
    }
    Some(Field { name, number, count, value, omit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_a_field() {
        let lines = include_str!("table.txt").lines().filter(|line| line.starts_with(' ')).count();
        let fields = |message: &Message| message.fields.len();
        let known: usize = table().messages.iter().map(fields).sum();
        assert_eq!(known - fields(table().trimmed.message()), lines);
        assert_eq!(fields(table().metadata.message()) - 1, fields(table().trimmed.message()));
    }

    #[test]
    fn whatever_is_listed_has_its_metadata_first() {
        let lists: Vec<_> = table().kinds.values().filter(|id| id.items().is_some()).collect();
        assert!(lists.len() > 100);
        for list in &lists {
            let names = [1, 2].map(|number| list.message().field(number).map(|field| (field.name, field.count)));
            assert_eq!(names, [Some(("metadata", Count::One)), Some(("items", Count::List))]);
        }
        for id in lists.into_iter().filter_map(|list| list.items()) {
            let field = id.message().field(1).expect("it has a first field");
            assert_eq!((field.name, field.value), ("metadata", Value::Message(table().metadata)));
        }
    }
}
