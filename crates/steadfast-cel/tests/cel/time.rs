//! Timestamps, durations, and when a result changes.

use jiff::Timestamp;
use steadfast_cel::{Budget, CelValue, Context, Evaluation, Program};

use crate::{AMPLE_BUDGET, assert_true};

#[test]
fn parts_and_arithmetic_follow_the_specification() {
    for text in [
        "timestamp('2026-02-14T23:31:30.250Z').getFullYear() == 2026",
        "timestamp('2026-02-14T23:31:30.250Z').getMonth() == 1",
        "timestamp('2026-02-14T23:31:30.250Z').getDate() == 14",
        "timestamp('2026-02-14T23:31:30.250Z').getDayOfMonth() == 13",
        "timestamp('2026-02-14T23:31:30.250Z').getDayOfWeek() == 6",
        "timestamp('2026-02-14T23:31:30.250Z').getDayOfYear() == 44",
        "timestamp('2026-02-14T23:31:30.250Z').getHours() == 23",
        "timestamp('2026-02-14T23:31:30.250Z').getHours('+02:00') == 1",
        "timestamp('2026-02-14T23:31:30.250Z').getMinutes('-08:30') == 1",
        "timestamp('2026-02-14T23:31:30.250Z').getDate('+02:00') == 15",
        "timestamp('2026-02-14T23:31:30.250Z').getSeconds() == 30",
        "timestamp('2026-02-14T23:31:30.250Z').getMilliseconds() == 250",
        "duration('1h30m').getHours() == 1 && duration('1h30m').getMinutes() == 90",
        "duration('123.321s').getSeconds() == 123 && duration('123.321s').getMilliseconds() == 321",
        "timestamp('2026-01-01T00:00:00Z') + duration('24h') == timestamp('2026-01-02T00:00:00Z')",
        "timestamp('2026-01-02T00:00:00Z') - timestamp('2026-01-01T00:00:00Z') == duration('24h')",
        "timestamp('2026-01-02T00:00:00Z') - duration('24h') < timestamp('2026-01-01T00:00:01Z')",
        "duration('1h') + duration('30m') - duration('90m') == duration('0') && -duration('1s') == duration('-1s')",
        "timestamp('2026-01-01T02:00:00+02:00') == timestamp('2026-01-01T00:00:00Z')",
        "int(timestamp('1970-01-01T00:01:00Z')) == 60 && timestamp(60) == timestamp('1970-01-01T00:01:00Z')",
        "string(timestamp('2026-01-01T02:00:00+02:00')) == '2026-01-01T00:00:00Z' && string(duration('1m')) == '60s'",
    ] {
        assert_true(text);
    }
}

fn timestamp(text: &str) -> Timestamp {
    text.parse().expect("a timestamp")
}

fn evaluate_at(text: &str, now: Timestamp) -> (bool, Option<Timestamp>) {
    let program = Program::compile(text).expect(text);
    let mut context = Context::new();
    context.now(now);
    let Evaluation { value, recheck_at } = program.evaluate(&context, &mut Budget::new(AMPLE_BUDGET)).expect(text);
    let CelValue::Bool(value) = value else { panic!("{text} is not a bool") };
    (value, recheck_at)
}

#[test]
fn comparison_with_now_reports_its_change() {
    let now = timestamp("2026-01-01T00:00:00Z");
    for (text, recheck) in [
        ("now - timestamp('2025-12-31T23:55:00Z') >= duration('10m')", Some("2026-01-01T00:05:00Z")),
        ("now - timestamp('2025-12-31T23:55:00Z') > duration('10m')", Some("2026-01-01T00:05:00.000000001Z")),
        ("timestamp('2025-12-31T23:55:00Z') + duration('10m') <= now", Some("2026-01-01T00:05:00Z")),
        ("now > timestamp('2025-01-01T00:00:00Z')", None),
        ("timestamp('2026-03-01T00:00:00Z') - now < duration('24h')", Some("2026-02-28T00:00:00.000000001Z")),
        ("now == now", None),
        ("now.getHours() == 3", Some("2026-01-01T00:01:00Z")),
        ("(now - timestamp('2025-12-31T23:55:30Z')).getMinutes() == 3", Some("2026-01-01T00:00:30Z")),
        ("int(now) % 60 == 59", Some("2026-01-01T00:00:01Z")),
        ("timestamp('2026-01-01T00:00:00Z') == timestamp('2026-01-01T00:00:00Z')", None),
        // The skipped comparison matters only after the other one has changed.
        (
            "now >= timestamp('2026-01-03T00:00:00Z') && now >= timestamp('2026-01-02T00:00:00Z')",
            Some("2026-01-03T00:00:00Z"),
        ),
        (
            "now < timestamp('2026-01-03T00:00:00Z') || now > timestamp('2026-01-02T00:00:00Z')",
            Some("2026-01-03T00:00:00Z"),
        ),
    ] {
        let (_, found) = evaluate_at(text, now);
        assert_eq!(found, recheck.map(timestamp), "{text}");
    }
}

#[test]
fn result_changes_at_the_reported_instant() {
    for text in [
        "now - timestamp('2025-12-31T23:55:00Z') >= duration('10m')",
        "now - timestamp('2025-12-31T23:55:00Z') > duration('10m')",
        "timestamp('2026-03-01T00:00:00Z') - now < duration('24h')",
        "[now] == [timestamp('2026-01-01T00:10:00Z')]",
        "duration('1h') < now - timestamp('2025-12-31T23:30:00Z')",
    ] {
        let now = timestamp("2026-01-01T00:00:00Z");
        let (before, recheck) = evaluate_at(text, now);
        let recheck = recheck.expect(text);
        let just_before = recheck - jiff::SignedDuration::from_nanos(1);
        assert_eq!(evaluate_at(text, just_before).0, before, "{text}");
        assert_eq!(evaluate_at(text, recheck).0, !before, "{text}");
    }
}
