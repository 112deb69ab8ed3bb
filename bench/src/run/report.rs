//! Reports of the figures: text, pictures, and tables in documents.
//!
//! A document marks the position of a table by a line `<!-- bench: NAME -->` before it and `<!-- bench: end -->` after
//! it. The text in between is replaced. `NAME` is one of the names in [`tables_by_name`].

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::machine::RunEnvironment;
use super::picture;
use super::results::Results;
use super::tables::{faults, measurements};
use crate::BenchError;

/// Regenerates tables and pictures from the results of an earlier run.
#[derive(clap::Args)]
pub(crate) struct ReportArgs {
    /// Folder of the results
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// Documents with tables to update
    #[arg(long)]
    write: Vec<PathBuf>,
}

const END_MARK: &str = "<!-- bench: end -->";

/// Faults in the README: the number, and a prefix of the scenario's title (empty for all).
const FAULTS_OF_FIRST_PAGE: &[(&str, &str)] = &[("F4", "black hole"), ("F7", ""), ("F12", ""), ("F13", "")];

/// Prints and writes all reports.
pub(crate) fn run(args: &ReportArgs) -> Result<(), BenchError> {
    write(&Results::read(&args.out)?, &args.out, &args.write)
}

/// Prints all tables, writes them and the pictures into `folder`, and updates the tables in `documents`.
pub(super) fn write(results: &Results, folder: &Path, documents: &[PathBuf]) -> Result<(), BenchError> {
    println!("{}", write_files(results, folder)?);
    let tables = tables_by_name(results);
    for document in documents {
        let old = std::fs::read_to_string(document).map_err(|error| format!("{}: {error}", document.display()))?;
        let new = with_tables_replaced(&old, &tables).map_err(|error| format!("{}: {error}", document.display()))?;
        std::fs::write(document, new)?;
    }
    Ok(())
}

/// Writes the results so far, so that an interrupted run keeps them.
pub(super) fn save_partial(results: &Results, folder: &Path) -> Result<(), BenchError> {
    results.write(folder)?;
    write_files(results, folder).map(drop)
}

/// Writes `tables.md` and the pictures into `folder`, and returns the tables.
pub(super) fn write_files(results: &Results, folder: &Path) -> Result<String, BenchError> {
    let mut text_of_all = String::new();
    for (name, text) in tables_by_name(results) {
        let _ = writeln!(text_of_all, "## {name}\n\n{}\n", text.trim_end());
    }
    std::fs::write(folder.join("tables.md"), &text_of_all)?;
    for (part, part_results) in [("replayed", &results.replayed), ("real", &results.real)] {
        if let Some(part_results) = part_results {
            picture::draw(part_results, part, folder)?;
        }
    }
    if let Some(fault_results) = &results.faults {
        picture::draw_faults(fault_results, folder)?;
    }
    Ok(text_of_all)
}

/// Returns the tables by name: environment, summary and complete tables of each part that was run.
fn tables_by_name(results: &Results) -> Vec<(&'static str, String)> {
    let mut by_name = Vec::new();
    let parts = [
        (["replayed-setting", "replayed-summary", "replayed"], &results.replayed),
        (["real-setting", "real-summary", "real"], &results.real),
    ];
    for ([environment, summary, tables], part_results) in parts {
        if let Some(part_results) = part_results {
            by_name.push((environment, describe_environment(&part_results.environment, part_results.seconds)));
            by_name.push((summary, measurements::summary(part_results)));
            by_name.push((tables, measurements::tables(part_results)));
        }
    }
    if let Some(part_results) = &results.replayed {
        by_name.push(("replayed-defaults", measurements::defaults(part_results)));
        by_name.push(("replayed-first-page", measurements::first_page(part_results)));
    }
    if let Some(fault_results) = &results.faults {
        by_name.push(("faults-setting", describe_environment(&fault_results.environment, fault_results.run_seconds)));
        by_name.push(("faults-summary", faults::summary(fault_results, None)));
        by_name.push(("faults-first-page", faults::summary(fault_results, Some(FAULTS_OF_FIRST_PAGE))));
        by_name.push(("faults", faults::table(fault_results)));
    }
    by_name
}

fn describe_environment(environment: &RunEnvironment, seconds: u64) -> String {
    let lines =
        [&environment.day, &environment.machine, &environment.versions].map(|line| format!("- {line}\n")).concat();
    format!("{lines}- `{}`: this part took {seconds} s\n", environment.command)
}

/// Replaces the text between the marks in `document`. The text of a mark without results stays unchanged.
fn with_tables_replaced(document: &str, tables: &[(&str, String)]) -> Result<String, BenchError> {
    let mut new = String::new();
    let mut rest = document;
    let mut marks = 0;
    while let Some(mark_start) = rest.find("<!-- bench: ") {
        // The mark itself stays in the document, so that the next report finds it.
        let mark_end = rest[mark_start..].find('\n').ok_or("the document ends after a mark")? + mark_start + 1;
        let name = rest[mark_start + "<!-- bench: ".len()..mark_end].trim().trim_end_matches("-->").trim();
        let end = rest[mark_end..].find(END_MARK).ok_or_else(|| format!("the mark {name} has no end: {END_MARK}"))?
            + mark_end;
        new.push_str(&rest[..mark_end]);
        match tables.iter().find(|(table_name, _)| *table_name == name) {
            Some((_, text)) => {
                let _ = writeln!(new, "{}", text.trim_end());
            }
            None => new.push_str(&rest[mark_end..end]),
        }
        new.push_str(END_MARK);
        rest = &rest[end + END_MARK.len()..];
        marks += 1;
    }
    if marks == 0 {
        // A document without a mark is probably the wrong file.
        return Err("the document has no mark <!-- bench: NAME -->".into());
    }
    new.push_str(rest);
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_text_is_replaced() -> Result<(), BenchError> {
        let document =
            "a\n<!-- bench: one -->\nold\n<!-- bench: end -->\nb\n<!-- bench: two -->\nold\n<!-- bench: end -->\n";
        let new = with_tables_replaced(document, &[("one", "new\n".to_owned())])?;
        assert_eq!(
            new,
            "a\n<!-- bench: one -->\nnew\n<!-- bench: end -->\nb\n<!-- bench: two -->\nold\n<!-- bench: end -->\n"
        );
        assert!(with_tables_replaced("nothing", &[]).is_err());
        assert!(with_tables_replaced("<!-- bench: one -->\nopen", &[]).is_err());
        Ok(())
    }
}
