use std::path::PathBuf;

use rcgen::{CertificateParams, KeyPair};

use super::*;

/// Temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("steadfast-inspect-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).expect("a file");
    }

    /// Writes a certificate that expires in `days`, and the private key.
    fn certificate(&self, name: &str, days: i64) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let until = Timestamp::now().as_second() + days * 24 * 3600;
        let until = jiff::Timestamp::from_second(until).expect("a time").to_zoned(jiff::tz::TimeZone::UTC);
        let (month, day) = (until.month().unsigned_abs(), until.day().unsigned_abs());
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(until.year().into(), month, day);
        self.write(&format!("{name}.crt"), &params.self_signed(&key).expect("a certificate").pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    fn findings(&self, sinks: &str) -> (Vec<String>, Vec<String>) {
        let to: Vec<_> = sinks.lines().filter_map(|line| line.strip_prefix("[sinks.")?.strip_suffix(']')).collect();
        let text = format!("{sinks}\n[[rules]]\nname = \"r\"\nresources = [\"pods\"]\nto = {to:?}\n");
        let file = self.0.join("notify.toml");
        let plan = Plan::read(&file.display().to_string(), &text).unwrap_or_else(|problems| panic!("{problems}"));
        let InspectionFindings { problems, warnings } = plan.inspect();
        let prefix = format!("{}:", file.display());
        let reported = |problem: &Problem| problem.to_string().replace(&prefix, "");
        (problems.iter().map(reported).collect(), warnings.iter().map(reported).collect())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn certificate_dates_are_checked() {
    let folder = Folder::new("dates");
    for (name, days) in [("good", 400), ("soon", 10), ("old", -2)] {
        folder.certificate(name, days);
    }
    let webhook = |files: &str| format!("[sinks.a]\nwebhook = {{url = \"https://localhost\", {files}}}");
    let with_certificate =
        |name: &str| webhook(&format!("certificate_file = \"{name}.crt\", key_file = \"{name}.key\""));
    assert_eq!(folder.findings(&with_certificate("good")), (vec![], vec![]));
    let (problems, warnings) = folder.findings(&with_certificate("soon"));
    assert!(problems.is_empty() && warnings.len() == 1, "{problems:?} {warnings:?}");
    assert!(warnings[0].starts_with("2:58: the certificate expires on "), "{warnings:?}");
    let (problems, _) = folder.findings(&with_certificate("old"));
    assert!(problems.len() == 1 && problems[0].contains("the certificate expired on"), "{problems:?}");
    let (problems, _) = folder.findings(&webhook("ca_file = \"old.crt\""));
    assert!(problems.len() == 1 && problems[0].contains("expired on"), "{problems:?}");
    let bundle = ["old", "good"].map(|name| std::fs::read_to_string(folder.0.join(format!("{name}.crt"))).expect("it"));
    folder.write("bundle.crt", &bundle.concat());
    assert_eq!(folder.findings(&webhook("ca_file = \"bundle.crt\"")), (vec![], vec![]));
}

#[test]
fn key_of_another_certificate_is_reported() {
    let folder = Folder::new("pair");
    folder.certificate("one", 400);
    folder.certificate("other", 400);
    folder.write("none.key", "not a key");
    let problems_with_key = |key: &str| {
        let files = format!("certificate_file = \"one.crt\", key_file = \"{key}\"");
        folder.findings(&format!("[sinks.a]\nwebhook = {{url = \"https://localhost\", {files}}}")).0
    };
    assert_eq!(problems_with_key("one.key"), [""; 0]);
    assert!(problems_with_key("other.key")[0].contains("the key does not belong to the certificate"));
    assert!(problems_with_key("none.key")[0].contains("no private key (PEM)"));
    assert!(problems_with_key("absent.key")[0].contains("cannot read"));
}

#[test]
fn missing_programs_and_secrets_are_reported_together() {
    let folder = Folder::new("programs");
    folder.write("tool", "");
    let (problems, warnings) = folder.findings(
        "[sinks.a]\nexec = {command = [\"./tool\"], secret_env = {A = {file = \"a\"}, B = {env = \"STEADFAST_NOT_SET\"}}}\n\
         [sinks.b]\nexec = {command = [\"steadfast-no-such-program\"]}\n\
         [sinks.c]\nexec = {command = [\"absent/tool\"]}\n\
         [sinks.d]\nexec = {command = [\"/bin/sh\"]}",
    );
    let expected = [
        ("2:19", "is not executable"),
        ("2:49", "the file a: "),
        ("2:67", "$STEADFAST_NOT_SET is not set"),
        ("4:19", "no program \"steadfast-no-such-program\" in PATH"),
        ("6:19", "cannot read the program \"absent/tool\""),
    ];
    assert_eq!((problems.len(), warnings.len()), (expected.len(), 0), "{problems:?}");
    for (problem, (position, description)) in problems.iter().zip(expected) {
        assert!(
            problem.starts_with(position) && problem.contains(description),
            "{problem} instead of {position} {description}"
        );
    }
}
