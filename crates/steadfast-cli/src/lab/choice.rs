//! Selects scenarios by names and numbers.

use steadfast_testing::scenarios::{CatalogFault, Scenario, ScenarioSource, catalog};

/// Returns the selected scenarios in the order of the catalog. Each of `names` is the name of a scenario, a fault
/// (`F4`), or `all`. No names select the scenarios outside of the fault catalog, which are short.
pub(super) fn choose(names: &[String]) -> Result<Vec<&'static Scenario>, String> {
    let mut selections = Vec::new();
    for name in names {
        selections.push(Selection::parse(name)?);
    }
    if selections.is_empty() {
        selections.push(Selection::Documents);
    }
    Ok(catalog::all().filter(|scenario| selections.iter().any(|selection| selection.matches(scenario))).collect())
}

/// Parses the numbers of faults. `all` and an empty list return no faults.
pub(super) fn faults(names: &[String]) -> Result<Vec<CatalogFault>, String> {
    let fault =
        |name: &String| name.parse().map_err(|()| format!("{name:?} is not a fault; use a number such as `F4`"));
    names.iter().filter(|name| *name != "all").map(fault).collect()
}

enum Selection {
    All,
    Documents,
    Fault(CatalogFault),
    Named(&'static str),
}

impl Selection {
    fn parse(name: &str) -> Result<Self, String> {
        if name == "all" {
            return Ok(Self::All);
        }
        if let Ok(fault) = name.parse::<CatalogFault>() {
            return match fault.unsupported_reason() {
                Some(reason) => Err(format!("{fault}, {}, cannot be made: {reason}", fault.title())),
                None if catalog::of(fault).next().is_none() => Err(format!("{fault} has no scenario yet")),
                None => Ok(Self::Fault(fault)),
            };
        }
        let scenario = catalog::named(name).ok_or_else(|| {
            format!("unknown scenario or fault {name:?}; `steadfast lab all --list` lists all scenarios")
        })?;
        Ok(Self::Named(scenario.name))
    }

    fn matches(&self, scenario: &Scenario) -> bool {
        match self {
            Self::All => true,
            Self::Documents => scenario.source != ScenarioSource::FaultCatalog,
            Self::Fault(fault) => scenario.faults.contains(fault),
            Self::Named(name) => scenario.name == *name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen_names(names: &[&str]) -> Vec<&'static str> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        choose(&names).expect("existing names").into_iter().map(|scenario| scenario.name).collect()
    }

    #[test]
    fn default_selection_is_documents() {
        assert_eq!(chosen_names(&[]).len(), 17);
        assert_eq!(chosen_names(&["all"]).len(), catalog::all().count());
        assert_eq!(chosen_names(&["time-travel", "no-spin"]), ["no-spin", "time-travel"]);
    }

    #[test]
    fn fault_number_selects_its_scenarios() {
        assert!(chosen_names(&["f9"]).contains(&"watch-closed"));
        assert_eq!(chosen_names(&["F9", "f9"]), chosen_names(&["F9"]));
        for fault in CatalogFault::ALL {
            let is_without_scenario = [CatalogFault::NoBookmarks, CatalogFault::EventsLost].contains(&fault);
            let is_selectable = is_without_scenario
                || fault.unsupported_reason().is_some()
                || !chosen_names(&[&fault.to_string()]).is_empty();
            assert!(is_selectable, "{fault}");
        }
    }

    #[test]
    fn unknown_and_impossible_names_are_rejected() {
        assert!(choose(&["nope".to_owned()]).is_err_and(|reason| reason.contains("--list")));
        assert!(choose(&["F35".to_owned()]).is_err_and(|reason| reason.contains("F35")));
        assert!(choose(&["F31".to_owned()]).is_err_and(|reason| reason.contains("cannot be made")));
    }
}
