//! The plan of a sweep: its cells in order, and which of them are faked.
//!
//! Pure. Model-major, length-minor, unless the definition says otherwise: all lengths of a model before
//! the next model, so that a true OOM is known before a longer cell of that model comes up.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use serde::{Deserialize, Serialize};

use crate::base::diagnostic::HintExt as _;
use crate::base::repeated::find_repeated;
use crate::cell::classify::Classification;
use crate::cell::length::{Length, generate_name};
use crate::cell::variants::{Variant, streams_name};
use crate::model::reference::ResolvedModel;

/// Models × variants, generated tokens and streams at the same time × prompt lengths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grid {
    models: Vec<ResolvedModel>,
    settings: Vec<Setting>,
    /// Every prompt length, in the order of the definition.
    lengths: Vec<u64>,
    /// The prompt lengths by how many tokens are generated after them; `None` is what the whole sweep
    /// generates.
    prompts: BTreeMap<Option<u64>, Vec<u64>>,
    order: Order,
}

/// The order in which cells are measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// All lengths of a model, as they are listed, before the next model.
    #[default]
    ModelMajor,
    /// All models at the shortest length, then at the next: shorter before longer within each model,
    /// so that a true OOM is known before a longer cell comes up.
    Interleaved,
}

/// What is changed of a model's run: by a variant's arguments, by how many tokens are generated, and by
/// how many streams ask a server at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting {
    streams: u64,
    generate: Option<u64>,
    /// The variant of the definition.
    change: Option<String>,
    /// All of it as rows have it; `None` for one stream of the model as it is.
    variant: Option<String>,
}

impl Setting {
    fn new(streams: u64, generate: Option<u64>, change: Option<&str>) -> Setting {
        let tokens = generate.map(generate_name);
        let name = (streams != 1).then(|| streams_name(streams));
        let parts: Vec<&str> =
            change.into_iter().chain(tokens.as_deref()).chain(name.as_deref()).collect();
        let variant = (!parts.is_empty()).then(|| parts.join("+"));
        Setting { streams, generate, change: change.map(str::to_owned), variant }
    }
}

/// One measurement: a model at a prompt length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell<'grid> {
    pub(crate) model: &'grid ResolvedModel,
    /// Prompt length in tokens.
    pub(crate) len: u64,
    /// What is changed of the model's run, by name; `None` for the model as it is.
    pub(crate) variant: Option<&'grid str>,
}

impl Cell<'_> {
    /// The name that rows, backstop and record know it by: `model`, or `model+variant`.
    pub(crate) fn name(&self) -> String {
        match self.variant {
            None => self.model.name.clone(),
            Some(variant) => format!("{}+{variant}", self.model.name),
        }
    }
}

/// A cell that is not launched but yields a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FakeCell {
    pub(crate) model: String,
    pub(crate) len: u64,
    pub(crate) class: Classification,
}

/// Makes a grid.
///
/// # Errors
/// When two models have one name: rows, backstop and record know a model by its name alone.
pub(crate) fn plan_grid(models: Vec<ResolvedModel>, lengths: Vec<u64>) -> anyhow::Result<Grid> {
    let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
    let repeated = find_repeated(&names);
    if !repeated.is_empty() {
        let list: Vec<String> = repeated
            .iter()
            .map(|name| {
                let same = models.iter().filter(|model| model.name == *name);
                let paths: Vec<String> = same.map(|model| format!("`{}`", model.path)).collect();
                format!("`{name}` ({})", paths.join(", "))
            })
            .collect();
        return Err(anyhow::anyhow!("these models are listed more than once: {}", list.join("; ")))
            .hint("name each model once; a glob may match one that is also named");
    }
    Ok(Grid {
        models,
        settings: vec![Setting::new(1, None, None)],
        prompts: BTreeMap::from([(None, lengths.clone())]),
        lengths,
        order: Order::default(),
    })
}

impl Grid {
    pub(crate) fn models(&self) -> &[ResolvedModel] {
        &self.models
    }

    pub(crate) fn lengths(&self) -> &[u64] {
        &self.lengths
    }

    /// The cells, in the order in which they are measured.
    pub(crate) fn cells(&self) -> impl Iterator<Item = Cell<'_>> {
        let mut cells: Vec<Cell<'_>> = self
            .rows()
            .flat_map(|(model, setting)| {
                let variant = setting.variant.as_deref();
                self.prompts_of(setting).iter().map(move |&len| Cell { model, len, variant })
            })
            .collect();
        if self.order == Order::Interleaved {
            cells.sort_by_key(|cell| cell.len);
        }
        cells.into_iter()
    }

    /// The same in another order.
    pub(crate) fn in_order(self, order: Order) -> Grid {
        Grid { order, ..self }
    }

    /// What has a row of its own in a table over lengths: each model with each setting.
    fn rows(&self) -> impl Iterator<Item = (&ResolvedModel, &Setting)> {
        let settings =
            || self.settings.iter().filter(|setting| !self.prompts_of(setting).is_empty());
        self.models.iter().flat_map(move |model| settings().map(move |setting| (model, setting)))
    }

    /// The prompt lengths of a setting.
    fn prompts_of(&self, setting: &Setting) -> &[u64] {
        self.prompts.get(&setting.generate).map_or(&[], Vec::as_slice)
    }

    /// The names in rows, in order.
    pub(crate) fn row_names(&self) -> Vec<String> {
        let name = |(model, setting): (_, &Setting)| {
            Cell { model, len: 0, variant: setting.variant.as_deref() }.name()
        };
        self.rows().map(name).collect()
    }

    pub(crate) fn cell_count(&self) -> usize {
        self.rows().map(|(_, setting)| self.prompts_of(setting).len()).sum()
    }

    /// The same over these lengths, of which some say how many tokens are generated; the others, and those
    /// that say it as well, generate `max_tokens`. What generates fewer comes first.
    pub(crate) fn with_pairs(self, lengths: &[Length], max_tokens: u64) -> Grid {
        let mut prompts: BTreeMap<Option<u64>, Vec<u64>> = BTreeMap::new();
        let mut columns: Vec<u64> = Vec::new();
        for length in lengths {
            let generate = length.generate().filter(|count| *count != max_tokens);
            prompts.entry(generate).or_default().push(length.prompt());
            if !columns.contains(&length.prompt()) {
                columns.push(length.prompt());
            }
        }
        let mut generates: Vec<Option<u64>> = prompts.keys().copied().collect();
        generates.sort_by_key(|generate| generate.unwrap_or(max_tokens));
        let settings = self.settings.iter().flat_map(|setting| {
            let with = |generate: &Option<u64>| {
                Setting::new(setting.streams, *generate, setting.change.as_deref())
            };
            generates.iter().map(with).collect::<Vec<_>>()
        });
        Grid { settings: settings.collect(), lengths: columns, prompts, ..self }
    }

    /// The same for each of these numbers of streams.
    pub(crate) fn with_concurrency(self, counts: &[u64]) -> Grid {
        let settings = self.settings.iter().flat_map(|setting| {
            let change = setting.change.as_deref();
            counts.iter().map(move |&count| Setting::new(count, setting.generate, change))
        });
        Grid { settings: settings.collect(), ..self }
    }

    /// Each of these variants, and the model as it is beside them where that is wanted.
    pub(crate) fn with_variants(self, variants: &[Variant], plain: bool) -> Grid {
        let names = variants.iter().map(|variant| Some(variant.name.as_str()));
        let names: Vec<Option<&str>> = plain.then_some(None).into_iter().chain(names).collect();
        let settings = names.into_iter().flat_map(|name| {
            let with =
                move |setting: &Setting| Setting::new(setting.streams, setting.generate, name);
            self.settings.iter().map(with)
        });
        Grid { settings: settings.collect(), ..self }
    }

    /// The variant of the definition that a cell is of; `None` for the model as it is.
    pub(crate) fn change_of(&self, cell: Cell<'_>) -> Option<&str> {
        self.setting_of(cell).and_then(|setting| setting.change.as_deref())
    }

    /// How many tokens are generated in a cell, where that is not what the whole sweep generates.
    pub(crate) fn generate_of(&self, cell: Cell<'_>) -> Option<u64> {
        self.setting_of(cell).and_then(|setting| setting.generate)
    }

    /// How many streams ask at the same time in a cell.
    pub(crate) fn concurrency_of(&self, cell: Cell<'_>) -> u64 {
        self.setting_of(cell).map_or(1, |setting| setting.streams)
    }

    fn setting_of(&self, cell: Cell<'_>) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.variant.as_deref() == cell.variant)
    }
}

/// Reads `model:len[,model:len…]`, all of them out of memory. A name may hold commas and colons: an
/// entry ends where the text so far names a cell of the grid.
///
/// # Errors
/// When an entry does not name a cell of this run: a fake that does nothing would prove nothing.
pub(crate) fn parse_fake_ooms(text: &str, cells: &[Cell<'_>]) -> anyhow::Result<Vec<FakeCell>> {
    let mut fakes = Vec::new();
    let mut pending: Option<String> = None;
    for piece in text.split(',') {
        let entry = match pending.take() {
            Some(start) => format!("{start},{piece}"),
            None => piece.to_owned(),
        };
        match parse_cell_name(entry.trim()) {
            Some((model, len)) if is_cell(cells, model, len) => {
                let (model, class) = (model.to_owned(), Classification::Oom);
                fakes.push(FakeCell { model, len, class });
            }
            _ => pending = Some(entry),
        }
    }
    if let Some(entry) = pending.filter(|entry| !entry.trim().is_empty()) {
        return bail_no_cell(entry.trim(), "MODEL:LEN", cells);
    }
    Ok(fakes)
}

/// Reads `MODEL:LEN:CLASS`, where the class is a token such as `FAIL:bench`.
pub(crate) fn parse_fake_cell(text: &str, cells: &[Cell<'_>]) -> anyhow::Result<FakeCell> {
    let with_class = Classification::ALL
        .into_iter()
        .find_map(|class| Some((text.strip_suffix(class.token())?.strip_suffix(':')?, class)));
    let Some((cell, class)) = with_class else {
        let known: Vec<_> = Classification::ALL.iter().map(|class| class.token()).collect();
        bail!("`{text}` does not end in a class; the classes are {}", known.join(", "));
    };
    match parse_cell_name(cell) {
        Some((model, len)) if is_cell(cells, model, len) => {
            Ok(FakeCell { model: model.to_owned(), len, class })
        }
        _ => bail_no_cell(cell, "MODEL:LEN:CLASS", cells),
    }
}

/// Splits `model:len` at the last colon.
fn parse_cell_name(text: &str) -> Option<(&str, u64)> {
    let (model, len) = text.rsplit_once(':')?;
    Some((model, len.trim().parse().ok()?))
}

fn is_cell(cells: &[Cell<'_>], model: &str, len: u64) -> bool {
    cells.iter().any(|cell| cell.len == len && cell.name() == model)
}

fn bail_no_cell<T>(text: &str, form: &str, cells: &[Cell<'_>]) -> anyhow::Result<T> {
    let mut models: Vec<String> = cells.iter().map(Cell::name).collect();
    models.dedup();
    let lengths: BTreeSet<u64> = cells.iter().map(|cell| cell.len).collect();
    let lengths: Vec<String> = lengths.iter().map(u64::to_string).collect();
    Err(anyhow::anyhow!("fake `{text}` does not name a cell of this run")).hint(format!(
        "write {form}; the models are {}, the lengths {}",
        models.join(", "),
        lengths.join(", ")
    ))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::reference::ModelKind;

    pub(crate) fn model(name: &str) -> ResolvedModel {
        ResolvedModel {
            name: name.to_owned(),
            path: format!("models/{name}"),
            tracked_path: format!("models/{name}"),
            kind: ModelKind::Gguf,
            weight_bytes: None,
            note: None,
        }
    }

    fn grid(names: &[&str], lengths: &[u64]) -> Grid {
        plan_grid(names.iter().map(|name| model(name)).collect(), lengths.to_vec()).unwrap()
    }

    #[test]
    fn variants_and_streams_cross() {
        let variant = Variant { name: "q8".to_owned(), ..Variant::default() };
        let grid = plan_grid(vec![model("a")], vec![8]).unwrap();
        let grid = grid.with_variants(&[variant], true).with_concurrency(&[1, 4]);
        let cells: Vec<_> = grid
            .cells()
            .map(|cell| (cell.name(), grid.change_of(cell), grid.concurrency_of(cell)))
            .collect();
        let expected = [
            ("a", None, 1),
            ("a+c4", None, 4),
            ("a+q8", Some("q8"), 1),
            ("a+q8+c4", Some("q8"), 4),
        ];
        assert_eq!(cells, expected.map(|(name, change, count)| (name.to_owned(), change, count)));
        assert_eq!(grid.row_names(), expected.map(|(name, ..)| name));
        assert_eq!(grid.cell_count(), 4);
    }

    #[test]
    fn pairs_have_rows_of_their_own_with_their_lengths_alone() {
        let lengths = [
            Length::Pair([512, 256]),
            Length::Prompt(512),
            Length::Pair([2048, 8]),
            Length::Pair([2048, 32]),
        ];
        let grid = plan_grid(vec![model("a")], Vec::new()).unwrap().with_pairs(&lengths, 32);
        let variant = Variant { name: "q8".to_owned(), ..Variant::default() };
        let cells = |grid: &Grid| -> Vec<String> {
            let render = |cell: Cell<'_>| format!("{} {}", cell.name(), cell.len);
            grid.cells().map(render).collect()
        };
        assert_eq!(cells(&grid), ["a+g8 2048", "a 512", "a 2048", "a+g256 512"]);
        assert_eq!((grid.lengths(), grid.cell_count()), (&[512, 2048][..], 4));
        assert_eq!(grid.row_names(), ["a+g8", "a", "a+g256"]);
        let generated: Vec<_> = grid.cells().map(|cell| grid.generate_of(cell)).collect();
        assert_eq!(generated, [Some(8), None, None, Some(256)]);
        let crossed = grid.with_variants(&[variant], false).with_concurrency(&[1, 4]);
        assert_eq!(
            cells(&crossed)[..4],
            ["a+q8+g8 2048", "a+q8+g8+c4 2048", "a+q8 512", "a+q8 2048"]
        );
        assert_eq!(crossed.cell_count(), 8, "the model as it is is not wanted");
    }

    #[test]
    fn interleaved_cells_come_shorter_before_longer() {
        let grid = plan_grid(vec![model("a"), model("b")], vec![2048, 512]).unwrap();
        let order = |grid: &Grid| -> Vec<String> {
            grid.cells().map(|cell| format!("{} {}", cell.name(), cell.len)).collect()
        };
        assert_eq!(order(&grid), ["a 2048", "a 512", "b 2048", "b 512"]);
        let grid = grid.in_order(Order::Interleaved);
        assert_eq!(order(&grid), ["a 512", "b 512", "a 2048", "b 2048"]);
    }

    #[test]
    fn all_lengths_of_a_model_come_before_the_next_model() {
        let grid = grid(&["b", "a"], &[512, 128]);
        let cells: Vec<_> = grid.cells().map(|cell| (cell.model.name.as_str(), cell.len)).collect();
        assert_eq!(cells, [("b", 512), ("b", 128), ("a", 512), ("a", 128)]);
        assert_eq!(grid.cell_count(), 4);
    }

    #[test]
    fn streams_are_an_axis_between_models_and_lengths() {
        let grid = grid(&["a", "b"], &[8, 16]).with_concurrency(&[1, 4]);
        let cells: Vec<_> =
            grid.cells().map(|cell| (cell.name(), cell.len, grid.concurrency_of(cell))).collect();
        let a = [("a", 8, 1), ("a", 16, 1), ("a+c4", 8, 4), ("a+c4", 16, 4)];
        let a = a.map(|(name, len, streams)| (name.to_owned(), len, streams));
        assert_eq!((&cells[..4], grid.cell_count()), (&a[..], 8));
        assert_eq!(grid.row_names(), ["a", "a+c4", "b", "b+c4"]);
    }

    #[test]
    fn a_model_that_is_there_twice_is_named() {
        let models = ["a", "b", "a"].map(model).to_vec();
        let error = plan_grid(models, vec![1]).unwrap_err().to_string();
        assert_eq!(error, "these models are listed more than once: `a` (`models/a`, `models/a`)");
    }

    #[test]
    fn fakes_are_split_at_the_last_colon_and_at_commas_between_cells() {
        let grid = grid(&["a:1", "b,c", "d"], &[512, 8]);
        let fakes =
            parse_fake_ooms("a:1:512,b,c:8, d:8", &grid.cells().collect::<Vec<_>>()).unwrap();
        let cells: Vec<_> = fakes.iter().map(|fake| (fake.model.as_str(), fake.len)).collect();
        assert_eq!(cells, [("a:1", 512), ("b,c", 8), ("d", 8)]);
        assert!(parse_fake_ooms("", &grid.cells().collect::<Vec<_>>()).unwrap().is_empty());
    }

    #[test]
    fn a_fake_that_names_no_cell_is_an_error() {
        let grid = grid(&["llama", "llama-8b"], &[512]);
        for text in ["llama:513", "lama:512", "llama", "llama:512,x", "llama:512:8", ":512"] {
            let error = parse_fake_ooms(text, &grid.cells().collect::<Vec<_>>()).unwrap_err();
            assert!(format!("{error:#}").contains("does not name a cell of this run"), "{text}");
        }
    }

    #[test]
    fn any_class_can_be_faked() {
        let grid = grid(&["a:b"], &[512]);
        for class in Classification::ALL {
            let fake =
                parse_fake_cell(&format!("a:b:512:{class}"), &grid.cells().collect::<Vec<_>>())
                    .unwrap();
            assert_eq!(fake, FakeCell { model: "a:b".to_owned(), len: 512, class });
        }
        assert!(parse_fake_cell("a:b:512:oom", &grid.cells().collect::<Vec<_>>()).is_err());
        assert!(parse_fake_cell("a:512:SKIP:oom", &grid.cells().collect::<Vec<_>>()).is_err());
    }

    proptest! {
        #[test]
        fn every_cell_can_be_faked_by_its_name(
            names in prop::collection::hash_set("[a-z:,\" ]{1,6}[a-z]", 1..5),
            lengths in prop::collection::hash_set(1u64..99_999, 1..4),
            pick in any::<prop::sample::Index>(),
        ) {
            let names: Vec<String> = names.into_iter().map(|name| name.trim().to_owned()).collect();
            prop_assume!(find_repeated(&names).is_empty());
            let models: Vec<ResolvedModel> = names.iter().map(|name| model(name)).collect();
            let grid = plan_grid(models, lengths.into_iter().collect()).unwrap();
            let cells: Vec<_> = grid.cells().collect();
            prop_assert_eq!(cells.len(), grid.cell_count());
            let cell = pick.get(&cells);
            let fakes = parse_fake_ooms(&format!("{}:{}", cell.model.name, cell.len), &grid.cells().collect::<Vec<_>>()).unwrap();
            prop_assert_eq!(fakes.len(), 1);
            prop_assert_eq!((&fakes[0].model, fakes[0].len), (&cell.model.name, cell.len));
        }
    }
}
