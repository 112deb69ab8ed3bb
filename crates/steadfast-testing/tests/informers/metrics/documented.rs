//! Checks the table of metrics in `docs/operations.md` against a scrape, and its alerts against the table.

use std::collections::BTreeSet;

use steadfast_testing::{Exposition, TestError};

use super::MetricsFixture;

const OPERATIONS: &str = include_str!("../../../../../docs/operations.md");

/// Returns the expected row of each family: its name in queries, its type, its labels and its help.
fn rows(scraped: &Exposition) -> Vec<String> {
    let row = |(name, family): (&String, &steadfast_testing::MetricFamily)| {
        let total = if family.kind == "counter" { "_total" } else { "" };
        format!("| `{name}{total}` | {} | {} |", family.kind, family.help)
    };
    scraped.families.iter().map(row).collect()
}

#[tokio::test(start_paused = true)]
async fn metrics_table_matches_scrape() -> Result<(), TestError> {
    let expected = rows(&MetricsFixture::new().await?.scrape()?);
    let documented: Vec<&str> = OPERATIONS
        .lines()
        // A test in the program checks the metrics of `steadfast notify`.
        .filter(|line| line.starts_with("| `steadfast_") && !line.starts_with("| `steadfast_notify_"))
        .collect();
    assert!(expected.len() > 30);
    assert_eq!(documented, expected, "the expected table is:\n{}\n", expected.join("\n"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn alerts_use_existing_metrics_and_labels() -> Result<(), TestError> {
    let fixture = MetricsFixture::new().await?;
    let informer = fixture.synced_informer().await?;
    informer.on_event(|_| {})?;
    super::settle().await;
    let scraped = fixture.scrape()?;
    let has_metric = |name: &str| {
        let family = name.trim_end_matches("_count").trim_end_matches("_bucket").trim_end_matches("_sum");
        let counter = |name: &str| scraped.families.get(name).is_some_and(|family| family.kind == "counter");
        match name.strip_suffix("_total") {
            Some(name) => counter(name),
            None => scraped.families.contains_key(family) && !counter(family),
        }
    };
    let (_, rules) = OPERATIONS.split_once("```yaml\n").expect("the page has rules");
    let (rules, _) = rules.split_once("```").expect("the rules have an end");
    let mut used_metrics = BTreeSet::new();
    for line in rules.lines().filter(|line| !line.contains("alert:")) {
        for part in line.split("steadfast_").skip(1) {
            let end =
                part.find(|character: char| !character.is_ascii_lowercase() && character != '_').unwrap_or(part.len());
            let name = format!("steadfast_{}", &part[..end]);
            assert!(has_metric(&name), "{name} is not a metric: {line}");
            // The series of a cause does not exist before the cause is counted, so only fixed label values can be
            // checked.
            let selector = part[end..].strip_prefix('{').and_then(|rest| rest.split_once('}'));
            for pair in selector.map(|(labels, _)| labels.split(", ")).into_iter().flatten() {
                let (label, value) =
                    pair.split_once("=\"").ok_or_else(|| format!("{pair} is not an equality matcher"))?;
                let value = value.trim_end_matches('"');
                assert!(scraped.sum(&name, &[(label, value)]).1 > 0, "{name} has no {label} with the value {value}");
            }
            used_metrics.insert(name);
        }
    }
    assert!(used_metrics.len() >= 8, "{used_metrics:?}");
    Ok(())
}
