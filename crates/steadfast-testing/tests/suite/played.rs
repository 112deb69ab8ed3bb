//! Which scenarios there are, which of them cannot be played on which server, and which faults of the menu no real server can
//! be made to show: a scenario that is skipped in silence is no scenario.

use std::collections::BTreeSet;

use steadfast_testing::cluster::{Kind, Need};
use steadfast_testing::menu::Fault;

use crate::{Scenario, changes, clients, controllers, cuts, definitions, servers, streams};

/// Played on servers that are ours alone: a cluster behind a kubeconfig is not broken.
const NOT_ON_OTHERS: &[&str] = &[
    "a_naive_controller_makes_no_child_too_many_behind_a_lagging_server",
    "nothing_is_inferred_of_a_version_that_is_no_longer_served",
    "a_killed_server_that_comes_back_is_followed_on",
    "recreated_and_deleted_behind_a_killed_server_is_told_after_one_relist",
    "fifty_informers_list_once_each_at_most_when_their_server_is_killed",
    "a_server_that_ends_in_good_order_is_followed_on",
    "a_second_server_that_holds_the_version_goes_on_without_a_list_though_the_store_is_compacted",
    "who_moves_to_a_lagging_server_goes_back_in_nothing",
    "a_server_that_stands_still_is_noticed_within_two_periods",
    "a_store_that_stands_still_behind_a_live_server_is_noticed_within_two_periods",
    "a_store_put_back_to_its_backup_is_another_history",
    "a_server_that_refuses_to_stream_lists_is_listed_in_pages",
    "a_list_that_cannot_go_on_is_begun_anew",
    "a_list_whose_pages_outlive_its_version_costs_no_name_and_says_where_to_watch_from",
    "a_watch_from_a_version_goes_on_through_a_cut_and_says_when_the_version_is_forgotten",
];

/// The faults of the menu that only the embedded server can be made to show, and why no other.
const NOT_FROM_OUTSIDE: &[(Fault, &str)] = &[
    (Fault::StalledStream, "from outside a connection is frozen, and never one stream of it"),
    (Fault::NoBookmarks, "a real server sends them"),
    (Fault::EventsLost, "a real server tells every change"),
    (Fault::EventsRepeated, "a real server resumes where it is asked to"),
    (Fault::ServerBusy, "a real server never turns its administrator away, as whom the scenarios' informers come"),
    (Fault::HugeList, "no flag makes a list huge, and 100,000 real objects take minutes to write: the bench has them"),
    (Fault::ClockJumps, "the wall clock is the whole machine's"),
];

fn all() -> impl Iterator<Item = &'static Scenario> {
    let files = [
        changes::SCENARIOS,
        clients::SCENARIOS,
        controllers::SCENARIOS,
        cuts::SCENARIOS,
        definitions::SCENARIOS,
        servers::SCENARIOS,
        streams::SCENARIOS,
    ];
    files.into_iter().flatten()
}

/// The names of the scenarios that cannot be told on such a server.
fn not_played_on(kind: &Kind) -> Vec<&'static str> {
    let cannot = |need: &Need| need.cannot_be_had(kind).is_some();
    all().filter(|scenario| scenario.needs.iter().any(cannot)).map(|scenario| scenario.name).collect()
}

#[test]
fn every_scenario_is_told_on_the_embedded_server_and_on_the_reference() {
    assert_eq!(not_played_on(&Kind::Embedded), [""; 0]);
    assert_eq!(not_played_on(&Kind::Reference), [""; 0]);
}

#[test]
fn what_is_not_played_on_other_clusters_is_written_down() {
    assert_eq!(not_played_on(&Kind::Other("kubeconfig".into())), NOT_ON_OTHERS);
}

#[test]
fn every_fault_of_the_menu_has_a_scenario_or_a_reason_why_not() {
    let told: BTreeSet<Fault> = all().flat_map(|scenario| scenario.faults).copied().collect();
    for fault in Fault::ALL {
        let reasons = NOT_FROM_OUTSIDE.iter().filter(|(not_here, _)| *not_here == fault).count();
        assert_eq!(reasons + usize::from(told.contains(&fault)), 1, "{fault}, {}", fault.title());
    }
}

#[test]
fn scenarios_have_names_of_their_own() {
    let names: BTreeSet<&str> = all().map(|scenario| scenario.name).collect();
    assert_eq!(names.len(), all().count());
}
