//! Prose of the project: comments, messages, names of tests, and pages. The ceilings are current figures with a little
//! slack. They only go down.

use crate::repository;
use crate::sources::{files, test_functions, with_extension};

/// Maximum number of [`IDIOMS`] per 10,000 words of comments and messages. Only goes down.
const MAX_IDIOMS_PER_10_000_WORDS: usize = 12;

/// Maximum number of summaries per thousand that start with one of [`ODD_STARTS`]. Only goes down.
const MAX_ODD_SUMMARIES_PER_THOUSAND: usize = 2;

/// Maximum average length of a test's name, in tenths of a word. Only goes down.
const MAX_TEST_NAME_TENTHS: usize = 57;

/// Maximum number of words in a sentence of a page.
const MAX_SENTENCE_WORDS: usize = 35;

/// Maximum number of sentences above [`MAX_SENTENCE_WORDS`] in all pages. Only goes down.
const MAX_LONG_SENTENCES: usize = 2;

/// Words and phrases that belong to no term of Kubernetes, HTTP or Rust. A few counts include correct uses.
const IDIOMS: [&str; 41] = [
    "answer",
    "answers",
    "answered",
    "answering",
    "told",
    "tell",
    "tells",
    "nobody",
    "somebody",
    "whoever",
    "anybody",
    "who",
    "says",
    "said",
    "begin",
    "begins",
    "begun",
    "began",
    "anew",
    "ask for",
    "asks for",
    "asked for",
    "beside",
    "under way",
    "go on",
    "goes on",
    "refuse",
    "refused",
    "gone",
    "so many",
    "so long",
    "so often",
    "looked at",
    "story",
    "give up",
    "given up",
    "moment",
    "meanwhile",
    "by itself",
    "as it is",
    "as they are",
];

/// First words that do not name the item of a summary.
const ODD_STARTS: [&str; 12] =
    ["What", "Who", "Whoever", "How", "Whether", "So", "Has", "These", "None", "Nobody", "As", "Of"];

/// Figures of the project's Rust sources.
#[derive(Debug, Default)]
struct ProseCounts {
    words: usize,
    idioms: usize,
    summaries: usize,
    odd_summaries: usize,
    tests: usize,
    test_words: usize,
}

impl ProseCounts {
    fn add(&mut self, text: &str) {
        let mut before_is_doc = false;
        for line in text.lines().map(str::trim) {
            let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
            if let Some(doc) = doc {
                self.add_prose(doc);
                if !before_is_doc {
                    self.summaries += 1;
                    let first = doc.split_whitespace().next().unwrap_or_default();
                    self.odd_summaries += usize::from(ODD_STARTS.contains(&first));
                }
            } else if let Some(comment) = line.strip_prefix("//") {
                self.add_prose(comment);
            } else {
                // After a split at the quotes, every second part is a literal. Escaped quotes end a literal early,
                // which is precise enough.
                let literals = line.split('"').skip(1).step_by(2);
                literals
                    .filter(|literal| literal.split_whitespace().count() > 2)
                    .for_each(|literal| self.add_prose(literal));
            }
            before_is_doc = doc.is_some();
        }
        for name in test_functions(text) {
            self.tests += 1;
            self.test_words += name.split('_').count();
        }
    }

    fn add_prose(&mut self, text: &str) {
        self.words += text.split_whitespace().count();
        let words = text.split(|character: char| !character.is_alphabetic()).filter(|word| !word.is_empty());
        let line = format!(" {} ", words.collect::<Vec<_>>().join(" ").to_lowercase());
        self.idioms += IDIOMS.iter().map(|idiom| line.matches(&format!(" {idiom} ")).count()).sum::<usize>();
    }
}

/// Returns the sentences of a page with more than [`MAX_SENTENCE_WORDS`]. Tables, headings and code are omitted.
fn long_sentences(page: &str) -> Vec<String> {
    let (mut blocks, mut is_code) = (vec![String::new()], false);
    for line in page.lines().map(str::trim) {
        is_code ^= line.starts_with("```");
        let is_item = ["- ", "* ", "+ "].iter().any(|mark| line.starts_with(mark))
            || line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        if is_code || line.is_empty() || is_item || line.starts_with(['|', '#', '`', '<', '>']) {
            blocks.push(String::new());
        }
        if !is_code && !line.starts_with(['|', '#', '`', '<']) {
            let block = blocks.last_mut().expect("a block");
            block.push(' ');
            block.push_str(line);
        }
    }
    let sentences = blocks.iter().flat_map(|block| {
        let words: Vec<&str> = block.split_whitespace().collect();
        let sentences = words.chunk_by(|word, _| !word.ends_with(['.', '?', '!']));
        sentences.map(|sentence| sentence.join(" ")).collect::<Vec<_>>()
    });
    sentences.filter(|sentence| sentence.split_whitespace().count() > MAX_SENTENCE_WORDS).collect()
}

#[test]
fn sources_stay_below_prose_ceilings() {
    let mut sources = Vec::new();
    for folder in ["crates", "bench", "fuzz", "examples", "conformance"] {
        files(&repository().join(folder), &with_extension("rs"), &mut sources);
    }
    let mut counts = ProseCounts::default();
    for path in &sources {
        counts.add(&std::fs::read_to_string(path).expect("a source"));
    }
    assert!(counts.tests > 1000 && counts.summaries > 5000, "sources were not found: {counts:?}");
    let idioms_per_10_000 = counts.idioms * 10_000 / counts.words;
    let odd_per_thousand = counts.odd_summaries * 1000 / counts.summaries;
    let name_tenths = counts.test_words * 10 / counts.tests;
    let is_below = idioms_per_10_000 <= MAX_IDIOMS_PER_10_000_WORDS
        && odd_per_thousand <= MAX_ODD_SUMMARIES_PER_THOUSAND
        && name_tenths <= MAX_TEST_NAME_TENTHS;
    assert!(
        is_below,
        "{idioms_per_10_000} idioms per 10,000 words, {odd_per_thousand} odd summaries per thousand, \
         {name_tenths} tenths of a word per test name; rewrite the added text: {counts:?}"
    );
}

#[test]
fn pages_have_few_long_sentences() {
    let mut pages = Vec::new();
    files(&repository(), &with_extension("md"), &mut pages);
    let mut sentences = Vec::new();
    for path in pages {
        sentences.extend(long_sentences(&std::fs::read_to_string(path).expect("a page")));
    }
    assert!(
        sentences.len() <= MAX_LONG_SENTENCES,
        "{} sentences above {MAX_SENTENCE_WORDS} words: {sentences:#?}",
        sentences.len()
    );
}

#[test]
fn planted_prose_is_counted() {
    let mut counts = ProseCounts::default();
    counts
        .add("/// What is told.\n// Nobody answers.\n#[test]\nfn three_word_name() {\n    fail(\"it goes on anew\");");
    let ProseCounts { words, idioms, summaries, odd_summaries, tests, test_words } = counts;
    assert_eq!((words, idioms, summaries, odd_summaries, tests, test_words), (9, 5, 1, 1, 1, 3));
    let page = format!("# Title\n\nShort. {}end.\n\n```\n{}\n```\n", "word ".repeat(35), "code ".repeat(40));
    assert_eq!(long_sentences(&page).len(), 1);
}
