//! Conversion of values to JSON, and copies of JSON as values.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value as Json};

use crate::budget::Budget;
use crate::compare::MAX_VALUE_DEPTH;
use crate::error::CelErrorKind;
use crate::key::Key;
use crate::meter::Meter;
use crate::value::CelValue;

/// Converts `value` to JSON of at most `max_bytes` bytes, at the expense of `budget`.
///
/// Timestamps become text in RFC 3339, durations text in seconds, bytes text in Base64, types their names. Keys of maps
/// become text.
///
/// # Errors
///
/// Returns [`CelErrorKind::ResultTooLarge`], [`CelErrorKind::BudgetExceeded`], [`CelErrorKind::TooDeep`],
/// [`CelErrorKind::Unavailable`] for invalid values, and [`CelErrorKind::NotJson`] for values that JSON cannot
/// represent: NaN, infinity, optional values, and values of types of Kubernetes such as quantities.
pub fn to_json(value: &CelValue, budget: &mut Budget, max_bytes: usize) -> Result<Json, CelErrorKind> {
    let constants = BTreeMap::new();
    let mut conversion =
        Conversion { meter: Meter::new(budget, &constants, None), remaining_bytes: max_bytes, max_bytes };
    conversion.convert_value(value, MAX_VALUE_DEPTH)
}

/// Copies a JSON value without its null fields. The copy borrows nothing, so a CEL function can return
/// JSON that it has created.
///
/// # Errors
///
/// Returns [`CelErrorKind::BudgetExceeded`] if the budget does not cover the copy, and [`CelErrorKind::TooDeep`].
pub fn owned_from_json(json: &Json, meter: &mut Meter) -> Result<CelValue<'static>, CelErrorKind> {
    copy_at_depth(json, meter, MAX_VALUE_DEPTH)
}

fn copy_at_depth(json: &Json, meter: &mut Meter, depth: usize) -> Result<CelValue<'static>, CelErrorKind> {
    let depth = depth.checked_sub(1).ok_or(CelErrorKind::TooDeep(MAX_VALUE_DEPTH))?;
    Ok(match json {
        Json::String(text) => {
            meter.charge_bytes(text.len())?;
            CelValue::from(text.clone())
        }
        Json::Array(items) => {
            meter.charge(1)?;
            let items = items.iter().map(|item| copy_at_depth(item, meter, depth));
            CelValue::from(items.collect::<Result<Vec<_>, _>>()?)
        }
        Json::Object(fields) => {
            let mut map = BTreeMap::new();
            for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                meter.charge_bytes(name.len())?;
                map.insert(Key::String(name.clone().into()), copy_at_depth(value, meter, depth)?);
            }
            CelValue::map(map)
        }
        Json::Null => CelValue::Null,
        Json::Bool(value) => CelValue::Bool(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => CelValue::Int(number),
            (None, Some(number)) => CelValue::Uint(number),
            (None, None) => CelValue::Double(number.as_f64().unwrap_or_default()),
        },
    })
}

struct Conversion<'m> {
    meter: Meter<'m>,
    remaining_bytes: usize,
    max_bytes: usize,
}

impl Conversion<'_> {
    /// Charges `bytes` of the result to the size limit and to the budget.
    fn charge_size(&mut self, bytes: usize) -> Result<(), CelErrorKind> {
        // The size check precedes the copy, so that a result over the limit never exists in memory.
        self.remaining_bytes =
            self.remaining_bytes.checked_sub(bytes).ok_or(CelErrorKind::ResultTooLarge(self.max_bytes))?;
        self.meter.charge_bytes(bytes)
    }

    fn convert_text(&mut self, text: &str) -> Result<Json, CelErrorKind> {
        // The quotes need two bytes. Escapes are not counted, so the limit is approximate.
        self.charge_size(text.len() + 2)?;
        Ok(Json::String(text.to_owned()))
    }

    fn convert_value(&mut self, value: &CelValue, depth: usize) -> Result<Json, CelErrorKind> {
        let depth = depth.checked_sub(1).ok_or(CelErrorKind::TooDeep(MAX_VALUE_DEPTH))?;
        match value {
            CelValue::String(text) => return self.convert_text(text),
            CelValue::Bytes(bytes) => return self.convert_text(&STANDARD.encode(bytes)),
            CelValue::Timestamp(timestamp) => return self.convert_text(&timestamp.instant.to_string()),
            CelValue::Duration(duration) => return self.convert_text(&duration.text()),
            CelValue::Type(cel_type) => return self.convert_text(cel_type.name()),
            CelValue::List(list) => {
                self.charge_size(2)?;
                let mut items = Vec::new();
                for item in list.iter() {
                    self.charge_size(1)?;
                    items.push(self.convert_value(&item, depth)?);
                }
                return Ok(Json::Array(items));
            }
            CelValue::Map(map) => {
                self.charge_size(2)?;
                return match map.json() {
                    Some(fields) => self.convert_fields(fields, depth),
                    None => self.convert_entries(map, depth),
                };
            }
            // `false` is the longest constant. Numbers count as five bytes too, so the limit is approximate.
            _ => self.charge_size(5)?,
        }
        Ok(match value {
            CelValue::Null => Json::Null,
            CelValue::Bool(value) => Json::Bool(*value),
            CelValue::Int(number) => (*number).into(),
            CelValue::Uint(number) => (*number).into(),
            CelValue::Double(number) => {
                Json::Number(Number::from_f64(*number).ok_or(CelErrorKind::NotJson("a number that is not finite"))?)
            }
            CelValue::Invalid(reason) => return Err(CelErrorKind::Unavailable((*reason).to_owned())),
            CelValue::Extension(_) => return Err(CelErrorKind::NotJson("a quantity, URL, address, version or format")),
            _ => return Err(CelErrorKind::NotJson("an optional value")),
        })
    }

    /// Converts a JSON object, including its null fields.
    fn convert_fields(&mut self, fields: &Map<String, Json>, depth: usize) -> Result<Json, CelErrorKind> {
        let mut object = Map::new();
        for (name, value) in fields {
            self.charge_size(name.len() + 4)?;
            object.insert(name.clone(), self.convert_value(&CelValue::from(value), depth)?);
        }
        Ok(Json::Object(object))
    }

    fn convert_entries(&mut self, map: &crate::value::CelMap, depth: usize) -> Result<Json, CelErrorKind> {
        let mut object = Map::new();
        for (key, value) in map.entries() {
            let name = match key {
                Key::Bool(value) => value.to_string(),
                Key::Int(value) => value.to_string(),
                Key::Uint(value) => value.to_string(),
                Key::String(text) => text.to_string(),
            };
            self.charge_size(name.len() + 4)?;
            object.insert(name, self.convert_value(&value, depth)?);
        }
        Ok(Json::Object(object))
    }
}
