//! Kubeconfig for clients of the server.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Renders a kubeconfig. JSON strings are valid YAML, so every value gets correct quotes.
pub(crate) fn render(url: &str, ca_pem: Option<&str>, token: Option<&str>) -> String {
    // `Display` of a JSON string includes quotes and escapes.
    let quoted = |text: &str| Value::from(text).to_string();
    let authority = ca_pem
        .map_or(String::new(), |pem| format!("\n    certificate-authority-data: {}", quoted(&STANDARD.encode(pem))));
    let user = json!(token.map_or_else(|| json!({}), |token| json!({"token": token})));
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: embedded\n  \
           cluster:\n    \
             server: {}{authority}\n\
         users:\n\
         - name: embedded\n  \
           user: {user}\n\
         contexts:\n\
         - name: embedded\n  \
           context:\n    \
             cluster: embedded\n    \
             user: embedded\n    \
             namespace: default\n\
         current-context: embedded\n",
        quoted(url),
    )
}
