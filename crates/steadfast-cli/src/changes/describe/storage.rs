//! Volumes and their claims.

use crate::changes::phrases::{Phrases, Tone, at, flag, text, transition};

pub(super) fn describe_claim(phrases: &mut Phrases<'_>) {
    let volume = text(phrases.new, "spec/volumeName");
    describe_phase(phrases, if volume.is_empty() { None } else { Some(format!("to {volume}")) });
    phrases.take_changed("spec/volumeName");
    phrases.say_field_change("request", "spec/resources/requests/storage");
    phrases.say_field_change("capacity", "status/capacity/storage");
    phrases.take_changed("status/accessModes");
    phrases.take_changed("status/allocatedResources");
}

pub(super) fn describe_volume(phrases: &mut Phrases<'_>) {
    let claim = at(phrases.new, "spec/claimRef");
    describe_phase(phrases, claim.map(|claim| format!("to {}/{}", text(claim, "namespace"), text(claim, "name"))));
    if phrases.take_changed("spec/claimRef") && claim.is_none() {
        phrases.say(Tone::Neutral, "claim released");
    }
    phrases.say_field_change("capacity", "spec/capacity/storage");
    phrases.say_field_change("reclaim policy", "spec/persistentVolumeReclaimPolicy");
}

pub(super) fn describe_attachment(phrases: &mut Phrases<'_>) {
    if phrases.take_changed("status/attached") {
        let is_attached = flag(phrases.new, "status/attached");
        let node = text(phrases.new, "spec/nodeName");
        phrases.say(Tone::Neutral, format!("{} {node}", if is_attached { "attached to" } else { "detached from" }));
        phrases.take_changed("status/attachmentMetadata");
    }
}

fn describe_phase(phrases: &mut Phrases<'_>, suffix: Option<String>) {
    if !phrases.take_changed("status/phase") {
        return;
    }
    let (old, new) = (text(phrases.old, "status/phase"), text(phrases.new, "status/phase"));
    let tone = match new {
        "Bound" => Tone::Good,
        "Lost" | "Failed" => Tone::Bad,
        _ => Tone::Neutral,
    };
    let suffix = suffix.filter(|_| new == "Bound").map_or(String::new(), |suffix| format!(" {suffix}"));
    let old = if old.is_empty() { "none" } else { old };
    phrases.say(tone, format!("{}{suffix}", transition("phase", old, new)));
}
