//! Drawing of the model. The work depends on the size of the screen, not on the number of objects.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use steadfast::Freshness;

use super::details::{PAGES, PageLine};
use super::model::{Model, Purpose};
use super::tab::Tab;
use crate::changes::phrases::HealthEffect;
use crate::changes::text::{escape, shorten, width};
use crate::watch::status_line::one_unit;
use context::ViewContext;

pub(super) mod context;
mod help;
mod rows;

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, model: &mut Model, context: &ViewContext<'_>) {
    let area = frame.area();
    if area.width < 20 || area.height < 5 {
        frame.render_widget(Line::raw("too small"), area);
        return;
    }
    let row = |y: u16| Rect { x: 0, y, width: area.width, height: 1 };
    let body = Rect { x: 0, y: 1, width: area.width, height: area.height - 3 };
    frame.render_widget(tab_line(model, context, usize::from(area.width)), row(0));
    if model.is_help_shown {
        help::draw(frame, body, context);
    } else if model.details.is_some() {
        draw_details(frame, model, body, context);
    } else {
        rows::draw(frame, model, body, context);
    }
    frame.render_widget(prompt_line(model, context, usize::from(area.width)), row(area.height - 2));
    frame.render_widget(status_line(model.tab(), context, usize::from(area.width)), row(area.height - 1));
}

/// Returns the line of tabs, starting so that the current tab is visible.
fn tab_line(model: &Model, context: &ViewContext<'_>, columns: usize) -> Line<'static> {
    let titles: Vec<String> = model.tabs.iter().map(|tab| format!(" {} ", escape(&tab.title))).collect();
    let total_to_current: usize = titles[..=model.current].iter().map(|title| width(title)).sum();
    let mut hidden = 0;
    let mut visible_width = total_to_current;
    while visible_width > columns && hidden < model.current {
        visible_width -= width(&titles[hidden]);
        hidden += 1;
    }
    let spans = titles.into_iter().enumerate().skip(hidden).map(|(index, title)| {
        let style = if index == model.current { Style::new().add_modifier(Modifier::REVERSED) } else { context.dim() };
        Span::styled(title, style)
    });
    Line::from(spans.collect::<Vec<_>>())
}

/// Returns the prompt, a message, or the counts and the most important keys.
fn prompt_line(model: &Model, context: &ViewContext<'_>, columns: usize) -> Line<'static> {
    if let Some(prompt) = &model.prompt {
        let symbol = match prompt.purpose {
            Purpose::Command => ':',
            Purpose::Filter => '/',
        };
        // The cursor follows the text, so the end of a long text is visible.
        let text = escape(&prompt.text).into_owned();
        let excess = width(&text).saturating_sub(columns.saturating_sub(3));
        let visible: String = text.chars().skip(excess).collect();
        return Line::from(vec![Span::raw(format!("{symbol}{visible}")), Span::raw("█")]);
    }
    if let Some(message) = &model.message {
        return Line::styled(shorten(&escape(message), columns).into_owned(), context.style(Color::Red));
    }
    let tab = model.tab();
    let mut text = format!("{} of {} in {}", tab.table.shown_count(), tab.table.len(), escape(&tab.scope));
    if !tab.filter_text.is_empty() {
        text = format!("{text}, filter {}", escape(&tab.filter_text));
    }
    let pending = tab.table.unevaluated_count();
    if pending > 0 {
        text = format!("{text} ({pending} rows to evaluate)");
    }
    let text = format!("{text} │ : kind  / filter  s sort  Enter open  ? help  q quit");
    Line::styled(shorten(&text, columns).into_owned(), context.dim())
}

/// Returns freshness and age of the last proof of the tab's cache.
fn status_line(tab: &Tab, context: &ViewContext<'_>, columns: usize) -> Line<'static> {
    let proof = |age: Option<Duration>| {
        age.map_or_else(|| "no proof yet".to_owned(), |age| format!("proof {} ago", one_unit(age)))
    };
    let (text, color) = match &tab.freshness {
        None => ("not watched yet".to_owned(), Color::Yellow),
        Some(Freshness::Fresh { age, tainted, polled, .. }) => {
            let mut text = format!("fresh │ {}", proof(Some(*age)));
            if let Some(polled) = polled {
                text = format!("{text} │ {polled}");
            }
            if tainted.is_empty() {
                (text, Color::Green)
            } else {
                (
                    format!("{text} │ {} objects cannot be decoded and show their last state", tainted.len()),
                    Color::Yellow,
                )
            }
        }
        // The age of the proof is first, because the reason may be long.
        Some(doubt) => {
            let age = proof(doubt.doubt().and_then(|doubt| doubt.age));
            let color = if matches!(doubt, Freshness::Starting(_)) { Color::Yellow } else { Color::Red };
            (format!("{age} │ {doubt}"), color)
        }
    };
    let text = format!("{} │ {text}", tab.title);
    Line::styled(shorten(&escape(&text), columns).into_owned(), context.style(color))
}

fn draw_details(frame: &mut Frame<'_>, model: &mut Model, area: Rect, context: &ViewContext<'_>) {
    model.page_height = usize::from(area.height - 1);
    let (height, columns) = (model.page_height, usize::from(area.width));
    let Some(details) = &mut model.details else { return };
    let tab = &model.tabs[details.tab];
    let mut heading =
        vec![Span::styled(details.key.title(), Style::new().add_modifier(Modifier::BOLD)), Span::raw(" ")];
    for page in PAGES.into_iter().filter(|page| page.exists_for(&tab.kind)) {
        let style = if page == details.page { Style::new().add_modifier(Modifier::REVERSED) } else { context.dim() };
        heading.push(Span::styled(format!(" {} ", page.title()), style));
    }
    let (count, is_following) = (details.len(), details.is_following());
    let (first, lines) = details.visible(height);
    let end = first + lines.len();
    let follow = if is_following { ", following" } else { "" };
    heading.push(Span::styled(format!(" {}-{end} of {count}{follow}", (first + 1).min(end)), context.dim()));
    frame.render_widget(Line::from(heading), Rect { height: 1, ..area });
    for (index, line) in lines.into_iter().enumerate() {
        let row = Rect { y: area.y + 1 + index as u16, height: 1, ..area };
        frame.render_widget(page_line(line, context, columns), row);
    }
}

fn page_line(line: &PageLine, context: &ViewContext<'_>, columns: usize) -> Line<'static> {
    let mut spans = Vec::new();
    if let Some(time) = line.time {
        let time = context.clock.format_time_of_day(time);
        spans.push(Span::styled(format!("{time} "), context.dim()));
    }
    let mut remaining = columns.saturating_sub(spans.iter().map(|span| width(&span.content)).sum());
    for part in &line.parts {
        let text = shorten(&part.text, remaining).into_owned();
        remaining = remaining.saturating_sub(width(&text));
        let style = match part.effect {
            HealthEffect::Neutral => Style::new(),
            HealthEffect::Improved => context.style(Color::Green),
            HealthEffect::Degraded => context.style(Color::Red),
        };
        spans.push(Span::styled(text, style));
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests;
