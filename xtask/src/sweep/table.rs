//! What a sweep shows: the plan before it, and models × lengths after it. Pure text.

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

pub(crate) fn render_plan(lines: &[PlanLine]) -> String {
    let model_width = width(lines.iter().map(|line| line.model.as_str()));
    let action_width = width(lines.iter().map(|line| line.action.as_str()));
    let rows: Vec<String> = lines
        .iter()
        .map(|line| {
            format!(
                "{:<model_width$} {:>8}  {:<action_width$}  {}",
                line.model, line.len, line.action, line.reason
            )
        })
        .collect();
    rows.join("\n")
}

/// Models × lengths with decode tok/s or the class. Of several rows of a cell the last one counts.
pub(crate) fn render_summary(grid: &Grid, table: &Table) -> String {
    let cell_text = |model: &str, len: u64| {
        let row = table.rows().iter().rev().find(|row| {
            table.value(row, "model") == Some(model)
                && table.value(row, "prompt_target_len") == Some(len.to_string().as_str())
        });
        row.map_or("-".to_owned(), |row| render_cell(table, row))
    };
    let model_width = width(grid.models().iter().map(|model| model.name.as_str())).max(5);
    let columns: Vec<Vec<String>> = grid
        .lengths()
        .iter()
        .map(|&len| {
            let cells = grid.models().iter().map(|model| cell_text(&model.name, len));
            std::iter::once(len.to_string()).chain(cells).collect()
        })
        .collect();
    let names = std::iter::once("model").chain(grid.models().iter().map(|m| m.name.as_str()));
    let lines: Vec<String> = names
        .enumerate()
        .map(|(index, name)| {
            let cells: String = columns
                .iter()
                .map(|column| {
                    let width = width(column.iter().map(String::as_str));
                    format!("  {:>width$}", column[index])
                })
                .collect();
            format!("{name:<model_width$}{cells}")
        })
        .collect();
    lines.join("\n")
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

fn width<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::grid::plan_grid;
    use crate::cell::row::{parse_csv, render_header};
    use crate::model::reference::{ModelKind, ResolvedModel};

    #[test]
    fn the_summary_has_a_speed_or_a_class_for_each_cell() {
        let model = |name: &str| ResolvedModel {
            name: name.to_owned(),
            path: String::new(),
            tracked_path: String::new(),
            kind: ModelKind::Gguf,
            weight_bytes: None,
            note: None,
        };
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
            render_summary(&grid, &table),
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
            "a       512  run              x\nbc        8  SKIP:oom_record  y"
        );
    }
}
