//! One test per fault: all scenarios that cover it must pass, in all forms.

use steadfast_testing::CachedForm;
use steadfast_testing::TestkitError;
use steadfast_testing::scenarios::{CatalogFault, Scenario, ScenarioTarget, catalog};

use crate::run_scenario;

/// Seed of jitter, timeouts and UIDs. The document is generated with another seed.
const SEED: u64 = 7;

/// Checks `scenario` in the form of `STEADFAST_FORM`, or in all forms if the variable is not set.
fn check_scenario(scenario: &Scenario) -> Result<(), TestkitError> {
    let selected = CachedForm::from_env()?;
    for form in CachedForm::ALL.into_iter().filter(|form| selected.is_none_or(|selected| selected == *form)) {
        let problems = run_scenario(scenario, ScenarioTarget::in_memory(SEED).with_form(form))?.problems();
        assert!(problems.is_empty(), "{} in {form}: {problems:#?}", scenario.name);
    }
    Ok(())
}

fn check_scenarios_of(fault: CatalogFault) -> Result<(), TestkitError> {
    assert!(catalog::of(fault).next().is_some(), "no scenario covers {fault}");
    catalog::of(fault).try_for_each(check_scenario)
}

/// Runs the scenarios without a fault of the catalog, such as those with other times than the defaults. Otherwise only
/// `steadfast lab` would run them.
#[test]
fn scenarios_without_fault_pass() -> Result<(), TestkitError> {
    let scenarios: Vec<_> = catalog::all().filter(|scenario| scenario.faults.is_empty()).collect();
    assert!(scenarios.iter().any(|scenario| scenario.name == "stop-on-request"), "{scenarios:?}");
    scenarios.into_iter().try_for_each(check_scenario)
}

macro_rules! faults {
    ($($name:ident: $fault:ident,)*) => {
        $(
            #[test]
            fn $name() -> Result<(), TestkitError> {
                check_scenarios_of(CatalogFault::$fault)
            }
        )*

        #[test]
        fn every_fault_has_test_or_reason() {
            let tested = [$(CatalogFault::$fault),*];
            for fault in CatalogFault::ALL {
                assert_eq!(tested.contains(&fault), fault.unsupported_reason().is_none(), "{fault}");
            }
        }
    };
}

faults! {
    f01_wait_for_absent_server_is_bounded: ServerAbsent,
    f02_restart_costs_at_most_one_list: ServerRestarts,
    f03_reset_within_object_costs_no_list: ConnectionReset,
    f04_black_hole_is_noticed_within_15_seconds: BlackHole,
    f05_pings_keep_idle_flow_alive: IdleFlowDropped,
    f06_frozen_server_is_noticed_within_15_seconds: FrozenServer,
    f07_stalled_stream_is_replaced: StalledStream,
    f08_goaway_and_stream_limit_lose_nothing: GoAway,
    f09_ended_watch_is_resumed_immediately: WatchEnded,
    f10_closing_server_is_retried_with_backoff: AcceptAndClose,
    f11_expired_version_costs_one_list: HistoryCompacted,
    f12_recreated_object_is_delivered_as_two: RecreatedWhileCut,
    f13_deletions_during_cut_are_delivered: DeletedWhileCut,
    f14_list_with_expired_token_completes: ContinueTokenExpired,
    f15_version_too_large_is_recognized: VersionTooLarge,
    f16_lagging_replica_reverts_nothing: LaggingReplica,
    f17_pages_replace_broken_streamed_lists: StreamedListBroken,
    f18_probes_replace_missing_bookmarks: NoBookmarks,
    f19_audit_detects_lost_events: EventsLost,
    f20_repeated_events_are_delivered_once: EventsRepeated,
    f21_retry_after_of_busy_server_is_honoured: ServerBusy,
    f22_rejected_credentials_are_reported: CredentialsRotated,
    f23_rejected_resource_delays_no_other: ResourceRefused,
    f24_only_undecodable_object_is_unknown: UndecodableObject,
    f25_huge_list_is_replaced_atomically: HugeList,
    f26_slow_readers_do_not_block_socket: SlowReader,
    f27_bad_handlers_affect_no_other: BadHandler,
    f28_shutdown_while_cut_is_prompt: ShutdownWhileCut,
    f29_write_while_cut_returns_clear_error: WriteWhileCut,
    f30_restored_history_starts_new_epoch: HistoryRestored,
    f32_probe_detects_frozen_etcd: FrozenEtcd,
    f33_removed_permission_implies_no_deletion: PermissionRemoved,
    f34_each_stay_is_delivered: SelectorChurn,
}
