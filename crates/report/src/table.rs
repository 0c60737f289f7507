//! Plain text tables with aligned columns.

use scalerl_board::{Block, Table};
use std::io::{self, Write};

/// Rows of cells; the first is the heading. Columns are left-aligned and two spaces apart.
pub fn write(out: &mut dyn Write, rows: &[Vec<String>]) -> io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::from(" ");
        for (cell, width) in row.iter().zip(&widths) {
            let padding = width - cell.chars().count();
            line.push(' ');
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', padding + 1));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// A row from anything that prints.
pub fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// A table whose first row is its heading.
pub fn block_table(caption: &str, mut rows: Vec<Vec<String>>) -> Block {
    let columns = rows.remove(0);
    Block::Table(Table { caption: caption.to_owned(), columns, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_whatever_the_characters() {
        let mut out = Vec::new();
        write(&mut out, &[row(["run", "A"]), row(["größer", "0.61"])]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "  run     A\n  größer  0.61\n");
    }
}
