//! Columns for a terminal: left-aligned text, right-aligned numbers, two spaces between.

/// Rows of cells under a heading.
#[derive(Clone, Debug)]
pub struct Table {
    heads: Vec<String>,
    /// Whether the column holds numbers.
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table; a head that begins with `>` makes a column of numbers.
    pub fn new(heads: &[&str]) -> Self {
        Self {
            heads: heads.iter().map(|head| head.trim_start_matches('>').to_owned()).collect(),
            right: heads.iter().map(|head| head.starts_with('>')).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row. Cells beyond the heads are dropped, missing ones are empty.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).take(self.heads.len()).collect();
        row.resize(self.heads.len(), String::new());
        self.rows.push(row);
    }

    /// The whole, each line ended; no line has spaces at its end.
    pub fn render(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().chain([&self.heads]).map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..self.heads.len()).map(width).collect();
        let mut text = String::new();
        for row in std::iter::once(&self.heads).chain(&self.rows) {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let fill = " ".repeat(widths[column] - cell.chars().count());
                let gap = if column == 0 { "" } else { "  " };
                line.push_str(gap);
                line.push_str(&if self.right[column] { fill + cell } else { cell.clone() + &fill });
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn aligns_and_trims() {
        let mut table = Table::new(&["name", ">n", "rest"]);
        table.row(["a", "10", "x"]);
        table.row(["längst", "9"]);
        assert_eq!(table.render(), "name     n  rest\na       10  x\nlängst   9\n");
    }
}
