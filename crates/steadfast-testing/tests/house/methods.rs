//! Methods of a type and the calls between them, for types whose `impl` blocks are in several files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::modules::{ModuleId, Modules};
use crate::tokens::Tree;

/// One `impl` block of a module.
#[derive(Debug)]
pub(crate) struct ImplBlock {
    /// Path of the type, as the block names it.
    pub(crate) type_path: Vec<String>,
    /// True for the implementation of a trait.
    pub(crate) is_trait_impl: bool,
    /// Methods and associated functions that the block defines; none for a block of a trait.
    pub(crate) methods: BTreeSet<String>,
    /// Number of calls to each method of the block's own type.
    pub(crate) calls: BTreeMap<String, usize>,
}

/// Calls between two files with methods of the type: calling file, called file, and the number of calls by method.
pub(crate) type Calls = BTreeMap<(PathBuf, PathBuf), BTreeMap<String, usize>>;

/// Methods of one type.
#[derive(Debug, Default)]
pub(crate) struct Methods {
    /// Names of the methods, by the file that defines them.
    pub(crate) by_file: BTreeMap<PathBuf, BTreeSet<String>>,
    calls: BTreeMap<PathBuf, BTreeMap<String, usize>>,
}

impl ImplBlock {
    /// Reads an `impl` block. Returns `None` for any other item.
    pub(crate) fn read(declared: &[Tree]) -> Option<Self> {
        let [Tree::Word(keyword), head @ .., Tree::Group('{', body)] = declared else { return None };
        if keyword != "impl" {
            return None;
        }
        let is_for = |at: &usize| head[*at].is_word("for") && !head.get(at + 1).is_some_and(|next| next.is_sign('<'));
        let for_position = (0..head.len()).find(is_for);
        let type_path = leading_path(match for_position {
            Some(at) => &head[at + 1..],
            None => skip_parameters(head),
        });
        let name = type_path.last()?;
        let methods = if for_position.is_some() { BTreeSet::new() } else { functions(body) };
        let mut calls = BTreeMap::new();
        count_calls(body, name, &mut calls);
        Some(Self { type_path, is_trait_impl: for_position.is_some(), methods, calls })
    }
}

impl Methods {
    /// Returns the calls between different files. A call of a name that the calling file defines itself does not count.
    pub(crate) fn calls_across(&self) -> Calls {
        let mut across = Calls::new();
        for (from, calls) in &self.calls {
            let own_methods = self.by_file.get(from);
            for (name, count) in
                calls.iter().filter(|(name, _)| !own_methods.is_some_and(|own_methods| own_methods.contains(*name)))
            {
                for to in self.by_file.iter().filter(|(_, names)| names.contains(name)).map(|(to, _)| to) {
                    across.entry((from.clone(), to.clone())).or_default().insert(name.clone(), *count);
                }
            }
        }
        across
    }

    /// Returns the pairs of files that call each other.
    pub(crate) fn mutual_callers(&self) -> Vec<(PathBuf, PathBuf)> {
        let calls = self.calls_across();
        let is_mutual = |(from, to): &(PathBuf, PathBuf)| from < to && calls.contains_key(&(to.clone(), from.clone()));
        calls.keys().filter(|pair| is_mutual(pair)).cloned().collect()
    }
}

impl Modules {
    /// Returns the methods of all types of the crate, by the module and the name of the type.
    pub(crate) fn methods(&self) -> BTreeMap<(ModuleId, String), Methods> {
        let mut methods_by_type: BTreeMap<_, Methods> = BTreeMap::new();
        for (id, module) in self.all.iter().enumerate() {
            for impl_block in &module.impl_blocks {
                let Some(type_id) = self.definition_of(id, &impl_block.type_path) else { continue };
                let methods = methods_by_type.entry(type_id).or_default();
                let file = || module.file.clone();
                methods.by_file.entry(file()).or_default().extend(impl_block.methods.iter().cloned());
                let calls = methods.calls.entry(file()).or_default();
                impl_block.calls.iter().for_each(|(name, count)| *calls.entry(name.clone()).or_default() += count);
            }
        }
        methods_by_type
    }
}

/// Returns the path at the start of `trees`, without references.
fn leading_path(trees: &[Tree]) -> Vec<String> {
    let mut rest = trees.iter().skip_while(|tree| tree.is_sign('&') || tree.is_word("mut") || tree.is_word("dyn"));
    let mut path = Vec::new();
    while let Some(Tree::Word(word)) = rest.next() {
        path.push(word.clone());
        if rest.next() != Some(&Tree::Colons) {
            break;
        }
    }
    path
}

/// Skips the generic parameters after `impl`.
fn skip_parameters(head: &[Tree]) -> &[Tree] {
    let (mut depth, mut follows_minus) = (0_usize, false);
    let parameters = head.iter().take_while(|tree| {
        depth += usize::from(tree.is_sign('<'));
        let is_parameter = depth > 0;
        depth -= usize::from(tree.is_sign('>') && !follows_minus);
        follows_minus = tree.is_sign('-');
        is_parameter
    });
    &head[parameters.count()..]
}

/// Returns the names of the functions directly in the body of a block.
fn functions(body: &[Tree]) -> BTreeSet<String> {
    let pairs = body.windows(2);
    pairs.filter(|pair| pair[0].is_word("fn")).filter_map(|pair| pair[1].word()).map(str::to_owned).collect()
}

/// Counts `self.name(…)`, `Self::name` and `Type::name`.
fn count_calls(trees: &[Tree], type_name: &str, calls: &mut BTreeMap<String, usize>) {
    for (at, tree) in trees.iter().enumerate() {
        if let Tree::Group(_, inner) = tree {
            count_calls(inner, type_name, calls);
            continue;
        }
        let method = match trees.get(at..at + 4).unwrap_or(&trees[at..]) {
            [receiver, Tree::Sign('.'), Tree::Word(name), Tree::Group('(', _) | Tree::Colons]
                if receiver.is_word("self") =>
            {
                Some(name)
            }
            [receiver, Tree::Colons, Tree::Word(name), ..]
                if receiver.is_word("Self") || receiver.is_word(type_name) =>
            {
                Some(name)
            }
            _ => None,
        };
        if let Some(name) = method {
            *calls.entry(name.clone()).or_default() += 1;
        }
    }
}

/// Returns the last parts of a path, for reports.
pub(crate) fn short_path(path: &Path) -> String {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    let from = parts.iter().rposition(|part| part == "src").map_or(0, |at| at + 1);
    parts[from..].join("/")
}
