//! Tokens to a syntax tree.

use crate::ast::{BinaryOperation, Expr, ExprKind, ListItem, Literal, MapEntry, Operator};
use crate::error::SyntaxError;
use crate::lexer::{Token, TokenKind, tokens};
use crate::macros;
use crate::types::Type;

/// Maximum number of nested levels of an expression. Chains of operators are one level, however long.
pub const MAX_DEPTH: usize = 50;

/// Maximum length of an expression.
pub const MAX_TEXT_BYTES: usize = 100_000;

/// Names that CEL reserves; fields may have them.
pub const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Precedence levels of the binary operators, lowest first.
const PRECEDENCE_LEVELS: [&[(&str, Operator)]; 3] = [
    &[
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("<", Operator::Less),
        ("<=", Operator::LessOrEqual),
        (">", Operator::Greater),
        (">=", Operator::GreaterOrEqual),
        ("in", Operator::In),
    ],
    &[("+", Operator::Add), ("-", Operator::Subtract)],
    &[("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Modulo)],
];

/// Parses a whole text.
pub(crate) fn parse(text: &str) -> Result<Expr, SyntaxError> {
    if text.len() > MAX_TEXT_BYTES {
        // A long text is rejected before the lexer runs: the tokens of a text take more memory than the text.
        return Err(SyntaxError::new(0, format!("the expression exceeds {MAX_TEXT_BYTES} bytes")));
    }
    let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0 };
    let expr = parser.expression()?;
    match parser.peek() {
        // Text after a complete expression is an error, as in `a b`.
        TokenKind::End => Ok(expr),
        other => Err(parser.error(format!("unexpected {}", other.describe()))),
    }
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> &TokenKind {
        &self.tokens[self.next].kind
    }

    fn offset(&self) -> usize {
        self.tokens[self.next].offset
    }

    fn take_token(&mut self) -> TokenKind {
        let kind = self.peek().clone();
        // The parser never advances beyond the last token, which marks the end of the text.
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        kind
    }

    fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self.peek(), TokenKind::Symbol(found) if *found == symbol)
    }

    fn take_symbol(&mut self, symbol: &str) -> bool {
        let found = self.is_symbol(symbol);
        if found {
            self.take_token();
        }
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<(), SyntaxError> {
        if self.take_symbol(symbol) {
            return Ok(());
        }
        Err(self.error(format!("unexpected {}, `{symbol}` is missing", self.peek().describe())))
    }

    fn error(&self, message: String) -> SyntaxError {
        SyntaxError::new(self.offset(), message)
    }

    /// Counts a level of nesting around `parse`.
    fn nested(&mut self, parse: fn(&mut Self) -> Result<Expr, SyntaxError>) -> Result<Expr, SyntaxError> {
        self.add_levels(1)?;
        let expr = parse(self)?;
        // The depth is not restored on errors, because the first error ends the parse.
        self.depth -= 1;
        Ok(expr)
    }

    fn add_levels(&mut self, levels: usize) -> Result<(), SyntaxError> {
        self.depth += levels;
        if self.depth > MAX_DEPTH {
            return Err(self.error(format!("the expression is nested more than {MAX_DEPTH} levels deep")));
        }
        Ok(())
    }

    fn expression(&mut self) -> Result<Expr, SyntaxError> {
        self.nested(Self::conditional)
    }

    fn conditional(&mut self) -> Result<Expr, SyntaxError> {
        let condition = self.or()?;
        let offset = self.offset();
        if !self.take_symbol("?") {
            return Ok(condition);
        }
        // The grammar of CEL restricts the middle operand to an `or` expression. A nested conditional there needs
        // parentheses.
        let yes = self.nested(Self::or)?;
        self.expect(":")?;
        // The last operand may be a conditional itself: `?:` associates to the right.
        let no = self.expression()?;
        let (condition, yes, no) = (Box::new(condition), Box::new(yes), Box::new(no));
        Ok(Expr::new(offset, ExprKind::Conditional { condition, yes, no }))
    }

    fn or(&mut self) -> Result<Expr, SyntaxError> {
        self.logical("||", Self::and, ExprKind::Or)
    }

    fn and(&mut self) -> Result<Expr, SyntaxError> {
        self.logical("&&", |parser| parser.binary(0), ExprKind::And)
    }

    fn logical(
        &mut self,
        symbol: &str,
        operand: fn(&mut Self) -> Result<Expr, SyntaxError>,
        node: fn(Vec<Expr>) -> ExprKind,
    ) -> Result<Expr, SyntaxError> {
        let first = operand(self)?;
        let offset = self.offset();
        if !self.is_symbol(symbol) {
            return Ok(first);
        }
        // All operands of one operator share a node. A tree of binary nodes would be as deep as the chain is long.
        let mut operands = vec![first];
        while self.take_symbol(symbol) {
            operands.push(operand(self)?);
        }
        Ok(Expr::new(offset, node(operands)))
    }

    fn binary(&mut self, level: usize) -> Result<Expr, SyntaxError> {
        // The recursion descends one precedence level per call, so its depth is fixed.
        let Some(operators) = PRECEDENCE_LEVELS.get(level) else { return self.unary() };
        let first = self.binary(level + 1)?;
        let start = self.offset();
        let mut rest = Vec::new();
        while let Some(operator) = self.operator(operators) {
            let offset = self.offset() as u32;
            self.take_token();
            rest.push(BinaryOperation { operator, offset, right: self.binary(level + 1)? });
        }
        if rest.is_empty() {
            return Ok(first);
        }
        Ok(Expr::new(start, ExprKind::Binary { first: Box::new(first), rest }))
    }

    fn operator(&self, operators: &[(&str, Operator)]) -> Option<Operator> {
        let found = match self.peek() {
            TokenKind::Symbol(symbol) => *symbol,
            // `in` is a name to the lexer and an operator only between two operands.
            TokenKind::Name(name) if name == "in" => "in",
            _ => return None,
        };
        operators.iter().find(|(symbol, _)| *symbol == found).map(|(_, operator)| *operator)
    }

    fn unary(&mut self) -> Result<Expr, SyntaxError> {
        let offset = self.offset();
        if self.take_symbol("!") {
            let operand = Box::new(self.nested(Self::unary)?);
            return Ok(Expr::new(offset, ExprKind::Not(operand)));
        }
        if !self.take_symbol("-") {
            return self.member();
        }
        // The smallest integer has no positive counterpart: the sign belongs to the literal.
        let negative = match self.peek() {
            TokenKind::Int(magnitude) => Some(0_i64.checked_sub_unsigned(*magnitude).map(Literal::Int)),
            TokenKind::Double(value) => Some(Some(Literal::Double(-value))),
            _ => None,
        };
        match negative {
            Some(Some(literal)) => {
                self.take_token();
                // A selection or call applies to the signed literal: `-1.f()` is `(-1).f()`.
                self.members(Expr::new(offset, ExprKind::Literal(literal)))
            }
            Some(None) => Err(self.error("a number exceeds 64 bits".to_owned())),
            None => {
                let operand = Box::new(self.nested(Self::unary)?);
                Ok(Expr::new(offset, ExprKind::Negate(operand)))
            }
        }
    }

    fn member(&mut self) -> Result<Expr, SyntaxError> {
        let first = self.primary()?;
        self.members(first)
    }

    /// Parses selections, indexes and calls after `expr`.
    fn members(&mut self, mut expr: Expr) -> Result<Expr, SyntaxError> {
        // Each member adds a level, since the evaluator recurses once per member. The levels end with the whole chain.
        let outer_depth = self.depth;
        loop {
            let offset = self.offset();
            if self.take_symbol(".") {
                expr = self.field_or_call(expr)?;
            } else if self.take_symbol(".?") {
                let field = self.field()?;
                expr = Expr::new(offset, ExprKind::Select { of: Box::new(expr), field, optional: true });
            } else if self.take_symbol("[") {
                let optional = self.take_symbol("?");
                let index = Box::new(self.expression()?);
                self.expect("]")?;
                expr = Expr::new(offset, ExprKind::Index { of: Box::new(expr), index, optional });
            // A brace continues an expression only after a dotted name: a message literal such as
            // `google.protobuf.Duration{}`.
            } else if let (true, Some(name)) = (self.is_symbol("{"), dotted_name(&expr)) {
                self.message()?;
                expr = Expr::new(expr.offset as usize, ExprKind::Message { name });
            } else {
                self.depth = outer_depth;
                return Ok(expr);
            }
            self.add_levels(1)?;
        }
    }

    fn field_or_call(&mut self, receiver: Expr) -> Result<Expr, SyntaxError> {
        let offset = self.offset();
        let is_quoted = matches!(self.peek(), TokenKind::Quoted(_));
        let field = self.field()?;
        // A quoted name is always a field: CEL has no functions with names in backticks.
        if !is_quoted && self.take_symbol("(") {
            let arguments = self.list(")", Self::expression)?;
            return Ok(Expr::new(offset, macros::call(offset, Some(receiver), field, arguments)?));
        }
        // The checker and the evaluator know these two names as types. Other dotted names remain selections on
        // variables.
        if let (Some(qualifier), true) = (dotted_name(&receiver), matches!(field.as_str(), "Timestamp" | "Duration"))
            && qualifier == "google.protobuf"
        {
            let named = if field == "Timestamp" { Type::Timestamp } else { Type::Duration };
            return Ok(Expr::new(offset, ExprKind::Literal(Literal::Type(named))));
        }
        Ok(Expr::new(offset, ExprKind::Select { of: Box::new(receiver), field, optional: false }))
    }

    fn field(&mut self) -> Result<String, SyntaxError> {
        match self.peek() {
            // Reserved words are valid field names after a dot, except for these four, which the grammar of CEL treats
            // as keywords.
            TokenKind::Name(name) if !matches!(name.as_str(), "in" | "true" | "false" | "null") => {
                let name = name.clone();
                self.take_token();
                Ok(name)
            }
            TokenKind::Quoted(name) => {
                let name = name.clone();
                self.take_token();
                Ok(name)
            }
            other => Err(self.error(format!("unexpected {}, the name of a field is missing", other.describe()))),
        }
    }

    /// Parses elements up to the closing symbol; a comma may follow the last element.
    fn list<T>(
        &mut self,
        close: &str,
        element: fn(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<Vec<T>, SyntaxError> {
        let mut elements = Vec::new();
        while !self.take_symbol(close) {
            elements.push(element(self)?);
            if !self.take_symbol(",") {
                self.expect(close)?;
                break;
            }
        }
        Ok(elements)
    }

    fn message(&mut self) -> Result<(), SyntaxError> {
        self.expect("{")?;
        self.list("}", |parser| {
            // The fields are parsed for their syntax errors only: message types do not exist here, and evaluation
            // fails.
            parser.take_symbol("?");
            parser.field()?;
            parser.expect(":")?;
            parser.expression().map(|_| ())
        })?;
        Ok(())
    }

    fn primary(&mut self) -> Result<Expr, SyntaxError> {
        let offset = self.offset();
        // A leading dot makes a name absolute, which plain names are already.
        let is_absolute = self.take_symbol(".");
        let token = self.peek().clone();
        let literal = match token {
            TokenKind::Name(name) => return self.name(offset, name),
            _ if is_absolute => return Err(self.error(format!("unexpected {}, a name is missing", token.describe()))),
            TokenKind::Symbol("(") => {
                self.take_token();
                let inner = self.expression()?;
                self.expect(")")?;
                // Parentheses leave no node. The nesting limit counts them through `expression`.
                return Ok(inner);
            }
            TokenKind::Symbol("[") => {
                self.take_token();
                let items = self.list("]", |parser| {
                    let optional = parser.take_symbol("?");
                    Ok(ListItem { optional, value: parser.expression()? })
                })?;
                return Ok(Expr::new(offset, ExprKind::List(items)));
            }
            TokenKind::Symbol("{") => {
                self.take_token();
                let entries = self.list("}", |parser| {
                    let optional = parser.take_symbol("?");
                    let key = parser.expression()?;
                    parser.expect(":")?;
                    Ok(MapEntry { optional, key, value: parser.expression()? })
                })?;
                return Ok(Expr::new(offset, ExprKind::Map(entries)));
            }
            TokenKind::Int(value) => {
                // A positive literal of 2^63 is out of range. Only `unary` accepts the magnitude, together with the
                // minus sign.
                let value = i64::try_from(value);
                Literal::Int(value.map_err(|_| self.error("a number exceeds 64 bits".to_owned()))?)
            }
            TokenKind::Uint(value) => Literal::Uint(value),
            TokenKind::Double(value) => Literal::Double(value),
            TokenKind::String(text) => Literal::String(text),
            TokenKind::Bytes(bytes) => Literal::Bytes(bytes),
            other @ (TokenKind::Quoted(_) | TokenKind::Symbol(_) | TokenKind::End) => {
                return Err(self.error(format!("unexpected {}, a value is missing", other.describe())));
            }
        };
        self.take_token();
        Ok(Expr::new(offset, ExprKind::Literal(literal)))
    }

    fn name(&mut self, offset: usize, name: String) -> Result<Expr, SyntaxError> {
        let literal = match name.as_str() {
            "true" => Some(Literal::Bool(true)),
            "false" => Some(Literal::Bool(false)),
            "null" => Some(Literal::Null),
            _ => None,
        };
        if let Some(literal) = literal {
            self.take_token();
            return Ok(Expr::new(offset, ExprKind::Literal(literal)));
        }
        if name == "in" {
            return Err(self.error("unexpected `in`, a value is missing".to_owned()));
        }
        // Reserved words are errors although no syntax uses them: the CEL specification keeps them for host languages.
        if RESERVED.contains(&name.as_str()) {
            return Err(self.error(format!("`{name}` is a reserved word")));
        }
        self.take_token();
        if self.take_symbol("(") {
            let arguments = self.list(")", Self::expression)?;
            return Ok(Expr::new(offset, macros::call(offset, None, name, arguments)?));
        }
        Ok(Expr::new(offset, ExprKind::Name(name)))
    }
}

/// Returns the name that a chain of plain selections spells.
fn dotted_name(expr: &Expr) -> Option<String> {
    match &expr.kind {
        ExprKind::Name(name) => Some(name.clone()),
        ExprKind::Select { of, field, optional: false } => Some(format!("{}.{field}", dotted_name(of)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax_errors_report_position_and_expectation() {
        for (text, offset, message) in [
            ("", 0, "unexpected the end of the expression, a value is missing"),
            ("1 +", 3, "unexpected the end of the expression, a value is missing"),
            ("a b", 2, "unexpected `b`"),
            ("f(1", 3, "unexpected the end of the expression, `)` is missing"),
            ("[1, 2", 5, "unexpected the end of the expression, `]` is missing"),
            ("{1}", 2, "unexpected `}`, `:` is missing"),
            ("a ? b", 5, "unexpected the end of the expression, `:` is missing"),
            ("a.1", 1, "unexpected a number"),
            ("a.", 2, "unexpected the end of the expression, the name of a field is missing"),
            ("has(a)", 0, "`has` takes one field: has(object.spec)"),
            ("a.map(1, 2)", 6, "`map` needs a plain name for its variable"),
            ("for + 1", 0, "`for` is a reserved word"),
            ("9223372036854775808", 0, "a number exceeds 64 bits"),
            ("a && 'secret' 'x'", 14, "unexpected a string"),
            ("a = b", 2, "unexpected character '='"),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!((error.offset, error.message.as_str()), (offset, message), "{text}");
        }
    }

    #[test]
    fn nesting_beyond_the_limit_is_an_error() {
        let deep = |open: &str, close: &str, levels| format!("{}1{}", open.repeat(levels), close.repeat(levels));
        for (open, close) in
            [("(", ")"), ("[", "]"), ("!", ""), ("- ", ""), ("{1:", "}"), ("f(", ")"), ("a ? b : ", "")]
        {
            assert!(parse(&deep(open, close, 24)).is_ok(), "{open}");
            let error = parse(&deep(open, close, 10_000)).expect_err(open);
            assert!(error.message.contains("levels deep"), "{open}: {error}");
        }
        assert!(parse(&format!("a{}", ".b".repeat(1000))).is_err());
    }

    #[test]
    fn long_chains_of_operators_are_one_level() {
        for operator in [" + ", " && ", " || ", " < ", " * "] {
            let text = vec!["1"; 10_000].join(operator);
            assert!(parse(&text).is_ok(), "{operator}");
        }
    }
}
