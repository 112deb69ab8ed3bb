//! Tests of the table: cursor and window, and random edits compared with a naive recomputation.

use std::collections::BTreeMap;

use super::*;
use crate::top::row::tests::row;

fn columns() -> Vec<TableColumn> {
    let column = |name: &str, order| TableColumn { name: name.to_owned(), order, is_wide: false };
    vec![column("Name", ColumnOrder::Name), column("Status", ColumnOrder::Text), column("Age", ColumnOrder::Time)]
}

fn table(count: usize) -> Table {
    let mut table = Table::new(columns());
    for number in 0..count {
        let name = format!("web-{number}");
        table.upsert(row("shop", &name, &[&name, "Running", ""], number.cast_signed() as i64, "web"), None);
    }
    table
}

/// Returns the names in the window, with the selected one in brackets.
fn window(table: &mut Table, height: usize) -> String {
    let window = table.window(height);
    let names = window.rows.iter().enumerate().map(|(index, row)| {
        let number = row.key.name().trim_start_matches("web-");
        if Some(index) == window.selected { format!("[{number}]") } else { number.to_owned() }
    });
    names.collect::<Vec<_>>().join(" ")
}

/// Orders the rows, and evaluates the order on all of them.
fn sort(table: &mut Table, sort: Sort) {
    table.set_sort(sort);
    while table.evaluate(3) {}
}

#[test]
fn cursor_scrolls_the_window() {
    let mut table = table(12);
    assert_eq!(window(&mut table, 4), "[0] 1 2 3");
    table.move_cursor(2, 4);
    assert_eq!(window(&mut table, 4), "0 1 [2] 3");
    table.move_cursor(4, 4);
    assert_eq!(window(&mut table, 4), "3 4 5 [6]");
    table.move_cursor(-2, 4);
    assert_eq!(window(&mut table, 4), "3 [4] 5 6");
    table.move_cursor(-30, 4);
    assert_eq!(window(&mut table, 4), "[0] 1 2 3");
    table.move_to_end(4);
    assert_eq!(window(&mut table, 4), "8 9 10 [11]");
    assert_eq!(window(&mut table, 20), "0 1 2 3 4 5 6 7 8 9 10 [11]");
    sort(&mut table, Sort { column: 2, is_descending: true });
    assert_eq!(window(&mut table, 4), "8 9 10 [11]", "the oldest row is the first one");
    table.move_to_start();
    sort(&mut table, Sort { column: 2, is_descending: false });
    assert_eq!(window(&mut table, 4), "[11] 10 9 8");
}

#[test]
fn cursor_follows_its_row() {
    let mut table = table(5);
    sort(&mut table, Sort { column: 1, is_descending: false });
    table.move_cursor(2, 5);
    assert_eq!(table.selected(), Some(RowKey::new("shop", "web-2")));
    table.upsert(row("shop", "web-2", &["web-2", "Failed", ""], 2, "web"), None);
    assert_eq!(window(&mut table, 5), "[2] 0 1 3 4");
    table.remove(&RowKey::new("shop", "web-2"));
    assert_eq!(window(&mut table, 5), "[0] 1 3 4");
    for name in ["web-0", "web-1", "web-3", "web-4"] {
        table.remove(&RowKey::new("shop", name));
    }
    assert_eq!((window(&mut table, 5), table.selected()), (String::new(), None));
}

#[test]
fn objects_are_decoded_when_needed() {
    let mut table = table(50);
    let decoded_count = |table: &Table| table.rows.values().filter(|stored| stored.row.has_content()).count();
    table.move_cursor(30, 5);
    assert_eq!((decoded_count(&table), table.needs_content()), (0, false), "ordered by name");
    table.set_sort(Sort { column: 1, is_descending: false });
    assert_eq!((table.shown_count(), table.unevaluated_count()), (0, 50));
    assert!(table.evaluate(20));
    assert_eq!((table.shown_count(), decoded_count(&table)), (20, 20));
    while table.evaluate(20) {}
    assert_eq!(table.selected(), Some(RowKey::new("shop", "web-30")), "the selection survives");
    table.set_sort(Sort { column: 2, is_descending: false });
    assert_eq!((table.shown_count(), table.unevaluated_count()), (50, 0), "no object is decoded twice");
    table.move_to_start();
    table.set_sort(Sort::default());
    table.set_filter(Filter::parse("running").expect("a filter"));
    assert!(table.needs_content(), "the filter reads the cells");
}

#[test]
fn selection_waits_for_its_row() {
    let mut table = table(50);
    let by_status = Sort { column: 1, is_descending: false };
    let selected = RowKey::new("shop", "web-30");
    table.move_cursor(30, 5);
    table.set_sort(by_status);
    assert_eq!(table.selected(), Some(selected.clone()), "keys concern this row before it is evaluated");
    table.set_sort(Sort::default());
    table.set_sort(by_status);
    // A change of the row shows it before its evaluation.
    table.upsert(row("shop", "web-30", &["web-30", "Failed", ""], 30, "web"), None);
    assert_eq!(window(&mut table, 3), "[30]");
    while table.evaluate(7) {}
    assert_eq!(table.selected(), Some(selected.clone()));
    table.move_to_start();
    table.set_sort(Sort { is_descending: true, ..by_status });
    assert_ne!(table.selected(), Some(selected), "an earlier selection has no later effect");
}

#[test]
fn few_missing_objects_are_decoded_at_once() {
    let mut table = table(50);
    let by_status = Sort { column: 1, is_descending: false };
    sort(&mut table, by_status);
    table.set_sort(Sort::default());
    table.upsert(row("shop", "web-7", &["web-7", "Failed", ""], 7, "web"), None);
    table.set_sort(by_status);
    assert_eq!((table.shown_count(), table.unevaluated_count()), (50, 0));
    assert!(window(&mut table, 3).starts_with("[7] "));
}

#[test]
fn marks_survive_later_lists() {
    let mut table = table(1);
    let now = Instant::now();
    let update = || row("shop", "web-0", &["web-0", "Failed", ""], 0, "web");
    table.upsert(update(), Some((now, RowMark::Updated)));
    table.upsert(update(), None);
    assert_eq!(table.window(1).rows[0].change, Some((now, RowMark::Updated)));
}

/// Filters of the random test; the oracle below knows them.
const FILTERS: [&str; 4] = ["", "fail", "-l app=web", "=object.spec.time > 10"];

/// Returns the rows that a filter and a sort select, computed without the table.
fn naive(rows: &BTreeMap<(String, String), (String, i64, &'static str)>, filter: usize, sort: Sort) -> Vec<String> {
    let matching = rows.iter().filter(|(_, (status, time, app))| match filter {
        1 => status == "Failed",
        2 => *app == "web",
        3 => *time > 10,
        _ => true,
    });
    let mut matching: Vec<_> = matching.collect();
    // Names have two digits, so their plain order is the natural one.
    matching.sort_by(|((namespace, name), (status, time, _)), ((namespace_2, name_2), (status_2, time_2, _))| {
        let by_key = (namespace, name).cmp(&(namespace_2, name_2));
        let order = match sort.column {
            0 => name.cmp(name_2),
            1 => status.cmp(status_2),
            _ => time_2.cmp(time),
        };
        let order = order.then(by_key);
        if sort.is_descending { order.reverse() } else { order }
    });
    matching.into_iter().map(|((namespace, name), _)| format!("{namespace}/{name}")).collect()
}

/// Small generator of pseudo-random numbers (xorshift), so that a failing seed can be repeated.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn run_random_edits(seed: u64) {
    let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (mut table, mut rows) = (Table::new(columns()), BTreeMap::new());
    let (mut filter, mut sort) = (0, Sort::default());
    for step in 0..300 {
        let namespace = ["a", "b"][numbers.below(2) as usize];
        let name = format!("web-{:02}", numbers.below(30));
        match numbers.below(12) {
            0 => {
                filter = numbers.below(4) as usize;
                table.set_filter(Filter::parse(FILTERS[filter]).expect("a filter"));
            }
            1 => {
                sort = Sort { column: numbers.below(3) as usize, is_descending: numbers.below(2) == 0 };
                table.set_sort(sort);
            }
            2 => drop(table.evaluate(numbers.below(5) as usize)),
            3..5 => {
                table.remove(&RowKey::new(namespace, &name));
                rows.remove(&(namespace.to_owned(), name));
            }
            5 => table.move_cursor([-4, -3, -2, -1, 0, 1, 2, 3, 4][numbers.below(9) as usize], 5),
            _ => {
                let status = ["Running", "Failed", "Pending"][numbers.below(3) as usize];
                let app = ["web", "db"][numbers.below(2) as usize];
                let time = numbers.below(20).cast_signed();
                table.upsert(row(namespace, &name, &[&name, status, ""], time, app), None);
                rows.insert((namespace.to_owned(), name), (status.to_owned(), time, app));
            }
        }
        // Filters may be evaluated at any later time.
        if numbers.below(3) > 0 {
            continue;
        }
        while table.evaluate(7) {}
        let expected = naive(&rows, filter, sort);
        let window = table.window(usize::MAX);
        let actual: Vec<String> = window.rows.iter().map(|row| row.key.title()).collect();
        assert_eq!(actual, expected, "seed {seed}, step {step}");
        assert_eq!(window.selected.is_some(), !expected.is_empty(), "seed {seed}, step {step}");
        assert_eq!((table.len(), table.shown_count()), (rows.len(), expected.len()), "seed {seed}, step {step}");
        let (selected, small) = (table.selected(), table.window(5));
        assert_eq!(small.selected.map(|index| small.rows[index].key.clone()), selected, "seed {seed}, step {step}");
        assert_eq!(small.rows.len(), expected.len().min(5), "seed {seed}, step {step}");
    }
}

#[test]
fn random_edits_equal_naive_recomputation() {
    (0..200).for_each(run_random_edits);
}
