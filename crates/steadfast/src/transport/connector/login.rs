//! User and password in the URL of a proxy or a server.

use http::Uri;

/// User and password in a URL; never printed.
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl Login {
    /// Returns the user and password in `url`, if any.
    pub(crate) fn of(url: &Uri) -> Option<Self> {
        let (login, _) = url.authority()?.as_str().rsplit_once('@')?;
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        Some(Self { user: decoded(user), password: decoded(password) })
    }
}

/// Decodes the percent-encoded bytes in `text`.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let encoded = match rest {
            [b'%', high, low, ..] => hexadecimal(*high).zip(hexadecimal(*low)),
            _ => None,
        };
        if let Some((high, low)) = encoded {
            bytes.push(high << 4 | low);
            rest = &rest[3..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hexadecimal(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}
