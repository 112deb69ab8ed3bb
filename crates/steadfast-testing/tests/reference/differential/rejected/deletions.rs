//! Options of deletions.

use serde_json::{Value, json};

use crate::differential::generate::ScriptBuilder;
use crate::differential::script::Step;
use crate::differential::writes::{create, options};

/// Adds a deletion with invalid or unusual options.
///
/// If the request has a body, only the options in the body count. Query and body both request a dry run, so that the
/// object stays.
pub fn add_odd_deletion(builder: &mut ScriptBuilder) {
    let Some((kind, name, last)) = builder.existing_object() else { return create(builder) };
    let step = Step::new("odd deletion", "DELETE", builder.path_of(kind, name)).query("dryRun=All");
    let mut step = match builder.rng.below(23) {
        0 => step.json(&dry_run(json!({"propagationPolicy": "Roughly"}))).label("unknown propagation"),
        1 => step.query("propagationPolicy=Roughly").label("unknown propagation"),
        2 => {
            let both = json!({"propagationPolicy": "Background", "orphanDependents": false});
            step.json(&dry_run(both)).label("both propagations")
        }
        3 => step.query("propagationPolicy=Background&orphanDependents=false").label("both propagations"),
        4 => step.json(&dry_run(json!({"orphanDependents": false}))).label("orphans"),
        5 => step.json(&dry_run(json!({"gracePeriodSeconds": -1}))).label("negative grace period"),
        6 => step.query("gracePeriodSeconds=-5").label("negative grace period"),
        7 => step.query("gracePeriodSeconds=soon").label("bad grace period"),
        8 => step.json(&dry_run(json!({"gracePeriodSeconds": "soon"}))).label("bad grace period"),
        9 => step.json(&options(&json!({"dryRun": ["Some"]}))).label("unknown dry run"),
        10 => Step::new("odd deletion", "DELETE", builder.path_of(kind, name))
            .query("dryRun=Some")
            .label("unknown dry run"),
        11 => step.json(&json!({"kind": "Nonsense", "apiVersion": "v1"})).label("wrong kind"),
        12 => {
            step.json(&json!({"kind": "DeleteOptions", "apiVersion": "nothing.example.com/v1"})).label("wrong version")
        }
        13 => step.json(&json!({"dryRun": ["All"]})).label("no kind"),
        14 => step.json(&json!({"dryRun": ["All"], "nothing": 1})).label("unknown field"),
        15 => {
            let both = json!({"uid": format!("<<uid:{last}>>"), "resourceVersion": "1"});
            step.json(&dry_run(json!({"preconditions": both}))).label("right uid, wrong version")
        }
        16 => step.json(&dry_run(json!({"preconditions": null}))).label("null preconditions"),
        17 => step.json(&dry_run(json!({"preconditions": {"uid": "another"}}))).label("wrong uid"),
        18 => step.json(&dry_run(json!({"preconditions": {"uid": 5}}))).label("wrong type"),
        19 => step.json(&dry_run(json!({"orphanDependents": "yes"}))).label("wrong type"),
        20 => step.json(&dry_run(json!({"propagationPolicy": 5}))).label("wrong type"),
        21 => step.json(&options(&json!({"dryRun": "All"}))).label("wrong type"),
        _ => step.label("no JSON"),
    };
    if step.options.contains(&"no JSON") {
        step.content_type = "application/json";
        step.body = "{".into();
    }
    builder.push(step);
}

fn dry_run(mut fields: Value) -> Value {
    fields["dryRun"] = json!(["All"]);
    options(&fields)
}
