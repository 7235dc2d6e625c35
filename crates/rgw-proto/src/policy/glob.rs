//! Texts with `*`, `?` and variables.

use super::condition::Context;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// Any text.
    Many,
    /// Any character.
    One,
    Char(char),
    /// The value of a condition key: compared as it is, its own `*` means itself.
    Variable(String),
}

/// A pattern that was read once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<Token>);

impl Pattern {
    /// Reads `*` and `?`.
    pub fn plain(text: &str) -> Self {
        Self(text.chars().map(token).collect())
    }

    /// Reads `*`, `?` and `${KEY}`; `${*}`, `${?}` and `${$}` are these characters themselves.
    pub fn with_variables(text: &str) -> Self {
        let mut out = Vec::new();
        let mut rest = text;
        while let Some((before, (name, after))) =
            rest.split_once("${").and_then(|(b, a)| Some((b, a.split_once('}')?)))
        {
            out.extend(before.chars().map(token));
            out.push(match name {
                "*" => Token::Char('*'),
                "?" => Token::Char('?'),
                "$" => Token::Char('$'),
                name => Token::Variable(name.to_ascii_lowercase()),
            });
            rest = after;
        }
        out.extend(rest.chars().map(token));
        Self(out)
    }

    /// A text in which only variables are special.
    pub fn literal(text: &str) -> Self {
        let plain = |t| match t {
            Token::Many => Token::Char('*'),
            Token::One => Token::Char('?'),
            t => t,
        };
        Self(Self::with_variables(text).0.into_iter().map(plain).collect())
    }

    /// Whether any text but one fits.
    pub fn is_wild(&self) -> bool {
        self.0.iter().any(|t| matches!(t, Token::Many | Token::One))
    }

    /// Whether a text fits. A variable without a value, or with several, fits nothing.
    ///
    /// Cost: the product of both lengths at most.
    pub fn fits(&self, text: &str, context: &Context) -> bool {
        let mut tokens = Vec::with_capacity(self.0.len());
        for token in &self.0 {
            match token {
                Token::Variable(name) => match context.values(name) {
                    [value] => tokens.extend(value.chars().map(Token::Char)),
                    _ => return false,
                },
                token => tokens.push(token.clone()),
            }
        }
        let text: Vec<char> = text.chars().collect();
        let (mut t, mut p) = (0, 0);
        // Where the last `*` was, and how far it has eaten.
        let mut star: Option<(usize, usize)> = None;
        while t < text.len() {
            match tokens.get(p) {
                Some(Token::One) => (t, p) = (t + 1, p + 1),
                Some(Token::Char(c)) if *c == text[t] => (t, p) = (t + 1, p + 1),
                Some(Token::Many) => {
                    star = Some((p, t));
                    p += 1;
                }
                _ => {
                    let Some((at, eaten)) = star else { return false };
                    star = Some((at, eaten + 1));
                    (p, t) = (at + 1, eaten + 1);
                }
            }
        }
        tokens[p..].iter().all(|t| *t == Token::Many)
    }
}

fn token(c: char) -> Token {
    match c {
        '*' => Token::Many,
        '?' => Token::One,
        c => Token::Char(c),
    }
}
