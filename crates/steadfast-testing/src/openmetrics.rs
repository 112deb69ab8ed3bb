//! Parser for the response to a scrape. It rejects text that `OpenMetrics` does not allow.

use std::collections::BTreeMap;

/// Parsed response to a scrape.
#[derive(Debug, Default)]
pub struct Exposition {
    /// Families by name. The names of counters have no `_total`.
    pub families: BTreeMap<String, MetricFamily>,
    /// Samples in the order of the text.
    pub samples: Vec<Sample>,
}

/// Metric family with its metadata.
#[derive(Debug, Default)]
pub struct MetricFamily {
    /// Help text.
    pub help: String,
    /// Type: `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// Unit, if the family has one.
    pub unit: Option<String>,
}

/// One sample.
#[derive(Debug)]
pub struct Sample {
    /// Name with its suffix.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Value.
    pub value: f64,
}

impl Exposition {
    /// Parses `text`.
    ///
    /// # Errors
    ///
    /// Returns a message for the first error:
    ///
    /// - a line of unknown form, or a missing end;
    /// - a sample outside its family, or a repeated series;
    /// - missing or repeated metadata;
    /// - a name without the suffix of its type or unit.
    pub fn parse(text: &str) -> Result<Self, String> {
        // `OpenMetrics` requires the end marker, so that a scraper detects a truncated response.
        let Some(text) = text.strip_suffix("# EOF\n") else { return Err("\"# EOF\" is missing".to_owned()) };
        let mut exposition = Self::default();
        let mut family_name = String::new();
        for line in text.lines() {
            if let Some(metadata) = line.strip_prefix("# ") {
                exposition
                    .parse_metadata(metadata, &mut family_name)
                    .ok_or_else(|| format!("not valid metadata: {line:?}"))??;
            } else {
                let sample = Sample::parse(line).ok_or_else(|| format!("not a valid sample: {line:?}"))?;
                exposition.check_sample(&family_name, &sample)?;
                exposition.samples.push(sample);
            }
        }
        match exposition.families.iter().find(|(_, family)| family.help.is_empty() || family.kind.is_empty()) {
            Some((name, _)) => Err(format!("{name} has no HELP or no TYPE")),
            None => Ok(exposition),
        }
    }

    /// Returns the sum of the samples of `name` with these `labels`, and the number of those samples.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> (f64, usize) {
        // Labels that the caller does not specify may have any value.
        let is_match = |sample: &&Sample| {
            sample.name == name && labels.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|v| v == value))
        };
        self.samples.iter().filter(is_match).fold((0.0, 0), |(sum, count), sample| (sum + sample.value, count + 1))
    }

    fn parse_metadata(&mut self, metadata: &str, family_name: &mut String) -> Option<Result<(), String>> {
        let mut words = metadata.splitn(3, ' ');
        let (keyword, name, rest) = (words.next()?, words.next()?, words.next()?);
        // Metadata of one family must be contiguous. A name that returns after another family is an error.
        if name != family_name {
            if self.families.contains_key(name) {
                return Some(Err(format!("{name} occurs twice")));
            }
            name.clone_into(family_name);
        }
        let family = self.families.entry(name.to_owned()).or_default();
        match keyword {
            "HELP" => rest.clone_into(&mut family.help),
            "TYPE" => rest.clone_into(&mut family.kind),
            "UNIT" => family.unit = Some(rest.to_owned()),
            _ => return None,
        }
        let has_unit_suffix = family.unit.as_ref().is_none_or(|unit| name.ends_with(&format!("_{unit}")));
        Some(if has_unit_suffix { Ok(()) } else { Err(format!("{name} does not end in its unit {rest}")) })
    }

    fn check_sample(&self, family_name: &str, sample: &Sample) -> Result<(), String> {
        let Some(family) = self.families.get(family_name) else {
            return Err(format!("{} has no metadata", sample.name));
        };
        let suffixes: &[&str] = match family.kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => return Err(format!("{family_name} has an unknown type")),
        };
        // The suffix identifies the type: a counter without `_total` is invalid in `OpenMetrics`, unlike in the older
        // text format.
        if !suffixes.iter().any(|suffix| format!("{family_name}{suffix}") == sample.name) {
            return Err(format!("{} does not belong to {family_name}, a {}", sample.name, family.kind));
        }
        if self.samples.iter().any(|other| other.name == sample.name && other.labels == sample.labels) {
            return Err(format!("{sample:?} occurs twice"));
        }
        Ok(())
    }
}

impl Sample {
    /// Parses `name{label="value",…} 1.0`. Escape sequences in values are kept.
    fn parse(line: &str) -> Option<Self> {
        // Split from the end, because label values may contain spaces.
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').map_or((series, ""), |(name, rest)| (name, rest));
        let is_valid_name = |name: &str| {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        };
        let mut parsed_labels = BTreeMap::new();
        let mut rest = if series.contains('{') { labels.strip_suffix('}')? } else { "" };
        while !rest.is_empty() {
            let (key, value_start) = rest.split_once("=\"")?;
            // A quote is escaped only after an odd number of backslashes: `\\"` ends the value.
            let escaped =
                |index: usize| value_start[..index].bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1;
            let end = value_start.match_indices('"').map(|(index, _)| index).find(|index| !escaped(*index))?;
            if !is_valid_name(key) || parsed_labels.insert(key.to_owned(), value_start[..end].to_owned()).is_some() {
                return None;
            }
            rest = &value_start[end + 1..];
            rest = if rest.is_empty() { rest } else { rest.strip_prefix(',')? };
        }
        let value: f64 = value.parse().ok()?;
        is_valid_name(name).then(|| Self { name: name.to_owned(), labels: parsed_labels, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_exposition_is_rejected() {
        let metadata = "# HELP a Help\n# TYPE a counter\n";
        for (rest, problem) in [
            ("a_total{x=\"1\"} 1\n", "is missing"),
            ("a{x=\"1\"} 1\n# EOF\n", "does not belong"),
            ("a_total 1\na_total 2\n# EOF\n", "occurs twice"),
            ("a_total{x=\"1} 1\n# EOF\n", "not a valid sample"),
            ("# HELP b Help\n# TYPE b gauge\na_total 1\n# EOF\n", "does not belong"),
            ("# HELP b Help\n# EOF\n", "no HELP or no TYPE"),
            ("# HELP b Help\n# UNIT b seconds\n# EOF\n", "does not end in its unit"),
        ] {
            let message = Exposition::parse(&format!("{metadata}{rest}")).expect_err("the text is invalid");
            assert!(message.contains(problem), "{rest:?}: {message}");
        }
        let read = Exposition::parse(&format!("{metadata}a_total{{x=\"1\",y=\"a \\\" b\"}} 2.5\n# EOF\n"));
        assert_eq!(read.expect("the text is valid").sum("a_total", &[("x", "1")]), (2.5, 1));
    }
}
