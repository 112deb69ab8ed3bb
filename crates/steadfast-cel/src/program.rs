//! Parsed expressions.

use jiff::Timestamp;

use crate::ast::{Expr, ExprKind, Literal};
use crate::budget::Budget;
use crate::context::Context;
use crate::error::{Error, SyntaxError};
use crate::evaluator::Evaluator;
use crate::meter::{Meter, Patterns};
use crate::parser::parse;
use crate::pattern::{MAX_CONSTANT_BYTES, Pattern};
use crate::value::Value;

/// A parsed expression, for any number of evaluations.
pub struct Program {
    root: Expr,
    patterns: Patterns,
}

/// Result of an evaluation.
#[derive(Clone, Debug)]
pub struct Outcome<'a> {
    /// Value of the expression.
    pub value: Value<'a>,
    /// Earliest instant at which the value may differ although no variable but `now` changes. None without `now`, and if
    /// no comparison with `now` will change.
    pub recheck_at: Option<Timestamp>,
}

impl Program {
    /// Parses `text`.
    ///
    /// # Errors
    ///
    /// The first syntax error, with its position.
    pub fn compile(text: &str) -> Result<Self, SyntaxError> {
        let root = parse(text)?;
        let mut patterns = Patterns::new();
        collect(&root, &mut patterns);
        Ok(Self { root, patterns })
    }

    /// Root of the syntax tree.
    pub fn root(&self) -> &Expr {
        &self.root
    }

    /// Evaluates the program over `context`, at the expense of `budget`.
    ///
    /// # Errors
    ///
    /// The fault and the position of the expression that failed.
    pub fn evaluate<'a>(&self, context: &Context<'a>, budget: &mut Budget) -> Result<Outcome<'a>, Error> {
        let mut meter = Meter::new(budget, &self.patterns, context.instant());
        let value = Evaluator::new(context, &mut meter).evaluate(&self.root)?;
        Ok(Outcome { value, recheck_at: meter.recheck_at() })
    }
}

/// Compiles the constant patterns of `expr`.
fn collect(expr: &Expr, patterns: &mut Patterns) {
    if let ExprKind::Call { name, arguments, .. } = &expr.kind
        && let ("matches", Some(Expr { kind: ExprKind::Literal(Literal::String(pattern)), .. })) =
            (name.as_str(), arguments.last())
    {
        patterns.entry(pattern.clone()).or_insert_with(|| Pattern::compile(pattern, MAX_CONSTANT_BYTES));
    }
    expr.for_each_child(|child| collect(child, patterns));
}
