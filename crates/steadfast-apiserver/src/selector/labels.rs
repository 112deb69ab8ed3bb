//! Label selectors: `app=web,tier in (front,back),!legacy`.

use serde_json::Value;

use crate::naming;
use crate::status::Status;

/// A conjunction of requirements on labels.
#[derive(Clone, Debug, Default)]
pub(crate) struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq)]
enum Operator {
    Exists,
    DoesNotExist,
    In(Vec<String>),
    NotIn(Vec<String>),
    GreaterThan(i64),
    LessThan(i64),
}

impl LabelSelector {
    pub(crate) fn parse(text: &str) -> Result<Self, Status> {
        let tokens = tokenize(text);
        let mut parser = SelectorParser { tokens: &tokens };
        let mut requirements = Vec::new();
        while !parser.tokens.is_empty() {
            if parser.peek().is_some_and(|token| token != "!" && !is_word(token)) {
                return Err(parser.unexpected("!, identifier, or 'end of string'"));
            }
            let requirement = parser
                .requirement()
                .map_err(|detail| Status::bad_request(format_args!("unable to parse requirement: {detail}")))?;
            requirement.check_syntax()?;
            requirements.push(requirement);
            if !parser.tokens.is_empty() {
                if parser.peek() != Some(",") {
                    return Err(parser.unexpected("',' or 'end of string'"));
                }
                parser.advance();
                if parser.tokens.is_empty() {
                    return Err(parser.unexpected("identifier after ','"));
                }
            }
        }
        Ok(Self(requirements))
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
        self.0.iter().all(|requirement| {
            let value = labels.and_then(|labels| labels.get(&requirement.key)).and_then(Value::as_str);
            requirement.operator.allows(value)
        })
    }
}

impl Requirement {
    /// Rejects invalid keys and values of labels.
    fn check_syntax(&self) -> Result<(), Status> {
        let reject = |field: &str, value: &str, detail: &str| {
            let value = Value::from(value);
            Err(Status::bad_request(format_args!(
                "unable to parse requirement: {field}: Invalid value: {value}: {detail}"
            )))
        };
        // Keys are validated before values, which determines the reported error.
        if let Some(detail) = naming::key_violations(&self.key).first() {
            return reject("<nil>", &self.key, detail);
        }
        let (Operator::In(values) | Operator::NotIn(values)) = &self.operator else { return Ok(()) };
        for (index, value) in values.iter().enumerate() {
            if let Some(detail) = naming::label_value_violations(value).first() {
                return reject(&format!("values[{index}][{}]", self.key), value, detail);
            }
        }
        Ok(())
    }
}

impl Operator {
    fn allows(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::In(values) => value.is_some_and(|value| values.iter().any(|allowed| allowed == value)),
            // An absent label also satisfies `notin` and `!=`.
            Self::NotIn(values) => value.is_none_or(|value| values.iter().all(|excluded| excluded != value)),
            // Labels that are not integers match neither operator.
            Self::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            Self::LessThan(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

struct SelectorParser<'a> {
    tokens: &'a [String],
}

impl SelectorParser<'_> {
    fn requirement(&mut self) -> Result<Requirement, Status> {
        if self.peek() == Some("!") {
            self.advance();
            let key = self.word("identifier")?;
            return Ok(Requirement { key, operator: Operator::DoesNotExist });
        }
        let key = self.word("!, identifier, or 'end of string'")?;
        let operator = match self.peek() {
            None | Some(",") => Operator::Exists,
            Some("=" | "==") => {
                self.advance();
                Operator::In(vec![self.exact_value()?])
            }
            Some("!=") => {
                self.advance();
                Operator::NotIn(vec![self.exact_value()?])
            }
            Some("in") => {
                self.advance();
                Operator::In(self.values()?)
            }
            Some("notin") => {
                self.advance();
                Operator::NotIn(self.values()?)
            }
            Some(">") => {
                self.advance();
                Operator::GreaterThan(self.number()?)
            }
            Some("<") => {
                self.advance();
                Operator::LessThan(self.number()?)
            }
            Some(_) => return Err(self.unexpected("in, notin, =, ==, !=, gt, lt")),
        };
        Ok(Requirement { key, operator })
    }

    /// Parses the value after `=`. A missing value is the empty value.
    fn value(&mut self) -> String {
        match self.peek() {
            Some(word) if is_word(word) => {
                let word = word.to_owned();
                self.advance();
                word
            }
            _ => String::new(),
        }
    }

    /// Parses the value after `=`, which may be missing only before a comma or at the end.
    fn exact_value(&mut self) -> Result<String, Status> {
        match self.peek() {
            Some(token) if token != "," && !is_word(token) => Err(self.unexpected("identifier")),
            _ => Ok(self.value()),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, Status> {
        if self.peek() != Some("(") {
            let found = self.peek().unwrap_or_default();
            return Err(Status::bad_request(format_args!("found '{found}' expected: '('")));
        }
        self.advance();
        let mut values = vec![self.value()];
        while self.peek() == Some(",") {
            self.advance();
            values.push(self.value());
        }
        if self.peek() != Some(")") {
            return Err(self.unexpected("',' or ')'"));
        }
        self.advance();
        Ok(values)
    }

    fn number(&mut self) -> Result<i64, Status> {
        let value = self.value();
        value.parse().map_err(|_| {
            let value = Value::from(value);
            let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
            Status::bad_request(format_args!("values[0]: Invalid value: {value}: {detail}"))
        })
    }

    fn word(&mut self, expected: &str) -> Result<String, Status> {
        match self.peek() {
            Some(word) if is_word(word) => {
                let word = word.to_owned();
                self.advance();
                Ok(word)
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    fn peek(&self) -> Option<&str> {
        self.tokens.first().map(String::as_str)
    }

    fn advance(&mut self) {
        self.tokens = self.tokens.get(1..).unwrap_or_default();
    }

    fn unexpected(&self, expected: &str) -> Status {
        let found = self.peek().unwrap_or_default();
        Status::bad_request(format_args!("found '{found}', expected: {expected}"))
    }
}

fn is_word(token: &str) -> bool {
    token.chars().all(|character| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.' | '/'))
}

fn tokenize(text: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let is_symbol = matches!(character, '=' | '!' | ',' | '(' | ')' | '<' | '>');
        if !is_symbol && !character.is_whitespace() {
            word.push(character);
            continue;
        }
        if !word.is_empty() {
            tokens.push(std::mem::take(&mut word));
        }
        if is_symbol {
            let is_doubled = matches!(character, '=' | '!') && characters.next_if_eq(&'=').is_some();
            tokens.push(if is_doubled { format!("{character}=") } else { character.to_string() });
        }
    }
    if !word.is_empty() {
        tokens.push(word);
    }
    tokens
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::LabelSelector;

    fn selects(selector: &str, labels: &serde_json::Value) -> bool {
        LabelSelector::parse(selector).unwrap().matches(&json!({"metadata": {"labels": labels}}))
    }

    #[test]
    fn equality_and_sets_match_values() {
        let labels = json!({"app": "web", "tier": "front", "weight": "7"});
        for selector in [
            "app=web",
            "app==web",
            "app = web , tier=front",
            "app!=api",
            "missing!=api",
            "tier in (front, back)",
            "tier notin (back)",
            "missing notin (back)",
            "app",
            "!missing",
            "weight>6",
            "weight<8",
            "",
        ] {
            assert!(selects(selector, &labels), "{selector} matches {labels}");
        }
        for selector in ["app=api", "app!=web", "tier in (back)", "tier notin (front)", "missing", "!app", "app>1"] {
            assert!(!selects(selector, &labels), "{selector} does not match {labels}");
        }
    }

    #[test]
    fn empty_value_is_a_value() {
        assert!(selects("canary=", &json!({"canary": ""})));
        assert!(!selects("canary=", &json!({"canary": "yes"})));
        assert!(!selects("canary=", &json!({})));
    }

    #[test]
    fn invalid_selectors_are_rejected() {
        for selector in ["==", "app in front", "app=web,", "app web", "(", "weight>x", "!"] {
            assert!(LabelSelector::parse(selector).is_err(), "{selector} is rejected");
        }
    }
}
