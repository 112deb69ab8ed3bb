//! Why items cannot be seen or changed.

use hyper::StatusCode;

/// Why items of a registry cannot be seen or changed. It says no header, and of URLs nothing behind `?`.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// Nobody's items.
    #[error("a mirror in a registry needs a mark: by it its items are told from those of others")]
    Mark,
    /// It can be no URL here.
    #[error("{url:?} {why}")]
    Url {
        /// What it is, up to what may be secret.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// It leads to no place of its own.
    #[error("{0:?} can be no item's key: at its URL something else lies")]
    Key(String),
    /// Nobody answers.
    #[error("`{asked}` was not answered: {why}")]
    Server {
        /// What was asked.
        asked: String,
        /// What the connection said.
        why: String,
    },
    /// An item is not as it was when it was looked at: somebody else has put it there, or taken it away. It was not changed.
    #[error("somebody has changed {key} since it was looked at, and it is not touched; it is looked at again")]
    Taken {
        /// What it is called.
        key: String,
    },
    /// It does not do it.
    #[error("the registry answered `{asked}` with {status}{}", remedy(*.status))]
    Refused {
        /// What was asked.
        asked: String,
        /// What it answered.
        status: StatusCode,
    },
    /// It answers what this was not written for.
    #[error("the registry answered `{asked}` in an unknown form: {why}")]
    Unexpected {
        /// What was asked.
        asked: String,
        /// What is unknown about it.
        why: String,
    },
}

impl RegistryError {
    /// Whether the next item may fare better.
    pub(super) fn is_of_one(&self) -> bool {
        let of_all = [
            StatusCode::UNAUTHORIZED,
            StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::TOO_MANY_REQUESTS,
        ];
        match self {
            Self::Taken { .. } | Self::Key(_) | Self::Unexpected { .. } => true,
            Self::Refused { status, .. } => status.is_client_error() && !of_all.contains(status),
            Self::Mark | Self::Url { .. } | Self::Server { .. } => false,
        }
    }
}

/// What to do about an answer.
fn remedy(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "; it does not know who asks: give it what it wants in a header",
        StatusCode::FORBIDDEN => "; whoever asks may not do that: have it allowed there",
        StatusCode::NOT_FOUND => "; there is nothing at this URL: correct it",
        StatusCode::METHOD_NOT_ALLOWED => "; items are put by PUT and go by DELETE, at the URL of each",
        StatusCode::TOO_MANY_REQUESTS => "; it is asked again later",
        status if status.is_redirection() => "; nobody follows it elsewhere: write the URL that it leads to",
        _ => "",
    }
}
