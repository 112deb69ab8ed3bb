//! What a script is: requests that name what earlier answers brought.

/// Requests, one after the other, in a namespace of their own; everything they write has its name as label `script`.
#[derive(Clone, Debug)]
pub struct Script {
    /// What it was made from.
    pub seed: u64,
    /// The requests.
    pub steps: Vec<Step>,
}

impl Script {
    /// Which step it is, for whoever has to look at it.
    pub fn place(&self, number: usize) -> String {
        let Step { method, path, .. } = &self.steps[number];
        format!("script {} step {number}: {method} {path}", self.seed)
    }
}

/// One request.
///
/// In its path and body, `<<version:3>>`, `<<uid:3>>`, `<<name:3>>` and `<<continue:3>>` stand for what the answer to
/// step 3 brought, on the server that is asked.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// The HTTP method.
    pub method: &'static str,
    /// The path with its query.
    pub path: String,
    /// `Content-Type`, where there is one.
    pub content_type: &'static str,
    /// `Accept`, where there is one.
    pub accept: &'static str,
    /// The body as text.
    pub body: String,
    /// Reads from a cache, which has to have caught up before: the collection's path.
    pub after_cache: Option<String>,
    /// It is asked again until the answer is so.
    pub until: Option<Until>,
    /// It is asked when the watches so far have ended.
    pub after_watches: bool,
    /// Of the answer, the code alone is compared, and of a refusal the message.
    pub code_only: bool,
    /// What the answer is read as.
    pub reading: Reading,
    /// The verb, and the options it comes with: what coverage is counted by.
    pub verb: &'static str,
    /// See `verb`.
    pub options: Vec<&'static str>,
}

/// What an answer is to be.
#[derive(Clone, Debug)]
pub enum Until {
    /// With this status.
    Code(u16),
    /// With this text in the body.
    Has(String),
    /// Without it.
    Lacks(String),
    /// As both say.
    Both(Box<Until>, Box<Until>),
}

impl Until {
    /// Whether an answer is so.
    pub fn holds(&self, code: u16, body: &str) -> bool {
        match self {
            Self::Code(wanted) => code == *wanted,
            Self::Has(text) => body.contains(text),
            Self::Lacks(text) => !body.contains(text),
            Self::Both(one, other) => one.holds(code, body) && other.holds(code, body),
        }
    }
}

/// How long an answer is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// Until its end.
    #[default]
    Whole,
    /// The same, as the events of a watch where it is granted.
    Events,
    /// In the background until the event of the last object, which each script creates at its end.
    UntilSentinel,
}

/// The object that ends the watches.
pub const SENTINEL: &str = "zz-sentinel";

impl Step {
    /// A request without anything special.
    pub fn new(verb: &'static str, method: &'static str, path: String) -> Self {
        Self { method, path, verb, ..Self::default() }
    }

    /// With a JSON body.
    pub fn json(mut self, body: &serde_json::Value) -> Self {
        self.content_type = "application/json";
        self.body = body.to_string();
        self
    }

    /// Counted as using an option.
    pub fn with(mut self, option: &'static str) -> Self {
        self.options.push(option);
        self
    }

    /// One more parameter of the query.
    pub fn query(mut self, parameter: &str) -> Self {
        self.path.push(if self.path.contains('?') { '&' } else { '?' });
        self.path.push_str(parameter);
        self
    }
}
