//! What became of one library under one fault.

use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};

use crate::run::contestant::Team;
use crate::run::outcome::Ordeal;
use crate::run::table::number;

/// What became of one library under one fault. Times are in seconds.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) fault: String,
    pub(crate) title: String,
    pub(crate) team: Team,
    /// From the fault until the library told its user that something is wrong; none where it never did.
    pub(crate) noticed: Option<f64>,
    /// What it said.
    pub(crate) said: Option<String>,
    /// From the end of the fault until the cache was what the server has; none where that took longer than `patience`.
    pub(crate) recovered: Option<f64>,
    pub(crate) patience: u64,
    /// Full transfers from the fault on, listed or streamed.
    pub(crate) lists: usize,
    /// Watches from a version, from the fault on.
    pub(crate) watches: usize,
    /// Both ways over the wire, TLS included, from the fault on.
    pub(crate) bytes: u64,
    /// Objects whose last state or whose end the handler was never told.
    pub(crate) lost: usize,
    /// Objects that were deleted and created anew, and told as one that changed.
    pub(crate) merged: usize,
    /// Events that told nothing new.
    pub(crate) again: usize,
    /// Events older than one before.
    pub(crate) back: usize,
    /// Why it could not be played to its end.
    pub(crate) trouble: Option<String>,
}

impl Verdict {
    /// Nothing is known yet.
    pub(super) fn of(fault: &str, title: &str, team: Team) -> Self {
        Self {
            fault: fault.to_owned(),
            title: title.to_owned(),
            team,
            noticed: None,
            said: None,
            recovered: None,
            patience: 0,
            lists: 0,
            watches: 0,
            bytes: 0,
            lost: 0,
            merged: 0,
            again: 0,
            back: 0,
            trouble: None,
        }
    }

    fn recovery(&self) -> String {
        match self.recovered {
            Some(seconds) => time(seconds),
            None => format!("**not in {} s**", self.patience),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}, {}: ", self.fault, self.title, self.team)?;
        match &self.trouble {
            Some(trouble) => write!(f, "not played: {trouble}"),
            None => write!(
                f,
                "told after {}, back after {}, {} LISTs, {} WATCHes, lost {}",
                self.noticed.map_or_else(|| "never".to_owned(), time),
                self.recovery(),
                self.lists,
                self.watches,
                self.lost + self.merged
            ),
        }
    }
}

/// All of it: a row for each fault and library.
pub(crate) fn table(ordeal: &Ordeal) -> String {
    let mut text = String::from(
        "| fault | | told after | back after | LISTs | WATCHes | KB | lost | merged | again | backwards |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut before = "";
    for verdict in &ordeal.verdicts {
        let title =
            if before == verdict.title { String::new() } else { format!("{} {}", verdict.fault, verdict.title) };
        before = &verdict.title;
        if let Some(trouble) = &verdict.trouble {
            let _ = writeln!(text, "| {title} | {} | not played: {trouble} | | | | | | | | |", verdict.team);
            continue;
        }
        let _ = writeln!(
            text,
            "| {title} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            verdict.team,
            verdict.noticed.map_or_else(|| "never".to_owned(), time),
            verdict.recovery(),
            verdict.lists,
            verdict.watches,
            number((verdict.bytes as f64 / 1e3).round()),
            count(verdict.lost),
            count(verdict.merged),
            count(verdict.again),
            count(verdict.back),
        );
    }
    text
}

/// A row for each fault, a column for each library: how soon it was back, by how many lists, and what was lost.
pub(crate) fn summary(ordeal: &Ordeal) -> String {
    let mut text = String::from("| | Steadfast | kube-runtime | client-go |\n|---|---|---|---|\n");
    let mut titles: Vec<(&str, &str)> = Vec::new();
    for verdict in &ordeal.verdicts {
        if !titles.contains(&(&verdict.fault, &verdict.title)) {
            titles.push((&verdict.fault, &verdict.title));
        }
    }
    for (fault, title) in titles {
        let cells = Team::ALL.map(|team| {
            let of = |verdict: &&Verdict| verdict.team == team && verdict.fault == fault && verdict.title == title;
            ordeal.verdicts.iter().find(of).map_or_else(|| "-".to_owned(), brief)
        });
        let _ = writeln!(text, "| {fault} {title} | {} |", cells.join(" | "));
    }
    text
}

fn brief(verdict: &Verdict) -> String {
    if verdict.trouble.is_some() {
        return "not played".to_owned();
    }
    let lists = match verdict.lists {
        1 => "1 list".to_owned(),
        lists => format!("{lists} lists"),
    };
    let wrong =
        [(verdict.lost, "lost"), (verdict.merged, "merged"), (verdict.again, "again"), (verdict.back, "backwards")];
    let wrong = wrong.iter().filter(|(times, _)| *times > 0).map(|(times, what)| format!(", **{times} {what}**"));
    format!("{}, {lists}{}", verdict.recovery(), wrong.collect::<String>())
}

fn time(seconds: f64) -> String {
    if seconds < 0.1 { "< 0.1 s".to_owned() } else { format!("{seconds:.1} s") }
}

fn count(times: usize) -> String {
    if times == 0 { "0".to_owned() } else { format!("**{times}**") }
}
