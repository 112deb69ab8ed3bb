//! Scripts: requests that refer to values of earlier responses.

/// Sequence of requests in a namespace of its own. All written objects have the namespace's name as the label `script`.
#[derive(Clone, Debug)]
pub struct Script {
    /// Seed of the script.
    pub seed: u64,
    /// The requests.
    pub steps: Vec<Step>,
}

impl Script {
    /// Returns the position of a step, for messages.
    pub fn describe_step(&self, number: usize) -> String {
        let Step { method, path, .. } = &self.steps[number];
        format!("script {} step {number}: {method} {path}", self.seed)
    }
}

/// One request.
///
/// In its path and body, `<<version:3>>`, `<<uid:3>>`, `<<name:3>>` and `<<continue:3>>` stand for values in the
/// response of the same server to step 3.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// HTTP method.
    pub method: &'static str,
    /// Path with its query.
    pub path: String,
    /// `Content-Type`, if any.
    pub content_type: &'static str,
    /// `Accept`, if any.
    pub accept: &'static str,
    /// Body as text.
    pub body: String,
    /// Collection that the request reads from a cache. The cache must have caught up before the request.
    pub wait_for_watch_cache: Option<String>,
    /// Condition on the response. The request is repeated until a response meets the condition.
    pub condition: Option<ResponseCondition>,
    /// True if the request is sent only after the earlier watches have ended.
    pub waits_for_watches: bool,
    /// True if only the code of a response is compared, and for a rejection also its message.
    pub compares_code_only: bool,
    /// Interpretation of the response.
    pub read_mode: ReadMode,
    /// Verb under which the coverage counts this request.
    pub verb: &'static str,
    /// Options under which the coverage counts this request.
    pub options: Vec<&'static str>,
}

/// Condition on a response.
#[derive(Clone, Debug)]
pub enum ResponseCondition {
    /// The response has this status.
    Code(u16),
    /// The body contains this text.
    Has(String),
    /// The body does not contain this text.
    Lacks(String),
    /// Both conditions hold.
    Both(Box<ResponseCondition>, Box<ResponseCondition>),
}

impl ResponseCondition {
    /// Returns `true` if a response meets the condition.
    pub fn is_met(&self, code: u16, body: &str) -> bool {
        match self {
            Self::Code(expected) => code == *expected,
            Self::Has(text) => body.contains(text),
            Self::Lacks(text) => !body.contains(text),
            Self::Both(first, second) => first.is_met(code, body) && second.is_met(code, body),
        }
    }
}

/// Interpretation of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReadMode {
    /// Read to its end.
    #[default]
    Whole,
    /// Read to its end, as events of a watch if the request succeeds.
    Events,
    /// Read in the background until the event of the last object, which each script creates at its end.
    UntilSentinel,
}

/// Name of the object that ends the watches.
pub const SENTINEL: &str = "zz-sentinel";

impl Step {
    /// Creates a request without options.
    pub fn new(verb: &'static str, method: &'static str, path: String) -> Self {
        Self { method, path, verb, ..Self::default() }
    }

    /// Sets a JSON body.
    pub fn json(mut self, body: &serde_json::Value) -> Self {
        self.content_type = "application/json";
        self.body = body.to_string();
        self
    }

    /// Adds an option for the coverage.
    pub fn label(mut self, option: &'static str) -> Self {
        self.options.push(option);
        self
    }

    /// Adds a parameter to the query.
    pub fn query(mut self, parameter: &str) -> Self {
        self.path.push(if self.path.contains('?') { '&' } else { '?' });
        self.path.push_str(parameter);
        self
    }
}
