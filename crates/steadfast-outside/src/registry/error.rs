//! Why items cannot be seen or changed.

use hyper::StatusCode;

use crate::lanes;

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
    /// A server could take the item's URL for that of another item.
    #[error("{key:?} cannot be an item's key: {why}; send another key")]
    Key {
        /// The key.
        key: String,
        /// The rule that the key violates.
        why: &'static str,
    },
    /// The registry did not respond in time.
    #[error("the registry did not respond to `{asked}` within {}", lanes::seconds(*.within))]
    Late {
        /// Method and URL of the request, or the key of the item.
        asked: String,
        /// The deadline.
        within: std::time::Duration,
    },
    /// Several items could not be changed.
    #[error("{first}; {}", lanes::others(others))]
    Several {
        /// The first error.
        first: Box<Self>,
        /// The keys of the other items.
        others: Vec<String>,
    },
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
    #[error("the registry responded to `{asked}` with {status}{}", remedy(*.status))]
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
    /// Combines the errors of one run, each with the key of its item.
    pub(super) fn of_run(errors: Vec<(String, Self)>) -> Result<(), Self> {
        let mut errors = errors.into_iter();
        let Some((_, first)) = errors.next() else { return Ok(()) };
        let others: Vec<_> = errors.map(|(key, _)| key).collect();
        Err(if others.is_empty() { first } else { Self::Several { first: Box::new(first), others } })
    }

    /// Returns true if the error is certain to concern one item only. A registry also answers 500 or nothing at all about a single
    /// key; therefore all other errors count as failures of the registry only if they are the only results.
    pub(super) fn is_of_one(&self) -> bool {
        let of_all = [
            StatusCode::UNAUTHORIZED,
            StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::TOO_MANY_REQUESTS,
        ];
        match self {
            Self::Taken { .. } | Self::Key { .. } | Self::Unexpected { .. } => true,
            Self::Refused { status, .. } => status.is_client_error() && !of_all.contains(status),
            Self::Mark | Self::Url { .. } | Self::Server { .. } | Self::Late { .. } | Self::Several { .. } => false,
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
