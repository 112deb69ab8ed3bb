//! What a client answers.

use serde_json::Value;

/// Answers with one line of JSON.
pub(super) fn tell(answer: &Value) {
    println!("{answer}");
}
