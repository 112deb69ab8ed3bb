//! Query of a request.

use std::num::{IntErrorKind, ParseIntError};
use std::time::Duration;

use super::route::percent_decode;
use crate::cause::Cause;
use crate::status::Status;
use crate::storage::Strictness;

/// Parameters of a query.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(query: &str) -> Self {
        // `+` denotes a space in a query, unlike in a path.
        let decode = |text: &str| percent_decode(&text.replace('+', " "));
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(k, v)| (decode(k), decode(v))).collect(),
        )
    }

    /// Returns a parameter; empty if absent.
    pub(super) fn text(&self, key: &str) -> &str {
        self.0.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
    }

    /// Returns all values of a repeated parameter.
    pub(super) fn texts<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Returns a flag. All values except `false` and `0` are true.
    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        let (_, value) = self.0.iter().find(|(name, _)| name == key)?;
        // Any value except `0` and `false` is true, as in apimachinery.
        Some(value.as_str() != "0" && !value.eq_ignore_ascii_case("false"))
    }

    pub(super) fn is_watch(&self) -> bool {
        self.flag("watch") == Some(true)
    }

    /// Returns a number; `None` if the parameter is absent. An empty value is an error.
    pub(super) fn number(&self, key: &str) -> Result<Option<i64>, Status> {
        let Some((_, text)) = self.0.iter().find(|(name, _)| name == key) else { return Ok(None) };
        let unreadable = |_| Status::bad_request(format_args!("strconv.ParseInt: parsing \"{text}\": invalid syntax"));
        text.parse().map(Some).map_err(unreadable)
    }

    /// Returns whether the request is a dry run, which checks everything and stores nothing.
    ///
    /// `options` is the kind of the request's options, for errors.
    pub(super) fn dry_run(&self, options: &str) -> Result<bool, Status> {
        match self.text("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => {
                let why = format!("Unsupported value: [\"{other}\"]: supported values: \"All\"");
                Err(Status::invalid("meta.k8s.io", options, "", &[("dryRun", why)]))
            }
        }
    }
}

impl Query {
    /// Returns the treatment of unknown fields.
    pub(super) fn strictness(&self, options: &str) -> Result<Strictness, Status> {
        match self.text("fieldValidation") {
            "" | "Warn" => Ok(Strictness::Warn),
            "Ignore" => Ok(Strictness::Ignore),
            "Strict" => Ok(Strictness::Strict),
            other => {
                let supported = ["", "Ignore", "Strict", "Warn"].map(str::to_owned);
                let cause = Cause::not_supported("fieldValidation", &other.into(), &supported);
                Err(Status::invalid_causes("meta.k8s.io", options, "", &[cause]))
            }
        }
    }
}

/// Value of `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    Unset,
    Exact,
    NotOlderThan,
}

/// Validated options of a list or a watch.
#[derive(Clone, Debug)]
pub(super) struct ListOptions {
    /// Maximum number of objects; 0 for no limit.
    pub(super) limit: usize,
    pub(super) continue_token: String,
    /// Requested version; `None` if unset.
    pub(super) version: Option<u64>,
    pub(super) matching: Match,
    pub(super) bookmarks: bool,
    pub(super) send_initial_events: Option<bool>,
    pub(super) timeout: Option<Duration>,
}

impl ListOptions {
    pub(super) fn parse(query: &Query) -> Result<Self, Status> {
        let watch = query.is_watch();
        let send_initial_events = query.flag("sendInitialEvents");
        let version = query.text("resourceVersion");
        let matching = query.text("resourceVersionMatch");
        // Invalid numbers are reported first.
        query.number("limit")?;
        query.number("timeoutSeconds")?;
        // The combination of options is checked before the version itself. This order determines which error is
        // reported.
        check(watch, version, matching, query.text("continue"), send_initial_events)?;
        let parsed = match version {
            "" => None,
            text => Some(text.parse().map_err(|error| unreadable_version(text, &error, watch))?),
        };
        let limit = query.number("limit")?.unwrap_or_default();
        let seconds = query.number("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok());
        // Zero and negative timeouts count as unset.
        let seconds = seconds.filter(|&seconds| seconds > 0);
        Ok(Self {
            limit: usize::try_from(limit).unwrap_or_default(),
            continue_token: query.text("continue").to_owned(),
            version: parsed,
            matching: match matching {
                "Exact" => Match::Exact,
                "NotOlderThan" => Match::NotOlderThan,
                _ => Match::Unset,
            },
            bookmarks: query.flag("allowWatchBookmarks") == Some(true),
            send_initial_events,
            timeout: seconds.map(Duration::from_secs),
        })
    }
}

fn check(watch: bool, version: &str, matching: &str, token: &str, initial: Option<bool>) -> Result<(), Status> {
    let forbid = |field: &str, why: &str| Err(invalid(field, &format!("Forbidden: {why}")));
    if !watch && initial.is_some() {
        return forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
    }
    // Streamed lists require this match (KEP-3157), so that the intent of the client is explicit.
    if watch && initial.is_some() && matching != "NotOlderThan" {
        let field = "resourceVersionMatch";
        let mut causes = vec![(
            field,
            "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan".to_owned(),
        )];
        if !matching.is_empty() {
            causes.push((field, format!("Unsupported value: \"{matching}\": supported values: \"NotOlderThan\"")));
        }
        return Err(Status::invalid("meta.k8s.io", "ListOptions", "", &causes));
    }
    let continued = "resourceVersionMatch is forbidden when continue is provided";
    // A watch without a version counts as a streamed list, which implies a `resourceVersionMatch` even if the request
    // sets none.
    if watch && initial.is_none() && matching.is_empty() && matches!(version, "" | "0") && !token.is_empty() {
        return forbid("resourceVersionMatch", continued);
    }
    if matching.is_empty() {
        return Ok(());
    }
    if watch && initial.is_none() {
        return forbid(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        );
    }
    if !watch && version.is_empty() {
        return forbid("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided");
    }
    if !token.is_empty() {
        return forbid("resourceVersionMatch", continued);
    }
    match matching {
        "Exact" if version == "0" => {
            forbid("resourceVersionMatch", "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")
        }
        "Exact" | "NotOlderThan" => Ok(()),
        other => Err(invalid(
            "resourceVersionMatch",
            &format!("Unsupported value: \"{other}\": supported values: \"Exact\", \"NotOlderThan\", \"\""),
        )),
    }
}

/// Creates the status for an invalid option.
pub(super) fn invalid(field: &str, why: &str) -> Status {
    Status::invalid("meta.k8s.io", "ListOptions", "", &[(field, why.to_owned())])
}

fn unreadable_version(text: &str, error: &ParseIntError, watch: bool) -> Status {
    // The messages are those of Go's `strconv`, which distinguishes syntax from range.
    let why = match error.kind() {
        IntErrorKind::PosOverflow => "value out of range",
        _ => "invalid syntax",
    };
    let why = format!("resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": {why}");
    if watch { Status::new(500, "", why) } else { Status::bad_request(format_args!("invalid resource version: {why}")) }
}
