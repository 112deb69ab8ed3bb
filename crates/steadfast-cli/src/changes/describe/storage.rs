//! Volumes and their claims.

use crate::changes::phrases::{DescriptionBuilder, HealthEffect, at, flag, text, transition};

pub(super) fn describe_claim(description: &mut DescriptionBuilder<'_>) {
    let volume = text(description.new, "spec/volumeName");
    describe_phase(description, if volume.is_empty() { None } else { Some(format!("to {volume}")) });
    // The volume is usually set in an update before the phase. If both change together, the phrase about the phase
    // names the volume.
    if description.consume_changed("spec/volumeName") {
        description.add_fallback(format!("volume {}", if volume.is_empty() { "none" } else { volume }));
    }
    description.add_field_change("request", "spec/resources/requests/storage");
    description.add_field_change("capacity", "status/capacity/storage");
    description.consume_changed("status/accessModes");
    description.consume_changed("status/allocatedResources");
}

pub(super) fn describe_volume(description: &mut DescriptionBuilder<'_>) {
    let claim = at(description.new, "spec/claimRef");
    describe_phase(description, claim.map(|claim| format!("to {}/{}", text(claim, "namespace"), text(claim, "name"))));
    // The claim is usually set in an update before the phase. If both change together, the phrase about the phase names
    // the claim.
    if description.consume_changed("spec/claimRef") {
        match claim {
            None => description.add(HealthEffect::Neutral, "claim released"),
            Some(claim) => {
                description.add_fallback(format!("claimed by {}/{}", text(claim, "namespace"), text(claim, "name")));
            }
        }
    }
    description.add_field_change("capacity", "spec/capacity/storage");
    description.add_field_change("reclaim policy", "spec/persistentVolumeReclaimPolicy");
}

pub(super) fn describe_attachment(description: &mut DescriptionBuilder<'_>) {
    if description.consume_changed("status/attached") {
        let is_attached = flag(description.new, "status/attached");
        let node = text(description.new, "spec/nodeName");
        description.add(
            HealthEffect::Neutral,
            format!("{} {node}", if is_attached { "attached to" } else { "detached from" }),
        );
        description.consume_changed("status/attachmentMetadata");
    }
}

fn describe_phase(description: &mut DescriptionBuilder<'_>, suffix: Option<String>) {
    if !description.consume_changed("status/phase") {
        return;
    }
    let (old, new) = (text(description.old, "status/phase"), text(description.new, "status/phase"));
    let effect = match new {
        "Bound" => HealthEffect::Improved,
        "Lost" | "Failed" => HealthEffect::Degraded,
        _ => HealthEffect::Neutral,
    };
    let suffix = suffix.filter(|_| new == "Bound").map_or(String::new(), |suffix| format!(" {suffix}"));
    let old = if old.is_empty() { "none" } else { old };
    description.add(effect, format!("{}{suffix}", transition("phase", old, new)));
}
