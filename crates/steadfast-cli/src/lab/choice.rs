//! Which scenarios are meant by names and numbers.

use steadfast_testing::menu::{Fault, Scenario, Source, scenarios};

/// The scenarios of these names, of these faults (`F4`), or `all`, in the order of the table; unless any is named, those
/// of the documents, which are quick.
pub(super) fn choose(names: &[String]) -> Result<Vec<&'static Scenario>, String> {
    let mut asks = Vec::new();
    for name in names {
        asks.push(Ask::of(name)?);
    }
    if asks.is_empty() {
        asks.push(Ask::Documents);
    }
    Ok(scenarios::all().filter(|scenario| asks.iter().any(|ask| ask.means(scenario))).collect())
}

/// The faults of these numbers; none for `all`, and where none is named.
pub(super) fn faults(names: &[String]) -> Result<Vec<Fault>, String> {
    let fault = |name: &String| name.parse().map_err(|()| format!("{name:?} is no fault: `F4` would be one"));
    names.iter().filter(|name| *name != "all").map(fault).collect()
}

enum Ask {
    All,
    Documents,
    Fault(Fault),
    Named(&'static str),
}

impl Ask {
    fn of(name: &str) -> Result<Self, String> {
        if name == "all" {
            return Ok(Self::All);
        }
        if let Ok(fault) = name.parse::<Fault>() {
            return match fault.cannot_be_made() {
                Some(why) => Err(format!("{fault}, {}, cannot be made: {why}", fault.title())),
                None if scenarios::of(fault).next().is_none() => Err(format!("nothing tells of {fault} yet")),
                None => Ok(Self::Fault(fault)),
            };
        }
        let scenario = scenarios::named(name).ok_or_else(|| {
            format!("there is no scenario and no fault {name:?}; `steadfast lab all --list` explains those there are")
        })?;
        Ok(Self::Named(scenario.name))
    }

    fn means(&self, scenario: &Scenario) -> bool {
        match self {
            Self::All => true,
            Self::Documents => scenario.source != Source::Menu,
            Self::Fault(fault) => scenario.faults.contains(fault),
            Self::Named(name) => scenario.name == *name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str]) -> Vec<&'static str> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        choose(&names).expect("they are there").into_iter().map(|scenario| scenario.name).collect()
    }

    #[test]
    fn the_documents_are_chosen_unless_something_is_named() {
        assert_eq!(chosen(&[]).len(), 17);
        assert_eq!(chosen(&["all"]).len(), scenarios::all().count());
        assert_eq!(chosen(&["time-travel", "no-spin"]), ["no-spin", "time-travel"]);
    }

    #[test]
    fn a_fault_is_chosen_by_its_number_and_means_all_that_tell_of_it() {
        assert!(chosen(&["f9"]).contains(&"watch-closed"));
        assert_eq!(chosen(&["F9", "f9"]), chosen(&["F9"]));
        for fault in Fault::ALL {
            let held_back = [Fault::NoBookmarks, Fault::EventsLost].contains(&fault);
            let there = held_back || fault.cannot_be_made().is_some() || !chosen(&[&fault.to_string()]).is_empty();
            assert!(there, "{fault}");
        }
    }

    #[test]
    fn what_there_is_not_and_what_cannot_be_made_is_told() {
        assert!(choose(&["nope".to_owned()]).is_err_and(|why| why.contains("--list")));
        assert!(choose(&["F35".to_owned()]).is_err_and(|why| why.contains("F35")));
        assert!(choose(&["F31".to_owned()]).is_err_and(|why| why.contains("cannot be made")));
    }
}
