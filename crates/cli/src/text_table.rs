//! Tables in plain text. Source: the peer's `common/TextTable.cc`.

/// Where a cell's text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// To the left edge.
    Left,
    /// To the middle.
    Center,
    /// To the right edge.
    Right,
}

#[derive(Clone, Debug)]
struct Column {
    heading: String,
    head: Align,
    cells: Align,
    width: usize,
}

/// Rows of cells under headings, each column as wide as its widest cell, two blanks
/// between columns.
#[derive(Clone, Debug)]
pub struct TextTable {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    indent: usize,
    separator: &'static str,
}

impl Default for TextTable {
    fn default() -> Self {
        Self { columns: Vec::new(), rows: Vec::new(), indent: 0, separator: "  " }
    }
}

impl TextTable {
    /// A table without columns.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A table with these columns: heading, its alignment, the cells' alignment.
    #[must_use]
    pub fn with(columns: &[(&str, Align, Align)]) -> Self {
        let mut table = Self::default();
        for (heading, head, cells) in columns {
            table.column(heading, *head, *cells);
        }
        table
    }

    /// Adds a column.
    pub fn column(&mut self, heading: &str, head: Align, cells: Align) {
        let width = heading.chars().count();
        self.columns.push(Column { heading: heading.to_owned(), head, cells, width });
    }

    /// Blanks before each line.
    pub fn set_indent(&mut self, indent: usize) {
        self.indent = indent;
    }

    /// Text between columns.
    pub fn set_separator(&mut self, separator: &'static str) {
        self.separator = separator;
    }

    /// Adds a row; missing cells are empty, surplus ones are dropped.
    pub fn row(&mut self, mut cells: Vec<String>) {
        cells.resize(self.columns.len(), String::new());
        for (cell, column) in cells.iter().zip(&mut self.columns) {
            column.width = column.width.max(cell.chars().count());
        }
        self.rows.push(cells);
    }

    /// The headings and all rows, each ended by a line break. Without any heading text
    /// there is no heading line.
    #[must_use]
    pub fn render(&self) -> String {
        let mut out = String::new();
        let pad = |out: &mut String, text: &str, width: usize, align: Align| {
            let left = width - text.chars().count().min(width);
            let before = match align {
                Align::Left => 0,
                Align::Center => left / 2,
                Align::Right => left,
            };
            out.extend(std::iter::repeat_n(' ', before));
            out.push_str(text);
            out.extend(std::iter::repeat_n(' ', left - before));
        };
        let mut line = |cells: &mut dyn Iterator<Item = (&str, usize, Align)>| {
            out.extend(std::iter::repeat_n(' ', self.indent));
            for (i, (text, width, align)) in cells.enumerate() {
                if i > 0 {
                    out.push_str(self.separator);
                }
                pad(&mut out, text, width, align);
            }
            out.push('\n');
        };
        if self.columns.iter().any(|c| !c.heading.is_empty()) {
            line(&mut self.columns.iter().map(|c| (c.heading.as_str(), c.width, c.head)));
        }
        for row in &self.rows {
            line(&mut row.iter().zip(&self.columns).map(|(t, c)| (t.as_str(), c.width, c.cells)));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns() {
        let mut table = TextTable::with(&[
            ("ID", Align::Left, Align::Right),
            ("NAME", Align::Left, Align::Left),
        ]);
        table.row(vec!["-1".into(), "root default".into()]);
        table.row(vec!["0".into(), "osd.0".into()]);
        assert_eq!(table.render(), "ID  NAME        \n-1  root default\n 0  osd.0       \n");
    }
}
