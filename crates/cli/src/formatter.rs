//! Structured output: the same calls write json, xml, html or a table.
//!
//! Source: the peer's `common/Formatter.cc`, `common/HTMLFormatter.cc`; layout checked
//! against captures in `vectors/commands/`.

use std::collections::BTreeMap;
use std::fmt::Write;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Json,
    Xml,
    Html,
    Table,
    KeyValue,
}

#[derive(Clone, Debug)]
struct Section {
    name: String,
    array: bool,
    items: usize,
}

/// Writes nested values. Names of array members do not show in json, but do in xml, so
/// give them always.
#[derive(Clone, Debug)]
pub struct Formatter {
    style: Style,
    pretty: bool,
    out: String,
    open: Vec<Section>,
    /// Table styles: each value under its path, in order.
    cells: Vec<(String, String)>,
    seen: BTreeMap<String, usize>,
}

impl Formatter {
    /// The formatter a client asked for; `None` is plain text: no format, `plain`, and
    /// names nobody knows, as with the peer.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let (style, pretty) = match name {
            "json" => (Style::Json, false),
            "json-pretty" => (Style::Json, true),
            "xml" => (Style::Xml, false),
            "xml-pretty" => (Style::Xml, true),
            "html" => (Style::Html, false),
            "html-pretty" => (Style::Html, true),
            "table" => (Style::Table, false),
            "table-kv" => (Style::KeyValue, false),
            _ => return None,
        };
        Some(Self::with(style, pretty))
    }

    /// The formatter a client asked for, or json-pretty: for commands without plain form.
    #[must_use]
    pub fn from_name_or_pretty(name: &str) -> Self {
        Self::from_name(name).unwrap_or_else(Self::json_pretty)
    }

    /// Json on one line.
    #[must_use]
    pub fn json() -> Self {
        Self::with(Style::Json, false)
    }

    /// Json, indented.
    #[must_use]
    pub fn json_pretty() -> Self {
        Self::with(Style::Json, true)
    }

    fn with(style: Style, pretty: bool) -> Self {
        Self {
            style,
            pretty,
            out: String::new(),
            open: Vec::new(),
            cells: Vec::new(),
            seen: BTreeMap::new(),
        }
    }

    /// Opens an object.
    pub fn open_object(&mut self, name: &str) {
        self.open_section(name, false);
    }

    /// Opens an array.
    pub fn open_array(&mut self, name: &str) {
        self.open_section(name, true);
    }

    /// Closes what was opened last.
    pub fn close(&mut self) {
        let Some(section) = self.open.pop() else { return };
        match self.style {
            Style::Json => {
                if self.pretty && section.items > 0 {
                    self.indent(4);
                }
                self.out.push(if section.array { ']' } else { '}' });
                if self.pretty && self.open.is_empty() {
                    self.out.push('\n');
                }
            }
            Style::Xml | Style::Html => {
                self.xml_indent();
                let name = tag(&section.name);
                let _ = write!(self.out, "</{name}>");
                self.xml_line_end();
            }
            Style::Table | Style::KeyValue => {}
        }
    }

    /// An object and what `fill` puts in it.
    pub fn object(&mut self, name: &str, fill: impl FnOnce(&mut Self)) {
        self.open_object(name);
        fill(self);
        self.close();
    }

    /// An array and what `fill` puts in it.
    pub fn array(&mut self, name: &str, fill: impl FnOnce(&mut Self)) {
        self.open_array(name);
        fill(self);
        self.close();
    }

    /// A whole number.
    pub fn int(&mut self, name: &str, value: impl Into<i128>) {
        let value: i128 = value.into();
        self.value(name, &value.to_string(), false);
    }

    /// A size in memory or of a collection.
    pub fn len(&mut self, name: &str, value: usize) {
        self.value(name, &value.to_string(), false);
    }

    /// A float, with every digit that tells it from its neighbours.
    pub fn float(&mut self, name: &str, value: f64) {
        let text =
            if self.style == Style::Html { float_text(value, 6) } else { float_text(value, 17) };
        self.value(name, &text, false);
    }

    /// A 32-bit float, with every digit that tells it from its neighbours.
    pub fn float32(&mut self, name: &str, value: f32) {
        self.value(name, &float_text(f64::from(value), 9), false);
    }

    /// `true` or `false`.
    pub fn bool(&mut self, name: &str, value: bool) {
        self.value(name, if value { "true" } else { "false" }, false);
    }

    /// Text.
    pub fn string(&mut self, name: &str, value: impl AsRef<str>) {
        self.value(name, value.as_ref(), true);
    }

    /// Text made from something that can be displayed.
    pub fn display(&mut self, name: &str, value: impl std::fmt::Display) {
        self.value(name, &value.to_string(), true);
    }

    /// A number that is text already.
    pub fn unquoted(&mut self, name: &str, value: &str) {
        self.value(name, value, false);
    }

    /// What was written. In json-pretty it ends with a line break.
    #[must_use]
    pub fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.close();
        }
        match self.style {
            Style::Table => self.render_table(),
            Style::KeyValue => {
                for (name, value) in std::mem::take(&mut self.cells) {
                    let _ = write!(self.out, "key::{name}=\"{value}\" ");
                }
            }
            _ => {}
        }
        self.out
    }

    /// What was written, ending with a line break.
    #[must_use]
    pub fn finish_line(self) -> String {
        let mut out = self.finish();
        if !out.ends_with('\n') {
            out.push('\n');
        }
        out
    }

    fn open_section(&mut self, name: &str, array: bool) {
        match self.style {
            Style::Json => {
                self.json_name(name);
                self.out.push(if array { '[' } else { '{' });
            }
            Style::Xml | Style::Html => {
                self.xml_indent();
                let name = tag(name);
                let _ = write!(self.out, "<{name}>");
                self.xml_line_end();
            }
            Style::Table | Style::KeyValue => {}
        }
        self.open.push(Section { name: name.to_owned(), array, items: 0 });
    }

    fn value(&mut self, name: &str, value: &str, quoted: bool) {
        match self.style {
            Style::Json => {
                self.json_name(name);
                if quoted {
                    json_text(&mut self.out, value);
                } else {
                    self.out.push_str(value);
                }
            }
            Style::Xml => {
                self.xml_indent();
                let name = tag(name);
                let _ = write!(self.out, "<{name}>");
                xml_text(&mut self.out, value);
                let _ = write!(self.out, "</{name}>");
                self.xml_line_end();
            }
            Style::Html => {
                self.xml_indent();
                let _ = write!(self.out, "<li>{}: ", tag(name));
                xml_text(&mut self.out, value);
                self.out.push_str("</li>");
                self.xml_line_end();
            }
            Style::Table | Style::KeyValue => {
                let mut path = String::new();
                for section in self.open.iter().rev() {
                    path.push_str(&section.name);
                    path.push(':');
                }
                path.push_str(name);
                let n = self.seen.entry(path.clone()).or_insert(0);
                let _ = write!(path, "[{n}]");
                *n += 1;
                self.cells.push((path, value.to_owned()));
            }
        }
    }

    fn json_name(&mut self, name: &str) {
        let Some(top) = self.open.last_mut() else { return };
        let (array, first) = (top.array, top.items == 0);
        top.items += 1;
        if !first {
            self.out.push(',');
        }
        if self.pretty {
            self.indent(4);
        }
        if !array {
            json_text(&mut self.out, name);
            self.out.push_str(if self.pretty { ": " } else { ":" });
        }
    }

    fn indent(&mut self, step: usize) {
        self.out.push('\n');
        let width = self.open.len() * step;
        self.out.extend(std::iter::repeat_n(' ', width));
    }

    fn xml_indent(&mut self) {
        if self.pretty {
            self.out.extend(std::iter::repeat_n(' ', self.open.len()));
        }
    }

    fn xml_line_end(&mut self) {
        if self.pretty {
            self.out.push('\n');
        }
    }

    fn render_table(&mut self) {
        let cells = std::mem::take(&mut self.cells);
        let rule = |out: &mut String| {
            for (name, value) in &cells {
                out.push('+');
                out.extend(std::iter::repeat_n('-', name.len().max(value.len()) + 3));
            }
            out.push_str("+\n");
        };
        let row = |out: &mut String, heads: bool| {
            for (name, value) in &cells {
                let (text, width) = (if heads { name } else { value }, name.len().max(value.len()));
                let _ = write!(out, "| {text:<width$}  ");
            }
            out.push_str("|\n");
        };
        if cells.is_empty() {
            return;
        }
        rule(&mut self.out);
        row(&mut self.out, true);
        rule(&mut self.out);
        row(&mut self.out, false);
        rule(&mut self.out);
    }
}

/// A name as an xml tag.
fn tag(name: &str) -> String {
    name.replace(' ', "_")
}

fn json_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn xml_text(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\'' => out.push_str("&apos;"),
            '"' => out.push_str("&quot;"),
            c if ((c as u32) < 0x20 && c != '\n' && c != '\t') || c as u32 == 0x7f => {
                let _ = write!(out, "&#x{:02x};", c as u32);
            }
            c => out.push(c),
        }
    }
}

/// A float as C's `%.{digits}g` writes it. What is not a number becomes 0, since json has
/// no word for it.
#[must_use]
pub fn float_text(value: f64, digits: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".to_owned();
    }
    let digits = digits.max(1);
    let scientific = format!("{value:.*e}", digits - 1);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.to_owned()
        }
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim(mantissa), exponent.abs());
    }
    let places = (digits as i32 - 1 - exponent).max(0) as usize;
    trim(&format!("{value:.places$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(mut f: Formatter) -> String {
        f.object("tree", |f| {
            f.array("nodes", |f| {
                f.object("item", |f| {
                    f.int("id", -1);
                    f.string("name", "a\"b<");
                    f.array("children", |_| {});
                    f.float("weight", 0.001_998_901_367_187_5);
                    f.bool("up", true);
                });
            });
            f.object("stray", |_| {});
        });
        f.finish()
    }

    #[test]
    fn writes_like_the_peer() {
        assert_eq!(
            sample(Formatter::json()),
            r#"{"nodes":[{"id":-1,"name":"a\"b<","children":[],"weight":0.0019989013671875,"up":true}],"stray":{}}"#
        );
        assert_eq!(
            sample(Formatter::json_pretty()),
            "{\n    \"nodes\": [\n        {\n            \"id\": -1,\n            \"name\": \"a\\\"b<\",\n            \"children\": [],\n            \"weight\": 0.0019989013671875,\n            \"up\": true\n        }\n    ],\n    \"stray\": {}\n}\n"
        );
        assert_eq!(
            sample(Formatter::from_name("xml").unwrap()),
            "<tree><nodes><item><id>-1</id><name>a&quot;b&lt;</name><children></children><weight>0.0019989013671875</weight><up>true</up></item></nodes><stray></stray></tree>"
        );
        assert_eq!(
            sample(Formatter::from_name("xml-pretty").unwrap()),
            "<tree>\n <nodes>\n  <item>\n   <id>-1</id>\n   <name>a&quot;b&lt;</name>\n   <children>\n   </children>\n   <weight>0.0019989013671875</weight>\n   <up>true</up>\n  </item>\n </nodes>\n <stray>\n </stray>\n</tree>\n"
        );
        assert!(
            sample(Formatter::from_name("table-kv").unwrap())
                .starts_with("key::item:nodes:tree:id[0]=\"-1\" key::item:nodes:tree:name[0]=")
        );
        assert!(Formatter::from_name("yaml").is_none());
    }

    #[test]
    fn floats() {
        for (value, text) in [
            (1.0, "1"),
            (0.0, "0"),
            (0.1, "0.10000000000000001"),
            (0.95, "0.94999999999999996"),
            (2.603_963_912_406_470_6e-5, "2.6039639124064706e-05"),
            (1.324_272_155_761_718_8, "1.3242721557617188"),
            (0.999_903_989_246_795_7, "0.99990398924679569"),
            (1e20, "1e+20"),
            (f64::NAN, "0"),
            (-2.5, "-2.5"),
        ] {
            assert_eq!(float_text(value, 17), text);
        }
        assert_eq!(float_text(0.013_243_992, 6), "0.013244");
    }
}
