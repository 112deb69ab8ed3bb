//! `docs/operations.md`: its table of metrics is what a scrape has, and its alarms ask for nothing else.

use std::collections::BTreeSet;

use steadfast_testing::{Exposition, WorldError};

use super::World;

const OPERATIONS: &str = include_str!("../../../../docs/operations.md");

/// A row of the table for each family: its name as it is asked for, its type, its labels and its help.
fn rows(scraped: &Exposition) -> Vec<String> {
    let row = |(name, family): (&String, &steadfast_testing::Family)| {
        let total = if family.kind == "counter" { "_total" } else { "" };
        format!("| `{name}{total}` | {} | {} |", family.kind, family.help)
    };
    scraped.families.iter().map(row).collect()
}

#[tokio::test(start_paused = true)]
async fn the_table_of_metrics_is_what_a_scrape_has() -> Result<(), WorldError> {
    let expected = rows(&World::new().await?.scrape()?);
    let documented: Vec<&str> = OPERATIONS
        .lines()
        // Those of `steadfast notify` are held by a test of the program.
        .filter(|line| line.starts_with("| `steadfast_") && !line.starts_with("| `steadfast_notify_"))
        .collect();
    assert!(expected.len() > 30);
    assert_eq!(documented, expected, "the table has to be:\n{}\n", expected.join("\n"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn alarms_ask_only_for_metrics_and_label_values_that_there_are() -> Result<(), WorldError> {
    let world = World::new().await?;
    let informer = world.synced().await?;
    informer.on_event(|_| {})?;
    super::settled().await;
    let scraped = world.scrape()?;
    let named = |name: &str| {
        let family = name.trim_end_matches("_count").trim_end_matches("_bucket").trim_end_matches("_sum");
        let counter = |name: &str| scraped.families.get(name).is_some_and(|family| family.kind == "counter");
        match name.strip_suffix("_total") {
            Some(name) => counter(name),
            None => scraped.families.contains_key(family) && !counter(family),
        }
    };
    let (_, rules) = OPERATIONS.split_once("```yaml\n").expect("there are rules");
    let (rules, _) = rules.split_once("```").expect("they end");
    let mut asked = BTreeSet::new();
    for line in rules.lines().filter(|line| !line.contains("alert:")) {
        for part in line.split("steadfast_").skip(1) {
            let end = part.find(|letter: char| !letter.is_ascii_lowercase() && letter != '_').unwrap_or(part.len());
            let name = format!("steadfast_{}", &part[..end]);
            assert!(named(&name), "{name} is no metric: {line}");
            // Only a fixed set of values can be checked: causes that are counted on demand are not there yet.
            let selector = part[end..].strip_prefix('{').and_then(|rest| rest.split_once('}'));
            for pair in selector.map(|(inside, _)| inside.split(", ")).into_iter().flatten() {
                let (label, value) = pair.split_once("=\"").ok_or_else(|| format!("{pair} is no equality"))?;
                let value = value.trim_end_matches('"');
                assert!(scraped.sum(&name, &[(label, value)]).1 > 0, "{name} has no {label} that is {value}");
            }
            asked.insert(name);
        }
    }
    assert!(asked.len() >= 8, "{asked:?}");
    Ok(())
}
