//! Short text for a value of an object.

use serde_json::Value;

use super::text::shorten;

/// Maximum width of a value in a description, in columns.
const MAX_VALUE_COLUMNS: usize = 48;

/// Number of hexadecimal digits of a digest in a description.
const DIGEST_DIGITS: usize = 8;

/// Returns a short text for a value; `none` for a missing one.
pub(crate) fn short(value: Option<&Value>) -> String {
    let text = match value {
        None | Some(Value::Null) => "none".to_owned(),
        Some(Value::String(text)) if text.is_empty() => "\"\"".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(list)) if list.iter().all(|element| !element.is_object()) => {
            let elements: Vec<String> = list.iter().map(|element| short(Some(element))).collect();
            format!("[{}]", elements.join(" "))
        }
        Some(value) => value.to_string(),
    };
    shorten(&text, MAX_VALUE_COLUMNS).into_owned()
}

/// Returns the images of a change without their common repository: `1.4` and `1.5`.
pub(crate) fn images(old: &str, new: &str) -> (String, String) {
    let (old_name, old_version) = split_image(old);
    let (new_name, new_version) = split_image(new);
    if old_name == new_name && !old_version.is_empty() && !new_version.is_empty() {
        (digest(old_version), digest(new_version))
    } else {
        (image(old), image(new))
    }
}

fn image(image: &str) -> String {
    let (name, version) = split_image(image);
    let separator = &image[name.len()..image.len() - version.len()];
    shorten(&format!("{name}{separator}{}", digest(version)), MAX_VALUE_COLUMNS).into_owned()
}

/// Splits an image into its repository and its tag or digest. A colon before a slash belongs to the registry's port.
fn split_image(image: &str) -> (&str, &str) {
    if let Some((name, version)) = image.split_once('@') {
        return (name, version);
    }
    match image.rsplit_once(':') {
        Some((name, version)) if !version.contains('/') => (name, version),
        _ => (image, ""),
    }
}

fn digest(version: &str) -> String {
    match version.split_once(':') {
        Some((algorithm, digits)) if digits.len() > DIGEST_DIGITS && digits.is_ascii() => {
            format!("{algorithm}:{}…", &digits[..DIGEST_DIGITS])
        }
        _ => shorten(version, MAX_VALUE_COLUMNS).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn image_change_omits_common_repository() {
        let pair = |old: &str, new: &str| Some((old.to_owned(), new.to_owned()));
        assert_eq!(Some(images("shop/app:1.4", "shop/app:1.5")), pair("1.4", "1.5"));
        assert_eq!(Some(images("host:5000/app", "host:5000/app:2")), pair("host:5000/app", "host:5000/app:2"));
        assert_eq!(Some(images("a:1", "b:1")), pair("a:1", "b:1"));
        let digest = |digit: &str| format!("app@sha256:{}", digit.repeat(64));
        assert_eq!(Some(images(&digest("a"), &digest("b"))), pair("sha256:aaaaaaaa…", "sha256:bbbbbbbb…"));
    }

    #[test]
    fn values_are_short() {
        assert_eq!(short(None), "none");
        assert_eq!(short(Some(&json!(""))), "\"\"");
        assert_eq!(short(Some(&json!(["a", 1]))), "[a 1]");
        assert_eq!(short(Some(&json!({"a": 1}))), "{\"a\":1}");
        assert_eq!(short(Some(&json!("x".repeat(60)))).chars().count(), MAX_VALUE_COLUMNS);
    }
}
