//! Label selectors: equality-based and set-based.

use std::iter::Peekable;
use std::str::CharIndices;

use serde_json::Value;

use super::SelectorError;

/// A label selector. An object must meet all requirements.
#[derive(Debug, PartialEq)]
pub(crate) struct LabelSelector(Vec<LabelRequirement>);

#[derive(Debug, PartialEq)]
struct LabelRequirement {
    key: String,
    test: LabelTest,
}

#[derive(Debug, PartialEq)]
enum LabelTest {
    Exists,
    Missing,
    In(Vec<String>),
    NotIn(Vec<String>),
    Above(i64),
    Below(i64),
}

impl LabelSelector {
    pub(crate) fn parse(text: &str) -> Result<Self, SelectorError> {
        LabelSelectorParser { text, chars: text.char_indices().peekable() }.selector()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = object.pointer("/metadata/labels");
        let label = |key: &str| labels?.get(key)?.as_str();
        self.0.iter().all(|requirement| requirement.test.matches(label(&requirement.key)))
    }
}

impl LabelTest {
    fn matches(&self, label: Option<&str>) -> bool {
        let number = || label.and_then(|label| label.parse::<i64>().ok());
        match self {
            Self::Exists => label.is_some(),
            Self::Missing => label.is_none(),
            Self::In(values) => label.is_some_and(|label| values.iter().any(|value| value == label)),
            // An object without the label matches, as on the server.
            Self::NotIn(values) => !label.is_some_and(|label| values.iter().any(|value| value == label)),
            Self::Above(bound) => number().is_some_and(|number| number > *bound),
            Self::Below(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

struct LabelSelectorParser<'t> {
    text: &'t str,
    chars: Peekable<CharIndices<'t>>,
}

impl<'t> LabelSelectorParser<'t> {
    fn selector(mut self) -> Result<LabelSelector, SelectorError> {
        let mut requirements = Vec::new();
        self.skip_spaces();
        while self.chars.peek().is_some() {
            requirements.push(self.requirement()?);
            if self.take_if(',') {
                self.skip_spaces();
                // The server rejects "a=b," too.
                if self.chars.peek().is_none() {
                    return Err(self.error("nothing follows the last comma"));
                }
            } else if let Some((at, _)) = self.chars.peek() {
                let rest = &self.text[*at..];
                return Err(self.error(format!("expected a comma before {rest:?}")));
            }
        }
        Ok(LabelSelector(requirements))
    }

    fn requirement(&mut self) -> Result<LabelRequirement, SelectorError> {
        if self.take_if('!') {
            return Ok(LabelRequirement { key: self.key()?, test: LabelTest::Missing });
        }
        let key = self.key()?;
        let test = match self.chars.peek().map(|(_, next)| *next) {
            None | Some(',') => LabelTest::Exists,
            Some('=') => {
                self.take_if('=');
                self.take_if('=');
                LabelTest::In(vec![self.word().to_owned()])
            }
            Some('!') => {
                self.take_if('!');
                if !self.take_if('=') {
                    return Err(self.error("expected = after !"));
                }
                LabelTest::NotIn(vec![self.word().to_owned()])
            }
            Some('>') => {
                self.take_if('>');
                LabelTest::Above(self.number()?)
            }
            Some('<') => {
                self.take_if('<');
                LabelTest::Below(self.number()?)
            }
            Some(_) => match self.word() {
                "in" => LabelTest::In(self.values()?),
                "notin" => LabelTest::NotIn(self.values()?),
                other => return Err(self.error(format!("unknown operator {other:?}"))),
            },
        };
        Ok(LabelRequirement { key, test })
    }

    fn key(&mut self) -> Result<String, SelectorError> {
        match self.word() {
            "" => Err(self.error("a key is missing")),
            key => Ok(key.to_owned()),
        }
    }

    fn number(&mut self) -> Result<i64, SelectorError> {
        let word = self.word();
        word.parse().map_err(|_| self.error(format!("{word:?} is not a number")))
    }

    fn values(&mut self) -> Result<Vec<String>, SelectorError> {
        if !self.take_if('(') {
            return Err(self.error("expected a list in parentheses"));
        }
        let mut values = Vec::new();
        loop {
            values.push(self.word().to_owned());
            if self.take_if(')') {
                return Ok(values);
            }
            if !self.take_if(',') {
                return Err(self.error("a parenthesis is not closed"));
            }
        }
    }

    /// Returns the characters up to the next delimiter, and skips the surrounding spaces.
    fn word(&mut self) -> &'t str {
        self.skip_spaces();
        let start = self.position();
        while self.chars.next_if(|(_, next)| !next.is_whitespace() && !"=!<>,()".contains(*next)).is_some() {}
        let word = &self.text[start..self.position()];
        self.skip_spaces();
        word
    }

    fn take_if(&mut self, expected: char) -> bool {
        let is_match = self.chars.next_if(|(_, next)| *next == expected).is_some();
        if is_match {
            self.skip_spaces();
        }
        is_match
    }

    fn skip_spaces(&mut self) {
        while self.chars.next_if(|(_, next)| next.is_whitespace()).is_some() {}
    }

    fn position(&mut self) -> usize {
        self.chars.peek().map_or(self.text.len(), |(at, _)| *at)
    }

    fn error(&self, reason: impl Into<String>) -> SelectorError {
        SelectorError::new(self.text, reason)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn matches(selector: &str, labels: &Value) -> bool {
        LabelSelector::parse(selector).expect(selector).matches(&json!({ "metadata": { "labels": labels } }))
    }

    #[test]
    fn equality_matches_the_given_value() {
        for selector in ["app=web", "app==web", " app = web ", "app in (web)", "tier=front,app=web"] {
            assert!(matches(selector, &json!({ "app": "web", "tier": "front" })), "{selector}");
            assert!(!matches(selector, &json!({ "app": "db", "tier": "front" })), "{selector}");
            assert!(!matches(selector, &json!({})), "{selector}");
        }
        assert!(matches("app=", &json!({ "app": "" })));
    }

    #[test]
    fn inequality_matches_missing_labels() {
        for selector in ["app!=web", "app notin (web, db)", "!app"] {
            assert!(matches(selector, &json!({})), "{selector}");
            assert!(!matches(selector, &json!({ "app": "web" })), "{selector}");
        }
        assert!(!matches("!app", &json!({ "app": "x" })));
    }

    #[test]
    fn sets_existence_and_numbers_match() {
        assert!(matches("app in (web, db),app", &json!({ "app": "db" })));
        assert!(matches("example.com/size>3", &json!({ "example.com/size": "4" })));
        assert!(!matches("example.com/size<4", &json!({ "example.com/size": "4" })));
        assert!(!matches("size>3", &json!({ "size": "many" })));
        assert!(LabelSelector::parse("").unwrap().matches(&json!({})));
    }

    #[test]
    fn invalid_selectors_are_rejected() {
        for selector in ["=x", "a=b c", "a in web", "a in (web", "a between (1)", "a!b", "a>many", "a=b,", ",a"] {
            assert!(LabelSelector::parse(selector).is_err(), "{selector}");
        }
    }
}
