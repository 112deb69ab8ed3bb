//! Rust source as trees of tokens, without comments: sufficient to find the paths.

/// Token, or bracketed group of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tree {
    /// Name, keyword or number.
    Word(String),
    /// `::`
    Colons,
    /// Content of a string, with its escape sequences.
    Text(String),
    /// Any other character.
    Sign(char),
    /// Content of brackets, with the opening bracket.
    Group(char, Vec<Tree>),
}

impl Tree {
    /// Returns `true` for this name or keyword.
    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(self, Self::Word(own) if own == word)
    }

    /// Returns `true` for this character.
    pub(crate) fn is_sign(&self, sign: char) -> bool {
        matches!(self, Self::Sign(own) if *own == sign)
    }

    /// Returns the name or keyword, if the tree is one.
    pub(crate) fn word(&self) -> Option<&str> {
        match self {
            Self::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// Parses `text`, which must be valid Rust.
pub(crate) fn read(text: &str) -> Vec<Tree> {
    let mut reader = TokenReader { rest: text };
    let trees = reader.read_until(None);
    assert!(reader.rest.is_empty(), "unbalanced brackets before: {:.80}", reader.rest);
    trees
}

struct TokenReader<'a> {
    rest: &'a str,
}

impl<'a> TokenReader<'a> {
    /// Returns the trees up to the bracket `end`, or to the end of the text.
    fn read_until(&mut self, end: Option<char>) -> Vec<Tree> {
        let mut trees = Vec::new();
        loop {
            self.skip_blank();
            let Some(next) = self.rest.chars().next() else {
                assert!(end.is_none(), "missing {end:?} at the end of the text");
                return trees;
            };
            if end == Some(next) {
                self.take(next.len_utf8());
                return trees;
            }
            match next {
                '(' | '[' | '{' => {
                    self.take(1);
                    let close = match next {
                        '(' => ')',
                        '[' => ']',
                        _ => '}',
                    };
                    let inner = self.read_until(Some(close));
                    trees.push(Tree::Group(next, inner));
                }
                ')' | ']' | '}' => return trees,
                '"' => trees.push(Tree::Text(self.read_string().to_owned())),
                '\'' => self.skip_character_or_lifetime(),
                ':' if self.rest.starts_with("::") => {
                    self.take(2);
                    trees.push(Tree::Colons);
                }
                _ if is_word_character(next) => trees.extend(self.read_word()),
                _ => {
                    self.take(next.len_utf8());
                    trees.push(Tree::Sign(next));
                }
            }
        }
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (text, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        text
    }

    /// Skips whitespace and comments.
    fn skip_blank(&mut self) {
        loop {
            self.rest = self.rest.trim_start();
            if self.rest.starts_with("//") {
                self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
            } else if self.rest.starts_with("/*") {
                self.skip_comment();
            } else {
                return;
            }
        }
    }

    /// Skips a comment, with nested comments.
    fn skip_comment(&mut self) {
        let mut depth = 0_usize;
        loop {
            if self.rest.starts_with("/*") {
                depth += 1;
                self.take(2);
            } else if self.rest.starts_with("*/") {
                depth -= 1;
                self.take(2);
            } else {
                let first = self.rest.chars().next().expect("a comment ends");
                self.take(first.len_utf8());
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// Returns a word, or `None` for the prefix of a string, which contains no path.
    fn read_word(&mut self) -> Option<Tree> {
        let length = self.rest.find(|character| !is_word_character(character)).unwrap_or(self.rest.len());
        let word = self.take(length);
        match (word, self.rest.chars().next()) {
            ("b" | "c", Some('"')) => drop(self.read_string()),
            ("b", Some('\'')) => self.skip_character_or_lifetime(),
            ("r" | "br" | "cr", Some('"' | '#')) => {
                let hash_count = self.rest.chars().take_while(|character| *character == '#').count();
                self.take(hash_count);
                if !self.rest.starts_with('"') {
                    // `r#type` is a raw identifier.
                    return self.read_word();
                }
                self.take(1);
                let end = format!("\"{}", "#".repeat(hash_count));
                let length = self.rest.find(&end).expect("a raw string ends");
                self.take(length + end.len());
            }
            _ => return Some(Tree::Word(word.to_owned())),
        }
        None
    }

    /// Returns the content of the string that starts here.
    fn read_string(&mut self) -> &'a str {
        self.take(1);
        let mut is_escaped = false;
        let end = self.rest.find(|character| {
            let is_end = character == '"' && !is_escaped;
            is_escaped = character == '\\' && !is_escaped;
            is_end
        });
        let text = self.take(end.expect("a string ends"));
        self.take(1);
        text
    }

    fn skip_character_or_lifetime(&mut self) {
        self.take(1);
        let mut characters = self.rest.char_indices();
        let (_, first) = characters.next().expect("a character or a lifetime");
        let second = characters.next().expect("more than a quote");
        if first == '\\' {
            // The escaped character may be the quote.
            let end = self.rest[second.0 + second.1.len_utf8()..].find('\'').expect("a character ends");
            self.take(second.0 + second.1.len_utf8() + end + 1);
        } else if second.1 == '\'' {
            self.take(second.0 + 1);
        } else {
            let length = self.rest.find(|character| !is_word_character(character)).unwrap_or(self.rest.len());
            self.take(length);
        }
    }
}

fn is_word_character(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}
