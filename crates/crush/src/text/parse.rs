//! The grammar: from text to what stands in it, without meaning.
//!
//! The peer's parser takes no tokens but characters, with spaces between the parts of a
//! rule; so words run together where no space is needed, and the place of an error is the
//! end of the last device, type, bucket, rule or weight set that was read whole.

/// What stands at the outermost level.
#[derive(Debug, Clone)]
pub(super) enum Element<'a> {
    Tunable { name: &'a str, value: i32 },
    Device { id: i32, name: &'a str, class: Option<&'a str> },
    Type { id: i32, name: &'a str },
    Bucket(Bucket<'a>),
    Rule(Rule<'a>),
    ChooseArgs { id: i32, args: Vec<Arg> },
}

#[derive(Debug, Clone)]
pub(super) struct Bucket<'a> {
    pub kind: &'a str,
    pub name: &'a str,
    pub ids: Vec<(i32, Option<&'a str>)>,
    pub alg: &'a str,
    /// "rjenkins1" or a number; the last counts.
    pub hash: Option<&'a str>,
    pub items: Vec<Item<'a>>,
}

#[derive(Debug, Clone)]
pub(super) struct Item<'a> {
    pub name: &'a str,
    pub weight: Option<f32>,
    pub pos: Option<i32>,
}

#[derive(Debug, Clone)]
pub(super) struct Rule<'a> {
    pub name: Option<&'a str>,
    pub id: i32,
    pub kind: u8,
    pub has_min_size: bool,
    pub has_max_size: bool,
    pub steps: Vec<Step<'a>>,
}

#[derive(Debug, Clone)]
pub(super) enum Step<'a> {
    Take { item: &'a str, class: Option<&'a str> },
    Set { op: crate::Op, value: i32 },
    Choose { op: crate::Op, count: i32, kind: &'a str },
    Emit,
}

#[derive(Debug, Clone)]
pub(super) struct Arg {
    pub bucket: i32,
    pub weight_set: Option<Vec<Vec<f32>>>,
    pub ids: Option<Vec<i32>>,
}

/// Where in which line reading stopped.
pub(super) struct Stop {
    pub line: usize,
    pub rest: String,
}

/// The text as the peer joins it: comments cut off, spaces made one, lines joined by one.
pub(super) struct Source {
    text: String,
    /// Where in `text` each line begins; of lines that begin at the same place, the last.
    lines: std::collections::BTreeMap<usize, usize>,
    originals: Vec<String>,
}

impl Source {
    pub(super) fn new(input: &str) -> Self {
        let mut text = String::new();
        let mut lines = std::collections::BTreeMap::new();
        let mut originals = Vec::new();
        for (i, line) in input.split_terminator('\n').enumerate() {
            let code = line.split_once('#').map_or(line, |(code, _)| code);
            let mut words = code.split(|c: char| c.is_ascii_whitespace() || c == '\x0b');
            let mut stripped = String::new();
            for word in words.by_ref().filter(|w| !w.is_empty()) {
                if !stripped.is_empty() {
                    stripped.push(' ');
                }
                stripped.push_str(word);
            }
            if !stripped.is_empty() && !text.is_empty() {
                text.push(' ');
            }
            lines.insert(text.len(), i + 1);
            text.push_str(&stripped);
            originals.push(line.to_owned());
        }
        Self { text, lines, originals }
    }

    /// All elements, or where the text stops making sense.
    pub(super) fn parse(&self) -> Result<Vec<Element<'_>>, Stop> {
        let mut p = Parser { text: &self.text, at: 0 };
        let mut out = Vec::new();
        while let Some(x) = p.attempt(|p| p.tunable().or_else(|| p.device()).or_else(|| p.kind())) {
            out.push(x);
        }
        while let Some(x) = p.attempt(Parser::bucket).or_else(|| p.attempt(Parser::rule)) {
            out.push(x);
        }
        while let Some(x) = p.attempt(Parser::choose_args) {
            out.push(x);
        }
        if p.at == self.text.len() { Ok(out) } else { Err(self.stop(p.at)) }
    }

    fn stop(&self, at: usize) -> Stop {
        let (begin, line) = self
            .lines
            .range(..=at)
            .next_back()
            .or_else(|| self.lines.first_key_value())
            .map_or((0, 1), |(begin, line)| (*begin, *line));
        let original = self.originals.get(line - 1).map_or("", String::as_str);
        let rest = original.get(at.saturating_sub(begin)..).unwrap_or("").to_owned();
        Stop { line, rest }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    /// Goes back when `what` is not there.
    fn attempt<T>(&mut self, what: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let before = self.at;
        let out = what(self);
        if out.is_none() {
            self.at = before;
        }
        out
    }

    /// As often as it is there.
    fn many<T>(&mut self, mut what: impl FnMut(&mut Self) -> Option<T>) -> Vec<T> {
        let mut out = Vec::new();
        while let Some(x) = self.attempt(&mut what) {
            out.push(x);
        }
        out
    }

    fn skip_spaces(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let trimmed = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    fn lit(&mut self, word: &str) -> Option<()> {
        let rest = self.skip_spaces();
        rest.starts_with(word).then(|| self.at += word.len())
    }

    fn take_while(&mut self, good: impl Fn(u8) -> bool) -> Option<&'a str> {
        let rest = self.skip_spaces();
        let n = rest.bytes().take_while(|c| good(*c)).count();
        self.at += n;
        (n > 0).then(|| &rest[..n])
    }

    fn name(&mut self) -> Option<&'a str> {
        self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
    }

    fn digits(&mut self) -> Option<&'a str> {
        self.take_while(|c| c.is_ascii_digit())
    }

    /// As `strtol` and a conversion to `int`: what is too long is the end of 64 bits.
    fn number(digits: &str, negative: bool) -> i32 {
        let value = digits.bytes().fold(0i64, |n, c| {
            let digit = i64::from(c - b'0');
            let n = n.checked_mul(10);
            let n =
                n.and_then(|n| if negative { n.checked_sub(digit) } else { n.checked_add(digit) });
            n.unwrap_or(if negative { i64::MIN } else { i64::MAX })
        });
        value as i32
    }

    fn posint(&mut self) -> Option<i32> {
        self.digits().map(|digits| Self::number(digits, false))
    }

    fn negint(&mut self) -> Option<i32> {
        self.lit("-")?;
        let digits = self.digits_here()?;
        Some(Self::number(digits, true))
    }

    fn integer(&mut self) -> Option<i32> {
        self.attempt(Self::negint).or_else(|| self.posint())
    }

    /// Digits that follow at once.
    fn digits_here(&mut self) -> Option<&'a str> {
        if !self.text[self.at..].starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        self.digits()
    }

    fn real(&mut self) -> Option<f32> {
        self.skip_spaces();
        let begin = self.at;
        let here = |p: &mut Self, set: &[char]| p.text[p.at..].starts_with(set).then(|| p.at += 1);
        let _ = here(self, &['-', '+']);
        let whole = self.digits_here().is_some();
        let mut some = whole;
        if self.text[self.at..].starts_with('.') {
            self.at += 1;
            some |= self.digits_here().is_some();
        }
        if !some {
            return None;
        }
        self.attempt(|p| {
            here(p, &['e', 'E'])?;
            let _ = here(p, &['-', '+']);
            p.digits_here().map(drop)
        });
        self.text[begin..self.at].trim_start_matches('+').parse().ok()
    }

    fn class(&mut self) -> Option<&'a str> {
        self.attempt(|p| {
            p.lit("class")?;
            p.name()
        })
    }

    fn tunable(&mut self) -> Option<Element<'a>> {
        self.attempt(|p| {
            p.lit("tunable")?;
            Some(Element::Tunable { name: p.name()?, value: p.posint()? })
        })
    }

    fn device(&mut self) -> Option<Element<'a>> {
        self.attempt(|p| {
            p.lit("device")?;
            Some(Element::Device { id: p.posint()?, name: p.name()?, class: p.class() })
        })
    }

    fn kind(&mut self) -> Option<Element<'a>> {
        self.attempt(|p| {
            p.lit("type")?;
            Some(Element::Type { id: p.posint()?, name: p.name()? })
        })
    }

    fn bucket(&mut self) -> Option<Element<'a>> {
        let (kind, name) = (self.name()?, self.name()?);
        self.lit("{")?;
        let ids = self.many(|p| {
            p.lit("id")?;
            Some((p.negint()?, p.class()))
        });
        self.lit("alg")?;
        let alg = self.name()?;
        let hashes = self.many(|p| {
            p.lit("hash")?;
            p.skip_spaces();
            let begin = p.at;
            p.attempt(|p| p.integer().map(drop)).or_else(|| p.lit("rjenkins1"))?;
            Some(&p.text[begin..p.at])
        });
        let items = self.many(|p| {
            p.lit("item")?;
            let name = p.name()?;
            let weight = p.attempt(|p| {
                p.lit("weight")?;
                p.real()
            });
            let pos = p.attempt(|p| {
                p.lit("pos")?;
                p.posint()
            });
            Some(Item { name, weight, pos })
        });
        self.lit("}")?;
        let hash = hashes.last().copied();
        Some(Element::Bucket(Bucket { kind, name, ids, alg, hash, items }))
    }

    fn rule(&mut self) -> Option<Element<'a>> {
        self.lit("rule")?;
        let name = self.name();
        self.lit("{")?;
        self.lit("id").or_else(|| self.lit("ruleset"))?;
        let id = self.posint()?;
        self.lit("type")?;
        let types = super::decompile::RULE_TYPES;
        let (_, kind) = types.into_iter().find(|(name, _)| self.lit(name).is_some())?;
        let mut size = |word| {
            self.attempt(|p| {
                p.lit(word)?;
                p.posint()
            })
            .is_some()
        };
        let has_min_size = size("min_size");
        let has_max_size = size("max_size");
        let steps = self.many(Self::step);
        self.lit("}")?;
        if steps.is_empty() {
            return None;
        }
        Some(Element::Rule(Rule { name, id, kind, has_min_size, has_max_size, steps }))
    }

    fn step(&mut self) -> Option<Step<'a>> {
        use crate::Op;
        self.lit("step")?;
        let take = self.attempt(|p| {
            p.lit("take")?;
            Some(Step::Take { item: p.name()?, class: p.class() })
        });
        if take.is_some() {
            return take;
        }
        for (word, op) in super::decompile::SET_STEPS {
            let set = self.attempt(|p| {
                p.lit(word)?;
                Some(Step::Set { op, value: p.posint()? })
            });
            if set.is_some() {
                return set;
            }
        }
        let words = [
            (["choose", "indep"], Op::ChooseIndep),
            (["choose", "firstn"], Op::ChooseFirstn),
            (["chooseleaf", "indep"], Op::ChooseleafIndep),
            (["chooseleaf", "firstn"], Op::ChooseleafFirstn),
            (["choosemsr", ""], Op::ChooseMsr),
        ];
        for (words, op) in words {
            let choose = self.attempt(|p| {
                p.lit(words[0])?;
                p.lit(words[1])?;
                let count = p.integer()?;
                p.lit("type")?;
                Some(Step::Choose { op, count, kind: p.name()? })
            });
            if choose.is_some() {
                return choose;
            }
        }
        self.lit("emit").map(|()| Step::Emit)
    }

    fn choose_args(&mut self) -> Option<Element<'a>> {
        self.lit("choose_args")?;
        let id = self.posint()?;
        self.lit("{")?;
        let args = self.many(|p| {
            p.lit("{")?;
            p.lit("bucket_id")?;
            let bucket = p.negint()?;
            let weight_set = p.attempt(|p| {
                p.lit("weight_set")?;
                p.lit("[")?;
                let rows = p.many(|p| {
                    p.lit("[")?;
                    let row = p.many(Self::real);
                    p.lit("]")?;
                    Some(row)
                });
                p.lit("]")?;
                Some(rows)
            });
            let ids = p.attempt(|p| {
                p.lit("ids")?;
                p.lit("[")?;
                let ids = p.many(Self::integer);
                p.lit("]")?;
                Some(ids)
            });
            p.lit("}")?;
            Some(Arg { bucket, weight_set, ids })
        });
        self.lit("}")?;
        Some(Element::ChooseArgs { id, args })
    }
}
