//! Tests of whole screens at several widths.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::json;

use super::*;
use crate::changes::kind::Kind;
use crate::clock::Clock;
use crate::top::details::DetailsPage;
use crate::top::history::{ChangeHistory, ChangeKind, RecordedChange};
use crate::top::model::Effect;
use crate::top::row::tests::row;
use crate::top::row::{ColumnOrder, RowKey, RowMark, TableColumn};
use crate::top::tab::RowChange;
use crate::top::table::Table;

fn tab(title: &str, kind: Kind) -> Tab {
    let column =
        |(name, order, is_wide): (&str, ColumnOrder, bool)| TableColumn { name: name.to_owned(), order, is_wide };
    let columns = [
        ("Namespace", ColumnOrder::Namespace, false),
        ("Name", ColumnOrder::Name, false),
        ("Status", ColumnOrder::Text, false),
        ("Age", ColumnOrder::Time, false),
        ("IP", ColumnOrder::Text, true),
        ("Node", ColumnOrder::Text, true),
    ];
    Tab {
        title: title.to_owned(),
        scope: "all namespaces".to_owned(),
        kind,
        state_columns: Vec::new(),
        table: Table::new(columns.map(column).to_vec()),
        history: ChangeHistory::default(),
        filter_text: String::new(),
        freshness: None,
    }
}

/// Returns a model with 30 pods, one of them changed at the time `now`.
fn model(now: Instant) -> Model {
    let mut pods = tab("pods", Kind::new("", "Pod"));
    let node = "node-with-a-long-name.example.com";
    for number in 0..30 {
        let (name, ip) = (format!("web-7d9f8c6b5d-{number}"), format!("10.0.0.{number}"));
        let status = if number == 7 { "CrashLoopBackOff" } else { "Running" };
        let row = row("shop", &name, &["shop", &name, status, "5m", &ip, node], number, "web");
        let mark = (number == 2).then_some(RowMark::Updated);
        pods.apply(RowChange::Upsert { row, mark }, now);
    }
    Model::new(vec![pods, tab("deployments.apps", Kind::new("apps", "Deployment"))])
}

fn press(model: &mut Model, keys: &str) -> Option<Effect> {
    let mut effect = None;
    for character in keys.chars() {
        let code = match character {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\u{1b}' => KeyCode::Esc,
            character => KeyCode::Char(character),
        };
        effect = model.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
    effect
}

/// Returns the rows of a screen of 10 rows, without spaces at their ends.
fn screen(model: &mut Model, columns: u16, now: Instant) -> Vec<String> {
    while model.tab_mut().table.evaluate(usize::MAX) {}
    let context = ViewContext { now, clock: &Clock::choose(true), has_color: false, cells: &|_, _| None };
    let mut terminal = Terminal::new(TestBackend::new(columns, 10)).expect("a terminal");
    terminal.draw(|frame| draw(frame, model, &context)).expect("a drawing");
    let text = terminal.backend().buffer().content().chunks(usize::from(columns)).map(|cells| {
        let text: String = cells.iter().map(Cell::symbol).collect();
        text.trim_end().to_owned()
    });
    text.collect()
}

#[test]
fn table_at_80_columns() {
    let now = Instant::now();
    assert_eq!(
        screen(&mut model(now), 80, now),
        [
            " pods  deployments.apps",
            "  NAMESPACE↑  NAME              STATUS   AGE  IP",
            " >shop        web-7d9f8c6b5d-0  Running  5m   10.0.0.0",
            "  shop        web-7d9f8c6b5d-1  Running  5m   10.0.0.1",
            "~ shop        web-7d9f8c6b5d-2  Running  5m   10.0.0.2",
            "  shop        web-7d9f8c6b5d-3  Running  5m   10.0.0.3",
            "  shop        web-7d9f8c6b5d-4  Running  5m   10.0.0.4",
            "  shop        web-7d9f8c6b5d-5  Running  5m   10.0.0.5",
            "30 of 30 in all namespaces │ : kind  / filter  s sort  Enter open  ? help  q qu…",
            "pods │ not watched yet",
        ]
    );
}

#[test]
fn wide_columns_need_120_and_200_columns() {
    let (now, node) = (Instant::now(), "node-with-a-long-name.example.com");
    for columns in [120, 200] {
        let rows = screen(&mut model(now), columns, now);
        assert_eq!(rows[1], "  NAMESPACE↑  NAME              STATUS   AGE  IP        NODE", "{columns} columns");
        assert_eq!(
            rows[2],
            format!(" >shop        web-7d9f8c6b5d-0  Running  5m   10.0.0.0  {node}"),
            "{columns} columns"
        );
        assert!(rows[8].ends_with("q quit"), "{columns} columns: {}", rows[8]);
    }
}

#[test]
fn narrow_screen_shortens_columns() {
    let now = Instant::now();
    let rows = screen(&mut model(now), 30, now);
    assert!(rows.iter().all(|row| width(row) <= 30), "{rows:?}");
    assert!(rows[2].contains("web-") && rows[2].contains('…'), "{rows:?}");
    assert_eq!(screen(&mut model(now), 12, now)[0], "too small");
}

#[test]
fn filter_prompt_and_sort_change_rows() {
    let now = Instant::now();
    let mut model = model(now);
    press(&mut model, "/crash");
    assert_eq!(screen(&mut model, 80, now)[8], "/crash█");
    press(&mut model, "\n");
    let rows = screen(&mut model, 80, now);
    assert_eq!(rows[2], " >shop        web-7d9f8c6b5d-7  CrashLoopBackOff  5m   10.0.0.7");
    assert!(rows[3].is_empty() && rows[8].starts_with("1 of 30 in all namespaces, filter crash"), "{rows:?}");
    press(&mut model, "\u{1b}/=object.\n");
    assert!(screen(&mut model, 80, now)[8].starts_with("invalid filter: "));
    press(&mut model, "\u{1b}4r");
    let rows = screen(&mut model, 80, now);
    assert!(rows[1].contains("AGE↓") && rows[2].contains("web-7d9f8c6b5d-0"), "{rows:?}");
    assert_eq!(press(&mut model, "\t"), Some(Effect::Show));
    assert!(screen(&mut model, 80, now)[9].starts_with("deployments.apps │ not watched yet"));
    assert_eq!(press(&mut model, ":svc\n"), Some(Effect::Open("svc".to_owned())));
    assert_eq!(press(&mut model, ":pods\n"), Some(Effect::Show));
    assert_eq!(press(&mut model, ":q\n"), Some(Effect::Quit));
}

#[test]
fn opened_object_shows_changes_and_yaml() {
    let now = Instant::now();
    let mut model = model(now);
    assert_eq!(press(&mut model, "\n"), Some(Effect::Load(DetailsPage::Changes)));
    let rows = screen(&mut model, 120, now);
    assert!(rows[1].starts_with("shop/web-7d9f8c6b5d-0  Changes  YAML  Events  Related  Logs "), "{rows:?}");
    assert_eq!(rows[2], "no changes since this table was opened");
    let pod = |phase: &str| Arc::new(json!({"kind": "Pod", "status": {"phase": phase}}));
    let kind = ChangeKind::Updated { old: pod("Pending"), new: pod("Running") };
    let key = RowKey::new("shop", "web-7d9f8c6b5d-0");
    model.record(0, [RecordedChange { time: Timestamp::UNIX_EPOCH, key: key.clone(), kind }]);
    assert_eq!(screen(&mut model, 120, now)[2], "00:00:00.000Z ~ phase Pending→Running");
    press(&mut model, "y");
    assert!(screen(&mut model, 120, now).contains(&"metadata:".to_owned()));
    model.tabs[0].apply(RowChange::Remove(key), now);
    model.refresh_details();
    assert_eq!(screen(&mut model, 120, now)[2], "the object was deleted; this is its last state");
    assert_eq!(press(&mut model, "\u{1b}"), Some(Effect::Close));
    press(&mut model, "?");
    assert!(screen(&mut model, 120, now)[1].contains("move; j and k too"));
}
