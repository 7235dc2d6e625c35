//! XML in and out: a small tree with bounds, and a writer.
//!
//! A document type, an entity that is not predefined, or a processing instruction is refused: nothing in a request
//! may expand.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::error::{Code, Error, Result};

/// Bytes of a document.
pub const BYTES_MAX: usize = 2 << 20;
/// Elements within elements.
pub const DEPTH_MAX: usize = 16;
/// Elements of a document: a list of 10,000 parts with four fields each, and room.
pub const ELEMENTS_MAX: usize = 80_000;
/// The name space that answers carry.
pub const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// An element: its name without prefix, its text, and the elements in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// Local name.
    pub name: String,
    /// All its text, entities resolved, blanks kept.
    pub text: String,
    /// The attribute `xsi:type`, which a grantee has.
    pub kind: Option<String>,
    /// Elements in it, in order.
    pub children: Vec<Self>,
}

fn malformed(text: impl Into<String>) -> Error {
    Error::new(Code::MalformedXML, text)
}

impl Element {
    /// Reads a document; its outermost element.
    ///
    /// # Errors
    /// [`Code::MalformedXML`] for what is not well-formed, beyond [`BYTES_MAX`], [`DEPTH_MAX`] or [`ELEMENTS_MAX`], or
    /// has a document type or unknown entities.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > BYTES_MAX {
            return Err(malformed("The body is longer than 2 MiB."));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| malformed("The body is no UTF-8."))?;
        let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
        let mut open: Vec<Self> = Vec::new();
        let (mut root, mut elements) = (None, 0);
        loop {
            let event = reader
                .read_event()
                .map_err(|e| malformed(format!("At byte {}: {e}", reader.error_position())))?;
            match event {
                Event::Start(start) => {
                    begin(&start, &mut open, root.is_some(), &mut elements)?;
                }
                Event::Empty(start) => {
                    begin(&start, &mut open, root.is_some(), &mut elements)?;
                    end(&mut open, &mut root);
                }
                Event::End(_) => end(&mut open, &mut root),
                Event::Text(text) => add(&mut open, &text.xml10_content())?,
                Event::CData(text) => add(&mut open, &text.xml10_content())?,
                Event::GeneralRef(name) => {
                    let text = match name.resolve_char_ref() {
                        Ok(Some(c)) => c.to_string(),
                        Ok(None) => predefined(&name)
                            .ok_or_else(|| malformed("The body has an unknown entity."))?
                            .to_owned(),
                        Err(_) => {
                            return Err(malformed("The body has a reference to no character."));
                        }
                    };
                    add(&mut open, &text)?;
                }
                Event::Comment(_) | Event::Decl(_) => {}
                Event::DocType(_) | Event::PI(_) => {
                    return Err(malformed(
                        "A document type or processing instruction is not taken.",
                    ));
                }
                Event::Eof => break,
            }
        }
        root.filter(|_| open.is_empty()).ok_or_else(|| malformed("The body ends too early."))
    }

    /// As [`Element::parse`], where the outermost element must have this name.
    ///
    /// # Errors
    /// As there.
    pub fn parse_as(bytes: &[u8], name: &str) -> Result<Self> {
        let root = Self::parse(bytes)?;
        if root.name == name {
            Ok(root)
        } else {
            Err(malformed(format!("The body is {}, not {name}.", root.name)))
        }
    }

    /// The only element of a name in it.
    ///
    /// # Errors
    /// [`Code::MalformedXML`] where there are two.
    pub fn child(&self, name: &str) -> Result<Option<&Self>> {
        let mut found = self.all(name);
        let first = found.next();
        if found.next().is_some() {
            return Err(malformed(format!("{} has {name} twice.", self.name)));
        }
        Ok(first)
    }

    /// The only element of a name in it, which must be there.
    ///
    /// # Errors
    /// [`Code::MalformedXML`].
    pub fn need(&self, name: &str) -> Result<&Self> {
        self.child(name)?.ok_or_else(|| malformed(format!("{} lacks {name}.", self.name)))
    }

    /// All elements of a name in it.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &Self> {
        self.children.iter().filter(move |c| c.name == name)
    }

    /// The text of the only element of a name in it, trimmed.
    ///
    /// # Errors
    /// As [`Element::child`].
    pub fn text_of(&self, name: &str) -> Result<Option<&str>> {
        Ok(self.child(name)?.map(|c| c.text.trim()))
    }

    /// As [`Element::text_of`], where it must be there.
    ///
    /// # Errors
    /// As [`Element::need`].
    pub fn need_text(&self, name: &str) -> Result<&str> {
        Ok(self.need(name)?.text.trim())
    }

    /// A number in the only element of a name.
    ///
    /// # Errors
    /// [`Code::MalformedXML`] where it is no number of its type.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>> {
        let text = self.text_of(name)?;
        text.map(|t| t.parse().map_err(|_| malformed(format!("{name} is no number that fits."))))
            .transpose()
    }

    /// `true` or `false` in the only element of a name.
    ///
    /// # Errors
    /// [`Code::MalformedXML`] for another text.
    pub fn flag(&self, name: &str) -> Result<Option<bool>> {
        let text = self.text_of(name)?;
        text.map(|t| match t {
            t if t.eq_ignore_ascii_case("true") => Ok(true),
            t if t.eq_ignore_ascii_case("false") => Ok(false),
            _ => Err(malformed(format!("{name} is true or false."))),
        })
        .transpose()
    }
}

fn begin(
    start: &BytesStart<'_>,
    open: &mut Vec<Element>,
    over: bool,
    elements: &mut usize,
) -> Result<()> {
    if over && open.is_empty() {
        return Err(malformed("The body has two documents."));
    }
    *elements += 1;
    if *elements > ELEMENTS_MAX || open.len() == DEPTH_MAX {
        return Err(malformed("The body has too many elements, or they are too deep."));
    }
    let mut kind = None;
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|e| malformed(e.to_string()))?;
        if local(attribute.key.as_ref()) == "type" {
            kind = Some(attribute.value.to_string());
        }
    }
    open.push(Element {
        name: local(start.name().as_ref()).to_owned(),
        kind,
        ..Element::default()
    });
    Ok(())
}

/// A name without its prefix.
fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

fn end(open: &mut Vec<Element>, root: &mut Option<Element>) {
    let Some(done) = open.pop() else { return };
    match open.last_mut() {
        Some(parent) => parent.children.push(done),
        None => *root = Some(done),
    }
}

fn add(open: &mut [Element], text: &str) -> Result<()> {
    match open.last_mut() {
        Some(element) => element.text.push_str(text),
        None if text.trim().is_empty() => {}
        None => return Err(malformed("The body has text outside of its element.")),
    }
    Ok(())
}

fn predefined(name: &str) -> Option<&'static str> {
    Some(match name {
        "lt" => "<",
        "gt" => ">",
        "amp" => "&",
        "apos" => "'",
        "quot" => "\"",
        _ => return None,
    })
}

/// Appends text with what XML needs escaped; characters that XML 1.0 cannot hold become U+FFFD.
fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\r' => out.push_str("&#13;"),
            '\n' | '\t' => out.push(c),
            c if c < ' ' || c == '\u{fffe}' || c == '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}

/// Writes a document.
#[derive(Debug, Default)]
pub struct Writer {
    out: String,
}

impl Writer {
    /// Begins with the declaration.
    #[must_use]
    pub fn document() -> Self {
        Self { out: "<?xml version=\"1.0\" encoding=\"UTF-8\"?>".into() }
    }

    /// Begins an element in S3's name space: an answer's outermost.
    pub fn open_root(&mut self, name: &str) -> &mut Self {
        self.out += &format!("<{name} xmlns=\"{NAMESPACE}\">");
        self
    }

    /// Begins an element. `name` may carry attributes, already escaped.
    pub fn open(&mut self, name: &str) -> &mut Self {
        self.out += &format!("<{name}>");
        self
    }

    /// Ends an element.
    pub fn close(&mut self, name: &str) -> &mut Self {
        self.out += &format!("</{name}>");
        self
    }

    /// An element with text in it.
    pub fn text(&mut self, name: &str, text: &str) -> &mut Self {
        self.open(name);
        escape(&mut self.out, text);
        self.close(name)
    }

    /// An element with a number, time or flag in it.
    pub fn value(&mut self, name: &str, value: impl std::fmt::Display) -> &mut Self {
        self.text(name, &value.to_string())
    }

    /// An element with text in it, where there is any.
    pub fn maybe(&mut self, name: &str, text: Option<&str>) -> &mut Self {
        if let Some(text) = text {
            self.text(name, text);
        }
        self
    }

    /// The document.
    #[must_use]
    pub fn finish(self) -> String {
        self.out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What is written is read back, whatever text it has.
        #[test]
        fn text_comes_back(text in "[^\u{0}-\u{8}\u{b}\u{c}\u{e}-\u{1f}\u{fffe}\u{ffff}]*") {
            let mut w = Writer::document();
            w.open_root("A").text("B", &text).close("A");
            let read = Element::parse(w.finish().as_bytes()).unwrap();
            prop_assert_eq!(&read.need("B").unwrap().text, &text);
        }

        /// No bytes make it panic.
        #[test]
        fn any_bytes(bytes in any::<Vec<u8>>(), text in "[<>/a&;!\\[\\] ?x\"=-]*") {
            let _ = (Element::parse(&bytes), Element::parse(text.as_bytes()));
        }
    }

    #[test]
    fn what_is_refused() {
        let deep = "<a>".repeat(DEPTH_MAX + 1) + &"</a>".repeat(DEPTH_MAX + 1);
        let many = format!("<a>{}</a>", "<b/>".repeat(ELEMENTS_MAX));
        for bad in [
            "",
            "<a>",
            "<a></b>",
            "<a/><b/>",
            "x<a/>",
            "<!DOCTYPE a [<!ENTITY x \"y\">]><a>&x;</a>",
            "<a>&x;</a>",
            "<a>&#0;</a>",
            "<?php x?><a/>",
            "<a x=1/>",
            &deep,
            &many,
        ] {
            let error = Element::parse(bad.as_bytes()).expect_err(&bad[..bad.len().min(60)]);
            assert_eq!(error.code, Code::MalformedXML);
        }
    }

    #[test]
    fn what_is_read() {
        let text = "\u{feff}<?xml version='1.0'?><s:A xmlns:s='x'><!-- c --><B> 1 </B><C>&lt;&#x41;<![CDATA[<&]]></C><D>true</D></s:A>";
        let a = Element::parse_as(text.as_bytes(), "A").unwrap();
        assert_eq!(a.number::<u8>("B").unwrap(), Some(1));
        assert_eq!(a.need_text("C").unwrap(), "<A<&");
        assert_eq!(a.flag("D").unwrap(), Some(true));
        assert!(a.number::<u8>("C").is_err() && a.need("E").is_err() && a.flag("B").is_err());
    }
}
