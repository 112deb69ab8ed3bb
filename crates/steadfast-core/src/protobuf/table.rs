//! Table of all messages of the built-in kinds.
//!
//! A line with the name of a message and its kinds is followed by one line per field: number, name in JSON, type. `?`
//! precedes an optional type, `[]` the type of a list's elements, and `{}` the type of a map's values. `-` replaces the
//! name of an inline field. `o` or `z` follow a field that JSON omits when it is empty.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::message::{Cardinality, Message, MessageField, ValueType};
use super::message_type::MessageType;

/// Definitions of all messages.
pub(crate) struct Table {
    messages: Vec<Message>,
    /// Messages by `apiVersion` and `kind`.
    kinds: HashMap<(&'static str, &'static str), MessageType>,
    /// `ObjectMeta`.
    pub(crate) metadata: MessageType,
    /// `ObjectMeta` without `managedFields`.
    pub(crate) trimmed: MessageType,
    /// Schema of a custom resource.
    pub(crate) schema: MessageType,
    /// `PartialObjectMetadata`.
    pub(crate) partial: MessageType,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::read(include_str!("table.txt")));

/// Returns the table, which is parsed on the first call.
#[inline]
pub(crate) fn table() -> &'static Table {
    &TABLE
}

impl MessageType {
    /// Returns the message type of a built-in kind, or of a list of such objects; `None` if the table does not contain
    /// it.
    pub fn of_kind(api_version: &str, kind: &str) -> Option<Self> {
        table().kinds.get(&(api_version, kind)).copied()
    }

    /// Returns the definition of the message.
    #[inline]
    pub(crate) fn message(self) -> &'static Message {
        &table().messages[usize::from(self.0)]
    }

    /// Returns the message type of a list's elements: the type of the field `items`.
    pub fn items(self) -> Option<Self> {
        let items = self
            .message()
            .fields
            .iter()
            .find(|field| field.name == "items" && field.cardinality == Cardinality::List)?;
        match items.value {
            ValueType::Message(message_type) => Some(message_type),
            _ => None,
        }
    }
}

impl Table {
    fn read(text: &'static str) -> Self {
        let lines = || text.lines().filter(|line| !line.starts_with('#'));
        let message_lines = || lines().filter(|line| !line.starts_with(' '));
        let (mut message_types, mut kinds) = (HashMap::new(), HashMap::new());
        for (index, line) in message_lines().enumerate() {
            let mut words = line.split(' ');
            let message_type = MessageType(index as u16);
            message_types.insert(words.next().unwrap_or_default(), message_type);
            kinds.extend(words.filter_map(|kind| Some((kind.rsplit_once('/')?, message_type))));
        }
        let mut messages: Vec<Vec<MessageField>> = Vec::with_capacity(message_types.len() + 1);
        for line in lines() {
            match (line.strip_prefix(' '), messages.last_mut()) {
                (Some(field), Some(fields)) => fields.extend(read_field(field, &message_types)),
                (Some(_), None) => {}
                (None, _) => messages.push(Vec::new()),
            }
        }
        let (metadata, schema) =
            (message_types["meta.v1.ObjectMeta"], message_types["apiextensions.v1.JSONSchemaProps"]);
        let partial = message_types["meta.v1.PartialObjectMetadata"];
        // A copy without `managedFields` serves decoders that drop these fields.
        let trimmed = MessageType(messages.len() as u16);
        let mut fields = messages[usize::from(metadata.0)].clone();
        fields.retain(|field| field.name != "managedFields");
        messages.push(fields);
        let messages = messages.into_iter().map(Message::new).collect();
        Self { messages, kinds, metadata, trimmed, schema, partial }
    }
}

fn read_field(line: &'static str, message_types: &HashMap<&str, MessageType>) -> Option<MessageField> {
    let mut words = line.split(' ');
    let number = words.next()?.parse().ok()?;
    let name = words.next()?;
    let written = words.next()?;
    let (mut cardinality, kind) = match written.split_at_checked(1)? {
        ("?", kind) => (Cardinality::Optional, kind),
        ("[", kind) => (Cardinality::List, kind.strip_prefix(']')?),
        ("{", kind) => (Cardinality::Map, kind.strip_prefix('}')?),
        _ => (Cardinality::Single, written),
    };
    let value = match kind {
        "string" => ValueType::Text,
        "bool" => ValueType::Bool,
        "int32" => ValueType::Int32,
        "int64" => ValueType::Int64,
        "double" => ValueType::Double,
        "bytes" => ValueType::Bytes,
        "time" => ValueType::Time,
        "microtime" => ValueType::MicroTime,
        "duration" => ValueType::Duration,
        "quantity" => ValueType::Quantity,
        "intorstring" => ValueType::IntOrString,
        "raw" => ValueType::Raw,
        "orbool" => ValueType::SchemaOrBool,
        "orarray" => ValueType::SchemaOrArray,
        "orstrings" => ValueType::SchemaOrTexts,
        name => ValueType::Message(*message_types.get(name)?),
    };
    let options = words.next().unwrap_or_default();
    // `omitempty` has no effect on a Go struct, such as a time; `omitzero` has.
    let (omit, inline) = if cardinality == Cardinality::Single && value == ValueType::Time {
        (line.ends_with(" z"), false)
    } else {
        (options == "o", name == "-" && cardinality == Cardinality::Single)
    };
    if inline {
        cardinality = Cardinality::Inline;
    }
    Some(MessageField { name, number, cardinality, value, omit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_line_is_a_field() {
        let lines = include_str!("table.txt").lines().filter(|line| line.starts_with(' ')).count();
        let fields = |message: &Message| message.fields.len();
        let known: usize = table().messages.iter().map(fields).sum();
        assert_eq!(known - fields(table().trimmed.message()), lines);
        assert_eq!(fields(table().metadata.message()) - 1, fields(table().trimmed.message()));
    }

    #[test]
    fn listed_messages_start_with_metadata() {
        let lists: Vec<_> = table().kinds.values().filter(|message_type| message_type.items().is_some()).collect();
        assert!(lists.len() > 100);
        for list in &lists {
            let names = [1, 2].map(|number| list.message().field(number).map(|field| (field.name, field.cardinality)));
            assert_eq!(names, [Some(("metadata", Cardinality::Single)), Some(("items", Cardinality::List))]);
        }
        for message_type in lists.into_iter().filter_map(|list| list.items()) {
            let field = message_type.message().field(1).expect("a first field");
            assert_eq!((field.name, field.value), ("metadata", ValueType::Message(table().metadata)));
        }
    }
}
