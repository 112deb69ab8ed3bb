//! Macros: calls that the parser turns into nodes of their own.

use crate::ast::{Comprehension, ComprehensionKind, Expr, ExprKind};
use crate::error::SyntaxError;
use crate::kubernetes::NamedFormat;

/// Namespaces of functions that are called as `namespace.function(…)`.
const NAMESPACES: [&str; 4] = ["lists", "optional", "sets", "strings"];

/// Returns the node of a call: a macro, or the call itself.
pub(crate) fn call(
    offset: usize,
    target: Option<Expr>,
    name: String,
    mut arguments: Vec<Expr>,
) -> Result<ExprKind, SyntaxError> {
    let Some(target) = target else {
        if name == "has" {
            return has(offset, arguments);
        }
        return Ok(ExprKind::Call { target: None, name, arguments });
    };
    // Namespaces are resolved in the parser: `sets.contains(a, b)` is a global function, not a member of a variable
    // `sets`.
    if let ExprKind::Name(namespace) = &target.kind {
        if namespace == "cel" && name == "bind" {
            return bind(offset, arguments);
        }
        let is_qualified = match namespace.as_str() {
            "ip" => name == "isCanonical",
            "format" => name == "named" || NamedFormat::named(&name).is_some(),
            namespace => NAMESPACES.contains(&namespace),
        };
        if is_qualified {
            return Ok(ExprKind::Call { target: None, name: format!("{namespace}.{name}"), arguments });
        }
    }
    match (name.as_str(), arguments.len()) {
        ("optMap" | "optFlatMap", 2) => {
            let body = arguments.pop().map(Box::new);
            let variable = variable(&name, arguments.first())?;
            let Some(body) = body else { return Err(SyntaxError::new(offset, "an argument is missing")) };
            Ok(ExprKind::OptionalMap { of: Box::new(target), name: variable, body, flat: name == "optFlatMap" })
        }
        // A call with another number of arguments stays a plain call, as macros expand by name and argument count.
        _ => comprehension(target, name, arguments),
    }
}

fn has(offset: usize, mut arguments: Vec<Expr>) -> Result<ExprKind, SyntaxError> {
    match arguments.pop() {
        // `has` accepts a plain selection only. `has(a.?b)` and `has(a[b])` are errors in cel-go too.
        Some(Expr { kind: ExprKind::Select { of, field, optional: false }, .. }) if arguments.is_empty() => {
            Ok(ExprKind::Has { of, field })
        }
        _ => Err(SyntaxError::new(offset, "`has` takes one field: has(object.spec)")),
    }
}

fn bind(offset: usize, arguments: Vec<Expr>) -> Result<ExprKind, SyntaxError> {
    match <[Expr; 3]>::try_from(arguments) {
        Ok([name, value, body]) => {
            let name = variable("cel.bind", Some(&name))?;
            Ok(ExprKind::Bind { name, value: Box::new(value), body: Box::new(body) })
        }
        Err(_) => Err(SyntaxError::new(offset, "`cel.bind` takes a name, a value and an expression")),
    }
}

/// Returns a macro over items; a plain call for other names and numbers of arguments.
fn comprehension(range: Expr, name: String, mut arguments: Vec<Expr>) -> Result<ExprKind, SyntaxError> {
    use ComprehensionKind::{All, Entries, Exists, ExistsOne, List, Map, SortBy};
    let (kind, variables, has_condition, has_body) = match (name.as_str(), arguments.len()) {
        ("all", 2) => (All, 1, false, true),
        ("all", 3) => (All, 2, false, true),
        ("exists", 2) => (Exists, 1, false, true),
        ("exists", 3) => (Exists, 2, false, true),
        ("exists_one" | "existsOne", 2) => (ExistsOne, 1, false, true),
        ("exists_one" | "existsOne", 3) => (ExistsOne, 2, false, true),
        ("filter", 2) => (List, 1, true, false),
        ("map", 2) => (List, 1, false, true),
        ("map", 3) => (List, 1, true, true),
        ("sortBy", 2) => (SortBy, 1, false, true),
        ("transformList", 3) => (List, 2, false, true),
        ("transformList", 4) => (List, 2, true, true),
        ("transformMap", 3) => (Map, 2, false, true),
        ("transformMap", 4) => (Map, 2, true, true),
        ("transformMapEntry", 3) => (Entries, 2, false, true),
        ("transformMapEntry", 4) => (Entries, 2, true, true),
        _ => return Ok(ExprKind::Call { target: Some(Box::new(range)), name, arguments }),
    };
    let body = if has_body { arguments.pop() } else { None };
    let condition = if has_condition { arguments.pop() } else { None };
    let second = if variables == 2 { Some(variable(&name, arguments.get(1))?) } else { None };
    let first = variable(&name, arguments.first())?;
    Ok(ExprKind::Comprehension(Box::new(Comprehension { kind, range, name: first, second, condition, body })))
}

fn variable(macro_name: &str, argument: Option<&Expr>) -> Result<String, SyntaxError> {
    match argument {
        Some(Expr { kind: ExprKind::Name(name), .. }) => Ok(name.clone()),
        Some(other) => {
            Err(SyntaxError::new(other.offset as usize, format!("`{macro_name}` needs a plain name for its variable")))
        }
        None => Err(SyntaxError::new(0, format!("`{macro_name}` needs a name for its variable"))),
    }
}
