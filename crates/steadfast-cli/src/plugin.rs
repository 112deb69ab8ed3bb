//! Plugin of kubectl: `kubectl steadfast …` runs the program by a link named `kubectl-steadfast`, and requests completions
//! by a link named `kubectl_complete-steadfast`.

use std::ffi::OsStr;
use std::path::Path;

use clap::{Arg, Command, ValueHint};

/// Directives of cobra, which kubectl uses: how a shell treats the completions.
const COMPLETE_FILES: u8 = 0;
const COMPLETE_NO_FILES: u8 = 4;

/// Role of the program, determined by the name under which it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartedAs {
    /// By its own name.
    Program,
    /// As a plugin of kubectl.
    Plugin,
    /// As the completion of the plugin.
    Completion,
}

impl StartedAs {
    /// Returns the role for the path of the program, as the caller wrote it.
    pub(crate) fn of(program: Option<&OsStr>) -> Self {
        match program.map(Path::new).and_then(Path::file_stem).and_then(OsStr::to_str) {
            Some("kubectl-steadfast") => Self::Plugin,
            Some("kubectl_complete-steadfast") => Self::Completion,
            _ => Self::Program,
        }
    }
}

/// Replaces the name of the program in all help texts by `kubectl steadfast`.
pub(crate) fn named_as_plugin(command: Command) -> Command {
    with_plugin_examples(command).bin_name("kubectl steadfast")
}

fn with_plugin_examples(mut command: Command) -> Command {
    if let Some(help) = command.get_after_help().map(ToString::to_string) {
        command = command.after_help(help.replace("  steadfast ", "  kubectl steadfast "));
    }
    command.mut_subcommands(with_plugin_examples)
}

/// Returns the completions of the last word of `words` in the format of cobra: one per line, and then a directive.
pub(crate) fn completions(command: &Command, words: &[String]) -> String {
    let (current, earlier) = words.split_last().map_or(("", &[][..]), |(current, earlier)| (current.as_str(), earlier));
    let (mut command, mut awaiting): (&Command, Option<&Arg>) = (command, None);
    for word in earlier {
        if awaiting.take().is_some() {
            continue;
        }
        if let Some(arg) = flag(command, word) {
            awaiting = Some(arg).filter(|arg| takes_value(arg) && !word.contains('='));
        } else if let Some(subcommand) = command.find_subcommand(word) {
            command = subcommand;
        }
    }
    let (lines, directive) = match (awaiting, current.split_once('=').zip(flag(command, current))) {
        (Some(arg), _) => (values(arg, "", current), directive(arg)),
        (None, Some(((name, value), arg))) => (values(arg, &format!("{name}="), value), directive(arg)),
        (None, None) if current.starts_with('-') => (flags(command, current), COMPLETE_NO_FILES),
        (None, None) => (subcommands(command, current), COMPLETE_NO_FILES),
    };
    lines.into_iter().map(|line| line + "\n").collect::<String>() + &format!(":{directive}\n")
}

/// Returns the flag that `word` names: `-o`, `--output` or `--output=json`.
fn flag<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let name = word.split('=').next().unwrap_or(word);
    let is_named = |arg: &&Arg| match name.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short().is_some_and(|short| *name == format!("-{short}")),
    };
    command.get_arguments().find(is_named)
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

/// Returns whether a shell completes the value of a flag with files.
fn directive(arg: &Arg) -> u8 {
    match arg.get_value_hint() {
        ValueHint::FilePath | ValueHint::DirPath | ValueHint::AnyPath => COMPLETE_FILES,
        _ => COMPLETE_NO_FILES,
    }
}

fn values(arg: &Arg, prefix: &str, current: &str) -> Vec<String> {
    let values = arg.get_possible_values();
    let matching = values.iter().map(clap::builder::PossibleValue::get_name).filter(|name| name.starts_with(current));
    matching.map(|name| format!("{prefix}{name}")).collect()
}

fn flags(command: &Command, current: &str) -> Vec<String> {
    let visible = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let named = visible.filter_map(|arg| Some((format!("--{}", arg.get_long()?), arg.get_help())));
    let matching = named.filter(|(name, _)| name.starts_with(current));
    matching.map(|(name, help)| described(&name, help.map(ToString::to_string).as_deref())).collect()
}

fn subcommands(command: &Command, current: &str) -> Vec<String> {
    let visible = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    let matching = visible.filter(|subcommand| subcommand.get_name().starts_with(current));
    matching
        .map(|subcommand| described(subcommand.get_name(), subcommand.get_about().map(ToString::to_string).as_deref()))
        .collect()
}

/// Returns a completion with the first line of its description, which cobra separates by a tab.
fn described(name: &str, help: Option<&str>) -> String {
    match help.and_then(|help| help.lines().next()) {
        Some(line) => format!("{name}\t{line}"),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn complete(words: &[&str]) -> Vec<String> {
        let mut command = Cli::command();
        command.build();
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let text = completions(&command, &words);
        text.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn name_of_link_selects_role() {
        let role = |path: &str| StartedAs::of(Some(OsStr::new(path)));
        assert_eq!(role("/usr/bin/kubectl-steadfast"), StartedAs::Plugin);
        assert_eq!(role("kubectl-steadfast.exe"), StartedAs::Plugin);
        assert_eq!(role("/x/kubectl_complete-steadfast"), StartedAs::Completion);
        assert_eq!(role("/usr/bin/steadfast"), StartedAs::Program);
        assert_eq!(StartedAs::of(None), StartedAs::Program);
    }

    #[test]
    fn commands_and_flags_are_completed() {
        let commands = complete(&[""]);
        assert!(commands.contains(&"watch".to_owned()) && !commands.contains(&"generate".to_owned()), "{commands:?}");
        assert_eq!(complete(&["wat"]), ["watch", ":4"]);
        assert_eq!(complete(&["watch", "pods", "--all"]), ["--all-namespaces", ":4"]);
        assert_eq!(complete(&["doctor", "-o", "j"]), ["json", ":4"]);
        assert_eq!(complete(&["doctor", "--output=j"]), ["--output=json", ":4"]);
        assert_eq!(complete(&["watch", "--kubeconfig", ""]), [":0"]);
        assert_eq!(complete(&["watch", "-n", "watch", "--wait-f"]), ["--wait-for-kind", ":4"]);
        assert_eq!(complete(&["notify", "che"]), ["check", ":4"]);
    }

    #[test]
    fn help_names_plugin() {
        let mut command = named_as_plugin(Cli::command());
        command.build();
        let watch = command.find_subcommand_mut("watch").expect("a command");
        let help = watch.render_long_help().to_string();
        assert!(help.contains("Usage: kubectl steadfast watch"), "{help}");
        assert!(help.contains("\n  kubectl steadfast watch pods\n"), "{help}");
        assert!(!help.contains("\n  steadfast "), "{help}");
    }
}
