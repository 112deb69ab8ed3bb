//! Warnings of the API server, in the header `Warning` of its responses: deprecated versions, fields without effect.

use std::collections::{BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use http::HeaderMap;
use http::header::WARNING;
use parking_lot::Mutex;

use crate::environment::SharedEnvironment;

/// Maximum number of remembered warning texts. After this number of other texts, a warning is logged again.
const MAX_REMEMBERED: usize = 256;

/// Maximum length of a warning's text in characters.
const MAX_LENGTH: usize = 1000;

/// The only code that API servers use: a miscellaneous warning. Other codes come from HTTP caches.
const MISCELLANEOUS: &str = "299";

/// A warning that came with a response of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerWarning {
    /// The URL of the server.
    pub server: String,
    /// The text, as kubectl prints it; at most 1,000 characters.
    pub text: String,
    /// True if this connection has had a warning with the same text before. The connection remembers the last 256
    /// texts.
    pub repeated: bool,
}

pub(super) type OnWarning = Arc<dyn Fn(&ServerWarning) + Send + Sync>;

/// Logs each warning of a server once, and passes all to the program.
pub(super) struct Warnings {
    server: String,
    remembered: Mutex<Remembered>,
    on_warning: Option<OnWarning>,
}

/// Texts by their hashes, the oldest first.
#[derive(Default)]
struct Remembered {
    order: VecDeque<u64>,
    known: BTreeSet<u64>,
}

impl Remembered {
    /// Remembers `text`; returns `true` if it was known.
    fn is_repeated(&mut self, text: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let hash = hasher.finish();
        if !self.known.insert(hash) {
            return true;
        }
        self.order.push_back(hash);
        if self.order.len() > MAX_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        false
    }
}

impl Warnings {
    pub(super) fn new(server: String, on_warning: Option<OnWarning>) -> Self {
        Self { server, remembered: Mutex::default(), on_warning }
    }

    /// Reports the warnings in the `headers` of a response.
    pub(super) fn report(&self, headers: &HeaderMap, environment: &SharedEnvironment) {
        for text in headers.get_all(WARNING).iter().flat_map(|value| texts(value.as_bytes())) {
            let repeated = self.remembered.lock().is_repeated(&text);
            if !repeated {
                tracing::warn!(server = %self.server, warning = %text, "the server sent a warning");
            }
            if let Some(on_warning) = self.on_warning.clone() {
                let warning = ServerWarning { server: self.server.clone(), text, repeated };
                // The program's code may block, and must not delay the connection.
                drop(environment.spawn_user_task(Box::pin(async move { on_warning(&warning) })));
            }
        }
    }
}

/// Returns the texts of the warnings in one header: `299 - "text"`, optionally with a date. Commas separate several
/// warnings.
fn texts(header: &[u8]) -> Vec<String> {
    let header = String::from_utf8_lossy(header);
    let mut rest = header.as_ref();
    let mut texts = Vec::new();
    loop {
        // The format of RFC 7234, section 5.5: code, agent, quoted text, optional quoted date.
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let Some((code, after)) = rest.split_once(' ') else { break };
        let Some((_agent, after)) = after.trim_start().split_once(' ') else { break };
        let Some((text, after)) = quoted(after.trim_start()) else { break };
        if code == MISCELLANEOUS && !text.is_empty() {
            texts.push(text);
        }
        // The optional date is quoted as well.
        rest = after.trim_start();
        if rest.starts_with('"') {
            let Some((_, after)) = quoted(rest) else { break };
            rest = after;
        }
    }
    texts
}

/// Returns the content of the quoted string at the start of `text`, without control characters, and the text after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let inner = text.strip_prefix('"')?;
    let mut content = String::new();
    let mut length = 0;
    let mut characters = inner.char_indices();
    while let Some((at, character)) = characters.next() {
        let character = match character {
            '"' => return Some((content, &inner[at + 1..])),
            '\\' => characters.next()?.1,
            character => character,
        };
        // Control characters could change a terminal that shows the log.
        if !character.is_control() && length < MAX_LENGTH {
            content.push(character);
            length += 1;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_parsed_as_by_kubectl() {
        for (header, expected) in [
            (r#"299 - "v1beta1 is deprecated""#, vec!["v1beta1 is deprecated"]),
            (r#"299 apiserver "one", 299 - "two, \"quoted\"""#, vec!["one", "two, \"quoted\""]),
            (r#"299 - "dated" "Sat, 25 Aug 2012 23:34:45 GMT", 299 - "next""#, vec!["dated", "next"]),
            (r#"110 - "Response is Stale""#, vec![]),
            (r#"299 - """#, vec![]),
            (r#"299 - "no end"#, vec![]),
            ("nonsense", vec![]),
            ("299 - \"a\u{1b}[1mb\"", vec!["a[1mb"]),
        ] {
            assert_eq!(texts(header.as_bytes()), expected, "{header}");
        }
        let long = format!("299 - \"{}\"", "x".repeat(5000));
        assert_eq!(texts(long.as_bytes())[0].len(), MAX_LENGTH);
    }

    #[test]
    fn remembered_warnings_are_bounded() {
        let mut remembered = Remembered::default();
        assert!(!remembered.is_repeated("first"));
        assert!(remembered.is_repeated("first"));
        for number in 0..10_000 {
            assert!(!remembered.is_repeated(&number.to_string()));
        }
        assert_eq!((remembered.order.len(), remembered.known.len()), (MAX_REMEMBERED, MAX_REMEMBERED));
        assert!(!remembered.is_repeated("first"), "the warning was removed from the cache");
    }
}
