//! What a sweep shows: the plan before it, and models × lengths after it. Pure text.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::columns::render_columns;
use crate::cell::grid::Grid;
use crate::cell::row::{Record, Table};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlanLine {
    pub(crate) model: String,
    pub(crate) len: u64,
    /// What becomes of the cell: `run`, `done`, or a class.
    pub(crate) action: String,
    pub(crate) reason: String,
}

/// What the summary adds to a cell's speed, by model and length.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// Cells whose row was measured while something disturbed them.
    pub(crate) disturbed: BTreeSet<(String, u64)>,
    /// Half of the range of decode speeds of several runs, in percent of the median.
    pub(crate) spread_pct: BTreeMap<(String, u64), f64>,
}

pub(crate) fn render_plan(lines: &[PlanLine]) -> String {
    let rows: Vec<[String; 4]> = lines
        .iter()
        .cloned()
        .map(|PlanLine { model, len, action, reason }| [model, len.to_string(), action, reason])
        .collect();
    render_columns(&rows, |column| column == 1)
}

/// Models × lengths with decode tok/s or the class. Of several rows of a cell the last one counts.
pub(crate) fn render_summary(grid: &Grid, table: &Table, marks: &Marks) -> String {
    let cell_text = |model: &str, len: u64| {
        let row = table.rows().iter().rev().find(|row| {
            table.value(row, "model") == Some(model)
                && table.value(row, "prompt_target_len") == Some(len.to_string().as_str())
        });
        let text = row.map_or("-".to_owned(), |row| render_cell(table, row));
        let cell = (model.to_owned(), len);
        let spread = marks.spread_pct.get(&cell).map(|pct| format!(" ±{pct:.1} %"));
        let star = if marks.disturbed.contains(&cell) { "*" } else { "" };
        format!("{text}{}{star}", spread.unwrap_or_default())
    };
    let lengths = grid.lengths();
    let header = std::iter::once("model".to_owned()).chain(lengths.iter().map(u64::to_string));
    let mut rows = vec![header.collect::<Vec<String>>()];
    rows.extend(grid.row_names().into_iter().map(|name| {
        let cells: Vec<String> = lengths.iter().map(|&len| cell_text(&name, len)).collect();
        std::iter::once(name).chain(cells).collect()
    }));
    let shown = render_columns(&rows, |column| column > 0);
    match marks.disturbed.is_empty() {
        true => shown,
        false => format!("{shown}\n* disturbed while it was measured"),
    }
}

/// A cell of the summary: its class, else its speed.
fn render_cell(table: &Table, row: &Record) -> String {
    if let Some(token) = row.classification_token() {
        return token.to_owned();
    }
    let value = |column| table.value(row, column).filter(|text| !text.is_empty());
    match (value("decode_tok_s"), value("prefill_tok_s")) {
        (Some(decode), _) => format!("{decode} tok/s"),
        (None, Some(prefill)) => format!("{prefill} tok/s prefill"),
        (None, None) => "no speed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::grid::plan_grid;
    use crate::cell::grid::tests::model;
    use crate::cell::row::{parse_csv, render_header};

    #[test]
    fn the_summary_has_a_speed_or_a_class_for_each_cell() {
        let grid = plan_grid(vec![model("a"), model("long-name")], vec![512, 2048, 8192]).unwrap();
        let table = parse_csv(&format!(
            "{}a,p,1,1,1.00,1.00,1.00,,d,h,v,r,1,\"\",512,FAIL:host_lost\n\
             a,p,1,1,1.00,1.00,1.00,54.30,d,h,v,r,1,\"\",512\n\
             a,p,,,,,,,d,h,v,r,1,\"\",2048,SKIP:oom\n\
             long-name,p,1,1,1.00,9.00,,,d,h,v,r,1,\"\",512\n",
            render_header()
        ))
        .unwrap();
        assert_eq!(
            render_summary(&grid, &table, &Marks::default()),
            "model                     512      2048  8192\n\
             a                 54.30 tok/s  SKIP:oom     -\n\
             long-name  9.00 tok/s prefill         -     -"
        );
    }

    #[test]
    fn the_plan_has_a_line_for_each_cell() {
        let line = |model: &str, len, action: &str, reason: &str| PlanLine {
            model: model.to_owned(),
            len,
            action: action.to_owned(),
            reason: reason.to_owned(),
        };
        assert_eq!(
            render_plan(&[line("a", 512, "run", "x"), line("bc", 8, "SKIP:oom_record", "y")]),
            "a   512  run              x\nbc    8  SKIP:oom_record  y"
        );
    }
}
