//! The user and the password in a URL, of a proxy or of a server.

use http::Uri;

/// The user and the password in a URL; never printed.
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl Login {
    /// The user and the password in `url`, where there are any.
    pub(crate) fn of(url: &Uri) -> Option<Self> {
        let (login, _) = url.authority()?.as_str().rsplit_once('@')?;
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        Some(Self { user: decoded(user), password: decoded(password) })
    }
}

/// `text` with its percent-encoded bytes in clear.
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
