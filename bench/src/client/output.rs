//! Output of a client.

use serde_json::Value;

/// Prints a response as one line of JSON.
pub(super) fn print_response(response: &Value) {
    println!("{response}");
}
