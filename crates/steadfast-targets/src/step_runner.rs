//! Runs independent steps concurrently, each with its own deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::entry::Step;

/// Bounds of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepRunner {
    /// Maximum number of steps in flight.
    pub(crate) max_concurrent: usize,
    /// Deadline of one step.
    pub(crate) step_timeout: Duration,
    /// Duration after which no further step starts. Steps of slow entries start only within `step_timeout`, if this
    /// is shorter. A run lasts at most `start_within + step_timeout`.
    pub(crate) start_within: Duration,
    /// Number of consecutive [`MaybeTarget`](StepFailure::MaybeTarget) failures after which no further step starts,
    /// because the target itself has probably failed.
    pub(crate) max_failures: usize,
}

/// Maximum number of [`SlowEntries`]. All are forgotten when the set is full.
const MAX_SLOW_ENTRIES: usize = 10_000;

/// Names of entries whose last step had no usable response, remembered from one run to the next.
///
/// Slow entries run last. Their siblings, entries with the same [`parent`], run just before them. Steps start in
/// alphabetical order, so otherwise the bad entries of one namespace could use up all concurrent steps of every run.
#[derive(Debug, Default)]
pub(crate) struct SlowEntries(Mutex<BTreeSet<String>>);

/// Error of a step, by its extent.
pub(crate) enum StepFailure<E> {
    /// The reason concerns this entry.
    Entry(E),
    /// The reason may concern the whole target: no connection, no response.
    MaybeTarget(E),
}

impl SlowEntries {
    /// Remembers `name` until the target responds to a step of this entry. A run without the entry does not forget the name,
    /// because the mirror retries the entry only after a while.
    fn add(&self, name: &str) {
        let mut names = self.0.lock();
        if names.len() >= MAX_SLOW_ENTRIES {
            names.clear();
        }
        names.insert(name.to_owned());
    }
}

impl StepRunner {
    /// Runs `steps`, and returns the numbers of the failed steps in their order, each with its error.
    ///
    /// Steps start in their order, but steps of `slow` entries and of their siblings start last. Steps of one entry run
    /// one after another. After an error, the remaining steps of the entry are skipped. `timeout_error` creates the
    /// error of a step that reached its deadline.
    pub(crate) async fn run<V, E, F: Future<Output = Result<(), StepFailure<E>>>>(
        self,
        steps: &[Step<V>],
        slow: &SlowEntries,
        execute: impl Fn(usize) -> F,
        timeout_error: impl Fn(usize) -> E,
    ) -> Vec<(usize, E)> {
        let started = Instant::now();
        // Never contended, because all steps run within this task.
        let failures = Mutex::new(0_usize);
        let run = |(is_slow, entry): (bool, Vec<usize>)| {
            let (execute, timeout_error, failures) = (&execute, &timeout_error, &failures);
            // New changes wait for the end of the run, so slow entries must not prolong the run by much.
            let start_within = if is_slow { self.start_within.min(self.step_timeout) } else { self.start_within };
            async move {
                for index in entry {
                    // Skipped steps do not count as errors. The next pass plans them again.
                    if started.elapsed() >= start_within || *failures.lock() >= self.max_failures {
                        return None;
                    }
                    let result = timeout(self.step_timeout, execute(index)).await;
                    let result = result.unwrap_or_else(|_| Err(StepFailure::MaybeTarget(timeout_error(index))));
                    let name = steps[index].name();
                    match result {
                        Ok(()) => {
                            *failures.lock() = 0;
                            slow.0.lock().remove(name);
                        }
                        Err(failure) => {
                            let error = match failure {
                                StepFailure::Entry(error) => {
                                    // A rejection is a response: the entry is not slow.
                                    *failures.lock() = 0;
                                    slow.0.lock().remove(name);
                                    error
                                }
                                StepFailure::MaybeTarget(error) => {
                                    *failures.lock() += 1;
                                    slow.add(name);
                                    error
                                }
                            };
                            // Later steps of one entry depend on this one.
                            return Some((index, error));
                        }
                    }
                }
                None
            }
        };
        let order = Self::order(steps, slow);
        let mut errors: Vec<_> = stream::iter(order)
            .map(run)
            .buffer_unordered(self.max_concurrent)
            .filter_map(std::future::ready)
            .collect()
            .await;
        errors.sort_unstable_by_key(|(index, _)| *index);
        errors
    }

    /// Returns the numbers of the steps of each entry in start order, and true for slow entries.
    fn order<V>(steps: &[Step<V>], slow: &SlowEntries) -> Vec<(bool, Vec<usize>)> {
        let slow = slow.0.lock();
        let mut order = Vec::<Vec<usize>>::new();
        let mut positions = BTreeMap::<&str, usize>::new();
        for (index, step) in steps.iter().enumerate() {
            if let Some(&position) = positions.get(step.name()) {
                order[position].push(index);
            } else {
                positions.insert(step.name(), order.len());
                order.push(vec![index]);
            }
        }
        // A server that hangs for one key often hangs for its neighbours. The neighbours run before the slow entries,
        // but after all other entries.
        let slow_parents: BTreeSet<_> = slow.iter().filter_map(|name| parent(name)).collect();
        let priority = |entry: &[usize]| {
            let name = steps[entry[0]].name();
            match () {
                () if slow.contains(name) => 2,
                () if parent(name).is_some_and(|parent| slow_parents.contains(parent)) => 1,
                () => 0,
            }
        };
        let mut order: Vec<_> = order.into_iter().map(|entry| (priority(&entry), entry)).collect();
        // The sort is stable, so steps of one class keep their order.
        order.sort_by_key(|(priority, _)| *priority);
        order.into_iter().map(|(priority, entry)| (priority == 2, entry)).collect()
    }
}

/// Returns the number and the first three names of further failed entries, escaped for messages.
pub(crate) fn describe_others(names: &[String]) -> String {
    let mut listed: Vec<_> = names.iter().take(3).map(|name| format!("{name:?}")).collect();
    if names.len() > listed.len() {
        listed.push("…".to_owned());
    }
    let entries = if names.len() == 1 { "entry" } else { "entries" };
    format!("{} other {entries} failed too: {}", names.len(), listed.join(", "))
}

/// Maximum length of a target's text in a message, in characters.
const MAX_TEXT_CHARS: usize = 500;

/// Returns a target's text in a form that is safe for terminals and logs. A long text is cut. Quotation marks stay
/// unchanged, so that messages stay readable.
pub(crate) fn escape_text(text: &str) -> String {
    let (mut escaped, mut rest) = (String::new(), text.chars());
    for character in rest.by_ref().take(MAX_TEXT_CHARS) {
        match character {
            '"' | '\'' => escaped.push(character),
            _ => escaped.extend(character.escape_debug()),
        }
    }
    if rest.next().is_some() {
        escaped.push('…');
    }
    escaped
}

/// Formats a duration for messages.
pub(crate) fn format_seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

/// Returns the text before the last `/`, or before the second `.` in names without a slash. In default keys
/// (`CLUSTER.NAMESPACE.NAME`), the text is the cluster and the namespace: neither contains a dot, but the rest may.
fn parent(name: &str) -> Option<&str> {
    if let Some((parent, _)) = name.rsplit_once('/') {
        return Some(parent);
    }
    let (end, _) = name.match_indices('.').take(2).last()?;
    Some(&name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNNER: StepRunner = StepRunner {
        max_concurrent: 8,
        step_timeout: Duration::from_secs(4),
        start_within: Duration::from_secs(5),
        max_failures: 8,
    };

    #[test]
    fn text_of_target_is_escaped_and_cut() {
        assert_eq!(escape_text("can't find \"a\""), "can't find \"a\"");
        assert_eq!(escape_text("a\u{1b}[2J\n\u{202e}\\"), "a\\u{1b}[2J\\n\\u{202e}\\\\");
        assert_eq!(escape_text(&"x".repeat(MAX_TEXT_CHARS)).len(), MAX_TEXT_CHARS);
        assert_eq!(escape_text(&"x".repeat(1 << 20)), format!("{}…", "x".repeat(MAX_TEXT_CHARS)));
    }

    fn steps(names: &[&str]) -> Vec<Step<u8>> {
        names.iter().map(|name| Step::Add { name: (*name).to_owned(), value: 0 }).collect()
    }

    /// Runs `names`. `hang…` never completes, `bad…` fails with an error of this entry, and all others complete after
    /// 10 ms.
    async fn run(names: &[&str], slow: &SlowEntries) -> (Vec<String>, Vec<String>) {
        let steps = steps(names);
        let done = Mutex::new(Vec::new());
        let execute = |index: usize| {
            let (name, done) = (steps[index].name().to_owned(), &done);
            async move {
                if name.starts_with("hang") {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                if name.starts_with("bad") {
                    return Err(StepFailure::Entry(name));
                }
                done.lock().push(name);
                Ok(())
            }
        };
        let errors = RUNNER.run(&steps, slow, execute, |index| steps[index].name().to_owned()).await;
        let done = done.lock().clone();
        (done, errors.into_iter().map(|(_, name)| name).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_step_delays_no_other() {
        let started = Instant::now();
        let (done, errors) = run(&["a", "bad", "hang", "b", "c"], &SlowEntries::default()).await;
        assert_eq!(
            (done, errors),
            (["a", "b", "c"].map(String::from).into(), ["bad", "hang"].map(String::from).into())
        );
        assert_eq!(started.elapsed(), RUNNER.step_timeout);
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_steps_run_last_next_time() {
        let names: Vec<String> = (0..100).map(|index| format!("hang/{index:02}")).chain(["other/z".into()]).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (slow, started) = (SlowEntries::default(), Instant::now());
        // Eight failures without a success: the target itself may have failed, and the run ends.
        let (done, errors) = run(&names, &slow).await;
        assert_eq!((done.len(), errors.len(), started.elapsed()), (0, 8, RUNNER.step_timeout));
        // A run without the slow entries does not forget them.
        run(&["a"], &slow).await;
        let (done, _) = run(&names, &slow).await;
        assert_eq!(done, ["other/z"]);
        assert!(started.elapsed() <= 2 * (RUNNER.start_within + RUNNER.step_timeout));
    }

    #[test]
    fn siblings_of_slow_default_key_run_late() {
        let slow = SlowEntries::default();
        slow.add("east.shop.b_10.0.0.1_80");
        let names = ["east.shop.a-0.web_10.1.0.1_80", "east.shop.b_10.0.0.1_80", "east.web.a_10.0.0.2_80"];
        let order = StepRunner::order(&steps(&names), &slow);
        assert_eq!(order, [(false, vec![2]), (false, vec![0]), (true, vec![1])]);
    }

    #[tokio::test(start_paused = true)]
    async fn rejected_entry_is_not_slow() {
        let slow = SlowEntries::default();
        slow.add("bad");
        run(&["bad"], &slow).await;
        assert!(slow.0.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn steps_of_entry_keep_order() {
        let (done, _) = run(&["a", "b", "a", "c", "a"], &SlowEntries::default()).await;
        assert_eq!(done.iter().filter(|name| *name == "a").count(), 3);
        assert_eq!(done[3..], ["a", "a"], "the second and third step of `a` follow its first one");
    }
}
