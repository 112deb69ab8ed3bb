use super::*;

const LIMITS: Limits = Limits { share: 0.34, few: 1, window: Duration::from_mins(5) };

fn names(range: std::ops::Range<usize>) -> BTreeSet<String> {
    range.map(|number| format!("{number:03}")).collect()
}

#[test]
fn a_third_may_go_and_more_is_asked_for() {
    let mut record = Record::default();
    let verdict = record.judge(&LIMITS, &names(0..34), &names(0..100), 0);
    assert_eq!((verdict.granted, verdict.ask), (names(0..34), None));

    let mut record = Record::default();
    let verdict = record.judge(&LIMITS, &names(0..35), &names(0..100), 0);
    assert!(verdict.granted.is_empty(), "none of what is asked for: {verdict:?}");
    let ask = verdict.ask.expect("more than a third");
    assert_eq!((ask.names.len(), ask.of), (35, 100));
}

#[test]
fn small_takings_add_up_until_the_window_is_over() {
    let mut record = Record::default();
    assert_eq!(record.judge(&LIMITS, &names(0..20), &names(0..100), 0).granted.len(), 20);
    assert_eq!(record.judge(&LIMITS, &names(20..34), &names(20..100), 60).granted.len(), 14);
    assert!(record.judge(&LIMITS, &names(34..36), &names(34..100), 120).ask.is_some());
    // The first twenty no longer count.
    assert_eq!(record.judge(&LIMITS, &names(34..36), &names(34..100), 301).granted.len(), 2);
}

#[test]
fn what_is_tried_again_counts_once() {
    let mut record = Record::default();
    for second in 0..100 {
        let verdict = record.judge(&LIMITS, &names(0..30), &names(0..100), second);
        assert_eq!(verdict.granted.len(), 30, "in second {second}");
    }
}

#[test]
fn the_last_one_of_few_may_go() {
    let mut record = Record::default();
    assert_eq!(record.judge(&LIMITS, &names(0..1), &names(0..1), 0).granted, names(0..1));
    assert!(Record::default().judge(&LIMITS, &names(0..2), &names(0..2), 0).ask.is_some());
}

#[test]
fn what_was_approved_of_goes_and_nothing_else() {
    let mut record = Record::default();
    let ask = record.judge(&LIMITS, &names(0..50), &names(0..100), 0).ask.expect("half of them");
    let wrong = record.approve("00000000").expect_err("another one");
    assert_eq!(wrong.to_string(), format!("nothing waits for the approval 00000000: what waits is {}", ask.id));
    assert_eq!(record.approve(&ask.id), Ok(ask.clone()));

    let verdict = record.judge(&LIMITS, &names(0..90), &names(0..100), 1);
    assert_eq!(verdict.granted, names(0..50));
    let other = verdict.ask.expect("forty more");
    assert_eq!(other.names.len(), 40);
    assert_ne!(other.id, ask.id);
    // Once it is no longer to go, the approval is over.
    assert!(record.judge(&LIMITS, &names(0..0), &names(0..100), 2).granted.is_empty());
    assert!(record.judge(&LIMITS, &names(0..50), &names(0..100), 3).granted.is_empty());
}

#[test]
fn a_restart_forgets_neither_what_waits_nor_what_went_nor_what_was_approved_of() {
    let mut record = Record::default();
    assert_eq!(record.judge(&LIMITS, &names(0..30), &names(0..100), 0).granted.len(), 30);
    let ask = record.judge(&LIMITS, &names(30..60), &names(30..100), 1).ask.expect("sixty of a hundred");
    let again = |record: &Record| -> Record {
        serde_json::from_str(&serde_json::to_string(record).expect("it can be written")).expect("it can be read")
    };

    let mut record = again(&record);
    assert_eq!(record.ask(), Some(&ask));
    assert_eq!(record.judge(&LIMITS, &names(30..60), &names(30..100), 2).ask, Some(ask.clone()));
    assert!(record.approve(&ask.id).is_ok());
    assert_eq!(again(&record).judge(&LIMITS, &names(30..60), &names(30..100), 3).granted, names(30..60));
}

#[test]
fn a_clock_that_is_set_back_does_not_keep_what_went_for_ever() {
    let mut record = Record::default();
    assert_eq!(record.judge(&LIMITS, &names(0..30), &names(0..100), 1_000_000).granted.len(), 30);
    assert_eq!(record.judge(&LIMITS, &names(30..50), &names(30..100), 1_000).granted.len(), 20);
}
