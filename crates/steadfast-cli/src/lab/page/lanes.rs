//! The lanes of a run: faults, freshness, events and requests.

use std::collections::BTreeMap;
use std::time::Duration;

use steadfast_apiserver::Verb;
use steadfast_contract::Freshness;
use steadfast_testing::scenarios::{FreshnessChange, HandlerEventKind, InformerTimeline, TimedRequest, Timeline};

use super::chart::{Chart, ChartMark, ChartSpan};

/// Maximum number of informers with lanes of their own. More informers have common lanes.
const MAX_SEPARATE_INFORMERS: usize = 3;

/// Adds all lanes of a run.
pub(super) fn add_all(chart: &mut Chart, timeline: &Timeline) {
    add_faults(chart, timeline);
    if timeline.informers.len() > MAX_SEPARATE_INFORMERS {
        add_common_informers(chart, timeline);
    } else {
        for informer in &timeline.informers {
            add_informer(chart, informer, timeline.end);
        }
    }
    add_requests(chart, &timeline.requests);
    let changes: Vec<ChartMark> =
        timeline.changes.iter().map(|at| full_mark(*at, "mark", "change at the server")).collect();
    if !changes.is_empty() {
        chart.add_lane("changes at the server", &[], &changes);
    }
}

/// Returns whether the freshness of single informers is not part of the chart.
pub(super) fn has_hidden_informers(timeline: &Timeline) -> bool {
    timeline.informers.len() > MAX_SEPARATE_INFORMERS
}

/// Adds the freshness of each informer.
pub(super) fn add_freshness_of_each(chart: &mut Chart, timeline: &Timeline) {
    for informer in &timeline.informers {
        chart.add_lane(&informer.name, &freshness_spans(&informer.freshness, timeline.end), &[]);
    }
}

/// Adds one lane for each kind of fault. Faults that differ in their arguments or replicas only share a lane.
fn add_faults(chart: &mut Chart, timeline: &Timeline) {
    let mut spans_of: BTreeMap<&str, Vec<ChartSpan>> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for fault in &timeline.faults {
        let kind = fault.name.split_once('(').map_or(fault.name.as_str(), |(kind, _)| kind.trim_end());
        if !order.contains(&kind) {
            order.push(kind);
        }
        let span = ChartSpan { start: fault.start, end: fault.end, class: "fault", label: fault.name.clone() };
        spans_of.entry(kind).or_default().push(span);
    }
    for kind in order {
        chart.add_lane(&format!("fault: {kind}"), &spans_of.remove(kind).unwrap_or_default(), &[]);
    }
}

fn add_informer(chart: &mut Chart, informer: &InformerTimeline, end: Duration) {
    let lists: Vec<ChartMark> =
        informer.lists.iter().map(|at| full_mark(*at, "mark", "the cache received a list")).collect();
    chart.add_lane(&format!("freshness: {}", informer.name), &freshness_spans(&informer.freshness, end), &lists);
    let events: Vec<ChartMark> = event_marks(informer).collect();
    if !events.is_empty() {
        chart.add_lane(&format!("events: {}", informer.name), &[], &events);
    }
}

fn add_common_informers(chart: &mut Chart, timeline: &Timeline) {
    let informers = &timeline.informers;
    let label = format!("freshness: the worst of {} informers", informers.len());
    chart.add_lane(&label, &freshness_spans(&worst_states(informers), timeline.end), &[]);
    let mut events: Vec<ChartMark> = informers.iter().flat_map(event_marks).collect();
    events.sort_by_key(|mark| mark.at);
    if !events.is_empty() {
        chart.add_lane(&format!("events of {} informers", informers.len()), &[], &events);
    }
}

/// Adds one lane for lists, watches and other requests.
fn add_requests(chart: &mut Chart, requests: &[TimedRequest]) {
    for (label, kind) in [
        ("requests: lists", RequestKind::List),
        ("requests: watches", RequestKind::Watch),
        ("requests: others", RequestKind::Other),
    ] {
        let of_kind = requests.iter().filter(|request| RequestKind::of(request.verb) == kind);
        let marks: Vec<ChartMark> = of_kind.map(request_mark).collect();
        if !marks.is_empty() {
            chart.add_lane(label, &[], &marks);
        }
    }
}

/// Kind of a request, with a lane for each.
#[derive(Clone, Copy, PartialEq)]
enum RequestKind {
    /// Full transfer of a collection.
    List,
    Watch,
    Other,
}

impl RequestKind {
    fn of(verb: Verb) -> Self {
        match verb {
            verb if verb.is_full_transfer() => Self::List,
            Verb::Watch => Self::Watch,
            _ => Self::Other,
        }
    }
}

fn request_mark(request: &TimedRequest) -> ChartMark {
    let outcome = request.code.map_or_else(|| "no response".to_owned(), |code| code.to_string());
    let class = if request.code.is_some_and(|code| code < 400) { "mark" } else { "error" };
    full_mark(request.at, class, &format!("{} {}, {outcome}", request.verb.as_str(), request.target))
}

fn event_marks(informer: &InformerTimeline) -> impl Iterator<Item = ChartMark> {
    informer.events.iter().map(|event| {
        let (row, kind) = match event.kind {
            HandlerEventKind::Added => (0, "added"),
            HandlerEventKind::Updated => (1, "updated"),
            HandlerEventKind::Deleted => (2, "deleted"),
            _ => (1, "resynced"),
        };
        ChartMark { at: event.at, class: "mark", row, rows: 3, label: format!("{kind} {}", event.object) }
    })
}

fn full_mark(at: Duration, class: &'static str, label: &str) -> ChartMark {
    ChartMark { at, class, row: 0, rows: 1, label: label.to_owned() }
}

/// Returns the intervals between the changes of a freshness. The last state lasts until `end`.
fn freshness_spans(changes: &[FreshnessChange], end: Duration) -> Vec<ChartSpan> {
    let ends = changes.iter().skip(1).map(|change| change.at).chain([end]);
    let span = |(change, end): (&FreshnessChange, Duration)| {
        let name = state_name(&change.state);
        ChartSpan { start: change.at, end: end.max(change.at), class: name, label: name.to_owned() }
    };
    changes.iter().zip(ends).map(span).collect()
}

/// Returns the name of a state, which is also its class in the style sheet.
pub(super) fn state_name(state: &Freshness) -> &'static str {
    match state {
        Freshness::Fresh { .. } => "fresh",
        Freshness::Starting => "starting",
        Freshness::Resuming => "resuming",
        Freshness::Suspect => "suspect",
        Freshness::Stale => "stale",
        Freshness::Failed => "failed",
        Freshness::Stopped => "stopped",
    }
}

/// Returns the worst state of several informers at each time.
fn worst_states(informers: &[InformerTimeline]) -> Vec<FreshnessChange> {
    let mut changes: Vec<(Duration, usize, &Freshness)> = Vec::new();
    for (index, informer) in informers.iter().enumerate() {
        changes.extend(informer.freshness.iter().map(|change| (change.at, index, &change.state)));
    }
    changes.sort_by_key(|(at, index, _)| (*at, *index));
    let mut current: BTreeMap<usize, &Freshness> = BTreeMap::new();
    let mut worst: Vec<FreshnessChange> = Vec::new();
    for (at, index, state) in changes {
        current.insert(index, state);
        let Some(state) = current.values().max_by_key(|state| severity(state)) else { continue };
        if worst.last().is_none_or(|last| severity(&last.state) != severity(state)) {
            worst.push(FreshnessChange::new(at, Freshness::clone(state)));
        }
    }
    worst
}

fn severity(state: &Freshness) -> u8 {
    match state {
        Freshness::Stopped => 0,
        Freshness::Fresh { .. } => 1,
        Freshness::Starting => 2,
        Freshness::Resuming => 3,
        Freshness::Suspect => 4,
        Freshness::Stale => 5,
        Freshness::Failed => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_freshness(mut informer: InformerTimeline, freshness: Vec<FreshnessChange>) -> InformerTimeline {
        informer.freshness = freshness;
        informer
    }

    #[test]
    fn worst_state_covers_all_informers() {
        let informer = |changes: &[(u64, Freshness)]| {
            let change = |(at, state): &(u64, Freshness)| FreshnessChange::new(Duration::from_secs(*at), state.clone());
            with_freshness(InformerTimeline::default(), changes.iter().map(change).collect())
        };
        let fresh = || Freshness::Fresh { version: "1".to_owned(), age: Duration::ZERO };
        let one = informer(&[(0, Freshness::Starting), (1, fresh()), (5, Freshness::Suspect), (8, fresh())]);
        let other = informer(&[(0, Freshness::Starting), (2, fresh()), (6, Freshness::Stale), (7, fresh())]);
        let worst = worst_states(&[one, other]);
        let found: Vec<_> = worst.iter().map(|change| (change.at.as_secs(), state_name(&change.state))).collect();
        assert_eq!(found, [(0, "starting"), (2, "fresh"), (5, "suspect"), (6, "stale"), (7, "suspect"), (8, "fresh")]);
    }
}
