//! The help page.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::context::ViewContext;

/// Keys and their meanings.
const KEYS: [(&str, &str); 14] = [
    ("Up Down PgUp PgDn g G", "move; j and k too"),
    ("Tab Shift-Tab", "next or previous tab, or page of an opened object"),
    (":KIND", "show another kind: :deploy, :widgets.example.com"),
    ("/TEXT", "rows with this text in a cell or namespace"),
    ("/-l SELECTOR", "rows with matching labels: /-l app=web"),
    ("/=EXPRESSION", "rows for which a CEL expression is true: /=object.spec.replicas > 1"),
    ("Esc", "remove the filter, or close the object"),
    ("s S 1-9", "sort by the next, previous or numbered column"),
    ("r", "reverse the order"),
    ("Enter", "recent changes of the object"),
    ("y e o l", "YAML, events, owners and children, logs (pods)"),
    ("f", "follow the end of a page, or stop following"),
    ("+ ~", "marks of rows added or changed within 5 seconds"),
    ("q :q Ctrl-C", "quit"),
];

/// Draws the keys and their meanings.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, context: &ViewContext<'_>) {
    for (index, (key, meaning)) in KEYS.iter().enumerate().take(usize::from(area.height)) {
        let line = Line::from(vec![Span::raw(format!("  {key:22} ")), Span::styled(*meaning, context.dim())]);
        frame.render_widget(line, Rect { y: area.y + index as u16, height: 1, ..area });
    }
}
