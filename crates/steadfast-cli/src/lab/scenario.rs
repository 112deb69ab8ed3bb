//! What a scenario is: a name, a story, a function.

use std::error::Error;
use std::fmt;

use futures::future::BoxFuture;

use super::outcome::Findings;
use super::scenarios::SCENARIOS;

/// Why a scenario could not be played to its end; it has failed.
pub(crate) type Trouble = Box<dyn Error + Send + Sync>;

/// What playing a scenario gives.
pub(crate) type Play = BoxFuture<'static, Result<Findings, Trouble>>;

/// A scenario of one of the documents that the project comes from.
pub(crate) struct Scenario {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// The document that tells of it.
    pub(crate) source: Source,
    /// What happens, and what must come of it: two sentences.
    pub(crate) story: &'static str,
    /// Whether it takes more than a few seconds.
    pub(crate) slow: bool,
    /// Plays it.
    pub(crate) play: fn() -> Play,
}

/// The documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Five scenarios run against client-go, by number.
    FailureScenarios(u8),
    /// A watch whose channel closed for good.
    WatchPitfalls,
    /// Informers that failed for ever after a server's restart.
    InformerCacheLoss,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FailureScenarios(number) => write!(f, "client-go-failure-scenarios {number}"),
            Self::WatchPitfalls => f.write_str("client-go-watch-pitfalls"),
            Self::InformerCacheLoss => f.write_str("informer-cache-loss"),
        }
    }
}

/// The scenarios of these names in the order of the table; all, where none is named.
pub(crate) fn choose(names: &[String]) -> Result<Vec<&'static Scenario>, String> {
    let known = |name: &str| SCENARIOS.iter().any(|scenario| scenario.name == name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        return Err(format!("there is no scenario {unknown:?}; `steadfast lab --list` explains those there are"));
    }
    let wanted = |scenario: &&Scenario| names.is_empty() || names.iter().any(|name| name == scenario.name);
    Ok(SCENARIOS.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_short_and_unique_and_stories_have_two_sentences() {
        let names: BTreeSet<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), SCENARIOS.len());
        for scenario in SCENARIOS {
            let kebab = |letter: char| letter.is_ascii_lowercase() || letter == '-';
            assert!(scenario.name.len() <= 24 && scenario.name.chars().all(kebab), "{}", scenario.name);
            let story = format!("{} ", scenario.story);
            assert_eq!(story.matches(". ").count(), 2, "{}: {story}", scenario.name);
        }
    }

    #[test]
    fn all_are_chosen_unless_some_are_named_and_unknown_ones_are_told() {
        assert_eq!(choose(&[]).map(|all| all.len()), Ok(SCENARIOS.len()));
        let named = ["no-spin", "time-travel"].map(str::to_owned);
        let chosen = choose(&named).expect("they are there");
        assert_eq!(chosen.iter().map(|scenario| scenario.name).collect::<Vec<_>>(), ["no-spin", "time-travel"]);
        assert!(choose(&["nope".to_owned()]).is_err_and(|why| why.contains("--list")));
    }
}
