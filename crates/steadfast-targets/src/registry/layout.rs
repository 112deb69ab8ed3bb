//! URLs of a registry, and the fields of its items.

use std::fmt::Write;

use hyper::Uri;
use serde_json::Value as Json;

use super::error::RegistryError;
use super::key;

/// Placeholder for the key in a URL. Each byte other than letters, digits, `-`, `.`, `_` and `~` is encoded as `%XX`.
const KEY_PLACEHOLDER: &str = "{key}";

/// Placeholder for the mark in the URL of the list. The mark is encoded like the key.
const MARK_PLACEHOLDER: &str = "{mark}";

/// URLs of a registry, and the fields of its items.
#[derive(Clone, Debug)]
pub struct Layout {
    /// URL of an item, with `{key}` for its key. Used for GET, PUT and DELETE.
    pub url: String,
    /// URL of the list, which contains at least the mirror's items. `{mark}` stands for the mark.
    pub list: String,
    /// Owner that identifies the mirror's items.
    pub mark: String,
    /// JSON pointer to the items in the list (`/items`). Empty for the whole list.
    pub items: String,
    /// Field with the key of an item.
    pub key: String,
    /// Field with the owner of an item.
    pub owner: String,
    /// Field with the value of an item.
    pub value: String,
}

impl Layout {
    /// Creates a layout with one `url` for each item, an array at `list`, and the fields `key`, `owner` and `value`.
    pub fn new(url: &str, list: &str, mark: &str) -> Self {
        let (url, list, mark) = (url.to_owned(), list.to_owned(), mark.to_owned());
        let [key, owner, value] = ["key", "owner", "value"].map(str::to_owned);
        Self { url, list, mark, items: String::new(), key, owner, value }
    }

    /// Checks that the layout is valid.
    ///
    /// # Errors
    ///
    /// Returns an error if a URL or the mark is invalid, the item URL lacks `{key}`, or the URLs have different
    /// servers.
    pub fn check(&self) -> Result<(), RegistryError> {
        if self.mark.is_empty() {
            return Err(RegistryError::EmptyMark);
        }
        let invalid = |url: &str, reason| Err(RegistryError::Url { url: display_url(url), reason });
        let (Some(item), Some(list)) =
            (scheme_and_authority(&self.url.replace(KEY_PLACEHOLDER, "key")), scheme_and_authority(&self.list_url()))
        else {
            let is_item = scheme_and_authority(&self.url.replace(KEY_PLACEHOLDER, "key")).is_none();
            let url = if is_item { &self.url } else { &self.list };
            return invalid(url, "is not the URL of a server: write https://HOST/PATH, without a password");
        };
        if !self.url.split('?').next().is_some_and(|path| path.contains(KEY_PLACEHOLDER)) {
            return invalid(&self.url, "has no `{key}` in its path: write `{key}` for the key of an item");
        }
        if item != list {
            return invalid(&self.list, "has another server than the URL of the items");
        }
        Ok(())
    }

    /// Returns the URL of one item.
    pub(super) fn item_url(&self, key: &str) -> Result<String, RegistryError> {
        key::check(key).map_err(|reason| RegistryError::Key { key: key.to_owned(), reason })?;
        Ok(self.url.replace(KEY_PLACEHOLDER, &percent_encode(key)))
    }

    pub(super) fn list_url(&self) -> String {
        self.list.replace(MARK_PLACEHOLDER, &percent_encode(&self.mark))
    }

    /// Returns the body of a `PUT`.
    pub(super) fn item_body(&self, key: &str, value: &Json) -> Json {
        let fields = [(&self.key, key.into()), (&self.owner, self.mark.clone().into()), (&self.value, value.clone())];
        Json::Object(fields.into_iter().map(|(name, value)| (name.clone(), value)).collect())
    }

    pub(super) fn is_own(&self, item: &Json) -> bool {
        item.get(&self.owner).and_then(Json::as_str) == Some(&self.mark)
    }

    /// Returns the keys of the listed items. The value is `Some` only for items that this mirror owns.
    pub(super) fn parse_items(&self, list: &[u8]) -> Result<Vec<(String, Option<Json>)>, String> {
        let list: Json = serde_json::from_slice(list).map_err(|error| format!("it is not valid JSON: {error}"))?;
        let place =
            if self.items.is_empty() { "the list".to_owned() } else { format!("the value at {:?}", self.items) };
        let items = list.pointer(&self.items).and_then(Json::as_array);
        let items = items.ok_or_else(|| format!("{place} is not an array of items"))?;
        let parsed = items.iter().filter_map(|item| {
            let key = item.get(&self.key).and_then(Json::as_str)?;
            let value = self.is_own(item).then(|| item.get(&self.value).cloned().unwrap_or_default());
            Some((key.to_owned(), value))
        });
        let parsed: Vec<_> = parsed.collect();
        // One malformed item of another writer must not stop the mirror. But if no item has a key, the configured
        // name of the key field is wrong. The list would then look like that of an empty registry.
        if parsed.is_empty() && !items.is_empty() {
            return Err(format!("no item of {place} has text in its field {:?}", self.key));
        }
        Ok(parsed)
    }
}

/// Returns scheme and authority of a server's URL.
fn scheme_and_authority(url: &str) -> Option<(String, String)> {
    let url: Uri = url.parse().ok()?;
    let scheme = url.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"))?;
    let authority = url.authority().filter(|authority| !authority.as_str().contains('@'))?;
    Some((scheme.to_owned(), authority.as_str().to_owned()))
}

/// Returns a URL without its possible secrets, which are the query and the part before `@`.
pub(super) fn display_url(url: &str) -> String {
    let (url, is_whole) = url.split_once('?').map_or((url, true), |(url, _)| (url, false));
    let url = match (url.split_once("://"), url.split_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://…@{rest}"),
        _ => url.to_owned(),
    };
    if is_whole { url } else { format!("{url}?…") }
}

fn percent_encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const URL: &str = "https://tree.example.test/services/{key}";

    #[test]
    fn layout_error_contains_no_secret() {
        let error_of = |url: &str, list: &str, mark: &str| match Layout::new(url, list, mark).check() {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        };
        let list = "https://tree.example.test/services?owner={mark}&token=hunter2";
        assert_eq!(error_of(URL, list, "m"), "");
        for (url, list, mark, reason) in [
            (URL, list, "", "needs a mark"),
            ("https://tree.example.test/services", list, "m", "has no `{key}` in its path"),
            ("https://tree.example.test/services?hunter2={key}", list, "m", "has no `{key}` in its path"),
            ("/services/{key}", list, "m", "is not the URL of a server"),
            ("https://me:hunter2@tree.example.test/{key}", list, "m", "without a password"),
            (URL, "https://other.example.test/services?token=hunter2", "m", "has another server"),
            (URL, "tree", "m", "\"tree\" is not the URL of a server"),
        ] {
            let message = error_of(url, list, mark);
            assert!(message.contains(reason) && !message.contains("hunter2"), "{url} {list}: {message}");
        }
    }

    #[test]
    fn key_becomes_one_path_segment() {
        let layout = Layout::new(URL, "https://tree.example.test/services?of={mark}", "cluster/1");
        assert_eq!(
            layout.item_url("shop/web ä?").expect("a key"),
            "https://tree.example.test/services/shop%2Fweb%20%C3%A4%3F"
        );
        assert_eq!(layout.list_url(), "https://tree.example.test/services?of=cluster%2F1");
        let error = layout.item_url("shop/../web").expect_err("an invalid key");
        assert!(error.to_string().starts_with("\"shop/../web\" cannot be an item's key: "), "{error}");
    }

    #[test]
    fn unmarked_items_belong_to_other_clients() {
        let mut layout = Layout::new(URL, URL, "m");
        let parse = |layout: &Layout, list: &Json| layout.parse_items(list.to_string().as_bytes());
        let items = json!([
            {"key": "a", "owner": "m", "value": {"port": 80}},
            {"key": "b", "owner": "n", "value": 1},
            {"key": "c"},
            {"key": "d", "owner": "m"},
        ]);
        let own = |key: &str, value| (key.to_owned(), value);
        let desired =
            vec![own("a", Some(json!({"port": 80}))), own("b", None), own("c", None), own("d", Some(Json::Null))];
        assert_eq!(parse(&layout, &items), Ok(desired.clone()));
        layout.items = "/data/all".to_owned();
        assert_eq!(parse(&layout, &json!({"data": {"all": items}})), Ok(desired));
        // A response of another shape is an error and not an empty list, which would add every item again.
        for not_a_list in
            [json!({}), json!({"data": {"all": null}}), json!([]), json!({"data": {"all": [{"name": "a"}]}})]
        {
            assert!(parse(&layout, &not_a_list).is_err(), "{not_a_list}");
        }
        assert!(layout.parse_items(b"<html>").is_err());
        let one_malformed =
            json!({"data": {"all": [{"key": 7, "owner": "x"}, {"key": "a", "owner": "m", "value": 1}]}});
        assert_eq!(parse(&layout, &one_malformed), Ok(vec![own("a", Some(json!(1)))]));
    }
}
