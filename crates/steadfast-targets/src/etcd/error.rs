//! Errors of etcd, each with advice.

/// Reason that keys of etcd cannot be read or changed. No error contains a password, a token or a value.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// The prefix or the mark is empty.
    #[error("a mirror in etcd needs a prefix and a mark; set both")]
    EmptyPrefixOrMark,
    /// An endpoint is not a client URL.
    #[error(
        "{0:?} is not an endpoint of etcd: write it as http://HOST:PORT, or https://HOST:PORT where TLS is configured"
    )]
    Endpoint(String),
    /// An endpoint does not respond. A write may have been applied nevertheless.
    #[error(
        "etcd does not respond at {endpoint}: {reason}; is it in its `--advertise-client-urls`, and not for TLS alone?"
    )]
    Unreachable {
        /// The endpoint.
        endpoint: String,
        /// The cause.
        reason: String,
    },
    /// Another client created, changed or deleted keys since the last read. None of the named keys was changed.
    #[error("another client changed {} since the last read; nothing was changed, and the mirror reads the keys again", .keys.join(", "))]
    Conflict {
        /// The keys, escaped.
        keys: Vec<String>,
    },
    /// A later leader has recorded its term. No key was changed.
    #[error("a later leader writes these keys: this process had the term {term}, and etcd has the record of {found}")]
    Superseded {
        /// The term of this process.
        term: u64,
        /// Recorded term, escaped.
        found: String,
    },
    /// A value that etcd cannot hold.
    #[error("{key} has {bytes} bytes: a value may have up to 1.5 MiB together with its key")]
    TooLarge {
        /// The key, escaped.
        key: String,
        /// Bytes of key and value.
        bytes: usize,
    },
    /// etcd rejects a request.
    #[error("etcd rejects `/v3/{method}`: {message}{}", remedy(.message))]
    Rejected {
        /// The method of the gateway.
        method: &'static str,
        /// The message of etcd, escaped.
        message: String,
    },
    /// No password is available.
    #[error("no password for the user {user:?} of etcd: {reason}")]
    Password {
        /// The name of the user.
        user: String,
        /// The cause.
        reason: String,
    },
    /// A response has an unknown form.
    #[error("the response of etcd to `/v3/{method}` has an unknown form: {reason}")]
    Unexpected {
        /// The method of the gateway.
        method: &'static str,
        /// The reason.
        reason: String,
    },
}

debug_as_message!(EtcdError);

impl EtcdError {
    /// Returns true if another endpoint may succeed. The failed write may have been applied nevertheless.
    pub(super) fn may_succeed_elsewhere(&self) -> bool {
        let member_failures =
            ["no leader", "timed out", "leader changed", "server stopped", "unavailable", "unhealthy", "EOF"];
        match self {
            Self::Unreachable { .. } | Self::Unexpected { .. } => true,
            Self::Rejected { message, .. } => {
                message.starts_with('5') || member_failures.iter().any(|text| message.contains(text))
            }
            _ => false,
        }
    }

    /// Returns true if the token of a user has expired, or the rights of the user have changed since the login.
    pub(super) fn needs_new_token(&self) -> bool {
        let texts = ["invalid auth token", "user name is empty", "revision of auth store is old", "invalid token"];
        matches!(self, Self::Rejected { message, .. } if texts.iter().any(|text| message.contains(text)))
    }
}

/// Returns advice for an error message of etcd.
fn remedy(message: &str) -> &'static str {
    match message {
        _ if message.contains("user name is empty") => {
            "; etcd requires authentication: configure a user with a password for the mirror"
        }
        _ if message.contains("permission denied") => {
            "; grant the role of the user `readwrite` for the prefix, and for the owner record next to it"
        }
        _ if message.contains("authentication failed") => "; correct the name of the user or the password",
        _ if message.contains("authentication is not enabled") => "; leave the user out, or enable authentication",
        _ if message.contains("space exceeded") => {
            "; the quota of etcd is used up: compact and defragment etcd, then run `etcdctl alarm disarm`"
        }
        _ if message.contains("lease not found") => "; the lease has expired, and is granted again after the next read",
        _ if message.contains("no leader") || message.contains("timed out") => {
            "; a majority of its members must be available"
        }
        _ if message.contains("too large") => {
            "; a value may have up to 1.5 MiB, unless `--max-request-bytes` allows more"
        }
        _ if message.starts_with("404") => {
            "; the gateway at /v3 needs etcd 3.4 or newer, without `--enable-grpc-gateway=false`"
        }
        _ => "",
    }
}

/// Returns a key in a form that is safe for terminals and logs.
pub(super) fn display_key(key: &str) -> String {
    key.escape_debug().to_string()
}
