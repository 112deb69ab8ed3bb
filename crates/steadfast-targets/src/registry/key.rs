//! Checks that a key denotes the same item after a registry or proxy has normalized the path of the URL.

/// Maximum length of a key in bytes. Encoded, it still fits into the longest request line that common servers accept
/// (8 KiB).
const MAX_KEY_BYTES: usize = 2048;

/// Characters that compatibility normalization (NFKC) replaces with `.`, `/` or `\`.
const COMPATIBLE_CHARACTERS: [(char, &str); 8] = [
    ('\u{2024}', "."),
    ('\u{2025}', ".."),
    ('\u{2026}', "..."),
    ('\u{fe52}', "."),
    ('\u{fe68}', "\\"),
    ('\u{ff0e}', "."),
    ('\u{ff0f}', "/"),
    ('\u{ff3c}', "\\"),
];

/// Checks that no normalization of the path turns the URL of `key` into the URL of another item.
///
/// A key is sent as one percent-encoded path segment. Many servers and proxies decode the segment and then normalize
/// the path. They resolve `.` and `..`, merge slashes, decode a second time, replace `\` with `/`, or drop the text
/// after a `;`. Without the check, a tenant could change the items of another tenant.
///
/// # Errors
///
/// Returns the rule that `key` violates.
pub(super) fn check(key: &str) -> Result<(), &'static str> {
    if key.is_empty() {
        return Err("it is empty");
    }
    if key.len() > MAX_KEY_BYTES {
        return Err("it is longer than 2048 bytes");
    }
    if key.chars().any(|character| character.is_control() || matches!(character, '\u{2028}' | '\u{2029}')) {
        return Err("it contains a control character");
    }
    let plain: String = key.chars().map(replace_compatible).collect();
    if plain.contains('\\') {
        return Err("a server may read its `\\` as `/`");
    }
    let is_escape = |pair: &[u8]| pair[0] == b'%' && pair[1].is_ascii_hexdigit() && pair[2].is_ascii_hexdigit();
    if plain.as_bytes().windows(3).any(is_escape) {
        return Err("a server may decode its `%XX` a second time");
    }
    for segment in plain.split('/') {
        let name = segment.split(';').next().unwrap_or_default();
        if segment.is_empty() {
            return Err("a server may drop its empty path segment: it must not begin or end with `/` or contain `//`");
        }
        if name.chars().all(|character| character == '.' || character.is_whitespace()) {
            return Err("a server may resolve a path segment of it that consists of dots");
        }
    }
    Ok(())
}

fn replace_compatible(character: char) -> String {
    let replaced = COMPATIBLE_CHARACTERS.iter().find(|(from, _)| *from == character);
    replaced.map_or_else(|| character.to_string(), |(_, to)| (*to).to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn key_that_normalizer_moves_is_rejected() {
        for key in [
            "",
            ".",
            "..",
            "a/../b",
            "a/./b",
            "../a",
            "a/..",
            "/a",
            "a/",
            "a//b",
            "a\\b",
            "a/..\\b",
            "a/%2e%2e/b",
            "a%2Fb",
            "a/..;x/b",
            ";x",
            "a/;x/b",
            "a/.. /b",
            "a/.../b",
            "a\0b",
            "a\nb",
            "a/\u{ff0e}\u{ff0e}/b",
            "a/\u{2025}/b",
            "a\u{ff0f}\u{ff0f}b",
            "a\u{ff3c}b",
            &"a".repeat(2049),
        ] {
            assert!(check(key).is_err(), "{key:?}");
        }
        for key in
            ["a", "c/shop/web", "shop/web ä?", "..a", "a..b", "a.b/c.", "100%", "a;b=c", "a:b@c", &"ä".repeat(1024)]
        {
            assert_eq!(check(key), Ok(()), "{key:?}");
        }
    }

    /// Resolves a path as a careless server does: decodes twice, replaces backslashes, merges slashes, and resolves `.`
    /// and `..`.
    fn normalize(key: &str) -> Vec<String> {
        let decode = |text: &str| {
            let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
            while let [first, tail @ ..] = rest {
                let hex = tail.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
                match hex.filter(|_| *first == b'%').and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
                    Some(byte) if !tail.starts_with(b"+") => {
                        bytes.push(byte);
                        rest = &tail[2..];
                    }
                    _ => {
                        bytes.push(*first);
                        rest = tail;
                    }
                }
            }
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let mut path = Vec::new();
        for segment in decode(&decode(key)).replace('\\', "/").split('/') {
            match segment {
                "" | "." => {}
                ".." => _ = path.pop(),
                segment => path.push(segment.to_owned()),
            }
        }
        path
    }

    proptest! {
        #[test]
        fn accepted_key_survives_normalization(key in "[a.%/\\\\;2eEfF ]{1,10}") {
            if check(&key).is_ok() {
                prop_assert_eq!(normalize(&key).join("/"), key);
            }
        }
    }
}
