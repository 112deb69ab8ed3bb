//! Tokens of service accounts that the server issued.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Maximum number of tokens. Beyond the limit, the tokens that expire first are dropped.
const MAX_TOKENS: usize = 10_000;

/// Issued tokens with their user and their expiry.
#[derive(Debug, Default)]
pub(crate) struct IssuedTokens(Mutex<BTreeMap<String, (String, i64)>>);

impl IssuedTokens {
    /// Adds a token of `user` that expires at `expires`, in seconds since 1970.
    pub(crate) fn add(&self, token: &str, user: &str, expires: i64) {
        let mut tokens = self.0.lock();
        if tokens.len() >= MAX_TOKENS {
            // At the limit, the token with the earliest expiry is dropped.
            let first = tokens.iter().min_by_key(|(_, (_, expires))| *expires).map(|(token, _)| token.clone());
            first.map(|token| tokens.remove(&token));
        }
        tokens.insert(token.to_owned(), (user.to_owned(), expires));
    }

    /// Returns the user of a token that has not expired at `now`, in seconds since 1970.
    pub(crate) fn user(&self, token: &str, now: i64) -> Option<String> {
        let tokens = self.0.lock();
        // Expired tokens stay until the limit drops them, and are rejected here.
        tokens.get(token).filter(|(_, expires)| now < *expires).map(|(user, _)| user.clone())
    }
}
