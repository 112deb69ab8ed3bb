//! The list of scenarios that cannot run on each kind of server, and of faults that no real server can show. The tests
//! keep the list complete, so that no scenario is skipped silently.

use std::collections::BTreeSet;

use steadfast_testing::cluster::{ServerFault, ServerKind};
use steadfast_testing::scenarios::CatalogFault;

use crate::{Scenario, changes, clients, controllers, cuts, definitions, servers, streams};

/// Scenarios that run only on our own servers, because no fault is injected into a cluster behind a kubeconfig.
const UNSUPPORTED_ON_CLUSTERS: &[&str] = &[
    "naive_controller_creates_no_duplicate_behind_lag",
    "unserved_version_implies_no_deletion",
    "killed_server_is_followed_after_restart",
    "changes_behind_killed_server_need_one_relist",
    "informers_of_killed_server_list_once_each",
    "gracefully_stopped_server_is_followed",
    "second_server_resumes_without_list",
    "lagging_server_reverts_no_state",
    "frozen_server_is_noticed_within_two_periods",
    "frozen_store_is_noticed_within_two_periods",
    "restored_store_starts_new_epoch",
    "server_without_streamed_lists_is_paged",
    "expired_paged_list_is_restarted",
    "expired_paged_list_loses_no_object",
    "watch_survives_cut_and_reports_expiry",
];

/// Faults of the catalog that only the embedded server supports, with the reason.
const EMBEDDED_ONLY_FAULTS: &[(CatalogFault, &str)] = &[
    (CatalogFault::StalledStream, "an external fault freezes a connection, never one of its streams"),
    (CatalogFault::NoBookmarks, "a real server sends bookmarks"),
    (CatalogFault::EventsLost, "a real server sends every change"),
    (CatalogFault::EventsRepeated, "a real server resumes at the requested version"),
    (CatalogFault::ServerBusy, "a real server never rejects its administrator, whose credentials the scenarios use"),
    (
        CatalogFault::HugeList,
        "no flag creates a huge list, and 100,000 real objects take minutes to write: the benchmark covers them",
    ),
    (CatalogFault::ClockJumps, "the wall clock belongs to the whole machine"),
];

fn all_scenarios() -> impl Iterator<Item = &'static Scenario> {
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

/// Returns the names of the scenarios that cannot run on such a server.
fn unsupported_scenarios(kind: &ServerKind) -> Vec<&'static str> {
    let is_unsupported = |need: &ServerFault| need.unsupported_reason(kind).is_some();
    all_scenarios().filter(|scenario| scenario.needs.iter().any(is_unsupported)).map(|scenario| scenario.name).collect()
}

#[test]
fn every_scenario_runs_on_embedded_and_reference() {
    assert_eq!(unsupported_scenarios(&ServerKind::Embedded), [""; 0]);
    assert_eq!(unsupported_scenarios(&ServerKind::Reference), [""; 0]);
}

#[test]
fn skipped_scenarios_on_clusters_are_listed() {
    assert_eq!(unsupported_scenarios(&ServerKind::Other("kubeconfig".into())), UNSUPPORTED_ON_CLUSTERS);
}

#[test]
fn every_fault_has_scenario_or_reason() {
    let covered: BTreeSet<CatalogFault> = all_scenarios().flat_map(|scenario| scenario.faults).copied().collect();
    for fault in CatalogFault::ALL {
        let reasons = EMBEDDED_ONLY_FAULTS.iter().filter(|(reason, _)| *reason == fault).count();
        assert_eq!(reasons + usize::from(covered.contains(&fault)), 1, "{fault}, {}", fault.title());
    }
}

#[test]
fn scenario_names_are_unique() {
    let names: BTreeSet<&str> = all_scenarios().map(|scenario| scenario.name).collect();
    assert_eq!(names.len(), all_scenarios().count());
}
