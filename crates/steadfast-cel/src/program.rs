//! Parsed expressions.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::ast::{Expr, ExprKind, Literal};
use crate::budget::Budget;
use crate::check::{StaticType, TypeError, check};
use crate::context::Context;
use crate::error::{CelError, SyntaxError};
use crate::evaluator::Evaluator;
use crate::functions;
use crate::meter::{Meter, Patterns};
use crate::parser::parse;
use crate::pattern::{MAX_CONSTANT_PROGRAM_BYTES, Pattern};
use crate::value::CelValue;

/// Parsed expression, for any number of evaluations.
pub struct Program {
    root: Expr,
    patterns: Patterns,
}

/// Result of an evaluation.
#[derive(Clone, Debug)]
pub struct Evaluation<'a> {
    /// Value of the expression.
    pub value: CelValue<'a>,
    /// Earliest instant at which the value may differ although no variable except `now` changes. `None` if the program
    /// does not use `now`, or if no comparison with `now` will change.
    pub recheck_at: Option<Timestamp>,
}

impl Program {
    /// Parses `text`.
    ///
    /// # Errors
    ///
    /// Returns the first syntax error, with its position.
    pub fn compile(text: &str) -> Result<Self, SyntaxError> {
        let root = parse(text)?;
        let mut patterns = Patterns::new();
        // Invalid constant patterns are kept as errors: an expression may never evaluate them.
        compile_patterns(&root, &mut patterns);
        Ok(Self { root, patterns })
    }

    /// Returns the root of the syntax tree.
    pub fn root(&self) -> &Expr {
        &self.root
    }

    /// Returns the names of called functions that this implementation does not support, in order and without
    /// repetition.
    pub fn unsupported_functions(&self) -> Vec<&str> {
        fn collect<'e>(expr: &'e Expr, names: &mut Vec<&'e str>) {
            // Macros have been replaced by nodes of their own, so that only functions remain as calls.
            if let ExprKind::Call { name, .. } = &expr.kind
                && !names.contains(&name.as_str())
                && !functions::is_known(name)
            {
                names.push(name);
            }
            expr.for_each_child(|child| collect(child, names));
        }
        let mut names = Vec::new();
        collect(&self.root, &mut names);
        names
    }

    /// Returns whether the program refers to a variable of this name.
    pub fn refers_to(&self, name: &str) -> bool {
        fn search(expr: &Expr, name: &str) -> bool {
            if matches!(&expr.kind, ExprKind::Name(found) if found == name) {
                return true;
            }
            let mut is_found = false;
            expr.for_each_child(|child| is_found = is_found || search(child, name));
            is_found
        }
        search(&self.root, name)
    }

    /// Returns the type of the value with variables of these types, as far as the type is known.
    ///
    /// The environment is that of validation rules in the Kubernetes API: their functions and macros, without
    /// `cel.bind`. Values of type [`StaticType::Any`] fit everywhere.
    ///
    /// # Errors
    ///
    /// Returns all errors in the order of their positions: undeclared names and functions, unknown fields, and
    /// operators and functions without a definition for their operands. If the types are right, invalid literals are
    /// errors: patterns, durations, timestamps, and lists and maps of mixed types.
    pub fn check(&self, variables: &BTreeMap<&str, StaticType>) -> Result<StaticType, Vec<TypeError>> {
        check(&self.root, variables)
    }

    /// Evaluates the program with the variables of `context`, and deducts the cost from `budget`.
    ///
    /// # Errors
    ///
    /// Returns the kind of the error and the position of the failed expression.
    pub fn evaluate<'a>(&self, context: &Context<'a>, budget: &mut Budget) -> Result<Evaluation<'a>, CelError> {
        let (value, recheck_at) = self.evaluate_with_recheck(context, budget);
        Ok(Evaluation { value: value?, recheck_at })
    }

    /// Evaluates like [`evaluate`](Self::evaluate), and returns [`recheck_at`](Evaluation::recheck_at) even if the
    /// evaluation fails. At that instant, a comparison with `now` changes, and the failed part may no longer be
    /// evaluated.
    pub fn evaluate_with_recheck<'a>(
        &self,
        context: &Context<'a>,
        budget: &mut Budget,
    ) -> (Result<CelValue<'a>, CelError>, Option<Timestamp>) {
        let mut meter = Meter::new(budget, &self.patterns, context.instant());
        let value = Evaluator::new(context, &mut meter).evaluate(&self.root);
        (value, meter.recheck_at())
    }
}

/// Compiles the constant patterns of `expr`.
fn compile_patterns(expr: &Expr, patterns: &mut Patterns) {
    if let ExprKind::Call { name, arguments, .. } = &expr.kind
        && let ("matches" | "find" | "findAll", Some(Expr { kind: ExprKind::Literal(Literal::String(pattern)), .. })) =
            (name.as_str(), arguments.last())
    {
        patterns.entry(pattern.clone()).or_insert_with(|| Pattern::compile(pattern, MAX_CONSTANT_PROGRAM_BYTES));
    }
    expr.for_each_child(|child| compile_patterns(child, patterns));
}
