//! Validation of values, with the messages and the order of the real server.

use serde_json::{Map, Value};

use super::correlate::OldValue;
use super::findings::{Finding, FindingKind, Findings};
use super::numbers::{self, NumericValue};
use super::{JsonType, Schema, formats};
use crate::field_violation::FieldViolation;
use crate::go;

impl Schema {
    /// Returns the violations of a value.
    ///
    /// `prefix` is the path of the value. `before` is the value before an update; unchanged parts are not rejected.
    pub(crate) fn validate(&self, prefix: &str, value: &Value, before: Option<&Value>) -> Vec<FieldViolation> {
        let before = before.map(|value| OldValue { value, schema: self });
        self.check_unless_unchanged("", value, before).causes(prefix)
    }

    fn check_unless_unchanged(&self, path: &str, value: &Value, before: Option<OldValue<'_>>) -> Findings {
        let mut findings = self.check(path, value, before);
        // Ratcheting (KEP-4008): an update may keep an invalid value.
        if !findings.is_valid() && before.is_some_and(|before| before.is_unchanged(value)) {
            findings.clear();
        }
        findings
    }

    fn check(&self, path: &str, value: &Value, before: Option<OldValue<'_>>) -> Findings {
        let mut findings = Findings::default();
        if value.is_null() {
            self.check_null(path, &mut findings);
            self.check_enumeration(path, value, &mut findings);
            return findings;
        }
        // The number of passed checks selects the best alternative. The counts imitate `MatchCount` of kube-openapi:
        // one for each applicable validator, one for some checks within a validator, and one for the whole value.
        if self.has_type() || !self.format.is_empty() {
            self.check_type(path, value, &mut findings);
            findings.passed_checks += 1;
        }
        findings.merge(self.check_alternatives(path, value, before));
        findings.passed_checks += 1;
        match value {
            Value::String(text) => {
                self.check_text(path, text, &mut findings);
                findings.passed_checks += 1 + usize::from(formats::is_known(&self.format));
            }
            Value::Number(number) => {
                numbers::check(self, path, number, &mut findings);
                findings.passed_checks += 2;
            }
            Value::Array(items) => {
                self.check_items(path, items, before, &mut findings);
                findings.passed_checks += 2;
            }
            _ => {}
        }
        self.check_enumeration(path, value, &mut findings);
        findings.passed_checks += 1;
        if let Value::Object(fields) = value {
            self.check_fields(path, fields, before, &mut findings);
            findings.passed_checks += 1;
        }
        findings.passed_checks += 1;
        findings
    }

    fn has_type(&self) -> bool {
        self.kind.is_some() || self.int_or_string
    }

    fn type_names(&self) -> &'static str {
        if self.int_or_string { "integer,string" } else { self.kind.map_or("", JsonType::as_str) }
    }

    fn check_null(&self, path: &str, findings: &mut Findings) {
        if self.has_type() && !self.nullable {
            findings.add(Finding::other_type(path, self.type_names(), "null"));
        } else {
            findings.passed_checks += 1;
        }
    }

    fn check_type(&self, path: &str, value: &Value, findings: &mut Findings) {
        let (actual_type, format) = match value {
            Value::Bool(_) => (JsonType::Boolean, ""),
            Value::String(_) => (JsonType::String, ""),
            Value::Array(_) => (JsonType::Array, ""),
            Value::Number(number) => match NumericValue::from_number(number) {
                NumericValue::Whole(_) => (JsonType::Integer, "int64"),
                NumericValue::Float(_) => (JsonType::Number, "float64"),
            },
            _ => (JsonType::Object, ""),
        };
        let accepts = |kind: JsonType| {
            self.kind == Some(kind) || self.int_or_string && matches!(kind, JsonType::Integer | JsonType::String)
        };
        let is_whole = matches!(value, Value::Number(number) if NumericValue::from_number(number).is_whole());
        // A whole float is an integer, and every integer is a number.
        let is_accepted = accepts(actual_type)
            || actual_type == JsonType::Number && is_whole && accepts(JsonType::Integer)
            || actual_type == JsonType::Integer && accepts(JsonType::Number);
        let is_sequence = matches!(value, Value::String(_) | Value::Array(_));
        if !is_sequence && !self.format.is_empty() && !is_accepted && format != self.format {
            findings.add(Finding::other_type(path, &self.format, format));
        } else if is_sequence && !self.format.is_empty() && !accepts(JsonType::Number) && !accepts(JsonType::Integer) {
            // The format of a string is checked separately. As in the real server, the check of a list counts as
            // passed.
            findings.passed_checks += 1;
        } else if is_accepted {
            findings.passed_checks += 1;
        } else {
            findings.add(Finding::other_type(path, self.type_names(), actual_type.as_str()));
        }
    }

    fn check_text(&self, path: &str, text: &str, findings: &mut Findings) {
        let length = || i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        if let Some(max) = self.max_length.filter(|&max| length() > max) {
            let message = format!("{path} in body should be at most {max} chars long");
            findings.add(Finding::new(FindingKind::TooLong(max), path, text.into(), message));
        } else if let Some(min) = self.min_length.filter(|&min| length() < min) {
            let message = format!("{path} in body should be at least {min} chars long");
            findings.add(Finding::invalid(path, text.into(), message));
        } else if let Some(pattern) = self.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
            let message = format!("{path} in body should match '{}'", pattern.text());
            findings.add(Finding::invalid(path, text.into(), message));
        }
        if !formats::matches_format(&self.format, text) {
            let message = format!("{path} in body must be of type {}: {}", self.format, go::quoted(text));
            findings.add(Finding::new(FindingKind::Type, path, text.into(), message));
        }
    }

    fn check_enumeration(&self, path: &str, value: &Value, findings: &mut Findings) {
        if self.enumeration.is_empty() || self.enumeration.iter().any(|one| equals_enum_value(one, value)) {
            return;
        }
        let text = |value: &Value| value.as_str().map_or_else(|| go::json(value), str::to_owned);
        let values = self.enumeration.iter().map(text).collect();
        let message = format!("{path} in body should be one of {}", go::json(&self.enumeration.clone().into()));
        findings.add(Finding::new(FindingKind::Unsupported(values), path, value.clone(), message));
    }

    fn check_items(&self, path: &str, items: &[Value], before: Option<OldValue<'_>>, findings: &mut Findings) {
        if let Some(schema) = &self.items {
            for (index, item) in items.iter().enumerate() {
                let before = before.and_then(|before| before.item(item));
                findings.merge(schema.check_unless_unchanged(&format!("{path}[{index}]"), item, before));
            }
        }
        check_count(path, items.len(), (self.min_items, self.max_items), "items", findings);
    }

    fn check_fields(
        &self,
        path: &str,
        fields: &Map<String, Value>,
        before: Option<OldValue<'_>>,
        findings: &mut Findings,
    ) {
        check_count(path, fields.len(), (self.min_properties, self.max_properties), "properties", findings);
        // Ratcheting does not apply to `kind` and `apiVersion` of the whole object, as on the real server.
        let before_of = |name: &str| match name {
            "kind" | "apiVersion" if path.is_empty() => None,
            name => before.and_then(|before| before.field(name)),
        };
        if let Some(schema) = self.additional_schema() {
            for (name, value) in fields.iter().filter(|(name, _)| !self.properties.contains_key(*name)) {
                findings.merge(schema.check_unless_unchanged(&format!("{path}.{name}"), value, before_of(name)));
            }
        }
        for (name, schema) in &self.properties {
            let Some(value) = fields.get(name) else { continue };
            let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            findings.merge(schema.check_unless_unchanged(&inner, value, before_of(name)));
        }
        for name in self.required.iter().filter(|name| !fields.contains_key(*name)) {
            let path = format!("{path}.{name}");
            let message = format!("{path} in body is required");
            findings.add(Finding::new(FindingKind::Required, &path, Value::Null, message));
        }
    }

    fn check_alternatives(&self, path: &str, value: &Value, before: Option<OldValue<'_>>) -> Findings {
        let mut findings = Findings::default();
        let name = go::quoted(path);
        if !self.any_of.is_empty() {
            let best = best_of(&self.any_of, path, value, before, true);
            if best.valid_count == 0 {
                findings.add(Finding::plain(format!("{name} must validate at least one schema (anyOf)")));
            }
            findings.merge(best.findings);
        }
        if !self.one_of.is_empty() {
            let best = best_of(&self.one_of, path, value, before, false);
            match best.valid_count {
                1 => findings.merge(best.findings),
                valid_count => {
                    let outcome = if valid_count == 0 {
                        "Found none valid".to_owned()
                    } else {
                        format!("Found {valid_count} valid alternatives")
                    };
                    let message = format!("{name} must validate one and only one schema (oneOf). {outcome}");
                    findings.add(Finding::plain(message));
                    if valid_count == 0 {
                        findings.merge(best.findings);
                    }
                }
            }
        }
        let mut valid_count = 0;
        for schema in &self.all_of {
            let one = schema.check(path, value, before);
            valid_count += usize::from(one.is_valid());
            findings.merge(one);
        }
        if valid_count < self.all_of.len() {
            let none = if valid_count == 0 { ". None validated" } else { "" };
            findings.add(Finding::plain(format!("{name} must validate all the schemas (allOf){none}")));
        }
        if self.not.as_ref().is_some_and(|not| not.check(path, value, before).is_valid()) {
            findings.add(Finding::plain(format!("{name} must not validate the schema (not)")));
        }
        findings.passed_checks += 1;
        findings
    }
}

/// Checks the number of items or properties.
fn check_count(path: &str, count: usize, (min, max): (Option<i64>, Option<i64>), unit: &str, findings: &mut Findings) {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    if let Some(min) = min.filter(|&min| count < min) {
        let message = format!("{path} in body should have at least {min} {unit}");
        findings.add(Finding::invalid(path, count.into(), message));
    }
    if let Some(max) = max.filter(|&max| count > max) {
        let message = format!("{path} in body should have at most {max} {unit}");
        findings.add(Finding::new(FindingKind::TooMany(max), path, count.into(), message));
    }
}

/// Number of valid alternatives, and the findings of the best alternative. If any alternative is valid, the first valid
/// one is the best.
struct BestAlternative {
    valid_count: usize,
    findings: Findings,
}

fn best_of(
    schemas: &[Schema],
    path: &str,
    value: &Value,
    before: Option<OldValue<'_>>,
    stops_at_first: bool,
) -> BestAlternative {
    let mut best: Option<Findings> = None;
    let mut valid_count = 0;
    for schema in schemas {
        let one = schema.check(path, value, before);
        if one.is_valid() {
            valid_count += 1;
            if valid_count == 1 {
                best = Some(one);
            }
            if stops_at_first {
                break;
            }
        } else if valid_count == 0 && best.as_ref().is_none_or(|best| one.passed_checks > best.passed_checks) {
            // Among invalid alternatives, the closest match explains the error.
            best = Some(one);
        }
    }
    BestAlternative { valid_count, findings: best.unwrap_or_default() }
}

/// Returns whether a value is in an enumeration. A zero fraction is ignored, and null never matches.
fn equals_enum_value(one: &Value, value: &Value) -> bool {
    match (one, value) {
        // A `null` matches no value of an enumeration.
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Number(one), Value::Number(value)) => {
            match (NumericValue::from_number(one), NumericValue::from_number(value)) {
                (NumericValue::Whole(one), NumericValue::Whole(value)) => one == value,
                (NumericValue::Whole(one), NumericValue::Float(value)) => one == value as i64,
                (NumericValue::Float(one), value) => one.total_cmp(&value.as_float()).is_eq(),
            }
        }
        (one, value) => one == value,
    }
}

#[cfg(test)]
mod tests;
