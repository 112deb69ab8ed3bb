//! Options of deletions.

use serde_json::{Value, json};

use crate::differential::generate::ScriptBuilder;
use crate::differential::script::Step;
use crate::differential::writes::{create, options};

/// Adds a deletion with invalid or unusual options.
///
/// If the request has a body, only the options in the body count. Query and body both request a dry run, so that the
/// object stays.
pub fn deletions(builder: &mut ScriptBuilder) {
    let Some((kind, name, last)) = builder.existing() else { return create(builder) };
    let step = Step::new("odd deletion", "DELETE", builder.at(kind, name)).query("dryRun=All");
    let mut made = match builder.chance.below(23) {
        0 => step.json(&dry(json!({"propagationPolicy": "Roughly"}))).with("unknown propagation"),
        1 => step.query("propagationPolicy=Roughly").with("unknown propagation"),
        2 => {
            let both = json!({"propagationPolicy": "Background", "orphanDependents": false});
            step.json(&dry(both)).with("both propagations")
        }
        3 => step.query("propagationPolicy=Background&orphanDependents=false").with("both propagations"),
        4 => step.json(&dry(json!({"orphanDependents": false}))).with("orphans"),
        5 => step.json(&dry(json!({"gracePeriodSeconds": -1}))).with("negative grace period"),
        6 => step.query("gracePeriodSeconds=-5").with("negative grace period"),
        7 => step.query("gracePeriodSeconds=soon").with("bad grace period"),
        8 => step.json(&dry(json!({"gracePeriodSeconds": "soon"}))).with("bad grace period"),
        9 => step.json(&options(&json!({"dryRun": ["Some"]}))).with("unknown dry run"),
        10 => Step::new("odd deletion", "DELETE", builder.at(kind, name)).query("dryRun=Some").with("unknown dry run"),
        11 => step.json(&json!({"kind": "Nonsense", "apiVersion": "v1"})).with("wrong kind"),
        12 => {
            step.json(&json!({"kind": "DeleteOptions", "apiVersion": "nothing.example.com/v1"})).with("wrong version")
        }
        13 => step.json(&json!({"dryRun": ["All"]})).with("no kind"),
        14 => step.json(&json!({"dryRun": ["All"], "nothing": 1})).with("unknown field"),
        15 => {
            let both = json!({"uid": format!("<<uid:{last}>>"), "resourceVersion": "1"});
            step.json(&dry(json!({"preconditions": both}))).with("right uid, wrong version")
        }
        16 => step.json(&dry(json!({"preconditions": null}))).with("null preconditions"),
        17 => step.json(&dry(json!({"preconditions": {"uid": "another"}}))).with("wrong uid"),
        18 => step.json(&dry(json!({"preconditions": {"uid": 5}}))).with("wrong type"),
        19 => step.json(&dry(json!({"orphanDependents": "yes"}))).with("wrong type"),
        20 => step.json(&dry(json!({"propagationPolicy": 5}))).with("wrong type"),
        21 => step.json(&options(&json!({"dryRun": "All"}))).with("wrong type"),
        _ => step.with("no JSON"),
    };
    if made.options.contains(&"no JSON") {
        made.content_type = "application/json";
        made.body = "{".into();
    }
    builder.push(made);
}

fn dry(mut fields: Value) -> Value {
    fields["dryRun"] = json!(["All"]);
    options(&fields)
}
