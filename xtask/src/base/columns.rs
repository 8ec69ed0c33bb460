//! Text in columns, for a terminal.

/// Rows as lines, their columns two blanks apart; no line ends in blanks. Columns of numbers, which
/// `is_right` names by index, end where their neighbours end.
pub(crate) fn render_columns<R: AsRef<[String]>>(
    rows: &[R],
    is_right: impl Fn(usize) -> bool,
) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.as_ref().get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let lines: Vec<String> = rows
        .iter()
        .map(|row| {
            let cells = row.as_ref().iter().enumerate().map(|(column, cell)| {
                let width = width(column);
                if is_right(column) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            cells.collect::<Vec<String>>().join("  ").trim_end().to_owned()
        })
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::render_columns;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_without_blanks() {
        let rows = [["NAME", "N", "NOTE"], ["α", "10", ""], ["ab", "7", "x y"]]
            .map(|row| row.map(str::to_owned));
        assert_eq!(
            render_columns(&rows, |column| column == 1),
            "NAME   N  NOTE\nα     10\nab     7  x y"
        );
        assert_eq!(render_columns(&rows[..0], |_| false), "");
    }
}
