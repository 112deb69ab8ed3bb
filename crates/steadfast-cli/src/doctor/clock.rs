//! Check `clock`: difference between the clock of this machine and that of the server.

use hyper::header::DATE;
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};

use super::context::CheckContext;
use super::finding::Finding;

/// Name of the check.
pub(super) const CHECK: &str = "clock";

/// Difference above which a warning is reported.
const WARNING_SKEW: SignedDuration = SignedDuration::from_secs(5);

/// Difference above which a failure is reported: leases and new tokens are then unusable.
const FAILURE_SKEW: SignedDuration = SignedDuration::from_secs(60);

/// Compares the header `Date` of a response with the local time.
pub(super) fn check(context: &CheckContext) -> Vec<Finding> {
    let server = context.connection.server();
    let date = context.version.as_ref().and_then(|version| {
        let date = version.reply.headers.get(DATE)?.to_str().ok()?;
        Some((rfc2822::DateTimeParser::new().parse_timestamp(date).ok()?, version.sent, version.received))
    });
    vec![match date {
        Some((date, sent, received)) => evaluate(server, skew(date, sent, received)),
        None => Finding::not_checked(CHECK, server, "the response has no header Date"),
    }]
}

/// Returns how far the server's clock is ahead. Zero if the difference can be explained by the duration of the request
/// and the resolution of the header, which is one second.
fn skew(date: Timestamp, sent: Timestamp, received: Timestamp) -> SignedDuration {
    // The date of the server can be any timestamp, so the sum can overflow.
    let latest = date.checked_add(SignedDuration::from_secs(1)).unwrap_or(date);
    if date > received {
        date.duration_since(received)
    } else if latest < sent {
        latest.duration_since(sent)
    } else {
        SignedDuration::ZERO
    }
}

fn evaluate(server: &str, skew: SignedDuration) -> Finding {
    let seconds = skew.abs().as_secs_f64();
    let direction = if skew.is_negative() { "behind" } else { "ahead of" };
    let message = format!("the clock of the server is {seconds:.0} s {direction} the clock of this machine");
    let remedy = "synchronize both clocks with NTP (chronyd, systemd-timesyncd); compare `date -u` on both machines";
    if skew.abs() >= FAILURE_SKEW {
        let effect = "leases seem expired to one side, tokens and certificates seem invalid, and ages are wrong";
        Finding::failure(CHECK, server, message, effect, remedy)
    } else if skew.abs() >= WARNING_SKEW {
        let effect = "ages of objects and delays of events are wrong by this difference";
        Finding::warning(CHECK, server, message, effect, remedy)
    } else {
        Finding::ok(CHECK, server, "the clocks of the server and of this machine agree")
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingSeverity;
    use super::*;

    #[test]
    fn request_duration_is_not_counted_as_skew() {
        let at = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).expect("a time");
        for (date, sent, received, expected) in
            [(10, 8, 12, 0), (10, 11, 11, 0), (20, 8, 12, 8), (2, 8, 12, -5), (70, 8, 10, 60)]
        {
            assert_eq!(skew(at(date), at(sent), at(received)).as_secs(), expected, "{date}");
        }
        for (seconds, severity) in
            [(0, FindingSeverity::Ok), (-5, FindingSeverity::Warning), (60, FindingSeverity::Failure)]
        {
            assert_eq!(evaluate("s", SignedDuration::from_secs(seconds)).severity, severity);
        }
    }
}
