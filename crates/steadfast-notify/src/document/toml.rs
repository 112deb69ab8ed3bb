//! TOML parser with the position of each value.

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::positions::{ParseError, ValuePosition, ValuePositions, child_path};
use crate::problem::FilePosition;

/// Parses `text`. An error has position, message and remedy.
pub(super) fn read(text: &str, positions: &mut ValuePositions) -> Result<Value, ParseError> {
    let table = DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        let description = format!("invalid TOML: {}", error.message().lines().collect::<Vec<_>>().join(", "));
        (FilePosition::at_offset(text, offset), description, "correct the syntax at or before this position".to_owned())
    })?;
    Reader { text, positions }.table(table.get_ref(), "")
}

struct Reader<'a> {
    text: &'a str,
    positions: &'a mut ValuePositions,
}

impl Reader<'_> {
    fn table(&mut self, table: &DeTable<'_>, path: &str) -> Result<Value, ParseError> {
        let mut fields = Map::new();
        for (key, value) in table {
            let path_of_value = child_path(path, key.get_ref());
            let key_position = FilePosition::at_offset(self.text, key.span().start);
            let value = self.value(value, &path_of_value, Some(key_position))?;
            fields.insert(key.get_ref().to_string(), value);
        }
        Ok(Value::Object(fields))
    }

    fn value(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        path: &str,
        key: Option<FilePosition>,
    ) -> Result<Value, ParseError> {
        let offset = value.span().start;
        let position = FilePosition::at_offset(self.text, offset);
        self.positions.insert(path.to_owned(), ValuePosition { key, value: position, offset });
        let number_error = |description: &str, remedy: &str| (position, description.to_owned(), remedy.to_owned());
        Ok(match value.get_ref() {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix())
                .map_err(|_| number_error("the number is too large", "use a number of at most 64 bits"))?
                .into(),
            DeValue::Float(digits) => {
                let read = digits.as_str().parse::<f64>().ok().and_then(serde_json::Number::from_f64);
                Value::Number(read.ok_or_else(|| number_error("the number is not finite", "use a finite number"))?)
            }
            DeValue::Boolean(value) => Value::Bool(*value),
            DeValue::Datetime(time) => Value::String(time.to_string()),
            DeValue::Array(items) => {
                let items = items.iter().enumerate();
                let items = items.map(|(number, item)| self.value(item, &format!("{path}[{number}]"), None));
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            DeValue::Table(table) => self.table(table, path)?,
        })
    }
}
