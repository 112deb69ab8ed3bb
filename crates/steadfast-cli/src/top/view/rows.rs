//! Drawing of the table: headings and visible rows.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::context::{ViewContext, mark_of};
use crate::changes::text::{escape, shorten, width};
use crate::top::model::Model;
use crate::top::row::TableColumn;
use crate::top::table::Sort;

/// Columns between two cells.
const GAP: usize = 2;
/// Columns for the mark of a changed row.
const MARK_WIDTH: usize = 2;
/// Maximum width of a cell while other columns need space.
const MAX_SHARED_WIDTH: usize = 50;

/// A visible row.
struct VisibleRow {
    cells: Vec<String>,
    mark: Option<(&'static str, Color)>,
    is_selected: bool,
}

/// Draws the table of the current tab.
pub(super) fn draw(frame: &mut Frame<'_>, model: &mut Model, area: Rect, context: &ViewContext<'_>) {
    model.page_height = usize::from(area.height - 1);
    let (number, height) = (model.current, model.page_height);
    let table = &mut model.tab_mut().table;
    let window = table.window(height);
    let selected = window.selected;
    let visible: Vec<VisibleRow> = window
        .rows
        .into_iter()
        .enumerate()
        .map(|(index, row)| VisibleRow {
            // Ages continue between changes, so the visible cells are computed for each drawing.
            cells: (context.cells)(number, row)
                .map_or_else(|| row.cells().map(str::to_owned).collect(), |cells| escaped(&cells)),
            mark: mark_of(row.change, context.now),
            is_selected: selected == Some(index),
        })
        .collect();
    let headings: Vec<String> =
        table.columns.iter().enumerate().map(|(index, column)| heading(column, index, table.sort())).collect();
    let layout = layout(&table.columns, &headings, &visible, usize::from(area.width));
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut spans = vec![Span::raw(" ".repeat(MARK_WIDTH))];
    spans.extend(layout.iter().map(|(index, columns)| Span::styled(padded(&headings[*index], *columns), bold)));
    frame.render_widget(Line::from(spans), Rect { height: 1, ..area });
    for (index, row) in visible.iter().enumerate() {
        let line = row_line(row, &layout, context);
        frame.render_widget(line, Rect { y: area.y + 1 + index as u16, height: 1, ..area });
    }
}

fn escaped(cells: &[String]) -> Vec<String> {
    cells.iter().map(|cell| escape(cell).into_owned()).collect()
}

fn heading(column: &TableColumn, index: usize, sort: Sort) -> String {
    let arrow = match (index == sort.column, sort.is_descending) {
        (false, _) => "",
        (true, false) => "↑",
        (true, true) => "↓",
    };
    format!("{}{arrow}", escape(&column.name).to_uppercase())
}

fn row_line(row: &VisibleRow, layout: &[(usize, usize)], context: &ViewContext<'_>) -> Line<'static> {
    let (symbol, style) = row.mark.map_or((" ", Style::new()), |(symbol, color)| (symbol, context.style(color)));
    let text: String = layout
        .iter()
        .map(|(index, columns)| padded(row.cells.get(*index).map_or("", String::as_str), *columns))
        .collect();
    let pointer = if row.is_selected { ">" } else { " " };
    let style = if row.is_selected { style.add_modifier(Modifier::REVERSED) } else { style };
    Line::from(vec![Span::styled(format!("{symbol}{pointer}"), style), Span::styled(text, style)])
}

/// Returns `text` in exactly `columns`, with a gap at its end.
fn padded(text: &str, columns: usize) -> String {
    let text = shorten(text, columns.saturating_sub(GAP));
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(&text))))
}

/// Returns the shown columns with their widths. Wide columns are shown in their order as long as all of them fit.
fn layout(columns: &[TableColumn], headings: &[String], rows: &[VisibleRow], available: usize) -> Vec<(usize, usize)> {
    let natural = |index: usize| {
        let cells = rows.iter().filter_map(|row| row.cells.get(index)).map(|cell| width(cell));
        cells.chain([width(&headings[index])]).max().unwrap_or(0) + GAP
    };
    let mut shown: Vec<(usize, usize)> = Vec::new();
    let mut used = MARK_WIDTH;
    for index in (0..columns.len()).filter(|index| !columns[*index].is_wide) {
        shown.push((index, natural(index)));
        used += natural(index);
    }
    if used > available {
        shrink(&mut shown, used - available);
        return shown;
    }
    for index in (0..columns.len()).filter(|index| columns[*index].is_wide) {
        let columns = natural(index).min(MAX_SHARED_WIDTH);
        if used + columns > available {
            break;
        }
        shown.push((index, columns));
        used += columns;
    }
    shown.sort_unstable();
    shown
}

/// Shortens the widest columns until `excess` columns are saved or all columns are narrow.
fn shrink(shown: &mut [(usize, usize)], mut excess: usize) {
    const MIN_WIDTH: usize = 6;
    while excess > 0 {
        let Some((_, widest)) =
            shown.iter_mut().max_by_key(|(_, columns)| *columns).filter(|(_, columns)| *columns > MIN_WIDTH)
        else {
            return;
        };
        *widest -= 1;
        excess -= 1;
    }
}
