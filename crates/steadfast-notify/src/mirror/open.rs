//! The mirrors of a plan, made of what the configuration says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use steadfast_outside::{Limits, Memory, Settings};
use tokio::time::timeout;

use super::collect::Gathered;
use super::driver::AnyDriver;
use super::drivers;
use crate::config::sinks::Sink;
use crate::plan::Plan;
use crate::problem::{Problem, Problems};
use crate::shape::Shape;

/// The mirrors of a plan, opened: nothing is connected to yet.
pub struct Openings(pub(super) BTreeMap<String, Opening>);

pub(super) struct Opening {
    pub(super) driver: Box<dyn AnyDriver>,
    pub(super) settings: Settings,
    pub(super) shape: Shape,
}

impl Openings {
    /// Opens all mirrors of `plan`.
    ///
    /// # Errors
    ///
    /// What of them cannot be: a name that is none.
    pub async fn of(plan: &Plan) -> Result<Self, Problems> {
        let (mut opened, mut problems) = (BTreeMap::new(), Vec::<Problem>::new());
        for (name, sink) in &plan.sinks {
            let Some(shape) = drivers::shape(sink) else { continue };
            match drivers::open(name, sink, &plan.folder).await {
                Ok(Some(driver)) => {
                    opened.insert(name.clone(), Opening { driver, settings: settings(sink), shape });
                }
                Ok(None) => {}
                Err(refused) => {
                    let path = format!("{name}.{}", refused.path);
                    problems.push(plan.problem_with_sink(&path, refused.what, refused.remedy));
                }
            }
        }
        if problems.is_empty() {
            return Ok(Self(opened));
        }
        problems.sort_by_key(|problem| problem.place);
        Err(Problems(problems))
    }

    /// Those whose outside cannot be looked at within `patience`, and why; nothing is changed there.
    pub(crate) async fn blind(&self, patience: Duration) -> Vec<(String, Arc<str>)> {
        let (mut blind, memory, nothing) = (Vec::new(), Memory::volatile(), Gathered::default());
        for (name, Opening { driver, settings, .. }) in &self.0 {
            let looked = driver.preview(name, settings, &memory, &nothing);
            match timeout(patience, looked).await {
                Ok(Ok(_)) => {}
                Ok(Err(why)) => blind.push((name.clone(), why)),
                Err(_) => blind.push((name.clone(), format!("nobody answers within {} s", patience.as_secs()).into())),
            }
        }
        blind
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// How a mirror is kept, as it is configured.
fn settings(sink: &Sink) -> Settings {
    let (guard, unless) = (sink.guard.unwrap_or_default(), Settings::default());
    let limits = Limits {
        share: guard.share.unwrap_or(unless.limits.share),
        few: guard.few.unwrap_or(unless.limits.few),
        window: guard.window.map_or(unless.limits.window, |span| span.0),
    };
    let drain = sink.drain.map_or(unless.drain, |span| span.0);
    let compare = sink.compare.map_or(unless.compare, |span| span.0);
    let allow_empty = guard.allow_empty;
    Settings { limits, drain, compare, allow_empty, upsert_only: sink.upsert_only, ..unless }
}
