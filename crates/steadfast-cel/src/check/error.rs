//! Type errors and their positions.

use std::fmt;

use crate::ast::{Comprehension, ComprehensionKind, Expr, ExprKind};

/// Type error in an expression.
#[derive(Clone, PartialEq, Eq)]
pub struct TypeError {
    /// Byte offset in the text of the expression.
    pub offset: usize,
    /// Description, worded as in the implementation in Go.
    pub message: String,
}

impl TypeError {
    pub(super) fn new(offset: usize, message: String) -> Self {
        Self { offset, message }
    }
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TypeError {}

debug_as_message!(TypeError);

/// Returns the offset at which the implementation in Go reports an expression.
pub(super) fn reported_offset(expr: &Expr) -> usize {
    let offset = expr.offset as usize;
    match &expr.kind {
        // cel-go reports the dot in front of the field.
        ExprKind::Select { optional: false, .. } => offset.saturating_sub(1),
        // cel-go reports the parenthesis after the name. `offset` is the start of the part after the last dot.
        ExprKind::Call { name, .. } => offset + name.rsplit('.').next().unwrap_or_default().len(),
        ExprKind::Has { .. } => offset + "has".len(),
        ExprKind::Comprehension(comprehension) => offset + macro_name(comprehension).len(),
        ExprKind::OptionalMap { flat, .. } => offset + if *flat { "optFlatMap" } else { "optMap" }.len(),
        _ => offset,
    }
}

fn macro_name(comprehension: &Comprehension) -> &'static str {
    match (comprehension.kind, &comprehension.second, &comprehension.body) {
        (ComprehensionKind::All, ..) => "all",
        (ComprehensionKind::Exists, ..) => "exists",
        (ComprehensionKind::ExistsOne, ..) => "exists_one",
        (ComprehensionKind::List, _, None) => "filter",
        (ComprehensionKind::List, None, _) => "map",
        (ComprehensionKind::List, Some(_), _) => "transformList",
        (ComprehensionKind::Map, ..) => "transformMap",
        (ComprehensionKind::Entries, ..) => "transformMapEntry",
        (ComprehensionKind::SortBy, ..) => "sortBy",
    }
}
