//! Bodies of forms and queries of URLs.

/// Fields of a form at most.
const FIELDS_MAX: usize = 32;

/// `application/x-www-form-urlencoded`, decoded. A name that comes twice counts once: the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form(Vec<(String, String)>);

fn decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                let digit = |byte: u8| char::from(byte).to_digit(16);
                u8::try_from(digit(digits[0])? << 4 | digit(digits[1])?).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(out).ok()
}

impl Form {
    /// Reads fields; `None`: they are not well formed, or too many.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut all = Vec::new();
        for field in text.split('&').filter(|field| !field.is_empty()) {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            if all.len() >= FIELDS_MAX {
                return None;
            }
            all.push((decode(name)?, decode(value)?));
        }
        Some(Self(all))
    }

    /// All fields but the session's word.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        all.filter(|(name, _)| *name != "csrf")
    }

    /// A field; empty where there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Any text is read or refused, and what was escaped comes back.
        #[test]
        fn any_text(raw in ".{0,100}", word in ".{0,40}") {
            let _ = Form::parse(&raw);
            let text = format!("x=1&name={}&raw", crate::pages::escaped(&word));
            let form = Form::parse(&text).expect("it is well formed");
            prop_assert_eq!(form.get("name"), word);
        }
    }

    #[test]
    fn fields() {
        let form = Form::parse("a=b+c&d=%3C%c3%bc%3E&a=2&e").unwrap();
        assert_eq!((form.get("a"), form.get("d"), form.get("e")), ("b c", "<ü>", ""));
        assert_eq!(form.get("none"), "");
        assert_eq!(Form::parse("csrf=1&a=2").unwrap().fields().collect::<Vec<_>>(), [("a", "2")]);
        for bad in ["a=%", "a=%1", "a=%zz", "a=%ff"] {
            assert_eq!(Form::parse(bad), None, "{bad}");
        }
        assert_eq!(Form::parse(&"a=b&".repeat(33)), None);
    }
}
