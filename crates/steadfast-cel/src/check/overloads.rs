//! Functions of the environment of rules, with their types.
//!
//! `overloads.txt` is the list of a real API server: `go run ./rules functions` in `conformance/reference`. The list
//! contains operators too.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::StaticType;
use crate::types::Type;

/// Prefix of the types of the authorization library. Rules of custom resources have no value of these types.
const AUTHORIZATION_PREFIX: &str = "kubernetes.authorization.";

/// Types without parameters whose name in declarations is their name in expressions.
const PLAIN_TYPES: [Type; 12] = [
    Type::Bool,
    Type::Int,
    Type::Uint,
    Type::Double,
    Type::String,
    Type::Bytes,
    Type::Quantity,
    Type::Url,
    Type::Ip,
    Type::Cidr,
    Type::Semver,
    Type::Format,
];

/// Result of the search for a function.
pub(super) enum Resolution {
    /// Result type.
    Found(StaticType),
    /// No overload of the function has these types.
    NoOverload,
    /// The environment has no function of this name.
    Undeclared,
}

/// Returns the result type of a call; `target` is the receiver of a member call.
pub(super) fn resolve(name: &str, target: Option<&StaticType>, arguments: &[StaticType]) -> Resolution {
    let Some(overloads) = overloads_by_name().get(name) else { return Resolution::Undeclared };
    let mut result = None;
    for overload in overloads {
        let Some(found) = overload.result(target, arguments) else { continue };
        result = Some(match result {
            None => found,
            // Operands of type `dyn` can fit several overloads. As in cel-go, the type stays open if their results
            // differ.
            Some(other) if other == found => other,
            Some(_) => StaticType::Any,
        });
    }
    result.map_or(Resolution::NoOverload, Resolution::Found)
}

struct Overload {
    receiver: Option<DeclaredType>,
    arguments: Vec<DeclaredType>,
    result: DeclaredType,
}

impl Overload {
    /// Returns the type of the result; `None` if the overload does not accept the operands.
    fn result(&self, target: Option<&StaticType>, arguments: &[StaticType]) -> Option<StaticType> {
        let mut bindings = Bindings::new();
        let target_fits = match (&self.receiver, target) {
            (Some(pattern), Some(target)) => pattern.accepts(target, &mut bindings),
            (None, None) => true,
            _ => false,
        };
        if !target_fits || self.arguments.len() != arguments.len() {
            return None;
        }
        let mut pairs = self.arguments.iter().zip(arguments);
        pairs
            .all(|(pattern, argument)| pattern.accepts(argument, &mut bindings))
            .then(|| self.result.with_bindings(&bindings))
    }
}

/// Types of the type parameters of a call.
type Bindings<'t> = BTreeMap<&'t str, StaticType>;

/// Type in a declaration.
enum DeclaredType {
    /// `dyn`
    Any,
    /// Type parameter.
    Parameter(&'static str),
    Plain(Type),
    List(Box<Self>),
    Map(Box<Self>, Box<Self>),
    Optional(Box<Self>),
    TypeOf(Box<Self>),
    /// Type without values in rules of custom resources.
    Authorization,
}

impl DeclaredType {
    /// Parses the text of a type in `overloads.txt`.
    fn parse(text: &'static str) -> Self {
        let parameters = |name: &str| text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
        if let Some(items) = parameters("list") {
            return Self::List(Box::new(Self::parse(items)));
        }
        if let Some(inner) = parameters("optional_type") {
            return Self::Optional(Box::new(Self::parse(inner)));
        }
        if let Some((key, value)) = parameters("map").and_then(|both| both.split_once(", ")) {
            return Self::Map(Box::new(Self::parse(key)), Box::new(Self::parse(value)));
        }
        if let Some(inner) = parameters("type") {
            return Self::TypeOf(Box::new(Self::parse(inner)));
        }
        match text {
            "dyn" => Self::Any,
            "timestamp" => Self::Plain(Type::Timestamp),
            "duration" => Self::Plain(Type::Duration),
            _ if text.len() == 1 => Self::Parameter(text),
            _ if text.starts_with(AUTHORIZATION_PREFIX) => Self::Authorization,
            _ => Self::Plain(PLAIN_TYPES.into_iter().find(|cel_type| cel_type.name() == text).unwrap_or(Type::Invalid)),
        }
    }

    /// Returns whether a value of type `static_type` is accepted, and binds type parameters.
    fn accepts(&self, static_type: &StaticType, bindings: &mut Bindings<'static>) -> bool {
        if matches!(self, Self::Any) {
            return true;
        }
        match (self, static_type) {
            (Self::Parameter(name), _) => match bindings.get(name) {
                // A bound parameter accepts what fits the type, and becomes the more general of both types.
                Some(bound) if !bound.fits(static_type) => false,
                Some(bound) => {
                    if static_type.is_more_general(bound) {
                        bindings.insert(name, static_type.clone());
                    }
                    true
                }
                None => {
                    bindings.insert(name, static_type.clone());
                    true
                }
            },
            (_, StaticType::Any | StaticType::Plain(Type::Invalid))
            | (Self::Optional(_), StaticType::Plain(Type::Null)) => true,
            (Self::Plain(cel_type), _) => StaticType::Plain(*cel_type).fits(static_type),
            (Self::List(items), StaticType::List(inner)) | (Self::Optional(items), StaticType::Optional(inner)) => {
                items.accepts(inner, bindings)
            }
            (Self::Map(key, value), StaticType::Map(other_key, other_value)) => {
                key.accepts(other_key, bindings) && value.accepts(other_value, bindings)
            }
            _ => false,
        }
    }

    /// Returns the type with bound parameters. Unbound parameters are `dyn`.
    fn with_bindings(&self, bindings: &Bindings<'static>) -> StaticType {
        match self {
            Self::Any | Self::Authorization => StaticType::Any,
            Self::Parameter(name) => bindings.get(name).cloned().unwrap_or(StaticType::Any),
            Self::Plain(cel_type) => StaticType::Plain(*cel_type),
            Self::List(items) => StaticType::list(items.with_bindings(bindings)),
            Self::Optional(inner) => StaticType::optional(inner.with_bindings(bindings)),
            Self::TypeOf(inner) => StaticType::TypeOf(Arc::new(inner.with_bindings(bindings))),
            Self::Map(key, value) => {
                StaticType::Map(Arc::new(key.with_bindings(bindings)), Arc::new(value.with_bindings(bindings)))
            }
        }
    }
}

/// Returns the overloads by the name of their function.
fn overloads_by_name() -> &'static BTreeMap<&'static str, Vec<Overload>> {
    static OVERLOADS: OnceLock<BTreeMap<&'static str, Vec<Overload>>> = OnceLock::new();
    OVERLOADS.get_or_init(|| {
        let mut table = BTreeMap::<_, Vec<Overload>>::new();
        for line in include_str!("overloads.txt").lines() {
            // The tests parse each line, so that no line is skipped.
            if let Some((name, overload)) = parse_line(line) {
                table.entry(name).or_default().push(overload);
            }
        }
        table
    })
}

fn parse_line(line: &'static str) -> Option<(&'static str, Overload)> {
    let (name, signature) = line.split_once(": ")?;
    let (operands, result) = signature.split_once(" -> ")?;
    // The receiver may have parameters in parentheses of its own.
    let (receiver, arguments) = match operands.split_once(".(") {
        Some((receiver, arguments)) => (Some(DeclaredType::parse(receiver)), arguments),
        None => (None, operands.strip_prefix('(')?),
    };
    let arguments = arguments.strip_suffix(')')?;
    Some((
        name,
        Overload {
            receiver,
            arguments: split_types(arguments).into_iter().map(DeclaredType::parse).collect(),
            result: DeclaredType::parse(result),
        },
    ))
}

/// Splits a list of types at the commas outside of parentheses.
fn split_types(text: &'static str) -> Vec<&'static str> {
    let (mut types, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (offset, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                types.extend(text.get(start..offset));
                start = offset + 1;
            }
            _ => {}
        }
    }
    types.extend(text.get(start..).filter(|last| !last.is_empty()));
    types.into_iter().map(str::trim_start).collect()
}

#[cfg(test)]
mod tests {
    use super::{DeclaredType, overloads_by_name, parse_line};
    use crate::types::Type;

    fn has_known_types(declared_type: &DeclaredType) -> bool {
        match declared_type {
            DeclaredType::Plain(cel_type) => *cel_type != Type::Invalid,
            DeclaredType::List(inner) | DeclaredType::Optional(inner) | DeclaredType::TypeOf(inner) => {
                has_known_types(inner)
            }
            DeclaredType::Map(key, value) => has_known_types(key) && has_known_types(value),
            DeclaredType::Any | DeclaredType::Parameter(_) | DeclaredType::Authorization => true,
        }
    }

    #[test]
    fn each_overload_is_parsed() {
        let lines = include_str!("overloads.txt").lines();
        assert!(lines.clone().count() > 200);
        for line in lines {
            let (name, overload) = parse_line(line).expect(line);
            assert!(overloads_by_name().contains_key(name), "{line}");
            let operands = overload.receiver.iter().chain(&overload.arguments).chain([&overload.result]);
            assert!(operands.into_iter().all(has_known_types), "{line}");
        }
    }
}
