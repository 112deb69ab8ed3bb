//! Options of reads.

use crate::differential::generate::ScriptBuilder;
use crate::differential::script::{ReadMode, Step};

/// Adds a list or a watch with invalid or unusual options.
pub fn add_odd_options(builder: &mut ScriptBuilder) {
    let index = builder.kind();
    let (option, query) = builder.rng.pick(&[
        ("bad limit", "limit=many"),
        ("bad limit", "limit=1.5"),
        ("negative limit", "limit=-1"),
        ("empty limit", "limit="),
        ("bad version", "resourceVersion=abc"),
        ("negative version", "resourceVersion=-1"),
        ("version too large to be one", "resourceVersion=99999999999999999999999"),
        ("match without version", "resourceVersionMatch=Exact"),
        ("match without version", "resourceVersionMatch=NotOlderThan"),
        ("exact zero", "resourceVersion=0&resourceVersionMatch=Exact"),
        ("unknown match", "resourceVersion=5&resourceVersionMatch=Roughly"),
        ("match with continue", "limit=1&continue=abc&resourceVersion=5&resourceVersionMatch=Exact"),
        ("version with continue", "limit=1&continue=abc&resourceVersion=5"),
        ("bad continue", "limit=1&continue=abc"),
        ("bad continue", "limit=1&continue=e30"),
        ("bad label selector", "labelSelector=app%3D%3D%3Dx"),
        ("bad label selector", "labelSelector=app+in+web"),
        ("bad label selector", "labelSelector=app+in+%28web"),
        ("bad label selector", "labelSelector=%2C"),
        ("bad label selector", "labelSelector=app+web"),
        ("bad label selector", "labelSelector=app%3Dweb%2C"),
        ("bad label selector", "labelSelector=rank%3Ex"),
        ("bad label key", "labelSelector=-app%3Dweb"),
        ("bad label key", "labelSelector=a%2Fb%2Fc"),
        ("bad label value", "labelSelector=app%3D-web"),
        ("bad field selector", "fieldSelector=spec.nothing%3Dx"),
        ("bad field selector", "fieldSelector=nonsense"),
        ("bad field selector", "fieldSelector=metadata.name%3Da%5Cx"),
        ("initial events of a list", "sendInitialEvents=true"),
        ("initial events of a list", "sendInitialEvents=false"),
        ("initial events without match", "watch=true&sendInitialEvents=true&timeoutSeconds=2"),
        ("initial events without match", "watch=true&sendInitialEvents=false&timeoutSeconds=2"),
        (
            "initial events matched exactly",
            "watch=true&sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1",
        ),
        ("match of a watch", "watch=true&resourceVersionMatch=NotOlderThan&resourceVersion=1&timeoutSeconds=2"),
        ("watch from a bad version", "watch=true&resourceVersion=abc&timeoutSeconds=2"),
        ("watch with continue", "watch=true&continue=abc&timeoutSeconds=1"),
        ("bad flag", "watch=maybe&timeoutSeconds=1"),
        ("bad flag", "watch=true&allowWatchBookmarks=maybe&timeoutSeconds=1"),
        ("bad timeout", "timeoutSeconds=soon"),
        ("negative timeout", "timeoutSeconds=-1"),
        ("unknown parameter", "nothing=1&other=x"),
        ("pretty", "pretty=true"),
        ("no watch", "watch=false"),
        ("no watch", "watch=0"),
        ("empty parameters", "labelSelector=&fieldSelector=&continue=&resourceVersion="),
    ]);
    let step = Step::new("odd options", "GET", format!("{}?{query}", builder.collection(index))).label(option);
    let step = if query.contains("labelSelector=") { step } else { builder.limit_to_own_objects(index, step) };
    let step = if query.contains("watch") && !query.contains("watch=false") && !query.contains("watch=0") {
        Step { read_mode: ReadMode::Events, ..step }
    } else {
        step
    };
    if query.contains("labelSelector=&") && !crate::differential::kinds::KINDS[index].is_namespaced {
        return;
    }
    builder.push(step);
}
