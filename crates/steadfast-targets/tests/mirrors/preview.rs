//! A preview returns the planned steps, and neither runs nor records them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use steadfast_targets::haproxy::{Haproxy, Server};
use steadfast_targets::{DesiredState, DryRun, Mirror, MirrorMemory, MirrorSettings, Step, Target, preview};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn desired(names: &[&str]) -> Result<DesiredState<Server>> {
    let server = Server { address: "10.0.0.1:80".parse()?, weight: 1 };
    Ok(DesiredState::new(names.iter().map(|&name| (name.to_owned(), server)).collect()))
}

/// Collected output.
type Commands = Arc<Mutex<Vec<String>>>;

/// HAProxy without clients, and the planned steps.
fn dry_run() -> Result<(DryRun<Haproxy>, Commands)> {
    let commands = Arc::new(Mutex::new(Vec::new()));
    let on_commands = {
        let commands = commands.clone();
        move |words| commands.lock().extend::<Vec<String>>(words)
    };
    Ok((DryRun::new(Haproxy::new(Path::new("/nowhere/admin.sock"), "web", "sf-")?, on_commands), commands))
}

#[tokio::test]
async fn preview_changes_and_records_nothing() -> Result {
    let (target, commands) = dry_run()?;
    let file = std::env::temp_dir().join(format!("steadfast-preview-{}.json", std::process::id()));
    let memory = MirrorMemory::open(&file)?;
    let settings = MirrorSettings::default();
    let names = ["a", "b", "c", "d"];
    let previewed =
        preview("web", &target, &settings, &memory, &desired(&names)?).await.map_err(|reason| reason.to_string())?;
    assert_eq!((previewed.steps.len(), previewed.commands.len(), previewed.first_approval), (4, 8, None));
    assert_eq!(
        previewed.commands[0],
        "echo 'add server web/sf-a 10.0.0.1:80 weight 1' | socat stdio /nowhere/admin.sock"
    );
    assert_eq!(target.read().await?.own, BTreeMap::new());
    assert!(commands.lock().is_empty());

    // Removing more than a third of the entries would need approval. A preview never creates the approval request,
    // however often it runs.
    let adds: Vec<Step<Server>> = previewed.steps;
    target.apply(&adds).await?;
    for _ in 0..2 {
        let previewed = preview("web", &target, &settings, &memory, &desired(&["a"])?)
            .await
            .map_err(|reason| reason.to_string())?;
        assert_eq!((previewed.steps.len(), previewed.skipped.len()), (0, 3));
        assert_eq!(
            previewed.first_approval.map(|request| request.names),
            Some(["b", "c", "d"].map(str::to_owned).to_vec())
        );
    }
    assert!(memory.first_approvals().is_empty() && !file.exists());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn dry_run_takes_all_mirror_steps() -> Result {
    let (target, commands) = dry_run()?;
    let mirror = Mirror::start("web", target, MirrorSettings::default(), MirrorMemory::volatile());
    let mut status = mirror.status();
    mirror.set_desired(desired(&["a", "b", "c", "d"])?);
    status.wait_for(|status| status.settled && status.entries == 4).await?;
    mirror.set_desired(desired(&["a", "b", "c"])?);
    status.wait_for(|status| status.settled && status.entries == 3).await?;
    let commands = commands.lock().join("\n");
    let order =
        ["add server web/sf-d", "set server web/sf-d weight 0", "del server web/sf-d"].map(|word| commands.find(word));
    assert!(order.iter().all(Option::is_some) && order.is_sorted(), "drained before removal: {commands}");
    Ok(())
}
