//! What the scripted runner is told to play. The format is the runner's own (`xtask`, `selftest`);
//! a key that it does not know is its error, so that nothing here can drift unseen.

use toml::{Table, Value};

/// A script: the first cell that matches a launch says what happens; where none does, the launch is a
/// plain success.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Script {
    head: Table,
    cells: Vec<Cell>,
}

/// Which launches it is about, and what they do.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Cell(Table);

impl Script {
    /// Every launch succeeds.
    pub fn new() -> Script {
        Script::default()
    }

    /// A script in its own format.
    #[track_caller]
    pub fn parse(text: &str) -> Script {
        let mut head: Table = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
        let cells = match head.remove("cell") {
            Some(Value::Array(cells)) => cells,
            _ => Vec::new(),
        };
        let cells = cells.into_iter().map(|cell| match cell {
            Value::Table(cell) => Cell(cell),
            other => panic!("no cell: {other}"),
        });
        Script { head, cells: cells.collect() }
    }

    /// Sets a key of the whole script, such as `seed`.
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Script {
        self.head.insert(key.to_owned(), value.into());
        self
    }

    /// Adds a cell, to be tried after those before.
    pub fn cell(mut self, cell: Cell) -> Script {
        self.cells.push(cell);
        self
    }

    /// The cells so far.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// The script, with launches noted in a file.
    pub(crate) fn render(&self, launch_log: &str) -> String {
        let cells = self.cells.iter().map(|cell| Value::Table(cell.0.clone())).collect();
        let script = self.clone().set("launch_log", launch_log).set("cell", Value::Array(cells));
        script.head.to_string()
    }
}

impl Cell {
    /// Every launch, and a plain success.
    pub fn new() -> Cell {
        Cell::default()
    }

    /// Sets a key, such as `sleep_ms`.
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Cell {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    /// Only launches of this model.
    pub fn model(self, model: &str) -> Cell {
        self.set("model", model)
    }

    /// Only launches at this length.
    pub fn len(self, len: u32) -> Cell {
        self.set("len", len)
    }

    /// Only launches with this variable set to this value; an empty one stands for unset.
    pub fn env(mut self, name: &str, value: &str) -> Cell {
        let env = self.0.entry("env").or_insert_with(|| Value::Table(Table::new()));
        env.as_table_mut().expect("env is a table").insert(name.to_owned(), value.into());
        self
    }

    /// The report names this variable as consulted.
    pub fn consults(self, name: &str) -> Cell {
        self.set("consults", vec![name])
    }

    /// Text for stderr.
    pub fn stderr(self, text: &str) -> Cell {
        self.set("stderr", text)
    }

    /// The exit code.
    pub fn exit(self, code: i32) -> Cell {
        self.set("exit", code)
    }

    /// It runs out of memory with these words: exit code 1, and no report.
    pub fn runs_out_of_memory(self, words: &str) -> Cell {
        self.exit(1).set("report", "none").stderr(words)
    }

    /// Fields that replace those of the report, as a table in TOML.
    #[track_caller]
    pub fn overlay(self, toml: &str) -> Cell {
        let table: Table = toml.parse().unwrap_or_else(|error| panic!("{error}\n{toml}"));
        self.set("overlay", table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_what_was_said_in_its_order() {
        let script = Script::new()
            .set("seed", 5)
            .cell(Cell::new().model("a").len(512).env("A", "1").env("B", "").exit(3))
            .cell(Cell::new().overlay("output.token_hash = \"ff\""));
        let read: Table = script.render("log").parse().unwrap();
        assert_eq!(
            (read["seed"].as_integer(), read["launch_log"].as_str()),
            (Some(5), Some("log"))
        );
        assert_eq!(read["cell"][0]["env"].as_table().unwrap().len(), 2);
        assert_eq!(read["cell"][1]["overlay"]["output"]["token_hash"].as_str(), Some("ff"));
        assert_eq!(Script::parse(&script.render("log")).render("log"), script.render("log"));
    }
}
