//! How much may be taken out at once: a mistake in a rule, or somebody's in the cluster, must not empty what others live by.
//!
//! What has been taken out is counted for a while, so that many small takings are no way around it; and before it is done, so
//! that neither is a program that dies over and over.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How much may be taken out at once without being asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The part of all that served at the beginning of the window: 0.0 to 1.0, a third by default.
    pub share: f64,
    /// So many in any case, however few there are: 1 by default.
    pub few: usize,
    /// How long what has been taken out counts: five minutes by default.
    pub window: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { share: 1.0 / 3.0, few: 1, window: Duration::from_secs(300) }
    }
}

impl Limits {
    /// How many of `before` may go.
    #[expect(clippy::cast_sign_loss, reason = "a share below zero is none: such a number becomes 0")]
    fn of(&self, before: usize) -> usize {
        ((before as f64 * self.share) as usize).max(self.few)
    }
}

/// What somebody has to approve of.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Ask {
    /// What to approve of it by: other entries make it another one, a restart does not.
    pub id: String,
    /// What is to be taken out, in the order of the names.
    pub names: Vec<String>,
    /// How many serve now.
    pub of: usize,
}

/// What a mirror is asked to approve of is not what it asks for.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("nothing waits for the approval {id}: {}", match .waits { Some(ask) => format!("what waits is {ask}"), None => "nothing waits at all".to_owned() })]
pub struct NoSuchAsk {
    /// What was approved of.
    pub id: String,
    /// What does wait.
    pub waits: Option<String>,
}

/// What was taken out lately, and what was approved of.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Record {
    /// What was taken out, and when, in seconds since 1970. A clock that is set changes how long it counts, and nothing else.
    gone: Vec<(u64, String)>,
    approved: BTreeSet<String>,
    ask: Option<Ask>,
}

/// What may be taken out of what is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) granted: BTreeSet<String>,
    pub(crate) ask: Option<Ask>,
}

impl Record {
    /// What may be taken out of `outs` where all of `serving` serve now, which has `outs` in it. What may be counts as taken out.
    pub(crate) fn judge(
        &mut self,
        limits: &Limits,
        outs: &BTreeSet<String>,
        serving: &BTreeSet<String>,
        now: u64,
    ) -> Verdict {
        let window = limits.window.as_secs();
        // One from the future was written before a clock was set back.
        self.gone.retain(|(when, _)| now.abs_diff(*when) < window);
        self.approved.retain(|name| outs.contains(name));
        let fresh: BTreeSet<_> = outs.difference(&self.approved).cloned().collect();
        let recent: BTreeSet<_> = self.gone.iter().map(|(_, name)| name.clone()).collect();
        let before = serving.union(&recent).count();
        let may = limits.of(before);
        let mut granted: BTreeSet<_> = outs.intersection(&self.approved).cloned().collect();
        self.ask = None;
        if fresh.union(&recent).count() <= may || fresh.is_empty() {
            self.gone.extend(fresh.difference(&recent).map(|name| (now, name.clone())));
            granted.extend(fresh);
        } else {
            let names: Vec<_> = fresh.into_iter().collect();
            self.ask = Some(Ask { id: id_of(&names), names, of: serving.len() });
        }
        Verdict { granted, ask: self.ask.clone() }
    }

    /// Lets what is asked for be taken out.
    pub(crate) fn approve(&mut self, id: &str) -> Result<Ask, NoSuchAsk> {
        match self.ask.take_if(|ask| ask.id == id) {
            Some(ask) => {
                self.approved.extend(ask.names.iter().cloned());
                Ok(ask)
            }
            None => Err(NoSuchAsk { id: id.to_owned(), waits: self.ask.as_ref().map(|ask| ask.id.clone()) }),
        }
    }

    /// What waits to be approved of.
    pub(crate) fn ask(&self) -> Option<&Ask> {
        self.ask.as_ref()
    }
}

/// The same for the same names, in any release of this program: FNV-1a over them.
fn id_of(names: &[String]) -> String {
    let bytes = names.iter().flat_map(|name| name.bytes().chain([0]));
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // Short enough to be typed.
    format!("{:08x}", (hash ^ (hash >> 32)) as u32)
}

#[cfg(test)]
mod tests;
