//! Literals whose value is wrong: invalid patterns, durations and timestamps.
//!
//! cel-go validates literals only if all types are right.

use super::error::{TypeError, reported_offset};
use crate::ast::{Expr, ExprKind, Literal};
use crate::pattern::{MAX_CONSTANT_PROGRAM_BYTES, Pattern};
use crate::value::CelValue;

/// Adds the errors of literal arguments within `expr`.
pub(super) fn check(expr: &Expr, errors: &mut Vec<TypeError>) {
    if let ExprKind::Call { target, name, arguments } = &expr.kind
        && let Some(argument @ Expr { kind: ExprKind::Literal(Literal::String(text)), .. }) = arguments.first()
    {
        // In the global form of `matches`, the first argument is the text. cel-go still validates it as a pattern.
        let is_invalid = match (name.as_str(), target) {
            ("matches", _) => Pattern::compile(text, MAX_CONSTANT_PROGRAM_BYTES).is_err(),
            ("duration", None) => CelValue::duration(text).is_none(),
            ("timestamp", None) => CelValue::timestamp(text).is_none(),
            _ => false,
        };
        if is_invalid {
            errors.push(TypeError::new(reported_offset(argument), format!("invalid {name} argument")));
        }
    }
    expr.for_each_child(|child| check(child, errors));
}
