//! CEL, the Common Expression Language, over JSON values and with a cost budget.
//!
//! A [`Program`] is a parsed expression. [`Program::evaluate`] evaluates the program over a [`Context`], which binds
//! variables and functions by name. Variables borrow `serde_json::Value`s; the evaluator converts no object up front.
//! Every step of an evaluation is charged to a [`Budget`], which bounds time and memory. Parser and evaluator bound
//! their recursion, so that neither a hostile expression nor a deeply nested object overflows the stack.
//!
//! ```
//! use serde_json::json;
//! use steadfast_cel::{Budget, Context, Program, CelValue};
//!
//! let program = Program::compile("object.spec.replicas > 2").expect("a valid expression");
//! let object = json!({"spec": {"replicas": 3}});
//! let mut context = Context::new();
//! context.variable("object", CelValue::from(&object));
//! let outcome = program.evaluate(&context, &mut Budget::new(1_000)).expect("a value");
//! assert!(matches!(outcome.value, CelValue::Bool(true)));
//! ```
//!
//! # Types
//!
//! | task | types |
//! |---|---|
//! | parse an expression | [`Program`], [`SyntaxError`], [`MAX_DEPTH`], [`MAX_TEXT_BYTES`], [`RESERVED`] |
//! | inspect an expression before its evaluation | [`ast`], [`StaticType`], [`TypeError`] |
//! | bind names and evaluate | [`Context`], [`Budget`], [`Meter`], [`Evaluation`], [`CelError`], [`CelErrorKind`] |
//! | read and create values | [`CelValue`], [`Type`], [`Text`], [`CelList`], [`CelMap`], [`CelTimestamp`], [`CelDuration`], [`Extension`], [`equal`] |
//! | convert from and to JSON | [`CelValue`], [`owned_from_json`], [`to_json`] |
//!
//! Errors in [`error`] quote no value of an object. Patterns have the syntax of RE2, with a size limit. The crate
//! includes the functions of Kubernetes: quantities, URLs, addresses, semantic versions and named formats.
//!
//! This crate has no Cargo features.
//!
//! # Guides
//!
//! - [Notify](https://github.com/steadfast-rs/steadfast/blob/main/docs/notify.md): conditions and messages of
//!   `steadfast notify`
//! - [Embedded server](https://github.com/steadfast-rs/steadfast/blob/main/docs/embedded-server.md): validation rules
//!   of custom resources

/// Implements `Debug` of errors as their message: if `main` returns an error, Rust prints its `Debug` output.
macro_rules! debug_as_message {
    ($($error:ty),+ $(,)?) => {$(
        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    )+};
}

pub mod ast;
mod budget;
mod check;
mod compare;
mod context;
pub mod error;
mod evaluator;
mod functions;
mod json;
mod key;
mod kubernetes;
mod lexer;
mod macros;
mod meter;
mod operators;
mod parser;
mod pattern;
mod program;
mod text;
mod time;
mod types;
mod value;

pub use budget::Budget;
pub use check::{StaticType, TypeError};
pub use compare::equal;
pub use context::Context;
pub use error::{CelError, CelErrorKind, SyntaxError};
pub use json::{owned_from_json, to_json};
pub use kubernetes::{Extension, quantity_value};
pub use meter::Meter;
pub use parser::{MAX_DEPTH, MAX_TEXT_BYTES, RESERVED};
pub use program::{Evaluation, Program};
pub use text::Text;
pub use time::{CelDuration, CelTimestamp};
pub use types::Type;
pub use value::{CelList, CelMap, CelValue};
