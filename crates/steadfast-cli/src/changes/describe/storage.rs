//! Volumes and their claims.

use crate::changes::phrases::{Phrases, Tone, at, flag, text, transition};

pub(super) fn claim(phrases: &mut Phrases<'_>) {
    let volume = text(phrases.new, "spec/volumeName");
    phase(phrases, if volume.is_empty() { None } else { Some(format!("to {volume}")) });
    phrases.cover("spec/volumeName");
    phrases.field("request", "spec/resources/requests/storage");
    phrases.field("capacity", "status/capacity/storage");
    phrases.cover("status/accessModes");
    phrases.cover("status/allocatedResources");
}

pub(super) fn volume(phrases: &mut Phrases<'_>) {
    let claim = at(phrases.new, "spec/claimRef");
    phase(phrases, claim.map(|claim| format!("to {}/{}", text(claim, "namespace"), text(claim, "name"))));
    if phrases.cover("spec/claimRef") && claim.is_none() {
        phrases.say(Tone::Neutral, "claim released");
    }
    phrases.field("capacity", "spec/capacity/storage");
    phrases.field("reclaim policy", "spec/persistentVolumeReclaimPolicy");
}

pub(super) fn attachment(phrases: &mut Phrases<'_>) {
    if phrases.cover("status/attached") {
        let is_attached = flag(phrases.new, "status/attached");
        let node = text(phrases.new, "spec/nodeName");
        phrases.say(Tone::Neutral, format!("{} {node}", if is_attached { "attached to" } else { "detached from" }));
        phrases.cover("status/attachmentMetadata");
    }
}

fn phase(phrases: &mut Phrases<'_>, bound: Option<String>) {
    if !phrases.cover("status/phase") {
        return;
    }
    let (old, new) = (text(phrases.old, "status/phase"), text(phrases.new, "status/phase"));
    let tone = match new {
        "Bound" => Tone::Good,
        "Lost" | "Failed" => Tone::Bad,
        _ => Tone::Neutral,
    };
    let bound = bound.filter(|_| new == "Bound").map_or(String::new(), |bound| format!(" {bound}"));
    let old = if old.is_empty() { "none" } else { old };
    phrases.say(tone, format!("{}{bound}", transition("phase", old, new)));
}
