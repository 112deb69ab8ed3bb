//! Which stories there are, and which of them cannot be told on which server: a story that is skipped in silence is no
//! story.

use steadfast_testing::cluster::{Kind, Need};

use crate::{Story, changes, cuts, definitions, servers};

fn all() -> impl Iterator<Item = &'static Story> {
    [changes::STORIES, cuts::STORIES, definitions::STORIES, servers::STORIES].into_iter().flatten()
}

/// The names of the stories that cannot be told on such a server.
fn not_told_on(kind: &Kind) -> Vec<&'static str> {
    let cannot = |need: &Need| need.cannot_be_had(kind).is_some();
    all().filter(|story| story.needs.iter().any(cannot)).map(|story| story.name).collect()
}

#[test]
fn every_story_is_told_on_the_embedded_server() {
    assert_eq!(not_told_on(&Kind::Embedded), [""; 0]);
}

#[test]
fn what_is_not_told_on_the_reference_is_what_no_real_server_can_be_made_to_do() {
    assert_eq!(not_told_on(&Kind::Reference), [""; 0]);
}
