//! One mirror at work: gathers what its rules send, reports errors, takes approvals.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use steadfast_outside::{Memory, Settings, TermGate};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::approvals::Approvals;
use super::collect::{Gathered, collect, unclear};
use super::driver::{AnyMirror, MirrorStanding, Seen, Troubles};
use super::feed::Feed;
use super::grouping::Grouping;
use super::open::{Opening, Openings};
use super::view::View;
use crate::notice::{Notice, Tell};
use crate::shape::Shape;
use crate::wake::wake_on_changes;

/// How often it is looked. A cache can go stale, and an approval come, without anything being told.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What changes within this time is gathered together; ten times as long as gathering takes, where that is longer.
const TOGETHER: Duration = Duration::from_millis(20);

/// And never more than this.
const TOGETHER_AT_MOST: Duration = Duration::from_secs(5);

/// Who is told what would be done to the mirror of a name, where it is only played.
pub type Play = dyn Fn(&str, Vec<String>) + Send + Sync;

/// How mirrors work, all of a program.
#[derive(Clone)]
pub struct How {
    /// What no restart may forget.
    pub memory: Memory,
    /// Where approvals come from; from nowhere where nothing outlives the program.
    pub approvals: Option<Approvals>,
    /// Who is told what would be done, where it is only played: the mirror, and its target's words.
    pub say: Option<Arc<Play>>,
    /// Who is told what there is to know.
    pub tell: Arc<Tell>,
    /// Permission to write to the targets.
    pub gate: TermGate,
    /// Name under which replicas claim their marks together; none for a process without replicas.
    pub instance: Option<String>,
}

/// A mirror that is kept as its rules say. Dropped, it ends where it is.
pub(super) struct Keeper {
    mirror: Arc<dyn AnyMirror>,
    gathering: AbortHandle,
}

impl Keeper {
    /// Starts the mirror `name` on the current runtime, fed by `feed`. The task that is returned too never ends unless the
    /// mirror does; its value is the reason.
    pub(super) fn start(name: String, opening: Opening, feed: Feed, how: How) -> (Self, JoinHandle<String>) {
        let Opening { driver, settings, shape, grouping } = opening;
        let settings = Settings { gate: how.gate.clone(), instance: how.instance.clone(), ..settings };
        let say = how.say.clone().map(|say| {
            let name = name.clone();
            Box::new(move |words| say(&name, words)) as Box<_>
        });
        let mirror = driver.start(&name, settings, how.memory.clone(), say);
        let work = Work {
            name,
            mirror: mirror.clone(),
            feed,
            views: Vec::new(),
            unmade: BTreeMap::new(),
            watching: JoinSet::new(),
            shape,
            grouping,
            how,
            told: Told::default(),
        };
        let task = tokio::spawn(work.run());
        (Self { mirror, gathering: task.abort_handle() }, task)
    }

    /// Returns the mirror's state.
    pub(super) fn standing(&self) -> MirrorStanding {
        self.mirror.standing()
    }

    /// Stops the mirror after its current action. Its entries stay in the target.
    pub(super) async fn stop(&self) {
        // A call of `want` that is running in this instant finds the mirror stopped.
        self.gathering.abort();
        self.mirror.stop().await;
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.gathering.abort();
    }
}

/// What each of the mirrors that were opened would do now, by those of `views` that have its name; or why that cannot be seen.
/// Caches are waited for as long as `patience`.
pub async fn previewed(
    openings: &Openings,
    mut views: BTreeMap<String, Vec<View>>,
    memory: &Memory,
    patience: Duration,
) -> BTreeMap<String, Result<Seen, Arc<str>>> {
    let mut previewed = BTreeMap::new();
    let until = Instant::now() + patience;
    for (name, Opening { driver, settings, shape, grouping }) in &openings.0 {
        let mut views = views.remove(name).unwrap_or_default();
        for view in &views {
            view.until_fresh(until.saturating_duration_since(Instant::now())).await;
        }
        let (_, clusters) = caught_up(&mut views, shape, grouping).await;
        let seen = driver.preview(name, settings, memory, &gathered(&views, &clusters)).await;
        previewed.insert(name.clone(), seen);
    }
    previewed
}

/// The clusters that feed a mirror, each with the reason why its objects are not known reliably, if there is one.
type Clusters = BTreeMap<String, Option<Arc<str>>>;

/// Has all views evaluate what has changed. Returns whether anything has, and the clusters.
async fn caught_up(views: &mut [View], shape: Shape, grouping: &Grouping) -> (bool, Clusters) {
    views.iter_mut().for_each(View::confirm);
    let mut clusters = Clusters::new();
    // Before and after: what was read in between was read of a cache that was certain.
    let mut note = |views: &[View]| {
        for view in views {
            let doubt = clusters.entry(view.cluster().to_owned()).or_default();
            *doubt = doubt.take().or_else(|| view.doubt().map(Arc::from));
        }
    };
    note(views);
    let mut is_news = false;
    for view in &mut *views {
        is_news |= view.catch_up(shape, grouping).await;
    }
    note(views);
    (is_news, clusters)
}

fn gathered(views: &[View], clusters: &Clusters) -> Gathered {
    collect(views.iter().flat_map(View::sent), clusters, views.iter().filter_map(View::presence).collect())
}

struct Work {
    name: String,
    mirror: Arc<dyn AnyMirror>,
    feed: Feed,
    views: Vec<View>,
    /// Clusters whose views could not be made, each with the reason.
    unmade: BTreeMap<String, String>,
    /// Tasks that wake this one.
    watching: JoinSet<()>,
    shape: Shape,
    grouping: Grouping,
    how: How,
    told: Told,
}

/// What was reported, and is still so.
#[derive(Default)]
struct Told {
    unclear: Option<Arc<str>>,
    troubles: Troubles,
}

impl Work {
    async fn run(mut self) -> String {
        let news = Arc::new(Notify::new());
        let mut fed = self.feed.subscribe();
        fed.mark_changed();
        // None before the first time.
        let mut said = None;
        loop {
            if let Some(why) = self.mirror.ended() {
                // The supervisor counts it, and starts the whole mirror again.
                return why;
            }
            let begun = Instant::now();
            let is_fed = fed.has_changed().unwrap_or_default();
            if is_fed || !self.unmade.is_empty() {
                fed.mark_unchanged();
                self.unmade = self.feed.update(&mut self.views);
                self.watching = self.watch(&news, fed.clone());
            }
            let (is_news, mut clusters) = caught_up(&mut self.views, self.shape, &self.grouping).await;
            // A cluster that has not contributed all of its views is uncertain: entries of it may be in the target.
            for (cluster, why) in self.feed.missing().into_iter().chain(self.unmade.clone()) {
                clusters.insert(cluster, Some(why.into()));
            }
            if is_fed || is_news || said.as_ref() != Some(&clusters) {
                let mut gathered = gathered(&self.views, &clusters);
                let invalid = self.mirror.want(&gathered);
                gathered.doubts.objects.extend(invalid);
                self.tell_of_objects(&gathered);
                said = Some(clusters);
            }
            self.tell_of_the_mirror();
            self.take_approvals();
            sleep((begun.elapsed() * 10).clamp(TOGETHER, TOGETHER_AT_MOST)).await;
            // Looked at all the same when that is over.
            let _ = timeout(LOOK_EVERY, news.notified()).await;
        }
    }

    /// Starts tasks that wake the mirror when a view or the feed changes.
    fn watch(&self, news: &Arc<Notify>, mut fed: watch::Receiver<u64>) -> JoinSet<()> {
        let mut watching = wake_on_changes(self.views.iter().flat_map(View::changed), news);
        let news = news.clone();
        watching.spawn(async move {
            if fed.changed().await.is_ok() {
                news.notify_one();
            }
        });
        watching
    }

    fn tell_of_objects(&mut self, gathered: &Gathered) {
        let mirror = || self.name.clone();
        let unclear = unclear(&gathered.doubts.objects);
        let why = unclear.as_ref().map(|(why, _)| why.clone());
        if self.told.unclear != why {
            (self.how.tell)(match unclear {
                Some((why, objects)) => Notice::Unclear { mirror: mirror(), why: why.to_string(), objects },
                None => Notice::Clear { mirror: mirror() },
            });
            self.told.unclear = why;
        }
    }

    fn tell_of_the_mirror(&mut self) {
        let troubles = self.mirror.troubles();
        if self.told.troubles == troubles {
            return;
        }
        let before = std::mem::replace(&mut self.told.troubles, troubles);
        let (now, mirror) = (&self.told.troubles, || self.name.clone());
        for ask in now.asks.iter().filter(|ask| !before.asks.contains(ask)) {
            (self.how.tell)(Notice::Asks { mirror: mirror(), ask: ask.clone() });
        }
        if now.contested.iter().any(|key| !before.contested.contains(key)) {
            (self.how.tell)(Notice::Contested { mirror: mirror(), keys: now.contested.clone() });
        }
        let mut rejected = now.rejected.iter().filter(|(name, why)| before.rejected.get(*name) != Some(*why));
        if let Some((entry, why)) = rejected.next() {
            let others = rejected.count();
            let (entry, why) = (entry.clone(), why.clone());
            (self.how.tell)(Notice::LeftAlone { mirror: mirror(), entry, why, others });
        }
        if let Some(loss) = now.loss.as_ref().filter(|loss| before.loss.as_ref() != Some(loss)) {
            (self.how.tell)(Notice::Lost { mirror: mirror(), missing: loss.missing, why: loss.why.to_string() });
        }
        if now.failing != before.failing {
            (self.how.tell)(match &now.failing {
                Some(why) => Notice::Failing { mirror: mirror(), why: why.to_string() },
                None => Notice::Works { mirror: mirror() },
            });
        }
    }

    fn take_approvals(&self) {
        let Some(approvals) = self.how.approvals.as_ref().filter(|_| self.how.gate.permit().is_some()) else { return };
        let ids = match approvals.take(&self.name) {
            Ok(ids) if ids.is_empty() => return,
            Ok(ids) => ids,
            Err(why) => {
                return (self.how.tell)(Notice::NotApproved { mirror: self.name.clone(), why: why.to_string() });
            }
        };
        for id in ids {
            let mirror = self.name.clone();
            (self.how.tell)(match self.how.memory.approve(&self.name, &id) {
                Ok(ask) => Notice::Approved { mirror, ask },
                Err(why) => Notice::NotApproved { mirror, why: why.to_string() },
            });
        }
        self.mirror.nudge();
    }
}
