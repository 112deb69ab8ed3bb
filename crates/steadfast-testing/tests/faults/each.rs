//! One test per fault: all scenarios that cover it must pass, in all forms.

use steadfast_testing::Form;
use steadfast_testing::menu::{Fault, Ground, Scenario, Trouble, scenarios};

use crate::play;

/// Seed of jitter, timeouts and UIDs. The document is generated with another seed.
const SEED: u64 = 7;

/// Checks `scenario` in the form of `STEADFAST_FORM`, or in all forms if the variable is not set.
fn is_passed(scenario: &Scenario) -> Result<(), Trouble> {
    let said = Form::said()?;
    for form in Form::ALL.into_iter().filter(|form| said.is_none_or(|said| said == *form)) {
        let problems = play(scenario, Ground::in_memory(SEED).in_form(form))?.problems();
        assert!(problems.is_empty(), "{} in {form}: {problems:#?}", scenario.name);
    }
    Ok(())
}

fn passes(fault: Fault) -> Result<(), Trouble> {
    assert!(scenarios::of(fault).next().is_some(), "no scenario covers {fault}");
    scenarios::of(fault).try_for_each(is_passed)
}

/// Scenarios with other times than the defaults, and those without a fault, so that each scenario has a test besides
/// `steadfast lab`.
#[test]
fn scenarios_without_fault_pass() -> Result<(), Trouble> {
    let others: Vec<_> = scenarios::all().filter(|scenario| scenario.faults.is_empty()).collect();
    assert!(others.iter().any(|scenario| scenario.name == "stop-when-told"), "{others:?}");
    others.into_iter().try_for_each(is_passed)
}

macro_rules! faults {
    ($($name:ident: $fault:ident,)*) => {
        $(
            #[test]
            fn $name() -> Result<(), Trouble> {
                passes(Fault::$fault)
            }
        )*

        #[test]
        fn every_fault_has_test_or_reason() {
            let tested = [$(Fault::$fault),*];
            for fault in Fault::ALL {
                assert_eq!(tested.contains(&fault), fault.cannot_be_made().is_none(), "{fault}");
            }
        }
    };
}

faults! {
    f01_a_wait_for_an_absent_server_is_bounded_and_names_it: ServerAbsent,
    f02_a_restart_costs_a_list_each_or_none_where_a_replica_holds_the_version: ServerRestarts,
    f03_a_reset_within_an_object_costs_no_list: ConnectionReset,
    f04_a_black_hole_is_noticed_within_15_seconds: BlackHole,
    f05_a_flow_is_never_idle_long_enough_to_be_dropped: IdleFlowDropped,
    f06_a_frozen_server_behind_a_live_connection_is_noticed_within_15_seconds: FrozenServer,
    f07_what_a_stalled_stream_holds_back_comes_by_another: StalledStream,
    f08_drained_connections_and_limits_of_streams_lose_nothing: GoAway,
    f09_a_watch_that_ends_is_resumed_at_once: WatchEnded,
    f10_a_server_that_accepts_and_closes_is_tried_rarely: AcceptAndClose,
    f11_an_expired_version_costs_one_list: HistoryCompacted,
    f12_a_recreated_object_is_told_as_two: RecreatedWhileCut,
    f13_deletions_during_a_cut_are_told: DeletedWhileCut,
    f14_a_list_whose_continue_token_expires_is_completed: ContinueTokenExpired,
    f15_a_version_too_large_is_known_in_all_spellings: VersionTooLarge,
    f16_a_lagging_replica_takes_nothing_back: LaggingReplica,
    f17_pages_take_the_place_of_streamed_lists_that_do_not_work: StreamedListBroken,
    f18_probes_prove_what_bookmarks_would_have: NoBookmarks,
    f19_what_a_server_lost_is_found_by_the_audit: EventsLost,
    f20_repeated_events_are_told_once: EventsRepeated,
    f21_a_busy_server_is_waited_for_as_it_asks: ServerBusy,
    f22_refused_credentials_are_a_named_state: CredentialsRotated,
    f23_a_refused_resource_delays_no_other: ResourceRefused,
    f24_an_undecodable_object_is_unknown_and_nothing_else_is: UndecodableObject,
    f25_a_huge_list_is_replaced_under_its_readers: HugeList,
    f26_the_socket_is_read_whatever_handlers_and_other_readers_do: SlowReader,
    f27_bad_handlers_disturb_no_other: BadHandler,
    f28_a_shutdown_while_cut_is_prompt: ShutdownWhileCut,
    f29_a_write_while_cut_ends_with_a_clear_error: WriteWhileCut,
    f30_a_restored_history_is_a_new_epoch: HistoryRestored,
    f32_a_frozen_etcd_behind_a_live_server_is_noticed_by_a_probe: FrozenEtcd,
    f33_nothing_is_inferred_from_a_permission_removed: PermissionRemoved,
    f34_stays_in_a_selector_are_told_each: SelectorChurn,
}
