//! Query of a request.

use std::num::{IntErrorKind, ParseIntError};
use std::time::Duration;

use super::route::percent_decode;
use crate::field_violation::FieldViolation;
use crate::status::Status;
use crate::storage::FieldValidation;

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
        let invalid_number =
            |_| Status::bad_request(format_args!("strconv.ParseInt: parsing \"{text}\": invalid syntax"));
        text.parse().map(Some).map_err(invalid_number)
    }

    /// Returns whether the request is a dry run, which checks everything and stores nothing.
    ///
    /// `options` is the kind of the request's options, for errors.
    pub(super) fn dry_run(&self, options: &str) -> Result<bool, Status> {
        match self.text("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => {
                let detail = format!("Unsupported value: [\"{other}\"]: supported values: \"All\"");
                Err(Status::invalid("meta.k8s.io", options, "", &[("dryRun", detail)]))
            }
        }
    }
}

impl Query {
    /// Returns the treatment of unknown fields.
    pub(super) fn field_validation(&self, options: &str) -> Result<FieldValidation, Status> {
        match self.text("fieldValidation") {
            "" | "Warn" => Ok(FieldValidation::Warn),
            "Ignore" => Ok(FieldValidation::Ignore),
            "Strict" => Ok(FieldValidation::Strict),
            other => {
                let supported = ["", "Ignore", "Strict", "Warn"].map(str::to_owned);
                let cause = FieldViolation::not_supported("fieldValidation", &other.into(), &supported);
                Err(Status::invalid_causes("meta.k8s.io", options, "", &[cause]))
            }
        }
    }
}

/// Value of `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VersionMatch {
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
    pub(super) version_match: VersionMatch,
    pub(super) allow_bookmarks: bool,
    pub(super) send_initial_events: Option<bool>,
    pub(super) timeout: Option<Duration>,
}

impl ListOptions {
    pub(super) fn parse(query: &Query) -> Result<Self, Status> {
        let is_watch = query.is_watch();
        let send_initial_events = query.flag("sendInitialEvents");
        let version = query.text("resourceVersion");
        let version_match = query.text("resourceVersionMatch");
        // Invalid numbers are reported first.
        query.number("limit")?;
        query.number("timeoutSeconds")?;
        // The combination of options is checked before the version itself. This order determines which error is
        // reported.
        check_combination(is_watch, version, version_match, query.text("continue"), send_initial_events)?;
        let parsed = match version {
            "" => None,
            text => Some(text.parse().map_err(|error| invalid_version(text, &error, is_watch))?),
        };
        let limit = query.number("limit")?.unwrap_or_default();
        let seconds = query.number("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok());
        // Zero and negative timeouts count as unset.
        let seconds = seconds.filter(|&seconds| seconds > 0);
        Ok(Self {
            limit: usize::try_from(limit).unwrap_or_default(),
            continue_token: query.text("continue").to_owned(),
            version: parsed,
            version_match: match version_match {
                "Exact" => VersionMatch::Exact,
                "NotOlderThan" => VersionMatch::NotOlderThan,
                _ => VersionMatch::Unset,
            },
            allow_bookmarks: query.flag("allowWatchBookmarks") == Some(true),
            send_initial_events,
            timeout: seconds.map(Duration::from_secs),
        })
    }
}

fn check_combination(
    is_watch: bool,
    version: &str,
    version_match: &str,
    token: &str,
    send_initial_events: Option<bool>,
) -> Result<(), Status> {
    let forbid = |field: &str, detail: &str| Err(invalid(field, &format!("Forbidden: {detail}")));
    if !is_watch && send_initial_events.is_some() {
        return forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
    }
    // Streamed lists require this match (KEP-3157), so that the intent of the client is explicit.
    if is_watch && send_initial_events.is_some() && version_match != "NotOlderThan" {
        let field = "resourceVersionMatch";
        let mut causes = vec![(
            field,
            "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan".to_owned(),
        )];
        if !version_match.is_empty() {
            causes.push((field, format!("Unsupported value: \"{version_match}\": supported values: \"NotOlderThan\"")));
        }
        return Err(Status::invalid("meta.k8s.io", "ListOptions", "", &causes));
    }
    let continued = "resourceVersionMatch is forbidden when continue is provided";
    // A watch without a version counts as a streamed list, which implies a `resourceVersionMatch` even if the request
    // sets none.
    if is_watch
        && send_initial_events.is_none()
        && version_match.is_empty()
        && matches!(version, "" | "0")
        && !token.is_empty()
    {
        return forbid("resourceVersionMatch", continued);
    }
    if version_match.is_empty() {
        return Ok(());
    }
    if is_watch && send_initial_events.is_none() {
        return forbid(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        );
    }
    if !is_watch && version.is_empty() {
        return forbid("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided");
    }
    if !token.is_empty() {
        return forbid("resourceVersionMatch", continued);
    }
    match version_match {
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
pub(super) fn invalid(field: &str, detail: &str) -> Status {
    Status::invalid("meta.k8s.io", "ListOptions", "", &[(field, detail.to_owned())])
}

fn invalid_version(text: &str, error: &ParseIntError, is_watch: bool) -> Status {
    // The messages are those of Go's `strconv`, which distinguishes syntax from range.
    let detail = match error.kind() {
        IntErrorKind::PosOverflow => "value out of range",
        _ => "invalid syntax",
    };
    let detail = format!("resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": {detail}");
    if is_watch {
        Status::new(500, "", detail)
    } else {
        Status::bad_request(format_args!("invalid resource version: {detail}"))
    }
}
